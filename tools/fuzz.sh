#!/usr/bin/env bash
# fuzz.sh TIME   runs every fuzz target for that long, one after another
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

go list ./... | while read -r package; do
  { go test -list '^Fuzz' "$package" | grep '^Fuzz' || true; } | while read -r target; do
    echo "$package $target"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$1" "$package" </dev/null
  done
done
