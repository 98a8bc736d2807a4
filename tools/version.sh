#!/usr/bin/env bash
# version.sh   prints the version of this tree as packages have it, in an order that
# dpkg and rpm understand: 1.2.0~rc.1 < 1.2.0 < 1.2.0+5.gabc1234 (five commits later).
# Before the first tag it is 0.0.0~ and the commit's time, so that a later one is newer.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if tag=$(git describe --tags --match 'v[0-9]*' 2>/dev/null); then
  version=${tag#v}
  if [[ $version =~ ^(.*)-([0-9]+)-(g[0-9a-f]+)$ ]]; then
    version="${BASH_REMATCH[1]}+${BASH_REMATCH[2]}.${BASH_REMATCH[3]}"
  fi
  version=${version//-/\~}
else
  version="0.0.0~$(TZ=UTC git log -1 --date=format-local:%Y%m%d%H%M%S --format=%cd.g%h)"
fi
if [[ $(git status --porcelain) ]]; then version+="+dirty"; fi
echo "$version"
