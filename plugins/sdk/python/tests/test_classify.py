"""Each rule with the real error of the real library."""

import asyncio
import concurrent.futures
import http.server
import json
import socket
import threading
import time
import unittest
import urllib.error
import urllib.request

import google.protobuf.message
import grpc
from google.protobuf import timestamp_pb2
from google.rpc import error_details_pb2, status_pb2

from kconsume import Cancelled, Drop, Permanent, Poison, Transient
from kconsume import _wire as wire
from kconsume._classify import classify

ACK, TRANSIENT, PERMANENT, DROP = wire.ACK, wire.TRANSIENT, wire.PERMANENT, wire.DROP


def raised(f, *args, **kwargs):
    try:
        f(*args, **kwargs)
    except BaseException as e:
        return e
    raise AssertionError("nothing was raised")


def closed_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class OwnError(Exception):
    pass


class OwnKeyError(KeyError):
    pass


# What the shop's answers ask to wait.
WAITS = {"408": "nonsense", "429": "7", "503": "Fri, 31 Dec 2999 23:59:59 GMT"}


class Shop(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        what = self.path.strip("/")
        if what == "hang":
            time.sleep(1)
        elif what == "break":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this")
            self.wfile.flush()
        elif what == "slam":
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self.send_response(int(what))
            if what in WAITS:
                self.send_header("Retry-After", WAITS[what])
            self.send_header("Content-Length", "0")
            self.end_headers()
        self.close_connection = True

    def log_message(self, *_):
        pass


class ClassifyTest(unittest.TestCase):
    def judge(self, exc, class_, rule, code="", reason=None, **circumstances):
        j = classify(exc, **circumstances)
        self.assertEqual((j.class_, j.rule, j.code), (class_, rule, code), j)
        reasons = {TRANSIENT: "transient", PERMANENT: "permanent", DROP: "", wire.UNSPECIFIED: ""}
        self.assertEqual(j.reason, reasons[class_] if reason is None else reason, j)
        return j

    def test_explicit(self):
        self.assertEqual(self.judge(Transient("not now"), TRANSIENT, "explicit").message, "not now")
        self.assertEqual(self.judge(Transient("x", retry_after=1.5), TRANSIENT, "explicit").retry_after, 1.5)
        self.assertEqual(self.judge(Transient("x", retry_after=-1), TRANSIENT, "explicit").retry_after, 0)
        self.judge(Permanent("no", code="E42"), PERMANENT, "explicit", "E42")
        self.judge(Poison("no Avro"), PERMANENT, "explicit", reason="poison")
        self.assertEqual(self.judge(Drop("odd"), DROP, "explicit").message, "odd")
        j = self.judge(Transient(TimeoutError("slow")), TRANSIENT, "explicit")
        self.assertEqual((j.message, j.causes), ("slow", ()))

    def test_wrapped(self):
        e = OwnError("own")
        e.__cause__ = Transient("not now", retry_after=2)
        j = self.judge(e, TRANSIENT, "explicit")
        self.assertEqual((j.retry_after, j.message, j.causes), (2, "OwnError: own", ("not now",)))
        outer = Transient("later")
        outer.__cause__ = e  # its wish further in is kept
        self.assertEqual(self.judge(outer, TRANSIENT, "explicit").retry_after, 2)
        self.judge(raised(self.raise_from, Permanent("a"), ConnectionResetError("b")), PERMANENT, "explicit")

    @staticmethod
    def raise_from(e, cause):
        raise e from cause

    def test_what_it_was_raised_during_says_nothing(self):
        def f():
            try:
                raise ConnectionResetError("gone")
            except ConnectionResetError:
                raise OwnError("own")

        j = self.judge(raised(f), PERMANENT, "unknown")
        self.assertEqual(j.causes, ("ConnectionResetError: gone",))

    def test_circumstances(self):
        self.judge(Permanent("x"), wire.UNSPECIFIED, "cancelled", cancelled=True)
        self.judge(OwnError("x"), TRANSIENT, "timeout", reason="timeout", late=True)
        self.judge(Transient("x"), TRANSIENT, "timeout", reason="timeout", late=True)
        self.judge(Cancelled(), TRANSIENT, "timeout", reason="timeout", late=True)
        self.judge(Transient("x", retry_after=1), TRANSIENT, "explicit", late=True)
        self.judge(Permanent("x"), PERMANENT, "explicit", late=True)
        self.judge(Drop("x"), DROP, "explicit", late=True)
        self.judge(Cancelled(), TRANSIENT, "canceled")
        self.judge(Cancelled(), wire.UNSPECIFIED, "cancelled", draining=True)
        self.judge(OwnError("x"), PERMANENT, "unknown", draining=True)

    def test_classifiers(self):
        def mine(e):
            return Transient("mine", retry_after=3, code="M") if isinstance(e, OwnError) else None

        j = self.judge(OwnError("x"), TRANSIENT, "classifier", "M", classifiers=[lambda e: None, mine])
        self.assertEqual((j.message, j.retry_after), ("mine", 3))
        self.judge(KeyError("x"), PERMANENT, "panic", reason="panic", classifiers=[mine])
        self.judge(Permanent("x"), PERMANENT, "explicit", classifiers=[mine])

    def test_fields(self):
        e = OwnError("x")
        e.retry_after = 7
        self.assertEqual(self.judge(e, TRANSIENT, "retry-after").retry_after, 7)
        e = OwnError("x")
        e.temporary = True
        self.judge(e, TRANSIENT, "temporary")
        e = OwnError("x")
        e.error_code = "E1"
        self.judge(e, PERMANENT, "unknown", "E1")

    def test_time(self):
        self.judge(TimeoutError("x"), TRANSIENT, "deadline")
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.settimeout(0.001)
            s.listen()
            self.judge(raised(s.accept), TRANSIENT, "deadline")
        self.judge(raised(asyncio.run, asyncio.wait_for(asyncio.sleep(1), 0.001)), TRANSIENT, "deadline")
        self.judge(raised(concurrent.futures.Future().result, 0.001), TRANSIENT, "deadline")
        f = concurrent.futures.Future()
        f.cancel()
        self.judge(raised(f.result), TRANSIENT, "canceled")
        self.judge(asyncio.CancelledError(), TRANSIENT, "canceled")

    def test_network(self):
        at = ("127.0.0.1", closed_port())
        self.judge(raised(socket.create_connection, at), TRANSIENT, "network")
        for kind in (ConnectionResetError, BrokenPipeError, ConnectionAbortedError):
            self.judge(kind("x"), TRANSIENT, "network")
        self.judge(OSError(113, "no route to host"), TRANSIENT, "network")
        self.judge(raised(socket.getaddrinfo, "no.such.host.invalid", 80), TRANSIENT, "network")
        self.judge(raised(urllib.request.urlopen, f"http://127.0.0.1:{at[1]}"), TRANSIENT, "network")
        self.judge(FileNotFoundError(2, "x"), PERMANENT, "unknown")
        self.judge(raised(asyncio.run, self.read_short()), TRANSIENT, "eof")

    @staticmethod
    async def read_short():
        r = asyncio.StreamReader()
        r.feed_data(b"abc")
        r.feed_eof()
        await r.readexactly(10)

    def test_groups(self):
        try:
            group = ExceptionGroup("two", [OwnError("x"), ConnectionResetError("y")])
        except NameError:
            self.skipTest("Python before 3.11 has no groups")
        j = self.judge(group, TRANSIENT, "network")
        self.assertEqual(j.causes, ("OwnError: x", "ConnectionResetError: y"))

    def test_decoding(self):
        self.judge(raised(json.loads, '{"a":'), PERMANENT, "json", reason="poison")
        self.judge(raised(b"\xff".decode), PERMANENT, "unicode", reason="poison")
        self.judge(raised(timestamp_pb2.Timestamp.FromString, b"\xff"), PERMANENT, "protobuf", reason="poison")

    def test_bugs(self):
        for f in (lambda: None.x, lambda: {}["x"], lambda: [][1], lambda: 1 / 0, lambda: undefined, lambda: len(1)):  # noqa: F821
            j = self.judge(raised(f), PERMANENT, "panic", reason="panic")
            self.assertIn("test_classify.py", j.stack)
        self.judge(SystemExit(1), PERMANENT, "panic", reason="panic")
        self.judge(OwnKeyError("x"), PERMANENT, "unknown")
        j = self.judge(ValueError("x"), PERMANENT, "unknown")
        self.assertIn("ValueError: x", j.stack)

    def test_texts(self):
        class Odd(Exception):
            def __str__(self):
                raise ValueError("no text")

        self.assertEqual(classify(Odd()).message, "ClassifyTest.test_texts.<locals>.Odd: (its text cannot be made)")
        self.assertEqual(classify(OwnError()).message, "OwnError")
        e = OwnError("0")
        for i in range(1, 100):
            outer = OwnError(str(i))
            outer.__cause__ = e
            e = outer
        self.assertEqual(len(classify(e).causes), wire.MAX_CAUSES)
        a, b = OwnError("a"), OwnError("b")
        a.__cause__, b.__cause__ = b, a
        self.assertEqual(classify(a).causes, ("OwnError: b",))


class HTTPTest(ClassifyTest):
    @classmethod
    def setUpClass(cls):
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Shop)
        cls.thread = threading.Thread(target=cls.server.serve_forever)
        cls.thread.start()
        cls.url = f"http://127.0.0.1:{cls.server.server_port}/"

    @classmethod
    def tearDownClass(cls):
        cls.server.shutdown()
        cls.thread.join()
        cls.server.server_close()

    def each(self, get, timeout=0.2):
        """Checks one client: get(url, timeout) raises."""
        for status in (408, 425, 429, 500, 503):
            j = self.judge(raised(get, self.url + str(status), 10), TRANSIENT, "status", str(status))
            if status == 503:
                self.assertGreater(j.retry_after, 1e9)
            else:
                self.assertEqual(j.retry_after, 7 if status == 429 else 0)
        for status in (400, 404, 409, 422):
            self.judge(raised(get, self.url + str(status), 10), PERMANENT, "status", str(status))
        self.assertIn(classify(raised(get, self.url + "hang", timeout)).rule, ("deadline", "network"))
        for path in ("break", "slam"):
            j = classify(raised(get, self.url + path, 10))
            self.assertIn((j.class_, j.rule), ((TRANSIENT, "network"), (TRANSIENT, "eof")), j)
        self.judge(raised(get, f"http://127.0.0.1:{closed_port()}/", 10), TRANSIENT, "network")
        self.judge(raised(get, "http://no.such.host.invalid/", 10), TRANSIENT, "network")

    def test_urllib(self):
        def get(url, timeout):
            with urllib.request.urlopen(url, timeout=timeout) as r:
                r.read()

        self.each(get)

    def test_requests(self):
        import requests

        def get(url, timeout):
            requests.get(url, timeout=timeout).raise_for_status()

        self.each(get)
        self.judge(raised(requests.get, "nonsense"), PERMANENT, "unknown")

    def test_httpx(self):
        import httpx

        def get(url, timeout):
            httpx.get(url, timeout=timeout).raise_for_status()

        self.each(get)
        self.judge(raised(httpx.get, "gopher://x"), PERMANENT, "unknown")

    def test_aiohttp(self):
        import aiohttp

        def get(url, timeout):
            async def once():
                async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(timeout), raise_for_status=True) as s:
                    async with s.get(url) as r:
                        await r.read()

            asyncio.run(once())

        self.each(get)


