"""Texts of the shell: options as they are typed, hints, and help for narrow terminals."""

from __future__ import annotations

import re

import click
import pytest
from click.testing import CliRunner

from lvq_kafka.cli.app import lvq
from lvq_kafka.testing import MemoryCluster
from tests.unit.cli.conftest import Run


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--min-ttl", "9", "--max-ttl", "4"], "--min-ttl 9 exceeds --max-ttl 4."),
        (["-o", "minimumMessageTtl=9000", "--max-ttl", "4"], "-o minimumMessageTtl=9000 exceeds --max-ttl 4."),
        (["--max-ttl", "5", "-o", "maximumMessageTtl=6000"], "--max-ttl 5 and -o maximumMessageTtl=6000 disagree."),
        (["--expiry-topic", "dead"], "--expiry-topic dead of the queue q is for messages that expire, and none does. "
         "Let messages expire, for example with --ttl, or leave --expiry-topic out."),
        (["-o", "qpid.flow_resume_count=3"], "-o qpid.flow_resume_count=3 needs -o qpid.flow_stop_count, at which"),
        (["--max-messages", "5", "--overflow", "ring", "--non-destructive"], "--overflow ring and --non-destructive "),
        (["--max-messages", "2", "--overflow", "ring", "--partitions", "3"], "A ring of --max-messages 2 cannot be "),
    ],
)  # fmt: skip
def test_errors_name_options_as_they_are_typed(run: Run, arguments: list[str], said: str) -> None:
    ran = run("declare", "q", "--key-header", "id", *arguments)
    assert ran.code == 2
    assert ran.stderr.startswith(f"lvq: {said}")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--ttl", "5"], "--ttl takes no value, but 5 follows it. --default-ttl does."),
        (["--standard", "yes"], "--standard takes no value, but yes follows it."),
        (["other"], "Got unexpected extra argument (other)"),
        (["--max-messages", "5x"], "Invalid value for '--max-messages': '5x' is not a valid whole number."),
        (["--standrd"], "No such option --standrd. Did you mean --standard?"),
        (["--ttl-default", "5"], "No such option --ttl-default. Did you mean --ttl or --default-ttl or --min-ttl?"),
        (["--limit", "5"], "No such option --limit."),
    ],
)
def test_a_slip_in_the_options_is_named_with_what_was_meant_if_anything_is_near(
    run: Run, arguments: list[str], said: str
) -> None:
    ran = run("declare", "q", "-k", "id", *arguments)
    assert ran.code == 2
    assert ran.stderr.endswith(f"Error: {said}\n")


@pytest.mark.parametrize(
    ("option", "remedy"),
    [
        ("--selector", "another queue on the topic with --selector"),
        ("-k", "another queue on the topic with --selector"),
        ("-H", "another queue on the topic with --selector"),
        ("--partition", "another queue on the topic with --selector"),
        ("--replay", "another queue on the topic with --start"),
        ("--updates-only", "another queue on the topic with --start"),
    ],
)
def test_r27_an_option_by_which_a_consumer_would_select_names_the_way_out(
    prices: Run, option: str, remedy: str
) -> None:
    ran = prices("consume", "prices", option, "x")
    assert ran.code == 2
    assert f"Error: consume has no option {option}. All consumers of a queue share one record" in ran.stderr
    assert remedy in ran.stderr


def test_an_option_of_a_command_in_front_of_it_is_told_where_it_goes(run: Run) -> None:
    assert run("--selector", "a = 1", "browse", "prices").stderr.endswith(
        "Error: --selector goes after the name of the command.\n"
    )
    assert "No such option '--selektor'." in run("--selektor", "a = 1", "browse", "prices").stderr


def test_a_queue_that_differs_is_described_in_words(run: Run) -> None:
    assert run("declare", "q", "-k", "id", "--max-messages", "5").code == 0
    ran = run("declare", "q", "-k", "key", "--max-messages", "5", "--default-ttl", "60")
    assert ran.code == 4
    assert "declared with --key-header 'id' (requested: 'key'), ttl none (requested: 60 s by default)" in ran.stderr


def test_a_standard_queue_that_differs_is_described_by_what_was_typed(run: Run) -> None:
    assert run("declare", "plain", "-k", "id").code == 0
    ran = run("declare", "plain", "-k", "id", "--standard", "--order", "priority")
    assert "declared with --order 'tail' (requested: 'priority'), messages that replace" in ran.stderr
    assert "each other (requested: --standard)." in ran.stderr
    assert run("declare", "alone", "-k", "id", "--standard").code == 0
    assert "declared with --standard (requested: not)." in run("declare", "alone", "-k", "id").stderr


def test_a_warning_of_the_library_names_options_as_they_are_typed(run: Run) -> None:
    ran = run("declare", "q", "-k", "id", "--ttl")
    assert ran.stderr.endswith("Give it a maximum: --max-ttl.\n")
    assert ran.row["findings"][0]["remedy"] == "Give it a maximum: --max-ttl"
    assert "Give it a maximum: --max-ttl" in run("stats", "q", person=True).text


