"""The names of limits here and in Qpid, Artemis and Broker-J."""

from __future__ import annotations

from typing import Any

import pytest

from lvq_kafka import Limits, QueueDefinition
from lvq_kafka.errors import ConfigError


def test_a_negative_number_is_no_limit_in_python_either() -> None:
    assert Limits(policy="ring", messages=-1, bytes=5) == Limits(policy="ring", bytes=5)
    off = QueueDefinition(name="q", topic="q", key_header="k", limits=Limits(policy="ring", messages=-1, bytes=-7))
    assert off == QueueDefinition(name="q", topic="q", key_header="k")
    # Nobody enforces what is no limit.
    QueueDefinition(name="q", topic="q", key_header="k", limits=Limits(policy="disk", bytes=-1), non_destructive=True)


@pytest.mark.parametrize(
    ("options", "limits"),
    [
        ({"max-messages": 5}, Limits(policy="none", messages=5)),
        ({"max-bytes": "10K", "overflow": "ring"}, Limits(policy="ring", bytes=10240)),
        ({"max-messages": "5", "overflow": "block"}, Limits(policy="block", messages=5, resume=0.8)),
        ({"max-messages": 5, "overflow": "block", "resume": "0.5"}, Limits(policy="block", messages=5, resume=0.5)),
        ({"maximumQueueDepthMessages": 5}, Limits(policy="none", messages=5)),
        (
            {"maximumQueueDepthMessages": 5, "maximumQueueDepthBytes": -1, "overflowPolicy": "RING"},
            Limits(policy="ring", messages=5),
        ),
        ({"maximumQueueDepthBytes": 5, "overflowPolicy": "REJECT"}, Limits(policy="reject", bytes=5)),
        (
            {
                "maximumQueueDepthBytes": 5,
                "overflowPolicy": "PRODUCER_FLOW_CONTROL",
                "queue.queueFlowResumeLimit": "70",
            },
            Limits(policy="block", bytes=5, resume=0.7),
        ),
        ({"maximumQueueDepthMessages": -1, "overflowPolicy": "NONE"}, None),
        ({"overflowPolicy": "NONE"}, None),
        ({"qpid.max_count": 5, "qpid.max_size": "700"}, Limits(policy="reject", messages=5, bytes=700)),
        ({"qpid.max_count": 5, "qpid.policy_type": "ring_strict"}, Limits(policy="ring", messages=5)),
        (
            {"qpid.flow_stop_count": 10, "qpid.flow_resume_count": 7},
            Limits(policy="block", messages=10, resume=0.7),
        ),
        ({"qpid.flow_stop_size": 1000}, Limits(policy="block", bytes=1000, resume=0.8)),
        ({"max-size-bytes": "10MB", "address-full-policy": "FAIL"}, Limits(policy="reject", bytes=10 << 20)),
        ({"max-size-messages": 9, "address-full-policy": "BLOCK"}, Limits(policy="block", messages=9)),
        ({"max-size-bytes": "1K", "address-full-policy": "PAGE"}, Limits(policy="disk", bytes=1024)),
        ({"max-size-bytes": 5, "max-size-messages": -1}, Limits(policy="disk", bytes=5)),
        ({"max-size-messages": 5}, Limits(policy="disk", messages=5)),
        ({"maximumQueueDepthBytes": 5, "overflowPolicy": "FLOW_TO_DISK"}, Limits(policy="disk", bytes=5)),
        ({"qpid.max_size": 5, "qpid.policy_type": "flow_to_disk"}, Limits(policy="disk", bytes=5)),
        ({"max-bytes": "10M", "overflow": "disk"}, Limits(policy="disk", bytes=10 << 20)),
        ({"ring-size": 3}, Limits(policy="ring", messages=3)),
        ({"ring-size": -1}, None),
        ({"max-size-bytes": -1, "max-size-messages": -1, "address-full-policy": "PAGE"}, None),
        ({"max-size-bytes": -1, "address-full-policy": "BLOCK"}, None),
        ({"maximumQueueDepthMessages": "-1", "overflowPolicy": "RING"}, None),
        ({"maximumQueueDepthMessages": -1, "maximumQueueDepthBytes": -1, "overflowPolicy": "REJECT"}, None),
        ({"qpid.max_count": -1, "qpid.policy_type": "ring"}, None),
        ({"max-messages": -1, "overflow": "block", "resume": 0.5}, None),
        ({"overflowPolicy": "RING"}, None),
        ({"x-qpid-capacity": 1000, "x-qpid-flow-resume-capacity": 700}, Limits(policy="block", bytes=1000, resume=0.7)),
        (
            {"queueFlowControlSizeBytes": 1000, "queueFlowResumeSizeBytes": 500},
            Limits(policy="block", bytes=1000, resume=0.5),
        ),
        ({"bytelimit": "1G"}, Limits(policy="reject", bytes=1 << 30)),
        ({"max-messages": 3, "ring-size": 3, "overflow": "ring"}, Limits(policy="ring", messages=3)),
        ({}, None),
    ],
)
def test_a_limit_has_a_name_in_each_system(options: dict[str, Any], limits: Limits | None) -> None:
    made = QueueDefinition.from_options("q", {"key-header": "k", **options})
    assert made.limits == limits
    assert QueueDefinition.from_json(made.to_json(), name="q") == made


