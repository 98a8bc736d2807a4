#!/usr/bin/env bash
# check.sh PACKAGE...   all tests, summed up at the end: those packages with the race detector,
# then what runs on real Kafka; each test starts what it needs itself
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

go -C tools build -o ../build/testsum ./testsum

suites() {
  local failed=0
  go -C tools test -json ./... || failed=1
  go -C test/kubernetes test -json ./... || failed=1
  go test -json -race -timeout 20m "$@" || failed=1
  # Two packages at a time: each has a Kafka of its own, and mostly waits.
  go test -json -count=1 -p 2 -timeout 30m ./test/... || failed=1
  return $failed
}
suites "$@" | build/testsum
