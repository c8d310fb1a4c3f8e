"""The help: every command is documented, and its examples can be typed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from lvq_kafka.cli.app import lvq
from lvq_kafka.cli.command_list import SECTIONS
from lvq_kafka.cli.common_options import Command
from lvq_kafka.cli.exit_codes import EXIT_CODES


def commands(group: click.Group = lvq, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


ALL = dict(commands())

_EXISTING = {".jsonl": "-", ".properties": __file__}
"""Files that exist, in place of those in examples."""


def help_of(*path: str) -> str:
    result = CliRunner().invoke(lvq, [*path, "--help"], prog_name="lvq")
    assert result.exit_code == 0
    return result.output


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_has_help_examples_and_a_word_on_each_option(path: tuple[str, ...]) -> None:
    command = ALL[path]
    assert isinstance(command, Command)
    assert command.help
    assert command.examples
    text = help_of(*path)
    assert "Examples:" in text
    for example in command.examples:
        assert example in text
    for param in command.params:
        if isinstance(param, click.Option):
            assert param.help, f"{' '.join(path)} {param.opts[0]} says nothing"
    assert "None" not in text


@pytest.mark.parametrize(
    "example", [example for command in ALL.values() if isinstance(command, Command) for example in command.examples]
)
def test_every_example_can_be_typed(example: str) -> None:
    inner = re.search(r"\$\((.*)\)", example)
    typed = inner.group(1) if inner else example
    for part in " ".join(shlex.quote(word) for word in shlex.split(typed)).split("'|'"):
        words = shlex.split(re.split(r" '[<>]' ", part)[0])
        if words[0] == "lvq":
            path = tuple(words[1:3]) if tuple(words[1:3]) in ALL else (words[1],)
            # The files in examples need not exist.
            arguments = [_EXISTING.get(Path(word).suffix, word) for word in words[1 + len(path) :]]
            ALL[path].make_context("lvq", arguments)


def test_every_command_is_in_a_section_of_the_help() -> None:
    assert [command.name for section in SECTIONS.values() for command in section] == list(lvq.commands)
    text = help_of()
    for name in lvq.commands:
        assert re.search(rf"^  {name} +\w", text, re.MULTILINE), name


def test_the_help_has_the_first_sentence_of_each_command() -> None:
    for listed in (command for section in SECTIONS.values() for command in section):
        command = lvq.commands[listed.name]
        assert command.name == listed.name
        assert " ".join((command.help or "").split()).startswith(listed.help), listed.name


def test_the_help_says_what_every_exit_code_means() -> None:
    text = " ".join(help_of().split())
    for code, meaning in EXIT_CODES.items():
        assert f"{code} {meaning}" in text


def test_no_option_takes_a_secret_but_that_of_qpids_program() -> None:
    secret = [
        (*path, param.name)
        for path, command in ALL.items()
        for param in command.params
        if re.search("(?:pass|secret|token)(?!.*_file$)", param.name or "")  # a file is the place for them
    ]
    assert secret == [("lvqtest", "password")]
    assert "LVQ_SASL_PASSWORD" in help_of("lvqtest")
