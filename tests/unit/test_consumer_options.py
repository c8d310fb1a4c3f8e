"""The options of consumers: the signature, their page and the command line agree."""

from __future__ import annotations

import inspect
import re
from typing import get_type_hints

import click
import pytest

from lvq_kafka import Consumer, ConsumerOptions, LastValueQueue
from lvq_kafka.cli.commands.consume import consume

PARAMETERS = {
    name: parameter
    for name, parameter in inspect.signature(Consumer).parameters.items()
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY
}


def documented() -> dict[str, str]:
    """Return the text about each option on the options' page."""
    _, _, attributes = inspect.cleandoc(ConsumerOptions.__doc__ or "").partition("Attributes:\n")
    found = re.findall(r"^    (\w+): (.*(?:\n        .*)*)", attributes, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}


def given() -> dict[str, click.Option]:
    """Return the options of `lvq consume` that belong to its consumer."""
    options = {param.name or "": param for param in consume.params if isinstance(param, click.Option)}
    return {name: option for name, option in options.items() if name in PARAMETERS}


def first_sentence(text: str) -> str:
    return re.split(r"\.(?: |$)", text)[0].lower()


def test_a_consumer_takes_the_options_that_are_documented_and_no_others() -> None:
    assert list(ConsumerOptions.__annotations__) == list(PARAMETERS) == list(documented())
    hints = get_type_hints(Consumer.__init__)
    assert get_type_hints(ConsumerOptions) == {name: hints[name] for name in PARAMETERS}
    assert not ConsumerOptions.__required_keys__
    assert all(parameter.default is not inspect.Parameter.empty for parameter in PARAMETERS.values())


@pytest.mark.parametrize("method", [LastValueQueue.consumer, LastValueQueue.consumer_async])
def test_a_queue_takes_them_as_they_are(method: object) -> None:
    assert "Unpack[ConsumerOptions]" in str(inspect.signature(method))  # type: ignore[arg-type]


def test_the_command_line_has_some_of_them_under_their_names() -> None:
    assert given().keys() == {"lock_timeout", "max_deliveries", "dead_letters", "auto_reclaim", "page_directory"}


@pytest.mark.parametrize("name", given())
def test_an_option_of_the_command_line_has_the_same_default_and_meaning(name: str) -> None:
    assert consume.make_context("consume", ["queue"]).params[name] == PARAMETERS[name].default
    assert first_sentence(given()[name].help or "") == first_sentence(documented()[name])
