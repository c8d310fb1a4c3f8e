"""The names of ``qpid.messaging``: those that programs import are there, and its exceptions are in its tree."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import lvq_kafka.compat.qpid_messaging as ours
from lvq_kafka.compat.qpid_messaging import exceptions
from lvq_kafka.errors import ConfigError, LVQError
from tests.qpid_programs import LVQ, changed

NAMES = """
    AMQP_PORT AMQPS_PORT UNLIMITED REJECTED RELEASED Connection Session Sender Receiver Message Disposition uuid4
    Timeout MessagingError InternalError ConnectionError ConnectError VersionError AuthenticationFailure
    ConnectionClosed HeartbeatTimeout SessionError Detached NontransactionalSession TransactionError TransactionAborted
    TransactionUnknown UnauthorizedAccess ServerError SessionClosed LinkError InsufficientCapacity AddressError
    MalformedAddress InvalidOption ResolutionError AssertionFailed NotFound LinkClosed SenderError SendError
    TargetCapacityExceeded ReceiverError FetchError Empty ContentError EncodeError DecodeError
"""

PARENTS = {
    "MessagingError": "InternalError ConnectionError SessionError LinkError ContentError",
    "ConnectionError": "ConnectError ConnectionClosed HeartbeatTimeout",
    "ConnectError": "VersionError AuthenticationFailure",
    "SessionError": "Detached NontransactionalSession TransactionError UnauthorizedAccess ServerError SessionClosed",
    "TransactionError": "TransactionAborted TransactionUnknown",
    "LinkError": "InsufficientCapacity AddressError LinkClosed SenderError ReceiverError",
    "AddressError": "MalformedAddress InvalidOption ResolutionError",
    "ResolutionError": "AssertionFailed NotFound",
    "SenderError": "SendError",
    "SendError": "TargetCapacityExceeded",
    "ReceiverError": "FetchError",
    "FetchError": "Empty",
    "ContentError": "EncodeError DecodeError",
}


def test_a_star_imports_the_names_that_programs_use() -> None:
    names: dict[str, Any] = {}
    exec("from lvq_kafka.compat.qpid_messaging import *", names)
    assert not set(NAMES.split()) - names.keys()
    assert set(NAMES.split()) == set(ours.__all__)


def test_each_exception_has_its_place_in_the_tree_of_qpid_and_is_one_of_this_library() -> None:
    for parent, children in PARENTS.items():
        for child in children.split():
            assert getattr(ours, child).__bases__[0] is getattr(ours, parent)
    assert {name for children in PARENTS.values() for name in children.split()} == {*exceptions.__all__} - {
        "MessagingError",
        "Timeout",
    }
    assert issubclass(ours.Timeout, LVQError | TimeoutError)


@pytest.mark.parametrize("name", exceptions.__all__)
def test_an_exception_can_be_raised_by_a_program_and_leave_the_process(name: str) -> None:
    kind = getattr(ours, name)
    assert str(kind()) == ""
    raised = kind("it failed") if name == "Timeout" else kind(text="it failed", hint="Try again.")
    raised.__cause__ = ConfigError("why")
    other = pickle.loads(pickle.dumps(raised))
    assert type(other) is kind
    assert (str(other), str(other.__cause__)) == (str(raised), "why")
    if name != "Timeout":
        assert (other.code, other.text) == (None, "it failed Try again.")


def test_constants_are_themselves_wherever_they_go() -> None:
    for constant in (ours.UNLIMITED, ours.REJECTED, ours.RELEASED):
        assert pickle.loads(pickle.dumps(constant)) is constant


def test_the_example_in_the_document_is_the_program_with_its_address(tmp_path: Path) -> None:
    source = changed("quotes", tmp_path).read_text()
    assert LVQ in source
    assert source.count("qpid") == 2, "the import line, and the option of the queue"
