#!/usr/bin/env bash
# epoch.sh   the time that everything shipped is dated by, in unix seconds: SOURCE_DATE_EPOCH, else
# that of the commit, so that two builds of one commit are one
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
echo "${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}"
