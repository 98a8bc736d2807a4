#!/bin/sh
# test.sh OUT   runs the tests of the SDK and of its example, in a copy that it keeps in OUT
set -eu
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")"
for part in handler example/orders conformance; do
	mkdir -p "$out/$part"
	rm -rf "${out:?}/$part/src"
	cp -r "$part/pom.xml" "$part/src" "$out/$part/"
done
cp pom.xml "$out/"
mvn -q -B -f "$out/pom.xml" verify