class DatabaseTest(ClassifyTest):
    def test_psycopg(self):
        import psycopg

        for code in ("08006", "40001", "40P01", "53300", "57P01"):
            self.judge(psycopg.errors.lookup(code)("x"), TRANSIENT, "sqlstate", code)
        for code in ("22001", "23505", "42703"):
            self.judge(psycopg.errors.lookup(code)("x"), PERMANENT, "sqlstate", code)
        at = f"host=127.0.0.1 port={closed_port()} user=x dbname=x connect_timeout=5"
        self.judge(raised(psycopg.connect, at), TRANSIENT, "network")


class RPCTest(ClassifyTest):
    @classmethod
    def setUpClass(cls):
        def fail(request, context):
            code, _, seconds = request.decode().partition(" ")
            if seconds:
                info = error_details_pb2.RetryInfo()
                info.retry_delay.FromMilliseconds(int(seconds) * 1000 + 500)
                status = status_pb2.Status(code=int(code), message="no")
                status.details.add().Pack(info)
                context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
            context.abort({c.value[0]: c for c in grpc.StatusCode}[int(code)], "no")

        cls.server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
        method = grpc.unary_unary_rpc_method_handler(fail)
        cls.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("shop", {"Buy": method}),))
        port = cls.server.add_insecure_port("127.0.0.1:0")
        cls.server.start()
        cls.channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        cls.buy = cls.channel.unary_unary("/shop/Buy")

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        cls.server.stop(None).wait()

    def test_codes(self):
        for code, name in ((1, "Cancelled"), (4, "DeadlineExceeded"), (8, "ResourceExhausted"), (14, "Unavailable")):
            self.judge(raised(self.buy, str(code).encode()), TRANSIENT, "grpc", name)
        for code, name in ((3, "InvalidArgument"), (5, "NotFound"), (16, "Unauthenticated")):
            self.judge(raised(self.buy, str(code).encode()), PERMANENT, "grpc", name)
        self.judge(raised(self.buy, b"2"), PERMANENT, "unknown", "Unknown")

    def test_retry_info(self):
        j = self.judge(raised(self.buy, b"3 7"), TRANSIENT, "grpc", "InvalidArgument")
        self.assertEqual(j.retry_after, 7.5)

    def test_unreachable(self):
        with grpc.insecure_channel(f"127.0.0.1:{closed_port()}") as channel:
            self.judge(raised(channel.unary_unary("/shop/Buy"), b"", timeout=10), TRANSIENT, "grpc", "Unavailable")


# The subclasses are for judge and their servers, not for its tests once more.
for case in (HTTPTest, DatabaseTest, RPCTest):
    for name in [n for n in dir(ClassifyTest) if n.startswith("test_")]:
        setattr(case, name, None)


if __name__ == "__main__":
    unittest.main()
