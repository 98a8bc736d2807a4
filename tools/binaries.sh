#!/usr/bin/env bash
# binaries.sh [ARCH...]   builds what is shipped for each ARCH (amd64 and arm64) to build/release/ARCH, the
# same bytes for packages, image and bill of materials
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tools/toolchain.sh

arches=("$@")
((${#arches[@]})) || arches=(amd64 arm64)
version=${VERSION:-$(tools/version.sh)}

# build ARCH PACKAGE NAME   without the symbol tables, which nothing at run time needs
build() {
  GOOS=linux GOARCH=$1 CGO_ENABLED=0 go build -trimpath -buildvcs=true -ldflags "-s -w -X main.version=$version" -o "build/release/$1/$3" "$2"
}
for arch in "${arches[@]}"; do
  build "$arch" ./cmd/kconsume kconsume
  build "$arch" ./plugins/examples/orders kconsume-handler-orders
done
