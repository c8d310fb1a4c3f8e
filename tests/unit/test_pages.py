"""The examples on pages: their Python runs, their commands succeed, and the output is the one shown.

These tests use an in-memory cluster. tests/integration/test_pages.py follows the first pages on a real broker, and
tests/spark/test_pages.py runs those about Spark.
"""

from __future__ import annotations

import ast
import asyncio
import configparser
import dataclasses
import json
import re
import signal
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mcp.client.stdio  # noqa: F401  # what it takes for stderr is decided now, and pytest replaces that in a test
import pytest
from click.testing import CliRunner

import lvq_kafka.kafka
from lvq_kafka import TEXT, LastValueQueue
from lvq_kafka.cli.app import lvq
from lvq_kafka.cli.invocation import Invocation
from lvq_kafka.cli.output import Output
from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.topic_settings import TopicSpec, reason_for, topic_settings
from lvq_kafka.testing import MemoryCluster
from tests.pages import DOCS, PAGES, ROOT, block, blocks, build_script, cells, page, run
from tests.waiting import eventually

NOT_IN_MEMORY = {"docs/how-to/spark.md", "docs/how-to/spark-cluster.md", "docs/how-to/bridge.md"}
EXAMPLES = [name for name in PAGES if {each.language for each in blocks(name)} & {"python", "sh"}]
IN_MEMORY = [name for name in EXAMPLES if name not in NOT_IN_MEMORY]

Run = Callable[[str], dict[str, object]]


@pytest.fixture
def own_signals() -> Iterator[None]:
    """Undo what a page does to SIGTERM."""
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture
def run_page(
    memory_cluster: MemoryCluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    own_signals: None,
    tmp_path: Path,
) -> Run:
    """Return a function that runs a page on an in-memory cluster, in place of the broker on this machine."""
    monkeypatch.setattr(lvq_kafka.kafka, "KafkaCluster", lambda config: memory_cluster)
    monkeypatch.chdir(tmp_path)  # for files that a page writes
    monkeypatch.setattr(memory_cluster, "close", lambda: None)  # closing one connection leaves the broker running

    def shell(command: Sequence[str]) -> None:
        invocation = Invocation(cluster=memory_cluster, out=Output(False))
        result = CliRunner().invoke(lvq, command, obj=invocation, prog_name="lvq")
        assert result.exit_code == 0, f"lvq {' '.join(command)}: {result.output}"

    return lambda name: run(name, shell, lambda: capsys.readouterr().out)


@pytest.mark.parametrize("name", IN_MEMORY)
def test_a_page_does_what_it_shows(run_page: Run, name: str) -> None:
    run_page(name)


def queues_on(name: str) -> set[str]:
    """Return the names of the queues and topics that the blocks of a page use, in addresses, too."""
    code = "\n".join(each.body for each in blocks(name) if each.language in ("python", "sh"))
    found = re.findall(
        r"""LastValueQueue(?:\.\w+)?\(\s*"([^"]+)"|topic="([^"]+)"|--topic (\S+)|["']([\w.-]+; \{)""", code
    )
    commands = [line.split() for line in code.splitlines() if line.startswith("lvq ")]
    named = {
        words[2] for words in commands if len(words) > 2 and words[1] not in ("broker", "options", "queues", "settings")
    }
    names = {re.split(r"[;?/]", name.strip("'\""))[0] for name in named.union(*found)}
    return names - {""}


def test_no_two_pages_share_a_queue() -> None:
    """Somebody who reads on with the same broker would find what the page before has left."""
    pages: dict[str, list[str]] = {}
    for name in EXAMPLES:
        if "MemoryCluster()" not in page(name):  # a cluster of its own
            for queue in queues_on(name):
                pages.setdefault(queue, []).append(name)
    assert {"prices", "stocks", "quotes"} <= pages.keys()
    assert not {queue: names for queue, names in pages.items() if len(names) > 1}


def test_a_page_whose_examples_need_a_broker_says_so_before_the_first_of_them() -> None:
    """A reader may come to any page first."""
    local = {name for name in EXAMPLES if name.startswith("docs/") and "localhost:9092" in page(name)}
    assert {"docs/tutorial.md", "docs/how-to/consume.md", "docs/options/ttl.md"} <= local
    assert not {name for name in local if "broker start" not in page(name).split('localhost:9092"')[0]}


