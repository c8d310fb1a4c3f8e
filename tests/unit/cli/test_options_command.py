from __future__ import annotations

import re
import shlex

import pytest

from lvq_kafka.cli.definition_options import DEFINITION_OPTIONS
from lvq_kafka.core.queue.altering import UNSETTABLE
from lvq_kafka.core.queue.option_names import OPTION_NAMES, Mapped
from tests.unit.cli.conftest import Run


def test_options_lists_every_name_for_programs(run: Run) -> None:
    rows = run("options").rows
    assert [row["name"] for row in rows] == [row.name for row in OPTION_NAMES]
    assert {row["here"] for row in rows} == {"mapped", "always", "refused"}


def test_options_shows_one_name_however_it_is_spelled(run: Run) -> None:
    row = run("options", "lastValueKey").row
    assert row["name"] == "last-value-key"
    assert row["systems"] == ["artemis"]
    assert row["meaning"] == "As key-header, the header that holds the key: the name of a header."
    assert {"key-header", "lvqKey", "qpid.last_value_queue_key"} <= {*row["spellings"]}
    assert row["example"] == "ticker"
    fixed = run("options", "auto_delete").row
    assert (fixed["here"], fixed["accepts"][0]) == ("always", "false")


def test_options_says_to_people_what_a_name_means(run: Run) -> None:
    text = run("options", "lvqKey", person=True).text
    assert "lvqKey  Qpid Broker-J\nAs key-header, the header that holds the key" in text
    assert "last-value-key (ActiveMQ Artemis)" in text
    assert "lvq declare QUEUE -o lvqKey=ticker" in text
    assert "Only false or none: any number of consumers" in run("options", "exclusive", person=True).text


def test_options_lists_every_name_for_people(run: Run) -> None:
    text = run("options", person=True).text
    assert all(row.name[:20] in text for row in OPTION_NAMES)


def test_options_does_not_know_what_is_no_option(run: Run) -> None:
    ran = run("options", "lastValueKay")
    assert (ran.code, ran.stdout) == (2, b"")
    assert ran.stderr == (
        "lvq: lastValueKay is not a queue option. Did you mean last-value-key? `lvq options` lists all of them.\n"
    )


@pytest.mark.parametrize("name", ["default-filters", "selector", "order"])
def test_the_example_of_an_option_can_be_typed(run: Run, name: str) -> None:
    (line,) = (line for line in run("options", name, person=True).text.splitlines() if "lvq declare" in line)
    ran = run(*shlex.split(line.replace("QUEUE", "q"))[1:], "-k", "id")
    assert ran.code == 0, ran.stderr


def test_options_that_are_mapped_have_an_example(run: Run) -> None:
    mapped = {row.name for row in OPTION_NAMES if isinstance(row.meaning, Mapped)}
    assert {row["name"] for row in run("options").rows if row.get("example")} == mapped


def test_the_shell_takes_every_option_of_our_own_and_alters_every_one_that_can_be_altered(run: Run) -> None:
    own = {row.name for row in OPTION_NAMES if "lvq" in row.systems and isinstance(row.meaning, Mapped)}
    others = {"key-header", "conflate", "no-expiry", "default-filters"}  # flags of another name, or only for -o
    assert DEFINITION_OPTIONS.keys() == own - others
    alterable = {name for name in DEFINITION_OPTIONS if name in UNSETTABLE} | {"keyless"}
    text = run("alter", "--help").text
    assert {name for name in DEFINITION_OPTIONS if re.search(rf"^  --{name}\b", text, re.MULTILINE)} == alterable
