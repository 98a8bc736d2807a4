"""What a handler gets."""

from __future__ import annotations

import json
import threading
import time
from datetime import datetime, timedelta, timezone
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple, Union

from . import _wire as wire
from ._errors import Cancelled, Poison

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_FIRST = datetime.min.replace(tzinfo=timezone.utc)
_LAST = datetime.max.replace(tzinfo=timezone.utc)

Bytes = Union[bytes, bytearray, memoryview, str, None]


class Header(NamedTuple):
    """One header of a record. A name that is not UTF-8 holds what os.fsdecode
    would make of it; name.encode("utf-8", "surrogateescape") are its bytes."""

    name: str
    value: Optional[bytes]


class Call:
    """One call of the handler, for one record or for a batch. messages and late are
    guarded by the pool's lock."""

    __slots__ = ("messages", "deadline", "late", "_draining", "_stopped", "_event")

    def __init__(self, messages: List[Message], deadline: float, draining: threading.Event) -> None:
        self.messages = messages
        self.deadline = deadline  # by time.monotonic; 0 = none
        self.late = False  # answered, and runs on
        self._draining = draining
        self._stopped = False
        self._event: Optional[threading.Event] = None

    def expired(self) -> bool:
        return self.deadline > 0 and time.monotonic() >= self.deadline

    def stop(self) -> None:
        """Wakes who sleeps in the call: it is cancelled or its time is over."""
        self._stopped = True
        event = self._event
        if event is not None:
            event.set()

    def draining(self) -> bool:
        return self._draining.is_set()

    def stopped(self) -> bool:
        return self._stopped or self.expired()

    def sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        if self._event is None:
            self._event = threading.Event()  # before the look at _stopped, which stop sets first
        while not self.stopped():
            now = time.monotonic()
            if now >= until:
                return
            end = min(until, self.deadline) if self.deadline else until
            self._event.wait(end - now)
        raise Cancelled()


