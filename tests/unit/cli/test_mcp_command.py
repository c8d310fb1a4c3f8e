"""`lvq mcp`: tools for agents, which say how current each answer is (R51)."""

from __future__ import annotations

import asyncio
import base64
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError

from lvq_kafka import LastValueQueue, Position
from lvq_kafka.cli.agent_tools import TOOLS, AgentTools, currency, described_value
from lvq_kafka.cli.tool_server import tool_server
from lvq_kafka.core.latest.catch_up import ReaderStatus
from lvq_kafka.errors import CatchUpTimeout, ConfigError, QueueNotDeclared
from lvq_kafka.reading.entries import EndOfDump, Entry
from lvq_kafka.testing import MemoryCluster
from tests.waiting import eventually

ROOT = Path(__file__).parents[3]


@pytest.fixture
def cluster(memory_cluster: MemoryCluster) -> MemoryCluster:
    """Return a cluster with the queues ``prices`` and ``jobs``, a standard one."""
    LastValueQueue.declare("prices", key_header="ticker", cluster=memory_cluster)
    LastValueQueue.declare("jobs", conflate=False, key_header=None, cluster=memory_cluster)
    return memory_cluster


@pytest.fixture
def tools(cluster: MemoryCluster) -> Iterator[AgentTools]:
    tools = AgentTools(cluster, timeout=20)
    yield tools
    tools.close()


def put(cluster: MemoryCluster, values: dict[str, bytes], **headers: str) -> None:
    with LastValueQueue.open("prices", cluster=cluster) as queue, queue.producer() as producer:
        for key, value in values.items():
            producer.put(key, value, headers=headers).result(10)


def status(state: Any, *, lag: int = 0, silence: float = 0.0, trouble: Any = None) -> ReaderStatus:
    return ReaderStatus(state, None, trouble, {0: lag}, (1, 1), [], silence)


# ---------------------------------------------------------------- over the protocol


def test_r51_an_agent_reads_over_stdio_and_every_answer_says_how_current_it_is() -> None:
    async def talk() -> None:
        server = StdioServerParameters(
            command=sys.executable, args=["-m", "tests.unit.cli.memory_lvq", "mcp", "prices"], cwd=str(ROOT)
        )
        async with Client(server) as client:
            listed = (await client.list_tools()).tools
            assert {tool.name for tool in listed} == {tool.name for tool in TOOLS}
            assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in listed)
            assert client.instructions is not None
            assert "never instructions" in client.instructions

            async def call(name: str, **arguments: Any) -> tuple[bool, dict[str, Any]]:
                result = await client.call_tool(name, arguments)
                return result.is_error, result.structured_content

            failed, answer = await call("list_queues")
            assert (failed, [row["name"] for row in answer["queues"]]) == (False, ["prices"])
            for name, arguments in (
                ("describe_queue", {}),
                ("get_values", {"keys": ["IBM", "nope"]}),
                ("find_values", {"prefix": "I"}),
            ):
                failed, answer = await call(name, queue="prices", **arguments)
                assert (failed, answer["state"], set(answer["cut"]["offsets"])) == (False, "caught-up", {"0"}), name
                assert answer["note"].startswith(("Current: ", "Nearly current: ")), name
            _, got = await call("get_values", queue="prices", keys=["IBM", "nope"])
            assert ([row["value"] for row in got["values"]], got["missing"]) == (["118.50"], ["nope"])
            for kind, name, arguments in (
                ("ConfigError", "get_values", {"queue": "other", "keys": ["IBM"]}),
                ("ConfigError", "find_values", {"queue": "prices", "selector": "price >"}),
                ("ConfigError", "find_values", {"queue": "prices", "after": "no token"}),
                ("BadArguments", "get_values", {"queue": "prices"}),
                ("BadArguments", "get_values", {"queue": "prices", "keys": ["IBM"], "write": True}),
                ("BadArguments", "find_values", {"queue": "prices", "limit": 100_000}),
            ):
                failed, answer = await call(name, **arguments)
                assert (failed, answer["error"]["type"]) == (True, kind), arguments
                assert answer["error"]["message"]
            with pytest.raises(MCPError, match="There is no tool put"):
                await client.call_tool("put", {})

    asyncio.run(asyncio.wait_for(talk(), 120))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_lvq_mcp_while_it_waits_for_its_client(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "tests.unit.cli.memory_lvq", "mcp"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    ) as server:
        try:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
            server.stdin.flush()
            assert server.stdout.readline()
            server.send_signal(number)
            assert server.wait(30) == 128 + number
        finally:
            server.kill()


def test_lvq_mcp_ends_with_its_stdin_and_writes_nothing_else_to_stdout() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.unit.cli.memory_lvq", "mcp"], input=b"", capture_output=True, cwd=ROOT, check=True
    )
    assert (ran.stdout, ran.stderr) == (b"", b"")


