#!/usr/bin/env bash
# echarts.sh DIR   installs the chart library below DIR, if it is not there, and prints its script's path
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
version=6.1.0

tools/need.sh node=nodejs npm=npm >&2
file=$1/node_modules/echarts/dist/echarts.min.js
if ! grep -qs "\"version\": \"$version\"" "$1/node_modules/echarts/package.json"; then
  mkdir -p "$1"
  npm install --silent --no-audit --no-fund --no-save --prefix "$1" "echarts@$version" >&2
fi
echo "$file"
