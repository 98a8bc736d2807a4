"""TLS on the socket, where kconsume wants it."""

from __future__ import annotations

import os
import stat
from typing import Optional

import grpc

KEY = "KCONSUME_TLS_FD"
_MAX_BYTES = 4 << 10
_BEGIN = b"-----BEGIN "


def credentials() -> Optional[grpc.ServerCredentials]:
    """How to serve TLS; None where kconsume does not want it. What the environment says is
    taken out of it: it is true for this process only. The pipe holds our certificate, its
    key, and the only certificate that is accepted from a client, in PEM."""
    word = os.environ.pop(KEY, None)
    if word is None:
        return None
    try:
        fd = int(word)
        if not stat.S_ISFIFO(os.fstat(fd).st_mode):
            raise ValueError("not a pipe")
    except (OSError, ValueError) as e:
        raise OSError(f"find the certificates for TLS: {KEY}={word!r}: {e}; start the handler with kconsume") from e
    with os.fdopen(fd, "rb") as pipe:
        text = pipe.read(_MAX_BYTES + 1)
    blocks = [_BEGIN + b for b in text.split(_BEGIN)[1:]]
    if len(text) > _MAX_BYTES or len(blocks) != 3:
        raise OSError("read the certificates for TLS: not a certificate, a key and a certificate; start the handler with a matching kconsume")
    own, key, client = blocks
    return grpc.ssl_server_credentials([(key, own)], root_certificates=client, require_client_auth=True)