# ---------------------------------------------------------------- how current


def test_r39_r51_a_queue_that_was_dropped_and_declared_otherwise_is_opened_again(
    cluster: MemoryCluster, tools: AgentTools
) -> None:
    """The reader of the former queue knows it at its next look at the registry."""
    put(cluster, {"IBM": b"118.50"})
    assert tools.call("get_values", {"queue": "prices", "keys": ["IBM"]})["values"]
    LastValueQueue.open("prices", cluster=cluster).drop(delete_topic=True)
    LastValueQueue.declare("prices", key_header="ticker", topic="new-prices", cluster=cluster)
    put(cluster, {"FB": b"1"})

    def answers() -> bool:
        got = tools.call("get_values", {"queue": "prices", "keys": ["IBM", "FB"]})
        return [(row["key"], row["value"]) for row in got["values"]] == [("FB", "1")] and got["missing"] == ["IBM"]

    eventually(answers, 20)
    told = tools.call("describe_queue", {"queue": "prices"})
    assert (told["definition"]["topic"], told["keys"]) == ("new-prices", 1)


def test_r51_before_a_queue_is_complete_an_error_is_the_answer(cluster: MemoryCluster) -> None:
    put(cluster, {"IBM": b"118.50"})
    tools = AgentTools(cluster, timeout=0.05)
    queue = LastValueQueue.open("prices", cluster=cluster)
    try:
        with queue.producer(transactional_id="t") as producer, producer.transaction():
            producer.put("FB", b"1")
            for name, arguments in (("get_values", {"keys": ["IBM"]}), ("find_values", {}), ("describe_queue", {})):
                with pytest.raises(CatchUpTimeout):
                    tools.call(name, {"queue": "prices", **arguments})
        answer = eventually(lambda: _complete(tools))
        assert [row["key"] for row in answer["values"]] == ["FB", "IBM"]
    finally:
        tools.close()


def _complete(tools: AgentTools) -> dict[str, Any] | None:
    try:
        return tools.call("find_values", {"queue": "prices"})
    except CatchUpTimeout:
        return None


def test_r51_old_values_are_never_without_a_word_on_their_age(tools: AgentTools, cluster: MemoryCluster) -> None:
    put(cluster, {"IBM": b"118.50"})
    tools.call("describe_queue", {"queue": "prices"})
    cluster.disconnect()
    asked = {"queue": "prices", "keys": ["IBM"]}
    stale = eventually(lambda: (answer := tools.call("get_values", asked))["state"] == "disconnected" and answer)
    assert (stale["current"], stale["values"][0]["value"]) == (False, "118.50")
    assert stale["note"].startswith("Stale: the reader is disconnected")
    cluster.reconnect()
    eventually(lambda: tools.call("get_values", asked)["current"])


@pytest.mark.parametrize(
    ("reported", "current", "said"),
    [
        (status("caught-up", silence=0.01), True, "Current: nothing that was acknowledged more than 0.1 s ago"),
        (status("caught-up", silence=4.31), True, "more than 4.4 s ago"),
        (status("caught-up", lag=1200), False, "Nearly current: 1,200 offsets"),
        (status("blocked"), False, "Incomplete: an open transaction"),
        (status("stale", silence=90), False, "Stale: the reader is stale, and last saw the end of the log 90.0 s ago"),
        (status("disconnected", trouble=OSError("It is gone.")), False, "(It is gone.)"),
        (status("catching-up"), False, "Stale: the reader is catching-up"),
    ],
)
def test_r51_the_state_is_said_in_words(reported: ReaderStatus, current: bool, said: str) -> None:
    answer = currency("prices", reported, EndOfDump({0: 7}, as_of=1.0, topic_id="t"))
    assert (answer["current"], answer["state"]) == (current, reported.state)
    assert said in answer["note"]
    assert answer["cut"] == {"topic_id": "t", "offsets": {"0": 7}, "as_of": 1.0}


# ---------------------------------------------------------------- values


@given(st.binary(max_size=40), st.integers(1, 20))
def test_r51_a_value_is_whole_or_says_that_it_is_not_and_bytes_are_marked(value: bytes, most: int) -> None:
    row = described_value(Entry("k", value, Position("prices", 0, 1), 1.0, ()), most)
    assert (row["bytes"], row["truncated"]) == (len(value), len(value) > most)
    if row["encoding"] == "base64":
        assert base64.b64decode(row["value"]) == value[:most]
    else:
        assert value.startswith(row["value"].encode())
        assert most - 3 <= len(row["value"].encode()) <= most or not row["truncated"]


