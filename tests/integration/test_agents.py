"""``lvq mcp`` on a real broker, over stdio, with the client of the official SDK (R51)."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from lvq_kafka import TEXT, LastValueQueue
from lvq_kafka.testing.brokers import ProvidedBroker

IN_TIME = 90.0  # seconds until a lost broker is noticed, or one that is back


class Agent:
    """An agent that asks for one value again and again."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def call(self, name: str, **arguments: Any) -> tuple[bool, dict[str, Any]]:
        """Return whether a tool failed, and its answer."""
        result = await self._client.call_tool(name, arguments)
        return result.is_error, result.structured_content

    async def value(self) -> tuple[str, str]:
        """Return the value of IBM, and the state of the reader that it comes from."""
        failed, answer = await self.call("get_values", queue="prices", keys=["IBM"])
        assert not failed, answer
        assert answer["missing"] == []
        (row,) = answer["values"]
        assert answer["current"] is (answer["state"] == "caught-up" and answer["lag"] == 0)
        return row["value"], answer["state"]

    async def until(self, value: str, state: str) -> None:
        """Ask until the answer is this one. On the way there is no other value, and never none."""
        async with asyncio.timeout(IN_TIME):
            while (found := await self.value()) != (value, state):
                assert found[0] in ("118.50", value)
                await asyncio.sleep(0.05)


def test_r51_an_agent_hears_that_its_broker_is_lost_and_never_that_there_is_nothing(
    private_broker: ProvidedBroker,
) -> None:
    servers = private_broker.bootstrap_servers
    for name in ("prices", "unread"):
        queue = LastValueQueue.declare(name, key_header="ticker", value=TEXT, bootstrap_servers=servers)
        with queue, queue.producer() as producer:
            producer.put("IBM", "118.50").result(30)

    async def talk() -> None:
        arguments = ["-m", "lvq_kafka", "mcp", "-b", servers, "--timeout", "5"]
        async with Client(StdioServerParameters(command=sys.executable, args=arguments)) as client:
            agent = Agent(client)
            await agent.until("118.50", "caught-up")

            private_broker.kill()
            await agent.until("118.50", "disconnected")
            failed, answer = await agent.call("find_values", queue="prices")
            assert not failed
            assert (answer["state"], answer["current"], len(answer["values"])) == ("disconnected", False, 1)
            assert answer["note"].startswith("Stale: the reader is disconnected")
            for name, given in (("list_queues", {}), ("get_values", {"queue": "unread", "keys": ["IBM"]})):
                failed, answer = await agent.call(name, **given)
                assert failed, (name, answer)
                assert answer["error"]["type"] == "BrokerUnavailable", answer
                assert set(answer) == {"error"}

            private_broker.restart()
            queue = LastValueQueue.open("prices", value=TEXT, bootstrap_servers=servers)
            with queue, queue.producer() as producer:
                producer.put("IBM", "119.00").result(60)
            await agent.until("119.00", "caught-up")
            failed, answer = await agent.call("get_values", queue="unread", keys=["IBM"])
            assert (failed, [row["value"] for row in answer["values"]]) == (False, ["118.50"])

    asyncio.run(talk())
