"""The pipe whose end tells that kconsume is gone.

This module is loaded before gRPC: without a lifeline its descriptor would soon be
somebody else's.
"""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import threading

FD = 3


def _is_pipe() -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(FD).st_mode)
    except OSError:
        return False


_given = _is_pipe()


def watch(socket: str) -> None:
    """Ends the process, and what it has started, when kconsume closes its end of the pipe or
    has ended. The thread needs the interpreter's lock, which C code may keep; SIGIO needs
    nothing: the system sends it to the whole group, and it ends who does not handle it."""
    if not _given:
        raise OSError(f"find the lifeline: descriptor {FD} is not a pipe; start the handler with kconsume")
    os.set_inheritable(FD, False)
    leads = os.getpgrp() == os.getpid()  # a group of its own, as kconsume starts handlers

    def wait() -> None:
        try:
            while os.read(FD, 1):
                pass
        except OSError:
            pass  # however it ends, the host is gone
        try:
            os.unlink(socket)
        except OSError:
            pass
        if leads:
            os.killpg(os.getpid(), signal.SIGTERM)  # which serve has made harmless for this process
        os._exit(0)

    threading.Thread(target=wait, name="kconsume-lifeline", daemon=True).start()
    if hasattr(os, "O_ASYNC"):
        signal.signal(signal.SIGIO, signal.SIG_DFL)
        fcntl.fcntl(FD, fcntl.F_SETOWN, -os.getpid() if leads else os.getpid())
        fcntl.fcntl(FD, fcntl.F_SETFL, fcntl.fcntl(FD, fcntl.F_GETFL) | os.O_ASYNC)
