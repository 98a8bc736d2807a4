#!/usr/bin/env bash
# sbom.sh [DIST]   writes to DIST (dist/) what the binaries are made of, with licenses, as CycloneDX, and
# compares it with what the linker wrote into them
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tools/toolchain.sh

dist=${1:-dist}
version=${VERSION:-$(tools/version.sh)}
tools/binaries.sh
rm -f "$dist"/kconsume_*.cdx.json
mkdir -p "$dist"
# The document names its tool by checksum: -trimpath makes that one the same everywhere.
go -C tools build -trimpath -buildvcs=false -o ../build/cyclonedx-gomod github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod
for arch in amd64 arm64; do
  out=$dist/kconsume_${version}_linux_$arch.cdx.json
  # Quiet about the one module that has no license file: Go's own library.
  GOOS=linux GOARCH=$arch CGO_ENABLED=0 build/cyclonedx-gomod app -json -licenses -assert-licenses -std \
    -noserial -notimestamp -main cmd/kconsume -output "$out" . 2>&1 | { grep -v 'no licenses detected.*std@' || true; }
  diff <(jq -r '.components[] | select(.name != "std") | .name + " " + .version' "$out" | LC_ALL=C sort) \
    <(go version -m "build/release/$arch/kconsume" | awk '$1 == "dep" {print $2, $3}' | LC_ALL=C sort) ||
    { echo "sbom.sh: $out does not list what is in build/release/$arch/kconsume" >&2; exit 1; }
  echo "$out: $(jq '.components | length' "$out") components"
done
