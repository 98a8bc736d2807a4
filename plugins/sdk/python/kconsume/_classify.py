"""What an exception means. Types and fields decide, never texts; the first rule
that knows the exception counts. The rules have the names that they have in Go.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import email.utils
import errno
import http.client
import json
import socket
import ssl
import time
import traceback
from typing import Any, Callable, FrozenSet, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple, Type, TypeVar

import google.protobuf.message
import grpc

from . import _wire as wire
from ._errors import Cancelled, Outcome, Transient

Classifier = Callable[[BaseException], Optional[Outcome]]
T = TypeVar("T")

# Bounds the exceptions looked at.
_MAX_TREE = 256

# Class, reason, wish in seconds.
_Found = Optional[Tuple[int, str, float]]
_TRANSIENT: _Found = (wire.TRANSIENT, "transient", 0.0)
_PERMANENT: _Found = (wire.PERMANENT, "permanent", 0.0)
_POISON: _Found = (wire.PERMANENT, "poison", 0.0)


class Judgement(NamedTuple):
    """A verdict on the way to the wire."""

    class_: int
    reason: str = ""
    code: str = ""
    message: str = ""
    retry_after: float = 0.0
    causes: Tuple[str, ...] = ()
    stack: str = ""
    rule: str = ""


CANCELLED = Judgement(wire.UNSPECIFIED, rule="cancelled")


def timed_out(seconds: float) -> Judgement:
    """The verdict on a call that is not back."""
    return Judgement(wire.TRANSIENT, "timeout", message=f"no answer within {seconds:g} s", rule="timeout")


def classify(
    exc: BaseException,
    *,
    cancelled: bool = False,
    late: bool = False,
    draining: bool = False,
    classifiers: Sequence[Classifier] = (),
) -> Judgement:
    """The verdict on what a handler raised. cancelled: by the host; late: past its deadline;
    draining: asked to finish, when a call that gives up hands its record back."""
    if cancelled:
        return CANCELLED
    said = _first(exc, Outcome)
    if late and (said is None or isinstance(said, Transient) and said.wish is None):
        return _describe(exc, wire.TRANSIENT, "timeout", 0.0, "timeout")
    if said is None and draining and _canceled(exc):
        return CANCELLED
    if said is None:
        for ask in classifiers:
            said = ask(exc)
            if said is not None and said.class_ != wire.UNSPECIFIED:
                return _describe(exc, said.class_, said.reason, _wish(said), "classifier", said.code, str(said))
        return _by_rules(exc)
    wish = _wish(said)
    if isinstance(said, Transient) and said.wish is None:
        inner = [e.wish for e in _tree(said) if isinstance(e, Transient) and e.wish is not None]
        wish = inner[0] if inner else _asked(said)
    return _describe(exc, said.class_, said.reason, wish, said.rule)


def _by_rules(exc: BaseException) -> Judgement:
    for name, rule in _RULES:
        found = rule(exc)
        if found is not None:
            return _describe(exc, *found, name)
    if type(exc) in _PROGRAM or not isinstance(exc, Exception):
        return _describe(exc, wire.PERMANENT, "panic", 0.0, "panic")
    return _describe(exc, wire.PERMANENT, "permanent", 0.0, "unknown")


def _wish(said: Outcome) -> float:
    return max(said.wish or 0.0, 0.0) if isinstance(said, Transient) else 0.0


def _describe(
    exc: BaseException, class_: int, reason: str, wish: float, rule: str, code: str = "", message: str = ""
) -> Judgement:
    message = message or _say(exc)
    stack = ""
    if class_ == wire.PERMANENT and rule != "explicit" and reason != "poison":
        stack = _stack(exc)
    return Judgement(class_, reason, code or _code(exc), message, wish, _causes(exc, message), stack, rule)


def _say(exc: BaseException) -> str:
    """The text of ours; with its type before it that of any other, which often says little alone."""
    try:
        words = str(exc)
    except Exception:
        words = "(its text cannot be made)"
    if isinstance(exc, Outcome):
        return words
    name = type(exc).__qualname__
    return f"{name}: {words}" if words else name


def _causes(exc: BaseException, outer: str) -> Tuple[str, ...]:
    found: List[str] = []
    for e in _tree(exc, context=True):
        words = _say(e)
        # A wrapper that only repeats what it wraps says nothing.
        if words != outer and not (len(found) == 0 and words.endswith(": " + outer)):
            found.append(words)
        outer = words
        if len(found) == wire.MAX_CAUSES:
            break
    return tuple(found)


def _stack(exc: BaseException) -> str:
    """The traceback from the handler's own first line on; its end says most."""
    here = exc.__traceback__
    if here is not None and here.tb_next is not None:
        here = here.tb_next
    return "".join(traceback.format_exception(type(exc), exc, here))[-wire.MAX_STACK_BYTES :]


