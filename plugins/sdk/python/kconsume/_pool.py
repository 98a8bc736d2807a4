"""Calls the handler: at most so many calls at once, each under its deadline,
whatever it raises contained.

A call that is not back shortly after its deadline is answered at once, as a
transient timeout and late; its handles come once more, in ended, when it is. Late
calls do not count among those that run at once as long as there are no more than
max_late, so that they starve nobody. A thread cannot be stopped: a call that does
not end keeps its thread.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, List, NamedTuple, Optional, Sequence, Set

from . import _wire as wire
from ._classify import CANCELLED, Classifier, Judgement, classify, timed_out
from ._message import Batch, Call, Message

# How long after its deadline a call counts as late, in seconds. A handler that
# heeds its deadline has its own say within it.
LATE_AFTER = 0.01


# The result of a record that has none yet: it is handled once more, alone.
_AGAIN = object()


class Answers(NamedTuple):
    acked: List[int]
    verdicts: List[Any]
    ended: List[int]


class _Worker:
    __slots__ = ("call", "results", "woken")

    def __init__(self) -> None:
        # Guarded by the pool's lock, but for results while the handler runs.
        self.call: Optional[Call] = None
        self.results: Optional[List[Any]] = None
        self.woken = True


class Pool:
    """deliver, cancel, drain and close come from any thread; take from one."""

    def __init__(
        self,
        handle: Callable[[Any], Any],
        *,
        threads: int,
        max_late: int,
        batch: int = 0,
        classifiers: Sequence[Classifier] = (),
    ) -> None:
        self._handle = handle
        self._threads = threads
        self._max_late = max_late
        self._batch = batch  # records of one call; 0: the handler gets a Message
        self._classifiers = classifiers

        self._lock = threading.Lock()
        # What follows is guarded by _lock.
        self._work = threading.Condition(self._lock)  # idle workers
        self._ready = threading.Condition(self._lock)  # take
        self._alarm = threading.Condition(self._lock)  # the watcher
        self._queue: Deque[Message] = deque()
        self._again: Deque[Message] = deque()  # of failed batches: to be handled once more, each alone
        self._workers: Set[_Worker] = set()
        self._idle = 0
        self._waking = False  # a worker has been woken or started and not come yet
        self._late = 0
        self._open = 0  # deliveries not answered yet
        self._pending = Answers([], [], [])
        self._taking = False  # take waits
        self._watching = False
        self._alarm_at = 0.0  # 0 = not set
        self._draining = threading.Event()
        self._closed = False

    def deliver(self, records: Sequence[Any]) -> None:
        """Takes records over; never blocks."""
        messages = [Message(r) for r in records]
        with self._lock:
            if not self._closed:
                self._queue.extend(messages)
                self._open += len(messages)
                self._wake()

    def cancel(self, handles: Sequence[int]) -> None:
        """Those that have not begun are answered now, the others when they end."""
        wanted = set(handles)
        with self._lock:
            for queue in (self._again, self._queue):
                waiting = list(queue)
                queue.clear()
                for m in waiting:
                    if m._record.handle in wanted:
                        self._answer(m, CANCELLED, False)
                    else:
                        queue.append(m)
            for w in self._workers:
                if w.call is None:
                    continue
                for m in w.call.messages:
                    m._cancelled = m._cancelled or m._record.handle in wanted
                if all(m._cancelled for m in w.call.messages):
                    w.call.stop()

    def take(self) -> Optional[Answers]:
        """Waits for what has been answered; None: there will be no more."""
        with self._lock:
            while True:
                a = self._pending
                if a.acked or a.verdicts or a.ended:
                    self._pending = Answers([], [], [])
                    return a
                if self._closed or self._draining.is_set() and self._open == 0:
                    return None
                self._taking = True
                self._ready.wait()
                self._taking = False

    def drain(self) -> None:
        """take returns None once everything is answered; late calls are not waited for."""
        with self._lock:
            self._draining.set()
            self._ready.notify()

    @property
    def drained(self) -> bool:
        """Whether drain was called and everything is answered."""
        with self._lock:
            return self._draining.is_set() and self._open == 0

    def close(self) -> None:
        """Nobody waits for answers any more. Calls under way are told so and left alone."""
        with self._lock:
            self._closed = True
            self._queue.clear()
            self._again.clear()
            for w in self._workers:
                if w.call is not None:
                    for m in w.call.messages:
                        m._cancelled = True
                    w.call.stop()
            for c in (self._work, self._ready, self._alarm):
                c.notify_all()

    # Workers.

    def _wake(self) -> None:
        """Sees to it that a worker comes for what is queued, if there is room for one
        more call. One at a time: who comes wakes the next, so that a handler that
        returns at once keeps one thread busy and one that waits gets all of them."""
        if self._waking or self._closed or not (self._queue or self._again):
            return
        if self._idle > 0:
            self._waking = True
            self._work.notify()
        elif self._surplus() < 0:
            self._waking = True
            w = _Worker()
            self._workers.add(w)
            threading.Thread(target=self._run, args=(w,), name="kconsume-handler", daemon=True).start()

    def _surplus(self) -> int:
        """By how many the workers exceed the calls that may run."""
        return len(self._workers) - self._threads - min(self._late, self._max_late)

    def _run(self, w: _Worker) -> None:
        while True:
            call = self._next(w)
            if call is None:
                return
            w.results = self._invoke(call)

    def _next(self, w: _Worker) -> Optional[Call]:
        """Settles w's call and takes the next one; None: w is to end."""
        with self._lock:
            if w.call is not None:
                self._settle(w.call, w.results)
                w.call = w.results = None
            while True:
                if w.woken:
                    w.woken = self._waking = False
                if self._closed or self._surplus() > 0:
                    self._workers.discard(w)
                    self._wake()
                    return None
                if self._queue or self._again:
                    w.call = self._begin()
                    self._wake()
                    return w.call
                self._idle += 1
                self._work.wait()
                self._idle -= 1
                w.woken = True

    def _begin(self) -> Call:
        """A call for what waits longest. Deadlines count from a record's first call."""
        messages = self._claim()
        deadline = 0.0
        now = 0.0
        for m in messages:
            ms = m._record.deadline_ms
            if ms and not m._due:
                now = now or time.monotonic()
                m._due = now + ms / 1000
            if m._due and (not deadline or m._due < deadline):
                deadline = m._due
        call = Call(messages, deadline, self._draining)
        for m in messages:
            m._call = call
        if deadline and (not self._alarm_at or deadline + LATE_AFTER < self._alarm_at):
            self._set_alarm(deadline + LATE_AFTER)
        return call

    def _claim(self) -> List[Message]:
        if self._again:
            return [self._again.popleft()]
        messages = [self._queue.popleft()]
        while len(messages) < self._batch and self._queue and not (_lonely(messages[0]) or _lonely(self._queue[0])):
            messages.append(self._queue.popleft())
        return messages

    def _settle(self, call: Call, results: Optional[List[Any]]) -> None:
        """results has one entry for each message: a verdict, None = acknowledged, or _AGAIN.
        It is None itself where all are acknowledged."""
        call.stop()  # for who keeps a message
        messages, call.messages = call.messages, []  # no cycle: the records are freed at once
        if self._closed:
            return
        if call.late:
            self._late -= 1
            self._pending.ended.extend([m._record.handle for m in messages])
        elif results is None:
            self._pending.acked.extend([m._record.handle for m in messages])
            self._open -= len(messages)
        else:
            for m, v in zip(messages, results):
                self._settle_one(m, v)
        if self._taking:
            self._ready.notify()

    def _settle_one(self, m: Message, v: Any) -> None:
        if v is _AGAIN and m._cancelled:
            v = verdict(m, CANCELLED, False)
        if v is _AGAIN:
            m._emitted = None
            self._again.append(m)
            return
        if v is None:
            self._pending.acked.append(m._record.handle)
        else:
            self._pending.verdicts.append(v)
        self._open -= 1

    def _invoke(self, call: Call) -> Optional[List[Any]]:
        """Runs the handler, which may raise anything, and tells the results."""
        batch = Batch(call) if self._batch else None
        try:
            done = self._handle(call.messages[0] if batch is None else batch)
            if done is not None and (inspect.isawaitable(done) or inspect.isgenerator(done)):
                raise TypeError(f"the handler returned {done!r}, whose work is not done: use an ordinary function")
        except BaseException as e:  # not kept: its traceback and this frame would hold each other, and the record
            return self._results(call, batch, e)
        return self._results(call, batch, None)

    def _results(self, call: Call, batch: Optional[Batch], failure: Optional[BaseException]) -> Optional[List[Any]]:
        late = call.expired()
        if batch is not None:
            return self._batch_results(call, batch, failure, late)
        m = call.messages[0]
        if failure is None:
            return None if m._emitted is None else [emitting(m)]
        return [verdict(m, self._judge(failure, m, late), False)]

    def _batch_results(self, call: Call, batch: Batch, failure: Optional[BaseException], late: bool) -> List[Any]:
        """One record's failure is not to be the others': where what failed the batch would
        make them dead letters by its type, each is handled once more alone."""
        failed = batch._failed
        results: List[Any] = []
        for m in call.messages:
            error = failed.get(id(m), failure)
            if error is None:
                results.append(None if m._emitted is None else emitting(m))
                continue
            j = self._judge(error, m, late)
            shared = len(call.messages) > 1 and error is failure
            doubtful = shared and j.class_ == wire.PERMANENT and j.rule != "explicit"
            results.append(_AGAIN if doubtful else verdict(m, j, False))
        return results

    def _judge(self, failure: BaseException, m: Message, late: bool) -> Judgement:
        try:
            return classify(
                failure,
                cancelled=m._cancelled,
                late=late,
                draining=self._draining.is_set(),
                classifiers=self._classifiers,
            )
        except Exception as e:  # of a classifier, or of the exception's own methods
            return classify(e)

    def _answer(self, m: Message, j: Judgement, late: bool) -> None:
        self._pending.verdicts.append(verdict(m, j, late))
        self._open -= 1
        if self._taking:
            self._ready.notify()

    # Deadlines.

    def _set_alarm(self, at: float) -> None:
        """Deadlines mostly grow, so the alarm is set about once per timeout, not once per call."""
        self._alarm_at = at
        if not self._watching:
            self._watching = True
            threading.Thread(target=self._watch, name="kconsume-deadlines", daemon=True).start()
        else:
            self._alarm.notify()

    def _watch(self) -> None:
        with self._lock:
            while not self._closed:
                now = time.monotonic()
                if self._alarm_at == 0 or now < self._alarm_at:
                    self._alarm.wait(None if self._alarm_at == 0 else self._alarm_at - now)
                else:
                    self._expire(now)

    def _expire(self, now: float) -> None:
        """Answers for the calls that are not back a while after their deadline, and sets the
        alarm for the next one. It is right whenever it runs."""
        at = 0.0
        for w in self._workers:
            call = w.call
            if call is None or call.late or call.deadline == 0:
                continue
            due = call.deadline + LATE_AFTER
            if now >= due:
                call.late = True
                self._late += 1
                for m in call.messages:
                    self._answer(m, CANCELLED if m._cancelled else timed_out(m._record.deadline_ms / 1000), True)
            elif at == 0 or due < at:
                at = due
        self._alarm_at = at
        self._wake()


