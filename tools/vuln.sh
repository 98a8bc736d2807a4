#!/usr/bin/env bash
# vuln.sh PACKAGE...   known vulnerabilities in what these packages call, by govulncheck. The database is
# the Go project's, as the newest version of its own module has it: no other host is asked.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tools/toolchain.sh

go -C tools build -o ../build/govulncheck golang.org/x/vuln/cmd/govulncheck
# Not in this module: the database is no part of it.
read -r version dir < <(cd / && go mod download -json golang.org/x/vulndb@latest | jq -r '.Version + " " + .Dir')
echo "database: golang.org/x/vulndb $version, $(find "$dir/data/osv" -name '*.json' | wc -l) reports"
build/govulncheck -db "file://$dir/data/osv" "$@"