def _tree(exc: BaseException, context: bool = False) -> Iterator[BaseException]:
    """exc and what it was raised from, outermost first; with context also what it
    was raised during, which says nothing about what it means."""
    seen: Set[int] = set()
    stack: List[BaseException] = [exc]
    while stack and len(seen) < _MAX_TREE:
        e = stack.pop()
        if id(e) in seen:
            continue
        seen.add(id(e))
        yield e
        inner: List[Any] = [e.__cause__]
        if context and not e.__suppress_context__:
            inner.append(e.__context__)
        inner.append(getattr(e, "reason", None))  # urllib's and urllib3's way to wrap
        group = getattr(e, "exceptions", None)
        if isinstance(group, (list, tuple)):
            inner.extend(group)
        stack.extend(i for i in reversed(inner) if isinstance(i, BaseException))


def _first(exc: BaseException, kind: Type[T]) -> Optional[T]:
    for e in _tree(exc):
        if isinstance(e, kind):
            return e
    return None


def _has(exc: BaseException, *kinds: Type[BaseException]) -> bool:
    return any(isinstance(e, kinds) for e in _tree(exc))


def _named(exc: BaseException, names: FrozenSet[str]) -> bool:
    """Whether exc, or what it wraps, is of one of these classes: the libraries need not be there."""
    return any(f"{c.__module__}.{c.__qualname__}" in names for e in _tree(exc) for c in type(e).__mro__)


# The rules.


def _temporary(exc: BaseException) -> _Found:
    for e in _tree(exc):
        if _value(e, "temporary") is True:
            return wire.TRANSIENT, "transient", _asked(exc)
    return None


def _retry_after(exc: BaseException) -> _Found:
    wish = _asked(exc)
    return (wire.TRANSIENT, "transient", wish) if wish > 0 else None


def _asked(exc: BaseException) -> float:
    """How long exc, by a field of its own, asks to wait, in seconds; 0: not told."""
    for e in _tree(exc):
        wish = _value(e, "retry_after")
        if isinstance(wish, (int, float)) and not isinstance(wish, bool) and wish > 0:
            return float(wish)
    return 0.0


def _value(e: BaseException, name: str) -> Any:
    """A field, or what a method of this name returns."""
    try:
        v = getattr(e, name, None)
        return v() if callable(v) else v
    except Exception:
        return None


def _deadline(exc: BaseException) -> _Found:
    if _has(exc, TimeoutError, socket.timeout, asyncio.TimeoutError, concurrent.futures.TimeoutError):
        return _TRANSIENT
    return None


def _canceled(exc: BaseException) -> _Found:
    if _has(exc, Cancelled, asyncio.CancelledError, concurrent.futures.CancelledError):
        return _TRANSIENT
    return None


def _sqlstate_of(exc: BaseException) -> str:
    for e in _tree(exc):
        for name in ("sqlstate", "pgcode"):
            code = getattr(e, name, None)
            if isinstance(code, str) and len(code) == 5:
                return code
    return ""


def _sqlstate(exc: BaseException) -> _Found:
    code = _sqlstate_of(exc)
    if code[:2] in ("08", "40", "53") or code[:3] == "57P":
        return _TRANSIENT
    if code[:2] in ("22", "23", "42"):
        return _PERMANENT
    return None


def _status_of(exc: BaseException) -> Optional[int]:
    """The HTTP status of the errors of urllib, requests, httpx, aiohttp and botocore, among others."""
    for e in _tree(exc):
        response = getattr(e, "response", None)
        found = [getattr(e, "status_code", None), getattr(response, "status_code", None), getattr(e, "status", None)]
        if isinstance(response, dict) and isinstance(response.get("ResponseMetadata"), dict):
            found.append(response["ResponseMetadata"].get("HTTPStatusCode"))
        for n in found:
            if isinstance(n, int) and not isinstance(n, bool):
                return int(n)
    return None


def _status(exc: BaseException) -> _Found:
    n = _status_of(exc)
    if n is None:
        return None
    if n in (0, 408, 425, 429) or 500 <= n <= 599:
        return wire.TRANSIENT, "transient", _retry_after_header(exc)
    return _PERMANENT if 400 <= n <= 499 else None


def _retry_after_header(exc: BaseException) -> float:
    """How long a server asks to wait, in seconds; 0: not told."""
    for e in _tree(exc):
        for holder in (e, getattr(e, "response", None)):
            get = getattr(getattr(holder, "headers", None), "get", None)
            value = get("Retry-After") if callable(get) else None
            if not isinstance(value, str):
                continue
            if value.isascii() and value.isdigit():
                return float(value)
            try:
                return max(email.utils.parsedate_to_datetime(value).timestamp() - time.time(), 0.0)
            except (TypeError, ValueError, OverflowError):
                continue
    return 0.0


