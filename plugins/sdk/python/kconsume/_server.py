"""The handler's end of the wire."""

from __future__ import annotations

import sys
import threading
import traceback
from concurrent import futures
from typing import Any, Callable, Iterator, List

import grpc

from . import _wire as wire
from ._handler import Config
from ._pool import Answers, Pool

_DEFAULT_CONCURRENCY = 64

# A stream keeps its thread for life: Deliver, Control, and some to spare.
_STREAMS = 8

# How long close may take, in seconds.
_CLOSE_BOUND = 3


def make_server(config: Config, shutdown: Callable[[], None]) -> grpc.Server:
    """A server without an address. shutdown is called when the host asks for the end."""
    server = grpc.server(
        futures.ThreadPoolExecutor(_STREAMS, thread_name_prefix="kconsume-stream"),
        options=[
            ("grpc.max_receive_message_length", wire.MAX_FRAME_BYTES),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
        ],
    )

    def end(_request: bytes, _context: grpc.ServicerContext) -> bytes:
        shutdown()
        return b""

    stream, unary = grpc.stream_stream_rpc_method_handler, grpc.unary_unary_rpc_method_handler
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(
                wire.SERVICE,
                {
                    "Deliver": stream(
                        lambda frames, context: _deliver(config, frames, context),
                        wire.HostFrame.FromString,
                        wire.PluginFrame.SerializeToString,
                    ),
                    "Control": stream(_control),  # beats go back as the bytes they are
                },
            ),
            # What go-plugin asks for: the end, and whether we serve (1: we do).
            grpc.method_handlers_generic_handler("plugin.GRPCController", {"Shutdown": unary(end)}),
            grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": unary(lambda _r, _c: b"\x08\x01")}),
        )
    )
    return server


def _control(beats: Iterator[bytes], _context: grpc.ServicerContext) -> Iterator[bytes]:
    return beats


def _deliver(config: Config, frames: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
    """Answers what the host sends, until the host asks for a drain, ends its side, or is
    gone. This thread sends, another receives."""
    yield wire.PluginFrame(hello=config.hello())
    try:
        first = next(frames)
    except StopIteration:
        return
    concurrency = first.start.concurrency or _DEFAULT_CONCURRENCY
    pool = Pool(
        config.handle,
        threads=min(config.threads, concurrency),
        max_late=concurrency,
        batch=config.batch,
        classifiers=config.classifiers,
    )
    try:
        # When the host is gone nobody waits for answers, whatever else goes on.
        if not context.add_callback(pool.close):
            return
        threading.Thread(target=_receive, args=(pool, first, frames), name="kconsume-receive", daemon=True).start()
        del first  # or an idle stream keeps its bytes
        while True:
            answers = pool.take()
            if answers is None:
                break
            yield from _frames(answers)
    finally:
        pool.close()
    if pool.drained and config.close is not None:
        _goodbye(config.close)


def _goodbye(close: Callable[[], Any]) -> None:
    def run() -> None:
        try:
            close()
        except BaseException:
            traceback.print_exc()

    t = threading.Thread(target=run, name="kconsume-close", daemon=True)
    t.start()
    t.join(_CLOSE_BOUND)
    if t.is_alive():
        print(f"close is not back after {_CLOSE_BOUND} s: the process ends without it", file=sys.stderr)


def _receive(pool: Pool, frame: Any, frames: Iterator[Any]) -> None:
    while True:
        if frame.records:
            pool.deliver(frame.records)
        if frame.cancel:
            pool.cancel(frame.cancel)
        if frame.drain:
            break
        frame = None
        try:
            frame = next(frames)
        except StopIteration:  # the host has ended its side
            break
        except Exception:  # the stream is broken: gRPC calls pool.close
            return
    pool.drain()


def _frames(a: Answers) -> Iterator[Any]:
    """What was answered, in more than one frame where it is much. Verdicts go before
    ended: a handle is never in ended before its answer."""
    if not a.verdicts:
        yield wire.PluginFrame(acked=a.acked, ended=a.ended)
        return
    acked: List[int] = a.acked
    verdicts: List[Any] = []
    size = 0
    for v in a.verdicts:
        n = v.ByteSize()
        if verdicts and size + n > wire.FRAME_BYTES:
            yield wire.PluginFrame(acked=acked, verdicts=verdicts)
            acked, verdicts, size = [], [], 0
        verdicts.append(v)
        size += n
    yield wire.PluginFrame(acked=acked, verdicts=verdicts, ended=a.ended)
