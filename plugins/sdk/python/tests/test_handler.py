import datetime
import gc
import threading
import unittest
import weakref
from decimal import Decimal

from kconsume import Cancelled, Drop, Permanent, Transient, batch_handler, handler
from kconsume._handler import _decorated, configure
from kconsume.testing import Host, record, run


class MessageTest(unittest.TestCase):
    def seen(self, r):
        """The message that a handler gets."""
        got = []
        run(got.append, r).assert_ack()
        return got[0]

    def test_fields(self):
        m = self.seen(record(b"v", key=b"k", topic="t", partition=3, offset=9, attempt=2, stage="retry.5s"))
        self.assertEqual((m.id, m.topic, m.partition, m.offset), ("t/3/9@1700000000000", "t", 3, 9))
        self.assertEqual((m.key, m.value, m.attempt, m.max_attempts, m.stage), (b"k", b"v", 2, 3, "retry.5s"))
        self.assertEqual(m.time, datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=datetime.timezone.utc))
        self.assertEqual((m.deadline, m.remaining), (None, None))

    def test_times(self):
        self.assertEqual(self.seen(record(time_ms=-1)).time.year, 1969)
        self.assertEqual(self.seen(record(time_ms=2**62)).time.year, 9999)
        self.assertEqual(self.seen(record(time_ms=-(2**62))).time.year, 1)
        self.assertEqual(self.seen(record(time_ms=2**62)).time_ms, 2**62)

    def test_null_and_empty(self):
        m = self.seen(record(None, key=b"", headers=[("a", None), ("a", b""), ("b", b"x")]))
        self.assertEqual((m.key, m.value, m.headers), (b"", None, [("a", None), ("a", b""), ("b", b"x")]))
        self.assertEqual((m.header("a"), m.header("b"), m.header("c")), (b"", b"x", None))

    def test_trace(self):
        own = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        r = record(headers=[("traceparent", "x"), ("traceparent", own), ("tracestate", "a=1")])
        m = self.seen(r)
        self.assertEqual((m.trace, m.trace_state), (own, "a=1"))
        r.trace = b"00-of-the-delivery"
        m = self.seen(r)
        self.assertEqual((m.trace, m.trace_state), ("00-of-the-delivery", ""))
        r.trace_state = b"b=2"
        self.assertEqual(self.seen(r).trace_state, "b=2")
        m = self.seen(record(headers=[("traceparent", None)]))
        self.assertEqual((m.trace, m.trace_state), ("", ""))

    def test_json(self):
        def handle(m):
            m.json(parse_float=Decimal)

        for good in (b'{"a": 1.10}', b"null", "{}".encode("utf-16")):
            run(handle, record(good)).assert_ack()
        for bad in (None, b"", b"{", b"\xff", b"{} {}", b"NaN", b"[" * 100_000, b"1" * 10_000 + b"."):
            v = run(handle, record(bad))
            v.assert_permanent(f"decode JSON value of {len(bad or b'')} bytes: ", reason="poison")
            self.assertEqual(v.rule, "json")

    def test_emit(self):
        def handle(m):
            m.emit("out", "key", b"value", {"h": "1", "n": None})
            m.emit("out", headers=[("h", b""), ("h", bytearray(b"2"))])

        v = run(handle, record())
        v.assert_ack()
        self.assertEqual(
            [tuple(e) for e in v.emitted],
            [("out", b"key", b"value", [("h", b"1"), ("n", None)]), ("out", None, None, [("h", b""), ("h", b"2")])],
        )
        run(lambda m: m.emit("out", value=5), record()).assert_permanent("TypeError", reason="panic")

    def test_kept_too_long(self):
        self.assertTrue(self.seen(record()).cancelled)


