"""The log records of an OTLP export, as JSON and as Protobuf.

Follows opentelemetry-proto (`logs/v1/logs.proto`) and the JSON encoding of
https://opentelemetry.io/docs/specs/otlp/. The Kafka exporter of the OpenTelemetry Collector writes
both (`otlp_proto`, its default, and `otlp_json`); a message is a batch of records.
"""

import re
from base64 import b64decode
from collections.abc import Iterable
from typing import Any, Final

from google.protobuf.message import DecodeError
from msgspec import Struct
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData

from consumer.core.bodies.json_text import loads_tolerantly, raw_json
from consumer.core.message import trace_of
from consumer.core.times import event_time
from schemas import BadPayloadReason

OTLP_MEMBER: Final = "resourceLogs"
_INTEGER: Final = re.compile(r"-?[0-9]{1,20}")
_MAX_EXACT: Final = 2**53  # The first whole number that a double may have rounded.
_FIRST_FIELD: Final = b"\n"  # Of LogsData: resource_logs, a message.


class LogRecord(Struct, frozen=True):
    """One log record.

    Attributes:
        parts: what may hold an event, as text: the body, then the attributes as a JSON object.
        time: when it happened, in milliseconds since 1970.
        traceparent: its span, as W3C Trace Context writes it.

    """

    parts: tuple[bytes, ...]
    time: int | None
    traceparent: str | None


def json_records(resource_logs: bytes, limit: int) -> list[LogRecord] | BadPayloadReason:
    """Return the log records under the member `resourceLogs`, unless they are more than a limit."""
    decoded = loads_tolerantly(resource_logs)
    if isinstance(decoded, BadPayloadReason):
        return decoded
    scopes = [
        scope for resource in _objects(decoded) for scope in _objects(resource.get("scopeLogs"))
    ]
    records = [record for scope in scopes for record in _objects(scope.get("logRecords"))]
    if len(records) > limit:
        return BadPayloadReason.TOO_MANY_ENTRIES
    try:
        return [
            _record(
                _json_value(record.get("body")),
                _json_attributes(record.get("attributes")),
                (record.get("timeUnixNano"), record.get("observedTimeUnixNano")),
                (record.get("traceId"), record.get("spanId"), record.get("flags")),
            )
            for record in records
        ]
    except RecursionError:
        return BadPayloadReason.TOO_DEEP


def protobuf_records(value: bytes, limit: int) -> list[LogRecord] | BadPayloadReason | None:
    """Return the log records of a Protobuf message; None if it is not one of them.

    Records, and what holds them, may not be more than a limit.
    """
    if not value.startswith(_FIRST_FIELD):
        return None
    try:
        logs = LogsData.FromString(value)
    except DecodeError:
        return None
    if len(logs.resource_logs) > limit:
        return BadPayloadReason.TOO_MANY_ENTRIES
    groups = [resource.scope_logs for resource in logs.resource_logs]
    if sum(map(len, groups)) > limit:
        return BadPayloadReason.TOO_MANY_ENTRIES
    scopes = [scope.log_records for group in groups for scope in group]
    if sum(map(len, scopes)) > limit:
        return BadPayloadReason.TOO_MANY_ENTRIES
    records = [
        _record(
            _protobuf_value(record.body),
            _protobuf_attributes(record.attributes),
            (record.time_unix_nano, record.observed_time_unix_nano),
            (record.trace_id.hex(), record.span_id.hex(), record.flags),
        )
        for scope in scopes
        for record in scope
    ]
    return records or None


def _record(
    body: Any, attributes: dict[str, Any], times: tuple[Any, Any], span: tuple[Any, Any, Any]
) -> LogRecord:
    parts = [body.encode("utf-8", "replace") if isinstance(body, str) else bytes(raw_json(body))]
    if attributes:
        parts.append(bytes(raw_json(attributes)))
    time = next((ms for stated in times if (ms := event_time(stated)) is not None), None)
    trace_id, span_id, flags = span
    sampled = flags & 1 if type(flags) is int else 0
    trace = trace_of([("traceparent", f"00-{trace_id}-{span_id}-{sampled:02x}")])
    return LogRecord(tuple(parts), time, trace)


def _objects(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _json_attributes(value: Any) -> dict[str, Any]:
    return {str(entry.get("key")): _json_value(entry.get("value")) for entry in _objects(value)}


def _json_value(value: Any) -> Any:
    """Return an AnyValue as plain JSON."""
    if not isinstance(value, dict):
        return None
    kind, content = next(iter(value.items()), ("", None))
    if kind in ("arrayValue", "kvlistValue"):
        values = content.get("values") if isinstance(content, dict) else None
        return (
            _json_attributes(values)
            if kind == "kvlistValue"
            else [_json_value(entry) for entry in _objects(values)]
        )
    if kind == "intValue" and isinstance(content, str):  # Proto JSON writes 64 bits as text.
        return int(content) if _INTEGER.fullmatch(content) else content
    if isinstance(content, float):
        return _number(content)
    return _decoded_base64(content) if kind == "bytesValue" else content


def _decoded_base64(text: Any) -> str | None:
    try:
        return b64decode(text, validate=True).decode("utf-8", "replace")
    except (TypeError, ValueError):
        return None


def _protobuf_attributes(attributes: Iterable[KeyValue]) -> dict[str, Any]:
    return {attribute.key: _protobuf_value(attribute.value) for attribute in attributes}


def _protobuf_value(value: AnyValue) -> Any:
    """Return an AnyValue as plain JSON."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_protobuf_value(entry) for entry in value.array_value.values]
    if kind == "kvlist_value":
        return _protobuf_attributes(value.kvlist_value.values)
    if kind == "bytes_value":
        return value.bytes_value.decode("utf-8", "replace")
    if kind == "double_value":
        return _number(value.double_value)
    return None if kind is None else getattr(value, kind)


def _number(stated: float) -> float:
    """Return a whole number as such: the Collector parses all numbers of JSON as doubles."""
    return int(stated) if stated.is_integer() and abs(stated) <= _MAX_EXACT else stated
