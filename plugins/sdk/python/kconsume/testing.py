"""For tests of handlers: runs one on records that the test makes, over a real gRPC
connection in this process, and shows its verdicts.

    from kconsume.testing import record, run

    def test_no_amount():
        v = run(handle, record(json={"id": 7}))
        v.assert_permanent("no amount")

    def test_two():
        first, second = run(handle, record(b"1"), record(b"2"))
"""

from __future__ import annotations

import json as _json
import os
import queue
import tempfile
import threading
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import grpc

from . import _wire as wire
from ._classify import Classifier
from ._handler import configure
from ._message import Bytes, Header, _set
from ._server import make_server

_CLASSES = {wire.ACK: "ack", wire.TRANSIENT: "transient", wire.PERMANENT: "permanent", wire.DROP: "drop"}


class Emitted(NamedTuple):
    """A record that a handler emitted."""

    topic: str
    key: Optional[bytes]
    value: Optional[bytes]
    headers: List[Header]


class Verdict(NamedTuple):
    """What became of a record."""

    class_: str  # ack, transient, permanent, drop; none: it was handed back or cancelled
    reason: str  # transient, permanent, poison, panic, timeout
    rule: str  # what told the class: explicit, network, …
    code: str
    message: str
    retry_after: float  # seconds, 0: no wish
    causes: List[str]
    stack: str
    emitted: List[Emitted]
    late: bool  # the call still ran when its deadline had passed

    def assert_ack(self) -> None:
        self._assert("ack", "")

    def assert_transient(self, message: str = "", *, retry_after: Optional[float] = None) -> None:
        self._assert("transient", message)
        if retry_after is not None and retry_after != self.retry_after:
            raise AssertionError(f"retry_after is {self.retry_after}, not {retry_after}: {self}")

    def assert_permanent(self, message: str = "", *, reason: Optional[str] = None) -> None:
        self._assert("permanent", message)
        if reason is not None and reason != self.reason:
            raise AssertionError(f"the reason is {self.reason}, not {reason}: {self}")

    def assert_drop(self, message: str = "") -> None:
        self._assert("drop", message)

    def _assert(self, class_: str, message: str) -> None:
        if self.class_ != class_ or message not in self.message:
            raise AssertionError(f"expected {class_} with a message that contains {message!r}, got {self}\n{self.stack}")


def record(
    value: Bytes = None,
    *,
    key: Bytes = None,
    json: Any = None,
    headers: Iterable[Tuple[str, Bytes]] = (),
    topic: str = "test",
    partition: int = 0,
    offset: int = 0,
    time_ms: int = 1_700_000_000_000,
    attempt: int = 1,
    max_attempts: int = 3,
    stage: str = "main",
    timeout: float = 0.0,
) -> Any:
    """A record for run. json is a value to be encoded; timeout is the delivery's deadline in
    seconds, 0: none."""
    r = wire.Record(
        topic=wire.encode(topic),
        partition=partition,
        offset=offset,
        time_ms=time_ms,
        id=f"{topic}/{partition}/{offset}@{time_ms}".encode("utf-8", "surrogateescape"),
        attempt=attempt,
        max_attempts=max_attempts,
        stage=wire.encode(stage),
        deadline_ms=int(timeout * 1000),
    )
    _set(r, "key", key)
    _set(r, "value", _json.dumps(json) if json is not None else value)
    for name, v in headers:
        _set(r.headers.add(key=wire.encode(name)), "value", v)
    return r


def run(handle: Callable[[Any], Any], *records: Any, classifiers: Sequence[Classifier] = ()) -> Any:
    """The verdict on one record, or a list of them on several."""
    with Host(handle, classifiers=classifiers) as host:
        verdicts = host.answers(host.deliver(*records))
    return verdicts[0] if len(records) == 1 else verdicts