class CallTest(unittest.TestCase):
    def test_verdicts(self):
        def handle(m):
            raise {b"t": Transient("t", retry_after=1.5), b"p": Permanent("p"), b"d": Drop("d")}[m.value]

        t, p, d = run(handle, record(b"t"), record(b"p"), record(b"d"))
        t.assert_transient("t", retry_after=1.5)
        p.assert_permanent("p")
        d.assert_drop("d")
        for check in (t.assert_permanent, p.assert_drop, d.assert_transient, t.assert_ack):
            self.assertRaises(AssertionError, check)
        self.assertRaises(AssertionError, t.assert_transient, "other")
        self.assertRaises(AssertionError, t.assert_transient, retry_after=2)
        self.assertRaises(AssertionError, p.assert_permanent, reason="poison")

    def test_work_that_is_not_done(self):
        async def work():
            pass

        made = []

        def handle(m):
            made.append(work())
            return made[0]

        run(handle, record()).assert_permanent("whose work is not done", reason="panic")
        made[0].close()
        run(lambda m: (x for x in []), record()).assert_permanent(reason="panic")
        run(lambda m: 5, record()).assert_ack()

    def test_a_classifier_with_a_bug(self):
        def handle(m):
            raise ValueError("x")

        v = run(handle, record(), classifiers=[lambda e: e.nothing])
        v.assert_permanent("AttributeError", reason="panic")

    def test_exit_is_contained(self):
        def handle(m):
            raise SystemExit(3)

        run(handle, record()).assert_permanent("SystemExit: 3", reason="panic")

    def test_threads(self):
        together = threading.Barrier(4)

        @handler(threads=4)
        def handle(m):
            together.wait(60)

        run(handle, *[record() for _ in range(8)])
        _decorated.remove(handle)

    def test_one_thread_by_default(self):
        inside = threading.Lock()

        def handle(m):
            if not inside.acquire(blocking=False):
                raise Permanent("two at once")
            inside.release()

        for v in run(handle, *[record() for _ in range(200)]):
            v.assert_ack()

    def test_many(self):
        with Host(lambda m: None) as host:
            handles = host.deliver(*[record(b"x" * 100) for _ in range(5000)])
            for v in host.answers(handles):
                v.assert_ack()
            self.assertLess(host.frames, 1000)  # acknowledgements share frames


class MemoryTest(unittest.TestCase):
    def test_nothing_is_kept(self):
        """A record is freed when it is answered, without the garbage collector's help."""
        kept = []

        class Big:
            def __init__(self):
                kept.append(weakref.ref(self))

        def handle(m):
            big = Big()
            m.emit("out")
            if m.value == b"bad":
                raise Permanent(f"no {big}")

        gc.disable()
        self.addCleanup(gc.enable)
        with Host(handle) as host:
            host.answers(host.deliver(record(b"bad"), record(b"good")))
            host.answers(host.deliver(record(b"bad"), record(b"good")))
            self.assertEqual([r() for r in kept[:2]], [None, None])


class DeadlineTest(unittest.TestCase):
    def test_heeded(self):
        def handle(m):
            self.assertGreater(m.remaining, 0)
            m.sleep(60)

        v = run(handle, record(timeout=0.05))
        v.assert_transient()
        self.assertEqual((v.reason, v.rule), ("timeout", "timeout"))

    def test_late(self):
        go = threading.Event()
        self.addCleanup(go.set)

        def handle(m):
            if m.value == b"late":
                go.wait()
                self.assertTrue(m.cancelled)
                raise Permanent("too late to say")

        with Host(handle) as host:
            late, other = host.deliver(record(b"late", timeout=0.05), record())
            v = host.answer(late)
            v.assert_transient("no answer within 0.05 s")
            self.assertTrue(v.late)
            host.answer(other).assert_ack()  # though there is one thread
            go.set()
            host.end(late)

    def test_more_late_calls_than_are_borne(self):
        go = threading.Event()
        self.addCleanup(go.set)

        def handle(m):
            if m.value == b"late":
                go.wait()

        with Host(handle, concurrency=2) as host:
            late = host.deliver(*[record(b"late", timeout=0.05) for _ in range(3)])
            (last,) = host.deliver(record())
            for v in host.answers(late):
                self.assertTrue(v.late)
            self.assertFalse(host.answered(last))
            go.set()
            host.answer(last).assert_ack()
            for h in late:
                host.end(h)

    def test_nothing_may_come_of_it(self):
        go = threading.Event()
        self.addCleanup(go.set)

        def handle(m):
            go.wait()

        with Host(handle) as host:
            (late,) = host.deliver(record(timeout=0.05))
            host.answer(late)  # and the end of the stream does not wait for the call


class CancelTest(unittest.TestCase):
    def test_waiting_and_running(self):
        begun, go = threading.Event(), threading.Event()
        self.addCleanup(go.set)

        def handle(m):
            if m.value == b"gate":
                begun.set()
                go.wait()
            elif m.value == b"sleep":
                begun.set()
                m.sleep(60)

        with Host(handle) as host:
            gate, waiting, after = host.deliver(record(b"gate"), record(b"sleep"), record())
            begun.wait()
            host.cancel([waiting, 99])
            self.assertEqual((host.answer(waiting).class_, host.answer(waiting).rule), ("none", "cancelled"))
            host.cancel([gate])
            go.set()
            host.answer(gate).assert_ack()  # what is done is done
            host.answer(after).assert_ack()
            begun.clear()
            (running,) = host.deliver(record(b"sleep"))
            begun.wait()
            host.cancel([running])
            self.assertEqual(host.answer(running).rule, "cancelled")

    def test_leaving(self):
        begun = threading.Event()

        def handle(m):
            begun.set()
            while not m.draining:
                m.sleep(0.001)
            raise Cancelled()

        with Host(handle) as host:
            (h,) = host.deliver(record())
            begun.wait()
            host.drain()
            self.assertEqual((host.answer(h).class_, host.answer(h).rule), ("none", "cancelled"))

    def test_close(self):
        seen = []
        with Host(lambda m: None, close=lambda: seen.append("closed")) as host:
            host.answers(host.deliver(record()))
            self.assertEqual(seen, [])
        self.assertEqual(seen, ["closed"])