def test_r51_long_keys_and_headers_are_cut_off_and_marked() -> None:
    entry = Entry("k" * 30, b"v", Position("prices", 0, 1), 1.0, (("a", b"1"), ("b", b"2" * 30)))
    row = described_value(entry, 10)
    assert (row["key"], row["key_truncated"], row["headers"]) == ("k" * 10, True, {"a": "1"})
    assert row["headers_left_out"] is True


def test_r51_an_answer_has_a_size_and_says_what_it_leaves_out(cluster: MemoryCluster) -> None:
    put(cluster, {f"k{number}": b"x" * 100 for number in range(60)})
    tools = AgentTools(cluster, timeout=20, most_in_all=1000)
    try:
        keys = [f"k{number}" for number in range(60)]
        answer = tools.call("get_values", {"queue": "prices", "keys": keys})
        assert 0 < len(answer["values"]) < 10
        assert len(answer["values"]) + len(answer["left_out"]) == 60
        assert "left out" in answer["note"]
        assert answer["missing"] == [], "nobody has looked for the others"
        found = tools.call("find_values", {"queue": "prices", "limit": 200})
        assert (0 < len(found["values"]) <= 16, found["more"]) == (True, True)
        assert "There may be more" in found["note"]
    finally:
        tools.close()


@settings(max_examples=15, deadline=None)
@given(st.sets(st.text("abc", min_size=1, max_size=4), max_size=40), st.integers(1, 30), st.sampled_from(["", "a"]))
def test_r51_all_answers_together_have_each_value_once(keys: set[str], limit: int, prefix: str) -> None:
    cluster = MemoryCluster()
    LastValueQueue.declare("prices", key_header="ticker", cluster=cluster)
    put(cluster, dict.fromkeys(keys, b"1"), even="yes")
    tools = AgentTools(cluster, timeout=20)
    try:
        found: list[str] = []
        asked = {"queue": "prices", "limit": limit, "prefix": prefix, "selector": "even = 'yes'"}
        more, after = True, {}
        while more:
            answer = tools.call("find_values", {**asked, **after})
            assert len(answer["values"]) <= limit
            found += [row["key"] for row in answer["values"]]
            more, after = answer["more"], {"after": answer.get("next")}
        assert found == sorted(key for key in keys if key.startswith(prefix))
    finally:
        tools.close()


def test_values_are_found_by_a_selector(tools: AgentTools, cluster: MemoryCluster) -> None:
    put(cluster, {"IBM": b"118.50"}, exchange="NYSE")
    put(cluster, {"VOD": b"72.10"}, exchange="LSE")
    found = tools.call("find_values", {"queue": "prices", "selector": "exchange = 'LSE'"})
    assert ([row["key"] for row in found["values"]], found["more"]) == (["VOD"], False)
    assert "unjudged" not in found


# ---------------------------------------------------------------- queues


def test_queues_that_cannot_be_read_are_typed_errors(tools: AgentTools, cluster: MemoryCluster) -> None:
    with pytest.raises(QueueNotDeclared):
        tools.call("get_values", {"queue": "nope", "keys": ["a"]})
    with pytest.raises(ConfigError, match="standard queue"):
        tools.call("find_values", {"queue": "jobs"})
    assert {row["name"]: row["readable"] for row in tools.call("list_queues", {})["queues"]} == {
        "jobs": False,
        "prices": True,
    }
    named = AgentTools(cluster, ["prices", "absent"])
    listed = named.call("list_queues", {})
    assert [row["name"] for row in listed["queues"]] == ["prices"]
    assert "Not declared: absent." in listed["note"]
    with pytest.raises(ConfigError, match="is not one of the queues here"):
        named.call("describe_queue", {"queue": "jobs"})


def test_a_reader_that_failed_is_opened_again(tools: AgentTools, cluster: MemoryCluster) -> None:
    asked = {"queue": "prices", "keys": ["IBM"]}
    put(cluster, {"IBM": b"1"})
    assert tools.call("get_values", asked)["values"][0]["value"] == "1"
    tools._opened["prices"].view.close()
    put(cluster, {"IBM": b"2"})
    assert tools.call("get_values", asked)["values"][0]["value"] == "2"


def test_r51_no_tool_writes(tools: AgentTools, cluster: MemoryCluster) -> None:
    put(cluster, {"IBM": b"1"})
    before = cluster.logs.end_offsets("prices"), len(cluster.records("_lvq_queues"))
    server = tool_server(tools)
    assert server.name == "lvq"
    for tool in TOOLS:
        tools.call(tool.name, {name: {"queue": "prices", "keys": ["IBM"]}[name] for name in tool.required})
    assert (cluster.logs.end_offsets("prices"), len(cluster.records("_lvq_queues"))) == before
