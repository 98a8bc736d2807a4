"""The conformance handler: does what each record says. See test/conformance/README.md."""

import asyncio
import json
import os
import signal
import socket
import sys
import time
import urllib.error
from email.message import Message as EmailMessage

import grpc

from kconsume import Batch, Cancelled, Drop, Message, Permanent, Transient, batch_handler, handler, serve


class OwnError(Exception):
    """Of a type that no rule knows."""


class SqlError(Exception):
    def __init__(self, sqlstate: str) -> None:
        super().__init__("the database says no")
        self.sqlstate = sqlstate


class RpcError(grpc.RpcError):
    def __init__(self, code: grpc.StatusCode) -> None:
        super().__init__("the service says no")
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code


def create(file: str) -> None:
    open(file, "w").close()


def until(file: str) -> None:
    while not os.path.exists(file):
        time.sleep(0.002)


def transient(ms: str, text: str) -> Transient:
    return Transient(text, retry_after=int(ms) / 1000 if int(ms) else None)


def typed(kind: str) -> None:
    what, _, number = kind.partition("-")
    if what == "timeout":
        asyncio.run(asyncio.wait_for(asyncio.sleep(10), 0.001))
    elif what == "refused":
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        socket.create_connection(("127.0.0.1", port)).close()
    elif what == "json":
        json.loads('{"a":')
    elif what == "status":
        raise urllib.error.HTTPError("http://shop", int(number), "no", EmailMessage(), None)
    elif what == "sqlstate":
        raise SqlError(number)
    elif what == "grpc":
        raise RpcError({c.value[0]: c for c in grpc.StatusCode}[int(number)])


def tell(m: Message) -> None:
    left = m.remaining
    fields = [
        ("id", m.id),
        ("topic", m.topic),
        ("partition", m.partition),
        ("offset", m.offset),
        ("time", m.time_ms),
        ("attempt", m.attempt),
        ("max_attempts", m.max_attempts),
        ("stage", m.stage),
        ("deadline", int(left * 1000) if left is not None else 0),
    ]
    m.emit("told", headers=[(name, str(value)) for name, value in fields])


def command(m: Message) -> "tuple[str, str]":
    for h in m.headers:
        if h.name == "do":
            word, _, rest = (h.value or b"").decode().partition(" ")
            return word, rest
    return "ack", ""


@handler(threads=64)
def handle(m: Message) -> None:
    word, rest = command(m)
    if word == "ack":
        return
    if word == "transient":
        raise transient(*rest.split(" ", 1))
    if word == "permanent":
        code, text = rest.split(" ", 1)
        raise Permanent(text, code=code)
    if word == "drop":
        raise Drop(rest)
    if word == "causes":
        a, b, c = rest.split(" ")
        try:
            try:
                raise OwnError(c)
            except OwnError as e:
                raise OwnError(b) from e
        except OwnError as e:
            raise Permanent(a) from e
    if word == "wrapped":
        try:
            raise transient(*rest.split(" ", 1))
        except Transient as e:
            raise OwnError("own words") from e
    if word == "json":
        m.json()
    elif word == "badtext":
        raise Permanent("bad \udcff \ud83d text")
    elif word == "longtext":
        raise Permanent("x" * int(rest))
    elif word == "panic":
        raise AssertionError(rest)
    elif word == "unknown":
        raise OwnError(rest)
    elif word == "typed":
        typed(rest)
    elif word == "echo":
        m.emit("echo", m.key, m.value, m.headers)
    elif word == "tell":
        tell(m)
    elif word == "emit":
        for i in range(int(rest)):
            m.emit("out", value=str(i))
    elif word == "emit-bytes":
        m.emit("out", value=b"x" * int(rest))
    elif word == "emit-then-fail":
        m.emit("out")
        raise Permanent(rest)
    elif word == "gate":
        begun, go = rest.split(" ")
        create(begun)
        until(go)
    elif word == "gate-then-fail":
        begun, go, text = rest.split(" ", 2)
        create(begun)
        until(go)
        raise Transient(text)
    elif word == "wait":
        create(rest)
        m.sleep(1e6)
    elif word == "leave":
        create(rest)
        while not m.draining:
            m.sleep(0.005)
        raise Cancelled()
    elif word == "block":
        create(rest)
        while True:
            time.sleep(1e6)
    elif word == "spin":
        create(rest)
        # Not in Python's own code, which gives other threads a turn: this keeps the
        # interpreter's lock.
        sum(iter(int, 1))
    elif word == "exit":
        os._exit(int(rest))
    elif word == "exit-once":
        if not os.path.exists(rest):
            create(rest)
            os._exit(3)
    elif word == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif word == "say":
        print("out " + rest)
        print("err " + rest, file=sys.stderr)
    else:
        raise Permanent("no such command")


@batch_handler(max=100, threads=64)
def handle_batch(batch: Batch) -> None:
    whole = None
    for i, m in enumerate(batch):
        word, rest = command(m)
        if word in ("transient", "permanent", "drop", "echo", "emit"):
            try:
                handle(m)
            except Exception as e:
                batch.fail(i, e)
        elif word in ("gate", "exit", "panic"):
            handle(m)
        elif word == "batch-error":
            whole = Transient(rest)
        elif word == "batch-size":
            m.emit("size", value=str(len(batch)))
    if whole is not None:
        raise whole


print("before serve")
mode = sys.argv[1] if len(sys.argv) > 1 else ""
if mode == "slow":
    time.sleep(0.2)
serve(
    handle_batch if mode == "batch" else handle,
    name="conformance",
    version="1.2.3",
    topics=["conformance.a", "conformance.b"],
)
