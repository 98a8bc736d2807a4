"""The frames of plugin/proto/handler.proto, and the texts in them.

The messages are made from a table when the module is loaded: there is no
generated code, which would tie the package to one release of protobuf. A test
holds the table against the .proto file.
"""

from __future__ import annotations

from typing import Any, Dict, List, Tuple, Union

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "kconsume.handler.v1"
SERVICE = PACKAGE + ".Handler"

PROTOCOL_VERSION = 1
COOKIE_KEY = "KCONSUME_HANDLER"
COOKIE_VALUE = "cc4f6a0e-handler-v1"
SOCKET_DIR_KEY = "PLUGIN_UNIX_SOCKET_DIR"

# Bounds of one verdict: of each text, of codes, of a stack, and the number of causes.
MAX_TEXT_BYTES = 8 << 10
MAX_CODE_BYTES = 256
MAX_STACK_BYTES = 16 << 10
MAX_CAUSES = 16
MAX_FRAME_BYTES = 256 << 20
MAX_VERDICT_BYTES = MAX_FRAME_BYTES // 2
# About the most that goes into one frame of verdicts; a larger verdict goes alone.
FRAME_BYTES = 1 << 20
MAX_RETRY_AFTER_MS = 1 << 53

# Classes of a verdict.
UNSPECIFIED, ACK, TRANSIENT, PERMANENT, DROP = range(5)

# Each field: name, number, type. "?" may be absent, "*" repeats, a capital is a
# message. The enum of a verdict's class goes over the wire as an int32 does.
TABLE: Dict[str, List[Tuple[str, int, str]]] = {
    "HostFrame": [("records", 1, "*Record"), ("drain", 2, "bool"), ("start", 3, "Start"), ("cancel", 4, "*uint64")],
    "Start": [("concurrency", 1, "uint32")],
    "Record": [
        ("handle", 1, "uint64"), ("id", 2, "bytes"), ("topic", 3, "bytes"), ("partition", 4, "int32"),
        ("offset", 5, "int64"), ("time_ms", 6, "int64"), ("key", 7, "?bytes"), ("value", 8, "?bytes"),
        ("headers", 9, "*Header"), ("attempt", 10, "uint32"), ("max_attempts", 11, "uint32"),
        ("stage", 12, "bytes"), ("deadline_ms", 13, "uint32"), ("trace", 14, "bytes"),
        ("trace_state", 15, "bytes"),
    ],
    "Header": [("key", 1, "bytes"), ("value", 2, "?bytes")],
    "PluginFrame": [("hello", 1, "Hello"), ("acked", 2, "*uint64"), ("verdicts", 3, "*Verdict"), ("ended", 4, "*uint64")],
    "Hello": [
        ("sdk", 1, "bytes"), ("name", 2, "bytes"), ("version", 3, "bytes"), ("topics", 4, "*bytes"),
        ("max_records", 5, "uint32"), ("max_bytes", 6, "uint64"), ("beats_may_wait", 7, "bool"),
        ("capabilities", 8, "*bytes"), ("concurrency", 9, "uint32"),
    ],
    "Verdict": [
        ("handle", 1, "uint64"), ("class_", 2, "int32"), ("reason", 3, "bytes"), ("code", 4, "bytes"),
        ("message", 5, "bytes"), ("retry_after_ms", 6, "uint64"), ("causes", 7, "*bytes"), ("stack", 8, "bytes"),
        ("rule", 9, "bytes"), ("emitted", 10, "*Emit"), ("late", 11, "bool"),
    ],
    "Emit": [("topic", 1, "bytes"), ("key", 2, "?bytes"), ("value", 3, "?bytes"), ("headers", 4, "*Header")],
    "Beat": [("seq", 1, "uint64")],
}

# google.rpc.Status, which gRPC errors carry in their trailing metadata, as far as it
# tells how long to wait.
_STATUS: Dict[str, List[Tuple[str, int, str]]] = {
    "Status": [("details", 3, "*Detail")],
    "Detail": [("type_url", 1, "bytes"), ("value", 2, "bytes")],
    "RetryInfo": [("retry_delay", 1, "Delay")],
    "Delay": [("seconds", 1, "int64"), ("nanos", 2, "int32")],
}

_Field = descriptor_pb2.FieldDescriptorProto


def _messages(package: str, table: Dict[str, List[Tuple[str, int, str]]]) -> Dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name=package + ".table", package=package, syntax="proto3")
    for name, fields in table.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            mark, kind = (kind[0], kind[1:]) if kind[0] in "?*" else ("", kind)
            f = message.field.add(
                name=field, number=number, label=_Field.LABEL_REPEATED if mark == "*" else _Field.LABEL_OPTIONAL
            )
            if kind[0].isupper():
                f.type, f.type_name = _Field.TYPE_MESSAGE, f".{package}.{kind}"
            else:
                f.type = getattr(_Field, "TYPE_" + kind.upper())
            if mark == "?":
                f.proto3_optional, f.oneof_index = True, len(message.oneof_decl)
                message.oneof_decl.add(name="_" + field)
    # A pool of our own: other copies of the contract may be loaded, too.
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {n: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{n}")) for n in table}


_made = _messages(PACKAGE, TABLE)
HostFrame, Start, Record, Header = _made["HostFrame"], _made["Start"], _made["Record"], _made["Header"]
PluginFrame, Hello, Verdict = _made["PluginFrame"], _made["Hello"], _made["Verdict"]
Emit, Beat = _made["Emit"], _made["Beat"]
_made = _messages("google.rpc", _STATUS)
Status, RetryInfo = _made["Status"], _made["RetryInfo"]


def text(b: bytes) -> str:
    """Bytes as a str that encode() turns back into the same bytes, whatever they are."""
    return b.decode("utf-8", "surrogateescape")


def encode(s: Union[str, bytes]) -> bytes:
    """The bytes of a text. Half a surrogate pair becomes a question mark."""
    if isinstance(s, bytes):
        return s
    try:
        return s.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return s.encode("utf-8", "replace")
