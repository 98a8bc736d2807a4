#!/usr/bin/env bash
# setup.sh OUT   puts the conformance handler, with an environment of its own, into OUT
set -euo pipefail

out=$(realpath "$1")
cd "$(dirname "$(realpath "$0")")"

../tools/python.sh "$out/venv"
# A copy: pip would leave its traces in the source.
mkdir "$out/src"
cp -r ../kconsume ../pyproject.toml ../README.md "$out/src"
"$out/venv/bin/pip" --disable-pip-version-check install --quiet "$out/src"
cp handler.py "$out/handler.py"
cat >"$out/kconsume-handler-conformance" <<END
#!/bin/sh
exec '$out/venv/bin/python' '$out/handler.py' "\$@"
END
chmod 0755 "$out/kconsume-handler-conformance"
