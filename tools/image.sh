#!/usr/bin/env bash
# image.sh [DIST]   writes the container image for amd64 and arm64 to DIST (dist/), as the folder oci and
# as a tar file, and prints its digest. Two runs on one commit write the same, wherever they run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tools/toolchain.sh

dist=${1:-dist}
version=${VERSION:-$(tools/version.sh)}
tag=${version//[^a-zA-Z0-9_.-]/-} # what a tag may hold
tools/binaries.sh
rm -rf "$dist"/kconsume_*_oci.tar
mkdir -p "$dist"
go -C tools build -o ../build/ociimage ./ociimage
build/ociimage -version "$tag" -commit "$(git rev-parse HEAD)" -time "$(tools/epoch.sh)" -license LICENSE \
  -layout "$dist/oci" -tar "$dist/kconsume_${tag}_oci.tar" \
  amd64=build/release/amd64/kconsume arm64=build/release/arm64/kconsume
