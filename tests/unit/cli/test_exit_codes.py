from __future__ import annotations

import io

import pytest

from lvq_kafka.cli.exit_codes import EXIT_CODES, Complaint, exit_code, print_problem
from lvq_kafka.declared.registry import Registry
from lvq_kafka.errors import (
    AuthenticationFailed,
    BrokerRefused,
    BrokerUnavailable,
    CatchUpTimeout,
    ConfigError,
    DataLoss,
    DecodeError,
    DeliveryFailed,
    DeliveryUnknown,
    EmbeddedBrokerError,
    EncodeError,
    GroupNotFound,
    KeyMismatch,
    LVQError,
    MessageTooLarge,
    MissingExtra,
    MissingKey,
    OffsetsExpired,
    OutcomeUnknown,
    PartitionsAdded,
    QueueMismatch,
    QueueNotDeclared,
    ReaderFailed,
    TopicMismatch,
    TopicNotFound,
    TopicRecreated,
    Unauthorized,
    UnencodableKey,
)
from tests.unit.cli.conftest import Run

ERRORS: list[tuple[BaseException, int]] = [
    (Complaint("no", 6), 6),
    (ConfigError("no"), 2),
    (MissingExtra("no", extra="selectors"), 2),
    (FileNotFoundError(2, "No such file", "x"), 2),
    (BrokerUnavailable("no", code="_TRANSPORT"), 3),
    (AuthenticationFailed("no", code="_SSL"), 3),
    (Unauthorized("no", code="X"), 3),
    (BrokerRefused("no", condition="amqp:not-found"), 3),
    (DeliveryFailed("no", key=b"k", code="X"), 3),
    (DeliveryUnknown("no", key=b"k", code="X"), 3),
    (CatchUpTimeout("no"), 3),
    (OutcomeUnknown("no"), 3),
    (EmbeddedBrokerError("no"), 3),
    (QueueNotDeclared("no", queue="q"), 4),
    (GroupNotFound("no", queue="q", group="lvq.q"), 4),
    (OffsetsExpired("no", queue="q", partitions=[1]), 4),
    (PartitionsAdded("no", queue="q", partitions=[1]), 4),
    (QueueMismatch("no", queue="q", differences={}), 4),
    (TopicNotFound("no", topic="t"), 4),
    (TopicMismatch("no", topic="t", settings={}), 4),
    (TopicRecreated("no", topic="t"), 4),
    (MessageTooLarge("no", code="MSG_SIZE_TOO_LARGE"), 5),
    (DecodeError("no", position=None, raw=b""), 5),
    (EncodeError("no"), 5),
    (MissingKey("no"), 5),
    (UnencodableKey("no"), 5),
    (DataLoss("no"), 5),
    (KeyMismatch("no", position=None), 5),  # type: ignore[arg-type]
    (KeyboardInterrupt(), 130),
    (ZeroDivisionError("no"), 70),
]


@pytest.mark.parametrize(("error", "code"), ERRORS, ids=lambda part: type(part).__name__ if part else None)
def test_each_error_has_an_exit_code_that_the_help_explains(error: BaseException, code: int) -> None:
    assert exit_code(error) == code
    assert code in EXIT_CODES


def test_a_reader_that_failed_ends_as_what_made_it_fail() -> None:
    error = ReaderFailed("stopped")
    error.__cause__ = TopicRecreated("gone", topic="t")
    assert exit_code(error) == 4


@pytest.mark.parametrize(("error", "code"), ERRORS, ids=lambda part: type(part).__name__ if part else None)
def test_an_error_ends_a_run_with_its_code_and_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(Registry, "all", fail)
    ran = run("queues")
    assert ran.code == code
    assert ran.stdout == b""
    lines = ran.stderr.splitlines()
    if code == 130:
        assert not lines
    else:
        assert len(lines) == 1
        assert lines[0].startswith("lvq: ")


def test_the_hint_and_the_notes_of_an_error_are_in_its_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    error = LVQError("It is\nbroken.", hint="Mend it.")
    error.add_note("Twice.")

    def fail(*_: object) -> None:
        raise QueueNotDeclared("It is\nbroken.", queue="q", hint="Mend it.") from error

    monkeypatch.setattr(Registry, "all", fail)
    assert run("queues").stderr == "lvq: It is broken. Mend it.\n"


def test_a_problem_is_printed_in_one_write_so_that_it_stays_one_line_beside_a_board(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Writes(io.StringIO):
        def write(self, text: str) -> int:
            writes.append(text)
            return len(text)

    writes: list[str] = []
    monkeypatch.setattr("sys.stderr", Writes())
    print_problem("The broker\nis gone.", warning=True)
    assert writes == ["lvq: warning: The broker is gone.\n"]


def test_an_error_shows_the_place_in_the_text_that_it_quotes(run: Run) -> None:
    assert run("declare", "prices", "--key-header", "ticker").code == 0
    ran = run("watch", "prices", "--selector", "bid >> 3")
    assert ran.code == 2
    assert ran.stderr == (
        "lvq: The --selector is wrong at column 6: expected a header, a value or (, found >.\n"
        "    bid >> 3\n"
        "         ^\n"
    )


def test_debug_shows_where_an_error_comes_from_before_or_after_the_command(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ConfigError("no")

    monkeypatch.setattr(Registry, "all", fail)
    for arguments in (["--debug", "queues"], ["queues", "--debug"]):
        assert "Traceback" in run(*arguments).stderr
    assert "Traceback" not in run("queues").stderr
