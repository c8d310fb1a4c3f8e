"""The board as the application serves it: its files, and what it lets a browser do (R47)."""

from __future__ import annotations

import re

import pytest

from lvq_kafka.serve.web_files import BOARD
from tests.nodejs import WEB
from tests.unit.serve.asgi_client import AsgiClient
from tests.unit.serve.scenes import scene

FILES = {"": "board.html", **{name: name for name in BOARD}}


async def test_r47_the_board_may_run_its_own_files_and_nothing_else() -> None:
    async with scene(board=True) as on:
        for address, name in FILES.items():
            reply = await on.client.get(f"/{address}")
            assert (reply.status, reply.body) == (200, (WEB / name).read_bytes())
            policy = dict(part.split(" ", 1) for part in reply.headers["content-security-policy"].split("; "))
            assert policy.pop("default-src") == policy.pop("frame-ancestors") == "'none'"
            assert policy.pop("base-uri") == policy.pop("form-action") == policy.pop("trusted-types") == "'none'"
            assert policy.pop("require-trusted-types-for") == "'script'"
            assert set(policy) == {"script-src", "style-src", "img-src", "connect-src"}
            assert set(policy.values()) == {"'self'"}
            assert reply.headers["x-content-type-options"] == "nosniff"
            known = await on.client.get(f"/{address}", if_none_match=reply.headers["etag"])
            assert (known.status, known.body) == (304, b"")
        for address, name in FILES.items():
            mounted = await AsgiClient(on.app, root="/lvq").get(f"/lvq/{address}")
            assert mounted.body == (WEB / name).read_bytes()
        value = await on.client.get("/v1/queues/prices/values/IBM")
        assert value.headers["content-security-policy"].endswith("; sandbox"), "values stay inert"


@pytest.mark.parametrize("options", [{}, {"board": False}])
async def test_there_is_no_board_unless_it_is_asked_for(options: dict[str, bool]) -> None:
    async with scene(**options) as on:
        for address in FILES:
            reply = await on.client.get(f"/{address}")
            assert (reply.status, reply.json["detail"]) == (
                404,
                "There is nothing at this address. The queues are at v1/queues.",
            )
        assert (await on.client.get("/lvq.js")).status == 200


def test_r47_the_board_makes_no_markup_takes_nothing_from_elsewhere_and_keeps_tokens_in_the_session_only() -> None:
    for name in FILES.values():
        text = (WEB / name).read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|Function\(", text), name
        assert not re.search(r"localStorage|cookie|indexedDB", text), name
        assert re.findall(r"https?://[^\s\"')]+", text) in ([], ["http://www.w3.org/2000/svg"]), name
    page = (WEB / "board.html").read_text()
    assert not re.search(r"\bstyle=|<style|\bon[a-z]+=|javascript:", page)
    assert re.findall(r"<script[^>]*>[^<]*", page) == ['<script type="module" src="board.js">']
    assert set(re.findall(r'(?:src|href)="([^"]+)"', page)) == set(BOARD)


def test_every_state_has_words_on_the_board() -> None:
    module, board = ((WEB / name).read_text() for name in ("lvq.js", "board.js"))
    states = re.findall(r"\"([a-z-]+)\"", re.search(r"@typedef \{(\"connecting\".*?)\} State", module, re.DOTALL)[1])  # type: ignore[index]
    words = board[board.index("const STATES") : board.index("};", board.index("const STATES"))]
    assert len(states) == 10
    for state in states:
        assert re.search(rf'^  "?{state}"?: {{', words, re.MULTILINE), state