class BatchTest(unittest.TestCase):
    def together(self, handle, *records):
        """Runs a batch handler on records that wait while it is busy with another one."""
        begun, go = threading.Event(), threading.Event()

        @batch_handler(max=100)
        def gated(batch):
            if batch[0].value == b"gate":
                begun.set()
                go.wait()
                return
            handle(batch)

        _decorated.remove(gated)
        with Host(gated) as host:
            self.assertEqual(list(host.hello.capabilities), [b"batch"])
            host.deliver(record(b"gate"))
            begun.wait()
            handles = host.deliver(*records, record())
            host.cancel(handles[-1:])  # its answer tells that the records are there
            host.answer(handles[-1])
            go.set()
            return host.answers(handles[:-1])

    def test_each_its_own(self):
        sizes = []

        def handle(batch):
            sizes.append(len(batch))
            for i, m in enumerate(batch):
                if m.value == b"bad":
                    batch.fail(i, Permanent("bad"))
                m.emit("out", value=m.value)
            self.assertRaises(TypeError, batch.fail, 0, "text")
            self.assertEqual(batch.remaining, None)

        a, b, c = self.together(handle, record(b"1"), record(b"bad"), record(b"3"))
        self.assertEqual(sizes, [3])
        self.assertEqual([e.value for e in a.emitted + c.emitted], [b"1", b"3"])
        b.assert_permanent("bad")
        self.assertEqual(b.emitted, [])

    def test_error_for_the_rest(self):
        def handle(batch):
            batch.fail(0, Drop("odd"))
            raise Transient("down", retry_after=2)

        a, b, c = self.together(handle, record(), record(), record())
        a.assert_drop()
        b.assert_transient("down", retry_after=2)
        c.assert_transient("down", retry_after=2)

    def test_guilty_alone(self):
        sizes = []

        def handle(batch):
            sizes.append(len(batch))
            for m in batch:
                m.emit("out")
                m.json()
                if m.value == b"{}":
                    raise ValueError("strange")

        a, b, c = self.together(handle, record(b"1"), record(b"{}"), record(b"3"))
        a.assert_ack()
        b.assert_permanent("ValueError: strange")
        c.assert_ack()
        self.assertEqual(sizes, [3, 1, 1, 1])
        self.assertEqual(len(a.emitted), 1)

    def test_last_attempt_alone(self):
        sizes = []
        self.together(
            lambda batch: sizes.append(len(batch)), record(), record(attempt=3), record(attempt=3), record(attempt=1, max_attempts=1)
        )
        self.assertEqual(sizes, [1, 1, 1, 1])

    def test_late(self):
        go = threading.Event()
        self.addCleanup(go.set)

        @batch_handler
        def handle(batch):
            self.assertLess(batch.remaining, 1)
            go.wait()

        _decorated.remove(handle)
        with Host(handle) as host:
            handles = host.deliver(record(timeout=60), record(timeout=0.05))
            for v in host.answers(handles):  # both or one after the other
                self.assertTrue(v.late) if v.late else None
            go.set()
            host.end(handles[1])


class ConfigureTest(unittest.TestCase):
    def test_refusals(self):
        async def work(m):
            pass

        def generator(m):
            yield

        for bad in (work, generator, 5):
            self.assertRaises(TypeError, configure, bad, "n")
        self.assertRaises(TypeError, handler, work)
        self.assertRaises(ValueError, handler, threads=0)
        self.assertRaises(ValueError, batch_handler, max=0)
        self.assertRaises(ValueError, configure, None, "n")
        self.assertRaises(ValueError, configure, print, "")

    def test_decorated(self):
        @handler
        def one(m):
            pass

        self.addCleanup(_decorated.remove, one)
        self.assertIs(configure(None, "n").handle, one)
        self.assertEqual(configure(None, "n", topics="t").topics, ["t"])

        @batch_handler(max=7, threads=3)
        def two(b):
            pass

        self.addCleanup(_decorated.remove, two)
        self.assertRaisesRegex(ValueError, "one, .*two", configure, None, "n")
        self.assertEqual((configure(two, "n").batch, configure(two, "n").threads), (7, 3))


if __name__ == "__main__":
    unittest.main()
