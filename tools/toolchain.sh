# toolchain.sh   to be sourced: the Go that builds what is shipped, the same everywhere and without known
# vulnerabilities (make vuln tells when there is a newer one to take); this machine's where that cannot be had
shipped=go1.26.10
if GOTOOLCHAIN=$shipped go version >/dev/null 2>&1; then
  export GOTOOLCHAIN=$shipped
else
  echo "toolchain.sh: $shipped cannot be had: built with $(go env GOVERSION), so other machines may build other bytes" >&2
fi
