#!/usr/bin/env bash
# python.sh VENV   makes a virtual environment, unless it is there; PYTHON says of which Python
set -euo pipefail

[[ -x "$1/bin/pip" ]] && exit 0
need="$(dirname "$(realpath "$0")")/../../../../tools/need.sh"
python=${PYTHON:-python3}
"$need" "$python=python3" >&2
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))'; then
  echo "$("$python" --version) is too old: Python 3.9 or later is needed. PYTHON=… names another one." >&2
  exit 1
fi
# Debian has venv and pip in a package of their own, with no program that tells whether it is there.
"$python" -c 'import venv, ensurepip' 2>/dev/null || "$need" venv-and-ensurepip=python3-venv >&2
"$python" -m venv "$1"