def _grpc_of(exc: BaseException) -> Tuple[Optional[grpc.StatusCode], Optional[BaseException]]:
    for e in _tree(exc):
        code = _value(e, "code") if isinstance(e, grpc.RpcError) else getattr(e, "grpc_status_code", None)
        if isinstance(code, grpc.StatusCode):
            return code, e
    return None, None


def _grpc(exc: BaseException) -> _Found:
    code, e = _grpc_of(exc)
    if code is None or e is None:
        return None
    wish = _retry_info(e)
    if wish is not None:
        return wire.TRANSIENT, "transient", wish
    if code in _GRPC_TRANSIENT:
        return _TRANSIENT
    return None if code in (grpc.StatusCode.OK, grpc.StatusCode.UNKNOWN) else _PERMANENT


_GRPC_TRANSIENT = (
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNAVAILABLE,
)


def _retry_info(e: BaseException) -> Optional[float]:
    """The delay in the details that a server sent along, in seconds; None: not told."""
    for key, value in _value(e, "trailing_metadata") or ():
        if key != "grpc-status-details-bin":
            continue
        try:
            for detail in wire.Status.FromString(value).details:
                if detail.type_url.endswith(b"/google.rpc.RetryInfo"):
                    delay = wire.RetryInfo.FromString(detail.value).retry_delay
                    return max(delay.seconds + delay.nanos / 1e9, 0.0)
        except google.protobuf.message.DecodeError:
            return None
    return None


_NETWORK_ERRNO = frozenset(
    (
        errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.ETIMEDOUT, errno.EHOSTUNREACH,
        errno.EHOSTDOWN, errno.ENETUNREACH, errno.ENETDOWN, errno.ENETRESET, errno.EADDRNOTAVAIL, errno.ENOTCONN,
    )
)  # fmt: skip

_NETWORK_NAMES = frozenset(
    (
        "requests.exceptions.ConnectionError",
        "requests.exceptions.Timeout",
        "requests.exceptions.ChunkedEncodingError",
        "urllib3.exceptions.ProtocolError",
        "urllib3.exceptions.TimeoutError",
        "urllib3.exceptions.NewConnectionError",
        "httpx.NetworkError",
        "httpx.TimeoutException",
        "httpx.ProxyError",
        "httpx.RemoteProtocolError",
        "aiohttp.client_exceptions.ClientConnectionError",
        "aiohttp.client_exceptions.ClientPayloadError",
        "botocore.exceptions.ConnectionError",
        "botocore.exceptions.HTTPClientError",
        "redis.exceptions.ConnectionError",
        "redis.exceptions.TimeoutError",
        "pymongo.errors.AutoReconnect",
        "psycopg.OperationalError",
        "psycopg2.OperationalError",
        "psycopg2.InterfaceError",
    )
)


def _network(exc: BaseException) -> _Found:
    if _has(exc, ConnectionError, socket.gaierror, socket.herror) or _named(exc, _NETWORK_NAMES):
        return _TRANSIENT
    if any(isinstance(e, OSError) and e.errno in _NETWORK_ERRNO for e in _tree(exc)):
        return _TRANSIENT
    return None


def _eof(exc: BaseException) -> _Found:
    if _has(exc, http.client.IncompleteRead, asyncio.IncompleteReadError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
        return _TRANSIENT
    return None


def _json(exc: BaseException) -> _Found:
    return _POISON if _has(exc, json.JSONDecodeError) else None


def _unicode(exc: BaseException) -> _Found:
    return _POISON if _has(exc, UnicodeDecodeError) else None


def _protobuf(exc: BaseException) -> _Found:
    return _POISON if _has(exc, google.protobuf.message.DecodeError) else None


_RULES: Tuple[Tuple[str, Callable[[BaseException], _Found]], ...] = (
    ("temporary", _temporary),
    ("retry-after", _retry_after),
    ("deadline", _deadline),
    ("canceled", _canceled),
    ("sqlstate", _sqlstate),
    ("status", _status),
    ("grpc", _grpc),
    ("network", _network),
    ("eof", _eof),
    ("json", _json),
    ("unicode", _unicode),
    ("protobuf", _protobuf),
)

# Bugs of the program, or data that it did not expect: what panics in other
# languages. Only these very types: one derived from them is said on purpose.
_PROGRAM = frozenset(
    (
        AssertionError, AttributeError, IndexError, KeyError, NameError, NotImplementedError, RecursionError, TypeError,
        UnboundLocalError, ZeroDivisionError,
    )
)  # fmt: skip


def _code(exc: BaseException) -> str:
    """The machine-readable word that exc has, whatever rule fires."""
    for e in _tree(exc):
        if isinstance(e, Outcome) and e.code:
            return e.code
        code = getattr(e, "error_code", None)
        if isinstance(code, str) and code:
            return code
    code = _sqlstate_of(exc)
    if code:
        return code
    n = _status_of(exc)
    if n is not None:
        return str(n)
    status, _ = _grpc_of(exc)
    if status is not None:
        return "".join(word.title() for word in status.name.split("_"))
    return ""
