#!/usr/bin/env bash
# test.sh OUT   runs the SDK's own tests and type check, in an environment that it keeps in OUT
set -euo pipefail

out=$(realpath "$1")
cd "$(dirname "$(realpath "$0")")"
tools/python.sh "$out/venv"
# The libraries are those that pyproject.toml names; the SDK itself is used where it lies.
wanted=$(sha256sum pyproject.toml)
if [[ "$(cat "$out/installed" 2>/dev/null)" != "$wanted" ]]; then
  "$out/venv/bin/python" - >"$out/requirements.txt" <<'END'
import re
text = open("pyproject.toml").read()
for name in ("dependencies", "test"):
    print(*re.findall(r'"([^"]+)"', re.search(rf"^{name} = \[(.*)\]$", text, re.M).group(1)), sep="\n")
END
  "$out/venv/bin/pip" --disable-pip-version-check install --quiet --requirement "$out/requirements.txt"
  echo "$wanted" >"$out/installed"
fi
export PYTHONDONTWRITEBYTECODE=1
"$out/venv/bin/mypy" --cache-dir "$out/mypy"
"$out/venv/bin/python" -m unittest discover -t . -s tests
