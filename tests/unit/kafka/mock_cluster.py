"""librdkafka's own mock cluster, driven through the library in the client's wheel: a Kafka with faults on demand.

It supports produce, fetch, groups of both protocols, and plain commits. It does not support compaction, topic settings,
open transactions (their records are visible at once), offsets in transactions, a limit for the text of a commit, errors
for single partitions of a commit, retention of a group's offsets, or questions about a group's members.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka

__all__ = [
    "CONSUMER_GROUP_HEARTBEAT",
    "END_TXN",
    "FIND_COORDINATOR",
    "HEARTBEAT",
    "JOIN_GROUP",
    "LEAVE_GROUP",
    "LIST_OFFSETS",
    "OFFSET_COMMIT",
    "OFFSET_FETCH",
    "PRODUCE",
    "SYNC_GROUP",
    "MockCluster",
]

PRODUCE = 0
"""The API key of produce requests. The names below are other API keys."""
LIST_OFFSETS = 2
METADATA = 3
OFFSET_COMMIT = 8
OFFSET_FETCH = 9
FIND_COORDINATOR = 10
JOIN_GROUP = 11
HEARTBEAT = 12
LEAVE_GROUP = 13
SYNC_GROUP = 14
END_TXN = 26
CONSUMER_GROUP_HEARTBEAT = 68


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
_set_controller = _function("rd_kafka_mock_set_controller_id", None, _pointer, ctypes.c_int32)
_set_join_delay = _function("rd_kafka_mock_group_initial_rebalance_delay_ms", None, _pointer, ctypes.c_int32)
_set_heartbeats = _function("rd_kafka_mock_set_group_consumer_heartbeat_interval_ms", None, _pointer, _int)
_set_session = _function("rd_kafka_mock_set_group_consumer_session_timeout_ms", None, _pointer, _int)
_topic_create = _function("rd_kafka_mock_topic_create", _int, _pointer, _text, _int, _int)
_topic_delete = _function("rd_kafka_mock_topic_delete", _int, _pointer, _text)
_partition_set_leader = _function(
    "rd_kafka_mock_partition_set_leader", _int, _pointer, _text, ctypes.c_int32, ctypes.c_int32
)
_topic_set_error = _function("rd_kafka_mock_topic_set_error", None, _pointer, _text, _int)
_delete_records = _function(
    "rd_kafka_mock_partition_delete_records", _int, _pointer, _text, ctypes.c_int32, ctypes.c_int64
)
_coordinator_set = _function("rd_kafka_mock_coordinator_set", _int, _pointer, _text, _text, ctypes.c_int32)
_push_errors = _function(
    "rd_kafka_mock_push_request_errors_array",
    None,
    _pointer,
    ctypes.c_int16,
    ctypes.c_size_t,
    ctypes.POINTER(_int),
)
_clear_errors = _function("rd_kafka_mock_clear_request_errors", None, _pointer, ctypes.c_int16)
_push_delays = _function(  # variadic: pairs of an error and a delay follow
    "rd_kafka_mock_broker_push_request_error_rtts",
    _int,
    _pointer,
    ctypes.c_int32,
    ctypes.c_int16,
    ctypes.c_size_t,
)
_set_rtt = _function("rd_kafka_mock_broker_set_rtt", _int, _pointer, ctypes.c_int32, _int)
_set_down = _function("rd_kafka_mock_broker_set_down", _int, _pointer, ctypes.c_int32)
_set_up = _function("rd_kafka_mock_broker_set_up", _int, _pointer, ctypes.c_int32)
_start_tracking = _function("rd_kafka_mock_start_request_tracking", None, _pointer)
_requests = _function("rd_kafka_mock_get_requests", _pointer, _pointer, ctypes.POINTER(ctypes.c_size_t))
_requests_destroy = _function("rd_kafka_mock_request_destroy_array", None, _pointer, ctypes.c_size_t)
_request_api = _function("rd_kafka_mock_request_api_key", ctypes.c_int16, _pointer)


class MockCluster:
    """Mock brokers in this process: number 1, which is the controller, and more if wanted."""

    def __init__(self, brokers: int = 1) -> None:
        message = ctypes.create_string_buffer(512)
        conf = _conf_new()
        _conf_set(conf, b"log_level", b"0", message, 512)
        self._client = _new(0, conf, message, 512)  # a producer hosts the cluster
        self._cluster = _cluster_new(self._client, brokers)
        self._brokers = range(1, brokers + 1)
        _set_controller(self._cluster, 1)  # without one, an admin client gets no answers
        _set_join_delay(self._cluster, 0)
        _set_heartbeats(self._cluster, 100)
        self._seen: int | None = None  # requests counted so far
        self._counts: Counter[int] = Counter()
        self.bootstrap_servers: str = _bootstraps(self._cluster).decode()

    def create_topic(self, name: str, partitions: int = 1) -> None:
        assert _topic_create(self._cluster, name.encode(), partitions, len(self._brokers)) == 0

    def delete_topic(self, name: str) -> None:
        assert _topic_delete(self._cluster, name.encode()) == 0

    def elect(self, topic: str, partition: int, broker: int) -> None:
        """Make this broker the partition's leader."""
        assert _partition_set_leader(self._cluster, topic.encode(), partition, broker) == 0

    def hide_topic(self, name: str) -> None:
        """Make brokers deny the topic in metadata answers, as if they had not heard of it yet."""
        _topic_set_error(self._cluster, name.encode(), confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART)

    def show_topic(self, name: str) -> None:
        """Undo `hide_topic`."""
        _topic_set_error(self._cluster, name.encode(), 0)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        assert _delete_records(self._cluster, topic.encode(), partition, before) == 0

    def move_group(self, group: str, broker: int) -> None:
        """Make this broker the group's coordinator."""
        assert _coordinator_set(self._cluster, b"group", group.encode(), broker) == 0

    def move_transactions(self, transactional_id: str, broker: int) -> None:
        """Make this broker the coordinator of the transactions with this id."""
        assert _coordinator_set(self._cluster, b"transaction", transactional_id.encode(), broker) == 0

    def set_session(self, milliseconds: int) -> None:
        """Set how long a silent member of the new protocol stays in its group, for future groups."""
        _set_session(self._cluster, milliseconds)

    def fail_next(self, api: int, *codes: int) -> None:
        """Answer the next requests of this kind with these errors, one each, and store nothing.

        The client's own error ``_TRANSPORT`` closes the connection instead.
        """
        _push_errors(self._cluster, api, len(codes), (_int * len(codes))(*codes))

    def fail_no_more(self, api: int) -> None:
        """Forget the remaining errors."""
        _clear_errors(self._cluster, api)

    def delay_next(self, api: int, seconds: float) -> None:
        """Handle the next request of this kind to broker 1 at once, and answer it this much later."""
        assert _push_delays(self._cluster, 1, api, 1, _int(0), _int(round(seconds * 1000))) == 0

    def requests(self, api: int) -> int:
        """Return how many requests of this kind have come since the first call of this method."""
        if self._seen is None:
            self._seen = 0
            _start_tracking(self._cluster)
        count = ctypes.c_size_t()
        array = _requests(self._cluster, ctypes.byref(count))
        if array:
            pointers = ctypes.cast(array, ctypes.POINTER(ctypes.c_void_p))
            self._counts.update(_request_api(pointers[number]) for number in range(self._seen, count.value))
            self._seen = count.value
            _requests_destroy(array, count)
        return self._counts[api]

    def set_latency(self, milliseconds: int) -> None:
        for broker in self._brokers:
            _set_rtt(self._cluster, broker, milliseconds)

    def down(self, *brokers: int) -> None:
        for broker in brokers or self._brokers:
            _set_down(self._cluster, broker)

    def up(self, *brokers: int) -> None:
        for broker in brokers or self._brokers:
            _set_up(self._cluster, broker)

    def close(self) -> None:
        _cluster_destroy(self._cluster)
        _destroy(self._client)
