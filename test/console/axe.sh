#!/usr/bin/env bash
# axe.sh DIR   installs axe-core below DIR, if it is not there, and prints its script's path
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
version=4.14.1

tools/need.sh node=nodejs npm=npm >&2
file=$1/node_modules/axe-core/axe.min.js
if ! grep -qs "\"version\": \"$version\"" "$1/node_modules/axe-core/package.json"; then
  mkdir -p "$1"
  npm install --silent --no-audit --no-fund --no-save --prefix "$1" "axe-core@$version" >&2
fi
echo "$file"
