#!/usr/bin/env bash
# package.sh [DIST [ARCH...]]   makes deb and rpm in DIST (dist/) for each ARCH (amd64
# and arm64), and SHA256SUMS. Two runs on one commit make the same files, wherever
# they run. VERSION and SOURCE_DATE_EPOCH override what the commit says.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tools/toolchain.sh

dist=${1:-dist}
arches=("${@:2}")
((${#arches[@]})) || arches=(amd64 arm64)
# All times in the packages are the commit's.
SOURCE_DATE_EPOCH=$(tools/epoch.sh)
VERSION=${VERSION:-$(tools/version.sh)}
export SOURCE_DATE_EPOCH VERSION
umask 022
stage=build/package # packaging/nfpm.yaml names it
rm -rf "$stage" "$dist"/kconsume*.deb "$dist"/kconsume*.rpm
mkdir -p "$stage/man" "$stage/completion" "$dist"

go -C tools build -o ../build/nfpm github.com/goreleaser/nfpm/v2/cmd/nfpm

host=$(go env GOHOSTARCH)
mapfile -t builds < <(printf '%s\n' "${arches[@]}" "$host" | sort -u)
tools/binaries.sh "${builds[@]}"

# What the program itself writes, by one that runs here.
program=build/release/$host/kconsume
for page in $("$program" man); do
  "$program" man "$page" | gzip -9n >"$stage/man/$page.gz"
done
for shell in bash zsh fish; do
  "$program" completion "$shell" >"$stage/completion/$shell"
done
gzip -9nc CHANGELOG.md >"$stage/changelog.gz"
cat >"$stage/changelog.yaml" <<EOF
- semver: "$VERSION-1"
  date: $(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
  packager: kconsume maintainers <maintainers@kconsume.example>
  deb: {urgency: medium, distributions: [stable]}
  changes:
    - note: "Version $VERSION; changelog.gz tells what is new."
EOF

for ARCH in "${arches[@]}"; do
  export ARCH
  build/nfpm package --config packaging/nfpm.yaml --packager deb --target "$dist/"
  build/nfpm package --config packaging/nfpm.yaml --packager rpm --target "$dist/"
done
cd "$dist"
sha256sum -- kconsume* >SHA256SUMS
