"""Handlers for kconsume, in Python.

    from kconsume import Message, Transient, handler, serve

    @handler
    def handle(m: Message) -> None:
        order = m.json()
        ...

    serve(name="orders", version="1.0", topics=["orders.confirmed"])
"""

import os as _os

from . import _lifeline  # noqa: F401, before gRPC: see there

# gRPC tells of each connection that ends; unless somebody asks for that it is only noise
# in the log.
_os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

from ._classify import Classifier
from ._errors import Cancelled, Drop, Outcome, Permanent, Poison, Transient
from ._handler import batch_handler, handler
from ._message import Batch, Header, Message
from ._serve import serve

__all__ = [
    "Batch",
    "Cancelled",
    "Classifier",
    "Drop",
    "Header",
    "Message",
    "Outcome",
    "Permanent",
    "Poison",
    "Transient",
    "batch_handler",
    "handler",
    "serve",
]

__version__ = "1.0.0"