class Message:
    """One delivery of one record."""

    __slots__ = ("_record", "_call", "_due", "_cancelled", "_emitted")

    def __init__(self, record: Any) -> None:
        self._record = record
        self._call: Optional[Call] = None
        self._due = 0.0  # its own deadline, by time.monotonic; 0 = none, or not begun
        self._cancelled = False  # by the host
        self._emitted: Optional[List[Any]] = None

    def __repr__(self) -> str:
        return f"<Message {self.id} attempt {self.attempt} of {self.max_attempts}>"

    @property
    def id(self) -> str:
        """The same on every delivery and replay: origin topic/partition/offset@timestamp-ms."""
        return wire.text(self._record.id)

    @property
    def topic(self) -> str:
        """The origin, also when it is delivered from a retry topic."""
        return wire.text(self._record.topic)

    @property
    def partition(self) -> int:
        return self._record.partition

    @property
    def offset(self) -> int:
        return self._record.offset

    @property
    def key(self) -> Optional[bytes]:
        """None is null, which is not the same as b""."""
        r = self._record
        return r.key if r.HasField("key") else None

    @property
    def value(self) -> Optional[bytes]:
        """None is null, which is not the same as b""."""
        r = self._record
        return r.value if r.HasField("value") else None

    @property
    def headers(self) -> List[Header]:
        """The record's own, in order; names may repeat."""
        return [Header(wire.text(h.key), h.value if h.HasField("value") else None) for h in self._record.headers]

    def header(self, name: str) -> Optional[bytes]:
        """The value of the last header of this name; None too where there is none."""
        wanted = wire.encode(name)
        for h in reversed(self._record.headers):
            if h.key == wanted:
                return h.value if h.HasField("value") else None
        return None

    @property
    def time(self) -> datetime:
        """The record's timestamp, in UTC; see time_ms for times that no datetime holds."""
        try:
            return _EPOCH + timedelta(milliseconds=self._record.time_ms)
        except OverflowError:
            return _LAST if self._record.time_ms > 0 else _FIRST

    @property
    def time_ms(self) -> int:
        """The record's timestamp in ms since 1970; -1: it has none."""
        return self._record.time_ms

    @property
    def attempt(self) -> int:
        """1 on the first delivery, at most max_attempts."""
        return self._record.attempt

    @property
    def max_attempts(self) -> int:
        return self._record.max_attempts

    @property
    def stage(self) -> str:
        """"main", or the retry tier it came from, such as "retry.5s"."""
        return wire.text(self._record.stage)

    @property
    def trace(self) -> str:
        """The W3C traceparent that spans of the handler's own continue: that of this
        delivery's span where kconsume traces, else what the record's header says,
        unchecked. Empty where there is none."""
        return wire.text(self._record.trace or self.header("traceparent") or b"")

    @property
    def trace_state(self) -> str:
        """The W3C tracestate that goes with trace, mostly empty."""
        r = self._record
        return wire.text(r.trace_state if r.trace else self.header("tracestate") or b"")

    def json(self, **options: Any) -> Any:
        """The value decoded from JSON; options are those of json.loads. What cannot be
        decoded is a poison pill: Poison, which the handler lets pass."""
        value = self.value
        options.setdefault("parse_constant", _no_constant)
        try:
            return json.loads(value if value is not None else b"", **options)
        except (ValueError, RecursionError) as e:
            poison = Poison(f"decode JSON value of {len(value or b'')} bytes: {e or type(e).__name__}")
            poison.rule = "json"
            raise poison from e

    def emit(
        self,
        topic: str,
        key: Bytes = None,
        value: Bytes = None,
        headers: Union[Mapping[str, Bytes], Iterable[Tuple[str, Bytes]]] = (),
    ) -> None:
        """Queues a record that is sent once this delivery is acknowledged, and only
        then, to one of the topics that kconsume is told to allow (--emit). Texts are
        sent as UTF-8."""
        e = wire.Emit(topic=wire.encode(topic))
        _set(e, "key", key)
        _set(e, "value", value)
        for name, v in headers.items() if isinstance(headers, Mapping) else headers:
            _set(e.headers.add(key=wire.encode(name)), "value", v)
        if self._emitted is None:
            self._emitted = []
        self._emitted.append(e)

    @property
    def deadline(self) -> Optional[float]:
        """When the delivery's time is over, by time.monotonic(); None: never."""
        return self._call.deadline or None if self._call else None

    @property
    def remaining(self) -> Optional[float]:
        """Seconds until the deadline, at least 0; None: no deadline. Made for timeout=."""
        d = self.deadline
        return None if d is None else max(d - time.monotonic(), 0.0)

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the answer any more: kconsume has cancelled the
        delivery, or its deadline has passed."""
        return self._cancelled or self._call is not None and self._call.stopped()

    @property
    def draining(self) -> bool:
        """Whether kconsume has asked the process to finish what it has: before a stop, or
        because a new version takes over. A call need not heed it, and has the rest of its
        deadline. One that takes long may raise Cancelled then, which hands the record
        back: it is delivered again as the same attempt."""
        return self._call is not None and self._call.draining()

    def check(self) -> None:
        """Raises Cancelled if cancelled. For long work."""
        if self.cancelled:
            raise Cancelled()

    def sleep(self, seconds: float) -> None:
        """Sleeps; raises Cancelled as soon as the delivery is cancelled or its deadline has passed."""
        self.check()
        if self._call is not None:
            self._call.sleep(seconds)
        else:
            time.sleep(seconds)


class Batch:
    """What a batch handler gets: records that wait at the same time, in order. With
    --order key no two of them have the same key."""

    __slots__ = ("messages", "_call", "_failed")

    def __init__(self, call: Call) -> None:
        self.messages = list(call.messages)
        self._call = call
        self._failed: Dict[int, BaseException] = {}  # by the message's identity

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def __getitem__(self, i: int) -> Message:
        return self.messages[i]

    def fail(self, i: int, error: BaseException) -> None:
        """Says what becomes of messages[i], whatever the handler does; the last error
        counts. What the handler raises, or its return, is for all the others."""
        if not isinstance(error, BaseException):
            raise TypeError(f"fail record {i} of a batch: give an exception, such as Permanent(…), not {error!r}")
        self._failed[id(self.messages[i])] = error

    @property
    def deadline(self) -> Optional[float]:
        """When the call's time is over, by time.monotonic(): the earliest of its records'
        deadlines. None: never."""
        return self._call.deadline or None

    @property
    def remaining(self) -> Optional[float]:
        """Seconds until the deadline, at least 0; None: no deadline."""
        d = self.deadline
        return None if d is None else max(d - time.monotonic(), 0.0)

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for an answer for any of the records any more."""
        return self._call.stopped()

    @property
    def draining(self) -> bool:
        """See Message.draining."""
        return self._call.draining()


def _set(target: Any, name: str, value: Bytes) -> None:
    if value is None:
        return
    if isinstance(value, str):
        value = wire.encode(value)
    elif isinstance(value, (bytearray, memoryview)):
        value = bytes(value)
    setattr(target, name, value)  # anything else is a TypeError


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