def test_a_page_that_only_the_build_completes_says_so_at_its_top() -> None:
    """The pages can be read as Markdown, in the repository and in the source distribution."""
    note = "*Parts of this page are generated: `make docs` builds it into the folder site.*"
    assert f'NOTE = "{note}\\n"' in page("docs/_build/hooks.py"), "the site shows no such line"
    markers = re.compile(r"^(?:--8<--|::: |<!-- [\w? -]+(?:: [\w? -]+)? -->$)", re.MULTILINE)
    incomplete = {name for name in PAGES if markers.search(page(name))}
    assert {"docs/index.md", "docs/changelog.md", "docs/reference/lvq_kafka.md"} <= incomplete
    assert {name for name in PAGES if note in page(name).splitlines()[:3]} == incomplete


def test_every_language_of_a_block_is_known() -> None:
    """An example in another language might never run."""
    known = {"python", "sh", "sql", "text", "ini", "dockerfile", "java", "yaml", "html", "js"}
    assert not [(name, each.language) for name in PAGES for each in blocks(name) if each.language not in known]


def test_the_page_about_choosing_options_has_them_all() -> None:
    text = page("docs/options/index.md")
    others = {"name", "topic", "key_header", "from_settings", "earlier"}
    options = {field.name for field in dataclasses.fields(QueueDefinition)} - others
    assert not {option for option in options if f"`{option}=" not in text}
    pages = {path.name for path in (DOCS / "options").glob("*.md")} - {"index.md"}
    assert not {name for name in pages if f"]({name}" not in text}


LONGEST_CELL = 60


def test_no_cell_of_a_table_is_a_paragraph() -> None:
    """A longer rule is a sentence in its cell, and a list or a table of its own below."""
    texts = {name: page(name) for name in [*PAGES, "CHANGELOG.md", "CONTRIBUTING.md"]}
    texts["the commands"] = build_script("command_line").reference()
    texts["the modules"] = build_script("modules").modules()
    texts["the options"] = build_script("options").option_names()
    texts["the metrics"] = build_script("metrics").metrics() + build_script("metrics").alerts()
    words = [(name, len(cell.split()), cell) for name, text in texts.items() for row in cells(text) for cell in row]
    assert len(words) > 2000
    assert not [(name, number, cell[:40]) for name, number, cell in words if number > LONGEST_CELL]


def test_the_unit_and_the_container_run_the_service_of_their_page() -> None:
    """tests/integration/test_service_page.py runs that as they do."""
    (unit,) = (each.body for each in blocks("docs/how-to/consume.md") if each.language == "ini")
    read = configparser.RawConfigParser()
    read.optionxform = str  # type: ignore[assignment]  # names of systemd have capitals
    read.read_string(unit)
    assert [*read] == ["DEFAULT", "Unit", "Service", "Install"]
    assert read["Service"]["ExecStart"].split()[1].endswith("/service.py")
    assert (read["Service"]["Restart"], read["Install"]["WantedBy"]) == ("always", "multi-user.target")
    (image,) = (each.body.splitlines() for each in blocks("docs/how-to/consume.md") if each.language == "dockerfile")
    assert image[0].startswith("FROM python:3.")
    assert json.loads(image[-1].removeprefix("CMD ")) == ["python", "/app/service.py"]