@pytest.mark.parametrize(
    ("options", "culprits", "said"),
    [
        ({"max-messages": 0}, ["max-messages"], "leaves no room"),
        ({"maximumQueueDepthBytes": "0"}, ["maximumQueueDepthBytes"], "leaves no room"),
        ({"max-messages": "many"}, ["max-messages"], "is not a number"),
        ({"max-messages": "5K"}, ["max-messages"], "is not a number"),
        ({"max-bytes": "5T"}, ["max-bytes"], "is not a number of bytes"),
        ({"max-messages": 5, "ring-size": 6}, ["max-messages", "ring-size"], "disagree"),
        ({"max-messages": -1, "qpid.max_count": 6}, ["max-messages", "qpid.max_count"], "disagree"),
        ({"ring-size": 6, "overflow": "reject"}, ["overflow", "ring-size"], "disagree"),
        (
            {"max-messages": 5, "overflow": "ring", "overflowPolicy": "REJECT"},
            ["overflow", "overflowPolicy"],
            "disagree",
        ),
        ({"overflow": "reject"}, ["overflow", "max-messages", "max-bytes"], "needs a limit"),
        ({"resume": 0.5}, ["resume", "max-messages", "max-bytes"], "needs a limit"),
        ({"overflow": "disk"}, ["overflow", "max-messages", "max-bytes"], "needs a limit"),
        ({"max-messages": 5, "overflow": "drop"}, ["overflow"], "is not a policy"),
        (
            {"max-size-bytes": 5, "address-full-policy": "DROP"},
            ["address-full-policy"],
            "producers would learn nothing",
        ),
        (
            {"max-messages": 5, "qpid.max_size": 700},
            ["max-messages", "qpid.max_size"],
            "max-messages stands for the policy 'none', and qpid.max_size for 'reject'. Name the policy: overflow",
        ),
        (
            {"qpid.flow_stop_count": 5, "qpid.flow_resume_count": 7},
            ["qpid.flow_resume_count", "qpid.flow_stop_count"],
            "exceeds qpid.flow_stop_count=5",
        ),
        ({"qpid.max_count": 5, "qpid.policy_type": "self-destruct"}, ["qpid.policy_type"], "is not possible here"),
        ({"max-messages": 5, "resume": 0.5}, ["resume", "max-messages"], "blocks none"),
        ({"max-messages": 5, "overflow": "ring", "resume": 0.5}, ["resume", "overflow"], "blocks none"),
        ({"max-messages": 5, "overflow": "block", "resume": 80}, ["resume"], "must be above 0, and up to 1"),
        (
            {"maximumQueueDepthMessages": 5, "overflow": "block", "queue.queueFlowResumeLimit": 0},
            ["queue.queueFlowResumeLimit"],
            "up to 100",
        ),
        ({"max-messages": 5, "overflow": "block", "resume": "half"}, ["resume"], "is not a number"),
        (
            {"qpid.flow_resume_count": 7},
            ["qpid.flow_resume_count", "qpid.flow_stop_count"],
            "needs qpid.flow_stop_count",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused_by_name(
    options: dict[str, Any], culprits: list[str], said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        QueueDefinition.from_options("q", {"key-header": "k", **options})
    assert list(caught.value.options) == culprits


def test_a_slip_is_corrected() -> None:
    with pytest.raises(ConfigError, match="Did you mean max-messages"):
        QueueDefinition.from_options("q", {"key-header": "k", "max-mesages": 5})
