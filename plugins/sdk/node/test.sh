#!/bin/sh
# test.sh OUT   runs the SDK's own tests and type check, in a copy that it keeps in OUT
set -eu
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")"
sdk=$out/plugins/sdk/node
mkdir -p "$sdk" "$out/plugin/proto"
for part in lib test example; do
	rm -rf "${sdk:?}/$part"
	cp -r "$part" "$sdk/"
done
cp package.json package-lock.json handler.proto "$sdk/"
cp ../../../plugin/proto/handler.proto "$out/plugin/proto/"
cd "$sdk"
if ! cmp -s package-lock.json installed.json; then
	npm ci --silent --no-audit --no-fund
	cp package-lock.json installed.json
fi
npm run --silent types
npm test --silent