def functions(name: str) -> Iterator[tuple[str, str]]:
    """Yield the functions of a page that the page itself does not use, by name or through a decorator."""
    trees = [ast.parse(each.body) for each in blocks(name) if each.language == "python"]
    used = {node.id for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for node in (node for tree in trees for node in tree.body):
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function and not node.decorator_list and node.name not in used:
            yield name, node.name


def test_a_function_that_its_page_does_not_call_is_called_by_a_test() -> None:
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*pages.py"))
    assert not [found for name in EXAMPLES for found in functions(name) if f'["{found[1]}"]' not in tests]


def commands() -> Iterator[list[str]]:
    for name in EXAMPLES:
        for each in blocks(name):
            if each.language == "sh":
                yield from (line.split("#")[0].split() for line in each.body.splitlines())


def test_a_target_of_make_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    targets |= {"test-" + name for name in ("fast", "protocol", "embedded", "docker")}
    named = {word for line in commands() if line[:1] == ["make"] for word in line[1:] if "=" not in word}
    named |= {word for name in PAGES for word in re.findall(r"`make ([a-z-]+)", page(name))}
    assert {"demo", "test", "docs"} <= named <= targets


def test_an_extra_that_is_to_be_installed_exists() -> None:
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    named = {
        extra
        for name in PAGES
        for found in re.findall(r"(?:lvq-kafka|'\.)\[([a-z,]+)\]", page(name))
        for extra in found.split(",")
    }
    assert {"cli", "embedded", "spark", "testing"} <= named <= extras


def test_the_readme_can_be_read_where_the_project_is_not() -> None:
    """A package index shows only this file: no link may be relative, and every path in it must exist."""
    readme = page("README.md")
    assert len(readme.splitlines()) <= 150
    links = re.findall(r"\]\(([^)]+)\)", readme)
    assert links
    assert all(link.startswith("https://") for link in links), links
    paths = re.findall(r"`((?:docs/|[A-Z]+\.md)[\w./-]*)`", readme)
    assert {"docs/tutorial.md", "CONTRIBUTING.md", "SECURITY.md"} <= set(paths)
    assert not [path for path in paths if not (ROOT / path).exists()]


def test_no_page_links_to_where_the_project_is_not() -> None:
    """MkDocs checks links between pages, but not links to files next to them."""
    outside = [
        (name, link)
        for name in PAGES
        if name != "README.md"
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page(name))
        if not link.startswith("https://") and not ((DOCS.parent / name).parent / link).resolve().is_relative_to(DOCS)
    ]
    assert not outside


def test_the_test_for_pytest_passes(memory_cluster: MemoryCluster) -> None:
    names: dict[str, Any] = {}
    exec(block("docs/how-to/testing.md", "python", "MemoryCluster()"), names)
    exec(block("docs/how-to/testing.md", "python", "def book_prices"), names)
    names["test_only_the_newest_price_of_each_key_is_booked"](memory_cluster)


def test_the_functions_about_consuming_work(memory_cluster: MemoryCluster) -> None:
    names: dict[str, Any] = {}
    exec(block("docs/how-to/consume.md", "python", "def consume(queue, handle)"), names)
    exec(block("docs/how-to/asyncio.md", "python", "consumer_async()"), names)
    exec(block("docs/how-to/transactions.md", "python", "def transform"), names)
    for name in ("ticks", "doubled"):
        LastValueQueue.declare(name, key_header="ticker", value=TEXT, cluster=memory_cluster)
    assert "lvq declare ticks.dlq --record-key" in page("docs/how-to/consume.md")
    LastValueQueue.declare("ticks.dlq", key_header=None, cluster=memory_cluster)
    queue, output = (LastValueQueue.open(name, value=TEXT, cluster=memory_cluster) for name in ("ticks", "doubled"))
    with queue.producer() as producer:
        producer.put("IBM", "1")
        producer.put("MSFT", "2")

    def refuse(delivery: Delivery[str]) -> None:
        if delivery.key == "IBM":
            delivery.reject("no such ticker")
        else:
            delivery.release(delay=60)
        if memory_cluster.logs.end_offsets("ticks.dlq") == {0: 1}:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        names["consume"](queue, refuse)

    class Done(Exception):
        pass

    async def stop(value: str) -> None:
        assert value == "2"
        raise Done

    with pytest.raises(Done):
        asyncio.run(asyncio.wait_for(names["consume_async"](queue, stop), 20))

    def double(value: str) -> str:
        if value == "stop":
            raise Done
        return value * 2

    with queue.producer() as producer, output.view() as view, ThreadPoolExecutor() as threads:
        work = threads.submit(names["transform"], queue, output, double)
        eventually(lambda: dict(view) == {"MSFT": "22"})
        producer.put("IBM", "stop")
        with pytest.raises(Done):
            work.result(20)
        assert dict(view) == {"MSFT": "22"}


