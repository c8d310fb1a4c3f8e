from __future__ import annotations

import sys

import pytest

from lvq_kafka.cli.output import Output, age, count
from lvq_kafka.cli.printable import printable_value
from lvq_kafka.core.text.quoting import printable


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("IBM", "IBM"),
        ("Größe 株", "Größe 株"),
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("line\nline\ttab", "line\\nline\\ttab"),
        ("\u202eevil", "\\u202eevil"),
        ("\x9b2J", "\\x9b2J"),
        ("\udcff", "\\xff"),
    ],
)
def test_nothing_in_the_data_can_steer_a_terminal(text: str, safe: str) -> None:
    assert printable(text) == safe


def test_a_value_is_shown_as_text_as_json_or_as_the_start_of_its_bytes() -> None:
    assert printable_value(b"118.50") == "118.50"
    assert printable_value("a\x1b") == "a\\x1b"
    assert printable_value({"a": "ö"}) == '{"a": "ö"}'
    assert printable_value(b"\xff\x00") == "0xff00 (2 bytes)"
    assert printable_value(b"\xff" * 30) == f"0x{'ff' * 24}… (30 bytes)"


def test_a_person_is_whoever_reads_a_terminal_unless_json_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Output()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert out.person
    out.json = True
    assert not out.person
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False, raising=False)
    assert not Output().person


def test_numbers_and_nouns_agree() -> None:
    assert [count(number, "value") for number in (0, 1, 1200)] == ["0 values", "1 value", "1,200 values"]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-3, "0 s"), (0.9, "0 s"), (59.9, "59 s"), (60, "1 min"), (7199, "1 h"), (86_400 * 1234, "1,234 d")],
)
def test_an_age_has_its_largest_unit(seconds: float, said: str) -> None:
    assert age(seconds) == said
