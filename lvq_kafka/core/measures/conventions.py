"""Names of OpenTelemetry's semantic conventions for messaging, in one version.

These conventions still change. A later version is taken over here, and nowhere else.
"""

from __future__ import annotations

__all__ = [
    "ERROR_TYPE",
    "GROUP",
    "KEY",
    "OFFSET",
    "OPERATION_NAME",
    "OPERATION_TYPE",
    "PARTITION",
    "SCHEMA_URL",
    "SYSTEM",
    "TOMBSTONE",
    "TOPIC",
    "TRACE_HEADERS",
    "VERSION",
]

VERSION = "1.44.0"
"""The version of the conventions."""

SCHEMA_URL = f"https://opentelemetry.io/schemas/{VERSION}"

SYSTEM = "messaging.system"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
TOPIC = "messaging.destination.name"
PARTITION = "messaging.destination.partition.id"
GROUP = "messaging.consumer.group.name"
KEY = "messaging.kafka.message.key"
OFFSET = "messaging.kafka.offset"
TOMBSTONE = "messaging.kafka.message.tombstone"
ERROR_TYPE = "error.type"

TRACE_HEADERS = ("traceparent", "tracestate")
"""The headers that carry the context of a trace (W3C Trace Context)."""