def test_a_worker_of_gunicorn_attaches_to_what_another_process_writes(
    memory_cluster: MemoryCluster, tmp_path: Path
) -> None:
    names: dict[str, Any] = {}
    code = block("docs/how-to/shared-stores.md", "python", "def post_worker_init(worker)")
    exec(code.replace("/var/lib/parities", str(tmp_path / "parities")), names)
    queue = LastValueQueue.declare("parities", key_header="currency", value=TEXT, cluster=memory_cluster)
    with queue.producer() as producer:
        producer.put("CHF", "0.94").result(10)
    worker = SimpleNamespace(wsgi=SimpleNamespace())
    with queue.view(store=tmp_path / "parities"):
        names["post_worker_init"](worker)
        with worker.wsgi.parities as parities:
            assert dict(parities) == {"CHF": "0.94"}


def test_an_agent_gets_the_price_that_it_asks_for() -> None:
    names: dict[str, Any] = {}
    code = block("docs/how-to/agents.md", "python", "async def price_of")
    started = 'command="lvq", args=["mcp", "agent-quotes", "-b", "localhost:9092"]'
    assert started in code
    code = code.replace(started, f'command={sys.executable!r}, args=["-m", "tests.unit.cli.memory_lvq", "mcp"]')
    exec(code.replace('"agent-quotes"', '"prices"'), names)
    answer = asyncio.run(asyncio.wait_for(names["price_of"]("IBM"), 120))
    assert [row["value"] for row in answer["values"]] == ["118.50"]
    assert answer["note"].startswith(("Current: ", "Nearly current: "))


def test_the_function_that_browses_works(
    memory_cluster: MemoryCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names: dict[str, Any] = {}
    exec(block("docs/how-to/read.md", "python", "def browse(queue)"), names)
    queue = LastValueQueue.declare("prices", key_header="ticker", value=TEXT, cluster=memory_cluster)
    browsers: list[Any] = []
    browser = queue.browser
    monkeypatch.setattr(queue, "browser", lambda: browsers.append(browser()) or browsers[-1])
    said = ""

    def has_said(text: str) -> bool:
        nonlocal said
        said += capsys.readouterr().out
        return said.endswith(text)

    with queue.producer() as producer, ThreadPoolExecutor() as threads:
        producer.put("MSFT", "27.95").result(10)
        browsing = threads.submit(names["browse"], queue)
        try:
            eventually(lambda: has_said("that was all there is; updates follow\n"))
            producer.put("IBM", "119.00").result(10)
            eventually(lambda: has_said("IBM 119.00 prices/0/1\n"))
            with queue.consumer() as consumer:
                taken = consumer.acquire(10)
                assert taken is not None
                taken.ack(wait=True)
            eventually(lambda: has_said("MSFT was consumed; a view still shows its value\n"))
            producer.delete("IBM").result(10)
            eventually(lambda: has_said("IBM is gone\n"))
        finally:
            eventually(lambda: browsers)[0].close()
        browsing.exception(10)
    dump, *updates = said.splitlines()
    assert dump == "MSFT 27.95 prices/0/0"
    assert updates == [
        "that was all there is; updates follow",
        "IBM 119.00 prices/0/1",
        "MSFT was consumed; a view still shows its value",
        "IBM is gone",
    ]


def test_the_table_of_settings_is_what_declare_does() -> None:
    created = topic_settings(TopicSpec(replication_factor=3))
    rows = re.findall(
        r"^\| (`[a-z.]+`(?:, `[a-z.]+`)*) \| ([^|]*) \| ([^|]*) \|$", page("docs/how-to/declare.md"), re.MULTILINE
    )
    told: dict[str, str] = {}
    for names, values, reason in rows:
        settings = re.findall(r"`([a-z.]+)`", names)
        for setting, value in zip(settings, values.split(", "), strict=True):
            told[setting] = value
            if setting in ("cleanup.policy", "message.timestamp.type", "delete.retention.ms", "min.insync.replicas"):
                assert reason == reason_for(setting)
    assert {setting: in_kafka(value) for setting, value in told.items()} == created


def in_kafka(value: str) -> str:
    """Return a value of the table as Kafka has it."""
    match value.strip("`").split():
        case [number, unit] if unit in UNITS:
            return str(int(number) * UNITS[unit])
        case [number, "of", "3"]:
            return number
        case [text]:
            return text
    raise AssertionError(f"{value} cannot be compared")


UNITS = {"minute": 60_000, "h": 3_600_000, "day": 86_400_000, "MiB": 1 << 20}
