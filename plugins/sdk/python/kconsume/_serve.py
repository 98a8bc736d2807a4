"""The process: what it is to kconsume, which started it, and to a person who starts it."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from typing import Any, Callable, NoReturn, Optional, Sequence, Union

from . import _lifeline, _tls
from . import _wire as wire
from ._classify import Classifier
from ._handler import Config, configure
from ._server import make_server

# Exit statuses, as in sysexits.h.
_USAGE = 64
_SOFTWARE = 70

# What a unix socket's path may have, in bytes.
_PATH_LIMIT = 107


def serve(
    handle: Optional[Callable[[Any], Any]] = None,
    *,
    name: str,
    version: str = "",
    topics: Union[str, Sequence[str]] = (),
    classifiers: Sequence[Classifier] = (),
    close: Optional[Callable[[], Any]] = None,
) -> NoReturn:
    """Serves the function with @handler, or the one given, to the kconsume that started
    this process. It is the program's last call and never returns: it ends the process,
    at the latest when kconsume has ended. What is printed from here on goes to
    kconsume's log. Interrupts and SIGTERM are left to kconsume, which drains the handler
    before it stops it.

    name is what --handler calls it; topics are those that it is made for, for people to
    read. classifiers tell what exceptions mean that say it neither themselves nor by
    their type: each gets the exception and returns a Transient, Permanent, Poison or
    Drop, or None where it has no opinion. close is called once, when kconsume has asked
    for the end and the last record is answered: to flush and to say goodbye. It has 3 s,
    and is not called where the process is cut off, so nothing may depend on it.
    """
    try:
        config = configure(handle, name, version, topics, classifiers, close)
    except (TypeError, ValueError) as e:
        _fail(name, str(e))
    if os.environ.get(wire.COOKIE_KEY) != wire.COOKIE_VALUE:
        sys.stderr.write(usage(config, sys.argv[0]))
        _exit(_USAGE)
    try:
        out = _take_stdout()
        for number in (signal.SIGINT, signal.SIGTERM):
            # A handler of ours rather than SIG_IGN, which programs that we start would inherit.
            signal.signal(number, lambda _number, _frame: None)
        path = _socket_path()
        _lifeline.watch(path)
        _serve(config, path, out)
    except Exception as e:
        _fail(name, f"{type(e).__name__}: {e}")
    _exit(0)


def _exit(status: int) -> NoReturn:
    """Ends the process, whatever its threads are doing."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(status)


def _fail(name: str, why: str) -> NoReturn:
    print(f"serve handler {name!r}: {why}", file=sys.stderr)
    _exit(_SOFTWARE)


def usage(config: Config, file: str) -> str:
    """What a person reads who starts a handler by hand."""
    name, topic = config.name, config.topics[0] if config.topics else "TOPIC"
    about = " for " + ", ".join(config.topics) if config.topics else ""
    file = file if os.sep in file else "./" + file
    return f"""{name} {config.version} is a kconsume handler{about}. It does nothing by itself: kconsume starts it.

Install it:   install -m 0755 {file} /usr/local/libexec/kconsume/handlers/kconsume-handler-{name}
Run it:       kconsume run --brokers HOST:9092 --group GROUP --topic {topic} --handler {name}
Try it out:   kconsume dev --handler {file}
Inspect it:   kconsume plugin inspect {file}
"""


def _take_stdout() -> int:
    """Keeps stdout for the handshake: what is printed, now and by C code too, goes to
    stderr, a line at a time. What was printed before and is not written yet goes there,
    too: it must not stand before the handshake in its line."""
    out = os.dup(1)
    os.dup2(2, 1)
    if sys.stdout is not None:
        sys.stdout.flush()
        if hasattr(sys.stdout, "reconfigure"):
            # What is printed may hold anything, half a surrogate pair included.
            sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")
    return out


def _socket_path() -> str:
    folder = os.environ.get(wire.SOCKET_DIR_KEY) or tempfile.mkdtemp(prefix="kconsume")
    path = os.path.join(folder, f"h{os.getpid()}")
    over = len(os.fsencode(path)) - _PATH_LIMIT
    if over > 0:
        raise ValueError(f"{folder} is {over} bytes too long for a unix socket in it: use a shorter runtime directory")
    return path


def _serve(config: Config, path: str, out: int) -> None:
    end = threading.Event()
    server = make_server(config, end.set)
    tls = _tls.credentials()
    at = "unix:" + path
    if (server.add_secure_port(at, tls) if tls else server.add_insecure_port(at)) == 0:
        raise OSError(f"listen on {path}: see whether its folder exists and may be written")
    server.start()
    # go-plugin's: its own protocol's version, ours, the address and the kind of RPC.
    os.write(out, f"1|{wire.PROTOCOL_VERSION}|unix|{path}|grpc|\n".encode("utf-8", "surrogateescape"))
    os.close(out)
    end.wait()
    server.stop(grace=0.2).wait()
