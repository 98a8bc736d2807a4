#!/usr/bin/env bash
# schemathesis.sh DIR   installs Schemathesis into a Python environment in DIR, if it is not there
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
version=4.32.5

[[ -x $1/bin/st && "$("$1/bin/st" --version)" == *"$version" ]] && exit 0
rm -rf "$1"
plugins/sdk/python/tools/python.sh "$1" >/dev/null
"$1/bin/pip" --disable-pip-version-check install --quiet "schemathesis==$version"
