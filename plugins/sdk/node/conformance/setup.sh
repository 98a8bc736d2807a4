#!/bin/sh
# setup.sh OUT: builds the conformance handler in the empty directory OUT.
set -eu
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
for tool in node npm; do
	command -v "$tool" >/dev/null || { echo "setup.sh: $tool is missing: install Node.js 18 or newer" >&2; exit 1; }
done
sdk=$out/node_modules/@kconsume/handler
mkdir -p "$sdk"
cp -r package.json package-lock.json lib handler.proto "$sdk"
(cd "$sdk" && npm ci --omit=dev --silent --no-audit --no-fund) >&2
cp conformance/handler.js "$out/"
cat >"$out/kconsume-handler-conformance" <<END
#!/bin/sh
exec node '$out/handler.js' "\$@"
END
chmod 0755 "$out/kconsume-handler-conformance"