def _lonely(m: Message) -> bool:
    """Whether it is handled alone: the last of several attempts. The company that a record was
    in must not be what makes it a dead letter."""
    return m._record.attempt > 1 and m._record.attempt >= m._record.max_attempts


def verdict(m: Message, j: Judgement, late: bool) -> Any:
    """A judgement on the wire."""
    v = wire.Verdict(
        handle=m._record.handle,
        class_=j.class_,
        rule=wire.encode(j.rule)[: wire.MAX_CODE_BYTES],
        message=wire.encode(j.message)[: wire.MAX_TEXT_BYTES],
        late=late,
    )
    if j.reason:
        v.reason = wire.encode(j.reason)
    if j.code:
        v.code = wire.encode(j.code)[: wire.MAX_CODE_BYTES]
    if j.retry_after > 0:
        v.retry_after_ms = _milliseconds(j.retry_after)
    if j.causes:
        v.causes.extend(wire.encode(c)[: wire.MAX_TEXT_BYTES] for c in j.causes)
    if j.stack:
        v.stack = wire.encode(j.stack)[-wire.MAX_STACK_BYTES :]
    return v


def _milliseconds(seconds: float) -> int:
    return int(min(seconds * 1000, wire.MAX_RETRY_AFTER_MS))


def emitting(m: Message) -> Any:
    """An acknowledgement with the records that the handler emitted."""
    v = wire.Verdict(handle=m._record.handle, class_=wire.ACK, emitted=m._emitted)
    size = v.ByteSize()
    if size <= wire.MAX_VERDICT_BYTES:
        return v
    return verdict(
        m,
        Judgement(
            wire.PERMANENT,
            "permanent",
            message=f"emitted records take {size} bytes, at most {wire.MAX_VERDICT_BYTES} fit; emit less for one record",
            rule="emitted-size",
        ),
        False,
    )
