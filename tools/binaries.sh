#!/usr/bin/env bash
# binaries.sh   builds kconsume as it is shipped, for each architecture, to build/release/ARCH/kconsume:
# the same bytes that package.sh packs
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tools/toolchain.sh

version=${VERSION:-$(tools/version.sh)}
for arch in amd64 arm64; do
  GOOS=linux GOARCH=$arch CGO_ENABLED=0 go build -trimpath -buildvcs=true -ldflags "-s -w -X main.version=$version" \
    -o "build/release/$arch/kconsume" ./cmd/kconsume
done