@pytest.mark.parametrize(
    "arguments",
    [("get", "prices", "IBM", "--timeout"), ("consume", "prices", "--timeout"), ("browse", "prices", "--every"),
     ("put", "prices", "IBM", "1", "--ttl"), ("declare", "q", "-k", "id", "--max-delay"),
     ("expire", "prices", "--yes", "--older-than")],
    ids=" ".join,
)  # fmt: skip
def test_nan_is_no_number_of_seconds(prices: Run, arguments: tuple[str, ...]) -> None:
    ran = prices(*arguments, "nan")
    assert ran.code == 2
    assert f"Invalid value for '{arguments[-1]}': 'nan' is not a valid number of seconds." in ran.stderr


@pytest.mark.parametrize(
    ("option", "value", "number"),
    [
        ("--default-ttl", "5m", "300"),
        ("--default-ttl", "500ms", "0.5"),
        ("--max-delay", "1.5 h", "5400"),
        ("--max-delay", "2 Days", "172800"),
        ("--max-delay", "1,000", "1000"),
        ("--max-messages", "10k", "10000"),
        ("--max-messages", "1.5M", "1500000"),
        ("--max-messages", "1,000,000", "1000000"),
        ("--max-messages", "1e6", "1000000"),
    ],
)
def test_a_number_with_a_unit_or_commas_is_refused_with_the_number_to_write(
    run: Run, option: str, value: str, number: str
) -> None:
    ran = run("declare", "q", "-k", "id", option, value)
    assert ran.code == 2
    assert ran.stderr.endswith(f" Write {number}.\n")


@pytest.mark.parametrize(
    ("option", "value"),
    [("--max-delay", "1,5"), ("--max-delay", "1h30m"), ("--max-delay", "soon"), ("--partitions", "0"),
     ("--partitions", "0k"), ("--max-messages", "1.5"), ("--max-messages", "5s")],
)  # fmt: skip
def test_no_number_is_proposed_that_would_be_refused_or_may_not_be_meant(run: Run, option: str, value: str) -> None:
    ran = run("declare", "q", "-k", "id", option, value)
    assert ran.code == 2
    assert f"Invalid value for '{option}'" in ran.stderr
    assert "Write" not in ran.stderr


def test_a_key_header_that_is_misspelt_gets_a_hint(prices: Run) -> None:
    ran = prices("send", "prices", "1", "-H", "tikcer=IBM", "-H", "exchange=NYSE")
    assert ran.code == 0
    assert ran.stderr == (
        "lvq: warning: a message for prices has no header ticker, so it has no key and replaces nothing: is its header "
        "tikcer meant for it?\n"
    )
    assert prices("send", "prices", "1", "-H", "exchange=NYSE").stderr == "", "no header is near it"
    assert prices("send", "prices", "1", "-H", "tikcer=IBM", "-H", "ticker=IBM").stderr == "", "it has a key"
    prices("declare", "strict", "-k", "ticker", "--keyless", "refuse")
    ran = prices("send", "strict", "1", "-H", "Ticker=IBM")
    assert ran.code == 5
    assert "has no header 'ticker'. Is 'Ticker' meant for it?" in ran.stderr


def test_a_key_that_its_header_contradicts_is_shown_as_it_was_typed(prices: Run) -> None:
    ran = prices("put", "prices", "IBM", "1", "-H", "ticker=MSFT")
    assert ran.stderr == "lvq: The key is 'IBM', but the key header 'ticker' says 'MSFT'. Omit one of them.\n"


def test_a_warning_about_a_header_of_another_system_says_what_to_type(prices: Run) -> None:
    ran = prices("send", "prices", "1", "-H", "ticker=IBM", "-H", "JMSXGroupID=g", "-H", "x-opt-delivery-time=1")
    assert "ignored here: declare the queue with --group-header JMSXGroupID\n" in ran.stderr
    assert "ignored here: declare the queue with --max-delay, for example --max-delay 3600\n" in ran.stderr
    ran = prices("declare", "grouped", "-k", "ticker", "--group-header", "JMSXGroupID", "--max-delay", "3600")
    assert ran.code == 0, "what it says can be typed"


def test_a_person_hears_which_deleted_keys_had_no_value(prices: Run, memory_cluster: MemoryCluster) -> None:
    ran = prices("delete", "prices", "IBM", "IMB", person=True)
    assert ran.code == 0
    assert ran.stderr == "lvq: warning: prices had no value for IMB.\n"
    assert prices("delete", "prices", "IMB", "--quiet", person=True).stderr == ""
    assert [record.key for record in memory_cluster.records("prices")[-3:]] == [b"IBM", b"IMB", b"IMB"]


COMMANDS = [
    [],
    *([name] for name in lvq.commands),
    *(
        [name, inner]
        for name, group in lvq.commands.items()
        if isinstance(group, click.Group)
        for inner in group.commands
    ),
]


@pytest.mark.parametrize("width", [40, 60, 80])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_breaks_no_word_on_a_narrow_terminal(
    command: list[str], width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown(width: int) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        text = CliRunner().invoke(lvq, [*command, "--help"], prog_name="lvq").output
        return text.partition("Examples:")[0]

    words, whole = set(shown(width).split()), set(shown(100).split())
    ends = {part for word in whole for part in re.split("(?<=-)", word)}
    assert not {word for word in words - whole - ends if "-" not in word}, "but at a hyphen"
    too_long = [line for line in shown(width).splitlines() if len(line) > width]
    assert not [line for line in too_long if not line.startswith("  -")], "but for the names of options"
