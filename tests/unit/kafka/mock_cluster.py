"""librdkafka's own mock cluster, driven through the library in the client's wheel: a Kafka with faults to order.

It knows produce, fetch, groups and transactions, and neither compaction nor topic settings.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka

__all__ = ["PRODUCE", "MockCluster"]

PRODUCE = 0
"""The API key of produce requests."""


def _library() -> ctypes.CDLL:
    package = Path(confluent_kafka.__file__).parent
    for folder in (package.parent / "confluent_kafka.libs", package / ".dylibs"):
        for path in folder.glob("librdkafka*"):
            return ctypes.CDLL(str(path))
    raise RuntimeError(f"There is no librdkafka beside {package}.")


_lib = _library()
_pointer, _int, _text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p


def _function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    function = getattr(_lib, name)
    function.restype, function.argtypes = result, list(arguments)
    return function  # type: ignore[no-any-return]


_conf_new = _function("rd_kafka_conf_new", _pointer)
_conf_set = _function("rd_kafka_conf_set", _int, _pointer, _text, _text, _text, ctypes.c_size_t)
_new = _function("rd_kafka_new", _pointer, _int, _pointer, _text, ctypes.c_size_t)
_destroy = _function("rd_kafka_destroy", None, _pointer)
_cluster_new = _function("rd_kafka_mock_cluster_new", _pointer, _pointer, _int)
_cluster_destroy = _function("rd_kafka_mock_cluster_destroy", None, _pointer)
_bootstraps = _function("rd_kafka_mock_cluster_bootstraps", _text, _pointer)
_topic_create = _function("rd_kafka_mock_topic_create", _int, _pointer, _text, _int, _int)
_push_errors = _function(
    "rd_kafka_mock_push_request_errors_array",
    None,
    _pointer,
    ctypes.c_int16,
    ctypes.c_size_t,
    ctypes.POINTER(_int),
)
_set_rtt = _function("rd_kafka_mock_broker_set_rtt", _int, _pointer, ctypes.c_int32, _int)
_set_down = _function("rd_kafka_mock_broker_set_down", _int, _pointer, ctypes.c_int32)
_set_up = _function("rd_kafka_mock_broker_set_up", _int, _pointer, ctypes.c_int32)


class MockCluster:
    """One mock broker in this process."""

    def __init__(self) -> None:
        message = ctypes.create_string_buffer(512)
        conf = _conf_new()
        _conf_set(conf, b"log_level", b"0", message, 512)
        self._client = _new(0, conf, message, 512)  # the cluster lives in a producer
        self._cluster = _cluster_new(self._client, 1)
        self.bootstrap_servers: str = _bootstraps(self._cluster).decode()

    def create_topic(self, name: str, partitions: int = 1) -> None:
        assert _topic_create(self._cluster, name.encode(), partitions, 1) == 0

    def fail_next(self, api: int, *codes: int) -> None:
        """The next requests of this kind are answered with these errors, one each; nothing is stored."""
        _push_errors(self._cluster, api, len(codes), (_int * len(codes))(*codes))

    def set_latency(self, milliseconds: int) -> None:
        _set_rtt(self._cluster, 1, milliseconds)

    def down(self) -> None:
        _set_down(self._cluster, 1)

    def up(self) -> None:
        _set_up(self._cluster, 1)

    def close(self) -> None:
        _cluster_destroy(self._cluster)
        _destroy(self._client)
