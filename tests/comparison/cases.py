"""Cases of the comparison: a queue in the words of each system, a script, and the expected results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lvq_kafka import Groups, Limits
from tests.benchmarks.peers.brokers import KEY
from tests.comparison.steps import SentMessage, Step

__all__ = ["CASES", "Case", "Other"]

_LVQ_IN_ARTEMIS = {"last-value-key": KEY}
_LVQ_IN_BROKER_J = {"type": "lvq", "lvqKey": KEY}


@dataclass(frozen=True)
class Other:
    """A queue in another broker."""

    attributes: Mapping[str, Any]
    differs: str = ""
    """The rule by which its results differ; empty if they are the same."""
    results: Sequence[Any] = ()
    """Its results, if they differ."""


@dataclass(frozen=True)
class Case:
    """A script that several systems carry out."""

    name: str
    options: Mapping[str, Any]
    """Those of our queue."""
    script: Sequence[Step]
    results: Sequence[Any]
    artemis: Other | None = None
    broker_j: Other | None = field(default=None)

    @property
    def others(self) -> dict[str, Other]:
        """The other brokers that can do it, by name."""
        named = {"artemis": self.artemis, "broker-j": self.broker_j}
        return {name: other for name, other in named.items() if other is not None}


def _sends(*messages: SentMessage) -> list[Step]:
    return [("send", message) for message in messages]


_DRAIN: list[Step] = [("open", "c"), ("drain", "c")]
_PRIORITIES = _sends(
    {"body": "a4", "priority": 4},
    {"body": "b9", "priority": 9},
    {"body": "c0", "priority": 0},
    {"body": "d"},
    {"body": "e9", "priority": 9},
    {"body": "f5", "priority": 5},
    {"body": "g3", "priority": 3},
    {"body": "h8", "priority": 8},
)
_TWO_CONSUMERS: list[Step] = [("open", "c1"), ("open", "c2")]
_GROUPED = _sends(
    {"body": "1", "group": "ONE"},
    {"body": "2", "group": "TWO"},
    {"body": "3", "group": "ONE"},
    {"body": "4", "group": "TWO"},
)
_STANDARD: dict[str, Any] = {"conflate": False, "key_header": None}

CASES = (
    Case(
        "ten priorities, and none is 4",
        _STANDARD | {"order": "priority"},
        [*_PRIORITIES, *_DRAIN],
        [["b9", "e9", "h8", "f5", "a4", "d", "g3", "c0"]],
        artemis=Other({}),
        broker_j=Other({"type": "priority", "priorities": 10}),
    ),
    Case(
        "two levels of priority",
        _STANDARD | {"order": "priority", "priorities": 2},
        [*_PRIORITIES, *_DRAIN],
        [["b9", "e9", "f5", "h8", "a4", "c0", "d", "g3"]],
        broker_j=Other({"type": "priority", "priorities": 2}),
    ),
    Case(
        "three levels of priority",
        _STANDARD | {"order": "priority", "priorities": 3},
        [*_PRIORITIES, *_DRAIN],
        [["b9", "e9", "f5", "h8", "a4", "d", "c0", "g3"]],
        broker_j=Other({"type": "priority", "priorities": 3}),
    ),
    Case(
        "sorted by a header, without it first, the same in order of arrival",
        _STANDARD | {"order": "sorted", "sort_header": "sort"},
        [
            *_sends(
                {"body": "b1", "sort": "b"},
                {"body": "none"},
                {"body": "aa", "sort": "aa"},
                {"body": "b2", "sort": "b"},
                {"body": "B", "sort": "B"},
                {"body": "10", "sort": "10"},
                {"body": "9", "sort": "9"},
                {"body": "a", "sort": "a"},
            ),
            *_DRAIN,
        ],
        [["none", "10", "9", "B", "a", "aa", "b1", "b2"]],
        broker_j=Other({"type": "sorted", "sortKey": "sort"}),
    ),
    Case(
        "a last value queue with priorities: the newest value's priority counts",
        {"key_header": KEY, "order": "priority"},
        [
            *_sends(
                {"body": "a1", "key": "a", "priority": 9},
                {"body": "b1", "key": "b", "priority": 5},
                {"body": "c1", "key": "c", "priority": 1},
                {"body": "a2", "key": "a", "priority": 2},
                {"body": "c2", "key": "c", "priority": 8},
            ),
            *_DRAIN,
        ],
        [["c2", "b1", "a2"]],
        artemis=Other(_LVQ_IN_ARTEMIS),
        broker_j=Other(
            _LVQ_IN_BROKER_J, "its last value queues have no order but that of arrival", [["b1", "a2", "c2"]]
        ),
    ),
    Case(
        "S131 sticky groups: a consumer keeps the groups that it began",
        _STANDARD | {"groups": Groups(header="JMSXGroupID")},
        [
            *_GROUPED,
            *_TWO_CONSUMERS,
            ("take", "c1"),
            ("take", "c2"),
            ("ack", "c2"),
            ("take", "c2"),
            ("ack", "c1"),
            ("take", "c1"),
        ],
        ["1", "2", "4", "3"],
        artemis=Other(
            {}, "a message whose consumer asks for none holds up those of other groups", ["1", "2", None, "3"]
        ),
        broker_j=Other({"messageGroupType": "STANDARD"}),
    ),
    Case(
        "S131 shared groups: one is free again once nothing of it is in work",
        _STANDARD | {"groups": Groups(header="JMSXGroupID", mode="shared")},
        [
            *_GROUPED,
            *_TWO_CONSUMERS,
            ("take", "c1"),
            ("take", "c2"),
            ("ack", "c1"),
            ("take", "c2"),
            ("ack", "c2"),
            ("take", "c1"),
        ],
        ["1", "2", "3", "4"],
        broker_j=Other({"messageGroupType": "SHARED_GROUPS"}),
    ),
    Case(
        "shared groups: messages without a group are one group",
        _STANDARD | {"groups": Groups(header="JMSXGroupID", mode="shared")},
        [
            *_sends({"body": "1"}, {"body": "2"}),
            *_TWO_CONSUMERS,
            ("take", "c1"),
            ("take", "c2"),
            ("ack", "c1"),
            ("take", "c2"),
        ],
        ["1", None, "2"],
        broker_j=Other({"messageGroupType": "SHARED_GROUPS"}),
    ),
    Case(
        "S133 what a closed consumer held goes to another one, its group with it",
        _STANDARD | {"groups": Groups(header="JMSXGroupID")},
        [
            *_sends(
                {"body": "1", "group": "ONE"},
                {"body": "2", "group": "ONE"},
                {"body": "3", "group": "TWO"},
                {"body": "4", "group": "ONE"},
            ),
            *_TWO_CONSUMERS,
            ("take", "c1"),
            ("take", "c2"),
            ("ack", "c2"),
            ("close", "c1"),
            ("drain", "c2"),
        ],
        ["1", "3", ["1", "2", "4"]],
        broker_j=Other({"messageGroupType": "STANDARD"}),
    ),
    Case(
        "a group moves when its consumer is closed",
        _STANDARD | {"groups": Groups(header="JMSXGroupID")},
        [
            *_sends({"body": "1", "group": "ONE"}, {"body": "2", "group": "ONE"}, {"body": "3", "group": "ONE"}),
            *_TWO_CONSUMERS,
            ("take", "c1"),
            ("ack", "c1"),
            ("take", "c1"),
            ("close", "c1"),
            ("drain", "c2"),
        ],
        ["1", "2", ["2", "3"]],
        artemis=Other({}),
        broker_j=Other({"messageGroupType": "STANDARD"}),
    ),
    Case(
        "S121 a ring of three: an update costs no other key its value",
        {"key_header": KEY, "limits": Limits(policy="ring", messages=3)},
        [
            *_sends(*({"body": f"{key}{number}", "key": key} for number, key in enumerate("abcc"))),
            *_DRAIN,
        ],
        [["a0", "b1", "c3"]],
        artemis=Other(_LVQ_IN_ARTEMIS | {"ring-size": 3}, "it looks at the depth before it conflates", [["b1", "c3"]]),
        broker_j=Other(_LVQ_IN_BROKER_J | {"overflowPolicy": "RING", "maximumQueueDepthMessages": 3}),
    ),
    Case(
        "a ring of three: the lowest goes",
        _STANDARD | {"limits": Limits(policy="ring", messages=3)},
        [*_sends(*({"body": body} for body in "12345")), *_DRAIN],
        [["3", "4", "5"]],
        artemis=Other({"ring-size": 3}),
        broker_j=Other({"type": "standard", "overflowPolicy": "RING", "maximumQueueDepthMessages": 3}),
    ),
    Case(
        "a ring of three with priorities: the lowest priority goes",
        _STANDARD | {"order": "priority", "limits": Limits(policy="ring", messages=3)},
        [
            *_sends(
                {"body": "a9", "priority": 9},
                {"body": "b1", "priority": 1},
                {"body": "c5", "priority": 5},
                {"body": "d6", "priority": 6},
                {"body": "e7", "priority": 7},
            ),
            *_DRAIN,
        ],
        [["a9", "e7", "d6"]],
        broker_j=Other(
            {"type": "priority", "overflowPolicy": "RING", "maximumQueueDepthMessages": 3},
            "it drops the first one too many, and no other (seen in 10.1.0)",
            [["a9", "e7", "d6", "c5"]],
        ),
    ),
    Case(
        "S122 full at three: an update is not refused",
        {"key_header": KEY, "limits": Limits(policy="reject", messages=3)},
        [
            *_sends(*({"body": f"{key}{number}", "key": key} for number, key in enumerate("abccd"))),
            *_DRAIN,
        ],
        ["refused", ["a0", "b1", "c3"]],
        broker_j=Other(
            _LVQ_IN_BROKER_J | {"overflowPolicy": "REJECT", "maximumQueueDepthMessages": 3},
            "it looks at the depth before it conflates",
            ["refused", "refused", ["a0", "b1", "c2"]],
        ),
    ),
)
