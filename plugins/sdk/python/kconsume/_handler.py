"""The decorators, and what serve knows of a handler."""

from __future__ import annotations

import inspect
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, TypeVar, Union, overload

from . import _wire as wire
from ._classify import Classifier
from ._message import Batch, Message

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__kconsume__"


class Options(NamedTuple):
    """What a decorator says."""

    threads: int
    batch: int  # 0: one record a call


class Config(NamedTuple):
    """What a handler is."""

    handle: Callable[[Any], Any]
    name: str
    version: str
    topics: Sequence[str]
    threads: int
    batch: int
    classifiers: Sequence[Classifier]
    close: Optional[Callable[[], Any]]

    def hello(self) -> Any:
        return wire.Hello(
            sdk=b"python/1",
            name=wire.encode(self.name),
            version=wire.encode(self.version),
            topics=[wire.encode(t) for t in self.topics],
            # C code that keeps the interpreter's lock delays beats.
            beats_may_wait=True,
            capabilities=[b"batch"] if self.batch else [],
            concurrency=self.threads,
        )


_decorated: List[Callable[..., Any]] = []  # for serve, which takes the only one


@overload
def handler(fn: Callable[[Message], None]) -> Callable[[Message], None]: ...
@overload
def handler(*, threads: int = 1) -> Callable[[F], F]: ...
def handler(fn: Optional[Callable[[Message], None]] = None, *, threads: int = 1) -> Any:
    """Makes a function the handler of one record: @handler, or @handler(threads=8) for one
    that waits for other systems and may run in so many threads at once. Return means
    done; to say anything else it raises: see Transient, Permanent, Drop."""
    decorate = _decorator(Options(threads, 0))
    return decorate if fn is None else decorate(fn)


@overload
def batch_handler(fn: Callable[[Batch], None]) -> Callable[[Batch], None]: ...
@overload
def batch_handler(*, max: int = 100, threads: int = 1) -> Callable[[F], F]: ...
def batch_handler(fn: Optional[Callable[[Batch], None]] = None, *, max: int = 100, threads: int = 1) -> Any:
    """Makes a function the handler of at most max records at a time: of those that wait when
    it is called; it is never held back to make a batch fuller."""
    if max < 1:
        raise ValueError(f"batch_handler(max={max}): a batch holds at least 1 record")
    decorate = _decorator(Options(threads, max))
    return decorate if fn is None else decorate(fn)


def _decorator(options: Options) -> Callable[[F], F]:
    if options.threads < 1:
        raise ValueError(f"threads={options.threads}: a handler needs at least 1 thread")

    def decorate(fn: F) -> F:
        _check(fn)
        setattr(fn, _MARK, options)
        _decorated.append(fn)
        return fn

    return decorate


def _check(fn: Any) -> None:
    if not callable(fn):
        raise TypeError(f"a handler is a function, not {fn!r}")
    if inspect.iscoroutinefunction(fn) or inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise TypeError(f"{fn.__qualname__} is async or a generator: a handler is an ordinary function, see @handler(threads=8)")


def configure(
    handle: Optional[Callable[[Any], Any]],
    name: str,
    version: str = "",
    topics: Union[str, Sequence[str]] = (),
    classifiers: Sequence[Classifier] = (),
    close: Optional[Callable[[], Any]] = None,
) -> Config:
    """Checks what serve was given."""
    if handle is None:
        if len(_decorated) != 1:
            found = ", ".join(f.__qualname__ for f in _decorated) or "none"
            raise ValueError(f"serve needs one function with @handler or @batch_handler (found: {found}), or one as its argument")
        handle = _decorated[0]
    _check(handle)
    if not name:
        raise ValueError("serve needs a name, the one that --handler calls it")
    topics = [topics] if isinstance(topics, str) else list(topics)
    options = getattr(handle, _MARK, Options(1, 0))
    return Config(handle, name, version, topics, options.threads, options.batch, tuple(classifiers), close)
