#!/usr/bin/env bash
# dist.sh [DIST]   makes everything that is shipped in DIST (dist/): packages, container image, what they
# are made of, and SHA256SUMS over all of it
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

dist=${1:-dist}
rm -rf "$dist"
tools/package.sh "$dist"
tools/image.sh "$dist"
tools/sbom.sh "$dist"
cd "$dist"
# The folder oci is in the tar file, and each file in it is named by its checksum.
find . -type f ! -path './oci/*' ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' sha256sum >SHA256SUMS
