"""JSON of any depth, read or refused."""

from __future__ import annotations

import json

import pytest

from lvq_kafka.core.text.json_text import MOST_NESTED, check_nesting, read_json


def nested(depth: int, opened: str = "[", closed: str = "]") -> str:
    return opened * depth + closed * depth


@pytest.mark.parametrize(
    "text",
    [
        "1",
        '{"a": [1, {"b": null}]}',
        nested(MOST_NESTED),
        json.dumps([[number] for number in range(10 * MOST_NESTED)]),  # many brackets side by side
        json.dumps("[" * 10 * MOST_NESTED),  # or in a string
    ],
)
def test_json_that_is_not_nested_too_deeply_is_read(text: str) -> None:
    assert json.dumps(read_json(text)) == json.dumps(json.loads(text))


@pytest.mark.parametrize("depth", [MOST_NESTED + 1, 990, 100_000])
@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_json_that_is_nested_too_deeply_is_refused(depth: int, opened: str, closed: str) -> None:
    with pytest.raises(ValueError, match="nested more than 500 deep"):
        read_json(f"{opened * depth}1{closed * depth}")


@pytest.mark.parametrize("text", ["1e400", '{"a": [-1e999]}', "9" * 400 + ".5"])
def test_a_number_that_would_be_infinite_is_refused(text: str) -> None:
    """It could not be written back: it used to be exported as Infinity."""
    with pytest.raises(ValueError, match="too large a number"):
        read_json(text)
    assert read_json(f"[1e308, {'9' * 400}]") == [1e308, int("9" * 400)]


@pytest.mark.parametrize("text", ["", "[", "NaN", "[Infinity]", "{]"])
def test_text_that_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"JSON|Expecting"):
        read_json(text)


def test_tuples_and_their_likes_count_as_what_is_written_of_them() -> None:
    value: object = ()
    for _ in range(MOST_NESTED):
        value = (value,)
    with pytest.raises(ValueError, match="nested"):
        check_nesting(json.dumps(value), value)
