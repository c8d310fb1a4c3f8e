"""Names, keys and foreign text, as shown to users."""

from __future__ import annotations

import subprocess

import pytest

from lvq_kafka.core.text.quoting import bounded, brief, listed, quoted, shell_word


@pytest.mark.parametrize(
    ("thing", "shown"),
    [
        ("IBM", "'IBM'"),
        (b"IBM", "b'IBM'"),
        ("it's\x1b\u202e\udcff", '"it\'s\\x1b\\u202e\\udcff"'),
        (["\x9b"], "['\\x9b']"),
        (None, "None"),
        ("x" * 200, repr("x" * 200)),
        ("x" * 1201, f"'{'x' * 200}'… (1,201 characters)"),
        (b"x" * 1201, f"b'{'x' * 200}'… (1,201 bytes)"),
        (["x" * 1000], f"['{'x' * 198}… (1,004 characters)"),
    ],
)
def test_anything_is_quoted_by_its_beginning(thing: object, shown: str) -> None:
    assert quoted(thing) == shown


def test_names_are_listed_as_far_as_anybody_reads() -> None:
    assert listed(["a", "b\x07"]) == "a, b\\x07"
    assert listed([str(number) for number in range(20_000)]) == "0, 1, 2, 3, 4 and 19,995 more"
    assert brief("\x1b" * 300) == "\\x1b" * 200 + "… (300 characters)"


@pytest.mark.parametrize("text", ["", "short", "\U000e0041" * 100_000, "x\x1b\n" * 100_000, "x" * 4003])
def test_a_message_stays_bounded_printable_and_what_it_is(text: str) -> None:
    shown = bounded(text)
    assert len(shown) <= 4003
    assert shown.replace("\n", "").isprintable()
    assert bounded(shown) == shown
    assert shown[:100] == bounded(text[:10_000])[:100]


WORDS = ["prices", "", "two words", "it's", "$(id)`id`;#\\", "a\nb\x1b'\\é", "\x7f\udcff", "-x", "~"]


@pytest.mark.parametrize("text", WORDS)
def test_a_word_comes_out_of_a_shell_as_it_went_in(text: str) -> None:
    command = f"printf %s {shell_word(text)}"
    assert command.isprintable()
    told = subprocess.run(["bash", "-c", command], capture_output=True, check=True).stdout
    assert told.decode("utf-8", "surrogateescape") == text
