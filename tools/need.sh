#!/usr/bin/env bash
# need.sh PROGRAM=PACKAGE...   installs by apt-get the packages of the programs that are missing
set -euo pipefail

packages=()
for need in "$@"; do
  command -v "${need%%=*}" >/dev/null || packages+=("${need#*=}")
done
((${#packages[@]})) || exit 0

root=()
if ((EUID != 0)); then root=(sudo -n); fi
export DEBIAN_FRONTEND=noninteractive
if ! { command -v apt-get && "${root[@]}" true; } >/dev/null 2>&1 ||
  ! "${root[@]}" apt-get -qq update ||
  ! "${root[@]}" apt-get -qq install -y --no-install-recommends "${packages[@]}" >/dev/null; then
  echo "Missing and not installable from here: ${packages[*]}" >&2
  echo "Get them with: sudo apt-get update && sudo apt-get install ${packages[*]}" >&2
  exit 1
fi
echo "installed ${packages[*]}"
