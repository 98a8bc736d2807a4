"""What a handler raises to say what becomes of a record."""

from __future__ import annotations

from datetime import timedelta
from typing import Optional, Union

from . import _wire as wire


class Outcome(Exception):
    """The base of Transient, Permanent and Drop; not raised itself.

    message is the text, or the exception that is the cause and gives its text.
    code is a short machine-readable word. "raise … from err" tells the cause.
    """

    class_ = wire.UNSPECIFIED
    reason = ""
    rule = "explicit"

    def __init__(self, message: Union[str, BaseException] = "", *, code: str = "") -> None:
        super().__init__(str(message))
        self.code = code
        if isinstance(message, BaseException):
            self.__cause__ = message


class Transient(Outcome):
    """It may pass: the record is delivered again, after the retry topics' delays.

    retry_after is a wish for how long to wait, in seconds.
    """

    class_ = wire.TRANSIENT
    reason = "transient"

    def __init__(
        self,
        message: Union[str, BaseException] = "",
        *,
        retry_after: Union[float, timedelta, None] = None,
        code: str = "",
    ) -> None:
        super().__init__(message, code=code)
        if isinstance(retry_after, timedelta):
            retry_after = retry_after.total_seconds()
        self.wish: Optional[float] = None if retry_after is None else float(retry_after)


class Permanent(Outcome):
    """It will not pass: the record goes to the dead letters."""

    class_ = wire.PERMANENT
    reason = "permanent"


class Poison(Permanent):
    """The record's bytes cannot be decoded: it goes to the dead letters as a poison pill."""

    reason = "poison"


class Drop(Outcome):
    """Nothing is to be done for the record, on purpose: done, and counted apart."""

    class_ = wire.DROP


class Cancelled(BaseException):
    """kconsume wants no answer any more, or the deadline has passed.

    Message.sleep and Message.check raise it; let it pass. It is no Exception, so
    that "except Exception" does not catch it.
    """