class Host:
    """Stands for kconsume. Used with "with": at its end the handler is drained."""

    def __init__(
        self,
        handle: Callable[[Any], Any],
        *,
        concurrency: int = 64,
        classifiers: Sequence[Classifier] = (),
        close: Optional[Callable[[], Any]] = None,
        patience: float = 60.0,
    ) -> None:
        self._config = configure(handle, "test", "0", (), classifiers, close)
        self._concurrency = concurrency
        self._patience = patience
        self._frames: queue.SimpleQueue[Any] = queue.SimpleQueue()  # None ends our side
        self._handles = 0
        self._draining = False
        self._changed = threading.Condition()
        # What follows is guarded by _changed.
        self._answers: Dict[int, Verdict] = {}
        self._ended: Dict[int, bool] = {}
        self._over: Optional[str] = None  # how the stream ended
        self.frames = 0

    def __enter__(self) -> Host:
        self._folder = tempfile.TemporaryDirectory(prefix="kc")
        at = "unix:" + os.path.join(self._folder.name, "s")
        self._server = make_server(self._config, lambda: None)
        self._server.add_insecure_port(at)
        self._server.start()
        limits = [("grpc.max_receive_message_length", wire.MAX_FRAME_BYTES), ("grpc.max_send_message_length", -1)]
        self._channel = grpc.insecure_channel(at, options=limits)
        call = self._channel.stream_stream(
            f"/{wire.SERVICE}/Deliver", wire.HostFrame.SerializeToString, wire.PluginFrame.FromString
        )
        self._frames.put(wire.HostFrame(start=wire.Start(concurrency=self._concurrency)))
        self._stream = call(iter(self._frames.get, None))
        self.hello = next(self._stream).hello
        self._receiver = threading.Thread(target=self._receive, daemon=True)
        self._receiver.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.drain()
        self._wait(lambda: self._over is not None)
        self._receiver.join()
        self._channel.close()
        self._server.stop(None).wait()
        self._folder.cleanup()

    def deliver(self, *records: Any) -> List[int]:
        """Sends records in one frame and returns their handles."""
        frame = wire.HostFrame()
        first = self._handles + 1
        for r in records:
            self._handles += 1
            sent = frame.records.add()
            sent.CopyFrom(r)
            sent.handle = self._handles
        self._frames.put(frame)
        return list(range(first, self._handles + 1))

    def cancel(self, handles: Iterable[int]) -> None:
        self._frames.put(wire.HostFrame(cancel=handles))

    def drain(self) -> None:
        """Asks the handler to answer what it has, and to end."""
        if not self._draining:
            self._draining = True
            self._frames.put(wire.HostFrame(drain=True))
            self._frames.put(None)

    def answers(self, handles: Sequence[int]) -> List[Verdict]:
        """Waits for the answers."""
        self._wait(lambda: all(h in self._answers for h in handles))
        return [self._answers[h] for h in handles]

    def answer(self, handle: int) -> Verdict:
        """Waits for one answer."""
        return self.answers([handle])[0]

    def answered(self, handle: int) -> bool:
        with self._changed:
            return handle in self._answers

    def end(self, handle: int) -> None:
        """Waits for the end of a late call."""
        self._wait(lambda: handle in self._ended)

    def _wait(self, holds: Callable[[], bool]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: holds() or self._over is not None, self._patience)
            if not holds():
                raise AssertionError(f"the handler does not answer ({self._over or f'within {self._patience:g} s'})")

    def _receive(self) -> None:
        over = "it has ended"
        try:
            for frame in self._stream:
                with self._changed:
                    self._take(frame)
                    self._changed.notify_all()
        except grpc.RpcError as e:
            over = str(e)
        with self._changed:
            self._over = over
            self._changed.notify_all()

    def _take(self, frame: Any) -> None:
        self.frames += 1
        found: Iterator[Tuple[int, Verdict]] = ((h, _ACKED) for h in frame.acked)
        for h, v in [*found, *((v.handle, _verdict(v)) for v in frame.verdicts)]:
            if h in self._answers:
                self._over = f"{h} is answered twice"
            self._answers[h] = v
        for h in frame.ended:
            if h in self._ended or h not in self._answers or not self._answers[h].late:
                self._over = f"{h} has ended, but was not late, or twice"
            self._ended[h] = True


_ACKED = Verdict("ack", "", "", "", "", 0.0, [], "", [], False)


def _verdict(v: Any) -> Verdict:
    return Verdict(
        class_=_CLASSES.get(v.class_, "none"),
        reason=wire.text(v.reason),
        rule=wire.text(v.rule),
        code=wire.text(v.code),
        message=v.message.decode("utf-8", "replace"),
        retry_after=v.retry_after_ms / 1000,
        causes=[c.decode("utf-8", "replace") for c in v.causes],
        stack=v.stack.decode("utf-8", "replace"),
        emitted=[_emitted(e) for e in v.emitted],
        late=v.late,
    )


def _emitted(e: Any) -> Emitted:
    return Emitted(
        wire.text(e.topic),
        e.key if e.HasField("key") else None,
        e.value if e.HasField("value") else None,
        [Header(wire.text(h.key), h.value if h.HasField("value") else None) for h in e.headers],
    )
