"""`lvq declare --from`: what a broker's file describes is declared, shown first if one likes, and never twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lvq_kafka import AddressSettings, LastValueQueue, Ttl, queues
from lvq_kafka.testing import MemoryCluster
from tests.unit.cli.conftest import Run
from tests.unit.test_broker_files import BROKER_XML

GOOD = (
    BROKER_XML.replace(b'<queue name="orders2" last-value="true" exclusive="true" />', b"")
    .replace(b"<redelivery-delay>5000</redelivery-delay>", b"")
    .replace(b'<divert name="copies"><address>a</address></divert>', b"")
)


@pytest.fixture
def broker_xml(tmp_path: Path) -> Path:
    path = tmp_path / "broker.xml"
    path.write_bytes(GOOD)
    return path


def outcomes(rows: list[dict[str, object]]) -> dict[object, object]:
    return {row.get("setting") or row.get("queue"): row["outcome"] for row in rows}


def test_a_broker_xml_is_declared_and_a_second_run_changes_nothing(
    run: Run, memory_cluster: MemoryCluster, broker_xml: Path
) -> None:
    ran = run("declare", "--from", str(broker_xml))
    assert ran.code == 0, ran.stderr
    assert outcomes(ran.rows) == {"#": "new", "lastValueQueue": "new", "ExpiryQueue": "new", "orders1": "new"}
    with LastValueQueue.open("orders1", cluster=memory_cluster) as queue:
        found = queue.definition
    assert (found.topic, found.key_header, found.non_destructive) == ("foo.bar", "reuters_code", True)
    assert (found.selector, found.expiry_topic) == ("exchange = 'NYSE'", None)
    with LastValueQueue.open("ExpiryQueue", cluster=memory_cluster) as queue:
        assert not queue.definition.conflate
    before = queues(cluster=memory_cluster)
    again = run("declare", "--from", str(broker_xml))
    assert (again.code, set(outcomes(again.rows).values())) == (0, {"same"})
    assert queues(cluster=memory_cluster) == before


def test_a_dry_run_shows_all_and_declares_nothing(run: Run, memory_cluster: MemoryCluster, broker_xml: Path) -> None:
    ran = run("declare", "--from", str(broker_xml), "--dry-run")
    assert ran.code == 0, ran.stderr
    assert outcomes(ran.rows) == {"#": "new", "lastValueQueue": "new", "ExpiryQueue": "new", "orders1": "new"}
    assert not queues(cluster=memory_cluster)
    with AddressSettings(cluster=memory_cluster) as settings:
        assert not settings.all()
    said = run("declare", "--from", str(broker_xml), "--dry-run", person=True)
    assert "queue orders1 would be declared: on the topic foo.bar, the header reuters_code is the key" in " ".join(
        said.text.split()
    )
    assert "not read: acceptors" in said.stderr


@pytest.mark.parametrize("apply", [(), ("--apply",)])
def test_a_dry_run_foresees_what_comes_of_queues_that_the_file_has_twice_or_on_one_topic(
    run: Run, tmp_path: Path, apply: tuple[str, ...]
) -> None:
    path = tmp_path / "broker.xml"
    path.write_text(
        """<core><addresses>
        <address name="a"><anycast><queue name="a" last-value-key="k"/></anycast></address>
        <address name="a"><anycast><queue name="a" last-value-key="k"/></anycast></address>
        <address name="b"><anycast><queue name="b" last-value-key="k" max-expiry-delay="5"/></anycast></address>
        <address name="b"><anycast><queue name="b" last-value-key="k" max-expiry-delay="7"/></anycast></address>
        <address name="c"><anycast><queue name="a" last-value-key="other"/></anycast></address>
        <address name="d"><multicast>
            <queue name="d1" last-value-key="k"/><queue name="d2" last-value-key="other"/>
        </multicast></address>
        </addresses></core>"""
    )
    foreseen = run("declare", "--from", str(path), "--dry-run", *apply)
    assert not run("queues").rows
    ran = run("declare", "--from", str(path), *apply)
    second = "changed" if apply else "differs"
    assert [row["outcome"] for row in ran.rows] == ["new", "same", "new", second, "differs", "new", "differs"]
    assert (foreseen.rows, foreseen.code) == (ran.rows, ran.code)
    assert foreseen.code == 4


@pytest.mark.parametrize("content", ["<project><modules><module>a</module></modules></project>", "<core/>", "[]"])
def test_a_file_that_describes_no_queue_is_refused(run: Run, tmp_path: Path, content: str) -> None:
    path = tmp_path / "pom.xml"
    path.write_text(content)
    ran = run("declare", "--from", str(path))
    assert ran.code == 2
    assert "The file describes no queue, and no setting" in ran.stderr
    assert not ran.rows


def test_a_part_that_cannot_be_had_is_listed_and_all_the_rest_is_declared(
    run: Run, memory_cluster: MemoryCluster, tmp_path: Path
) -> None:
    path = tmp_path / "broker.xml"
    path.write_bytes(BROKER_XML)
    ran = run("declare", "--from", str(path))
    assert ran.code == 5
    assert "line 27, queue orders2: " in ran.stderr
    assert "exclusive" in ran.stderr
    assert "line 31, divert copies: " in ran.stderr
    assert [queue.name for queue in queues(cluster=memory_cluster)] == ["ExpiryQueue", "orders1"]


def test_a_queue_that_is_otherwise_stays_and_settings_change_if_asked(
    run: Run, memory_cluster: MemoryCluster, broker_xml: Path
) -> None:
    with AddressSettings(cluster=memory_cluster) as settings:
        settings.set("lastValueQueue", {"default-last-value-key": "code"})
        LastValueQueue.declare("orders1", topic="foo.bar", key_header="isin", cluster=memory_cluster).close()
        ran = run("declare", "--from", str(broker_xml))
        assert ran.code == 4
        assert outcomes(ran.rows)["lastValueQueue"] == outcomes(ran.rows)["orders1"] == "differs"
        assert "it is default-last-value-key=code, and the file says" in ran.stderr
        assert "queue orders1: it is declared with `key_header`" in ran.stderr
        assert "cannot be altered: the messages that are there have their keys by it" in ran.stderr
        assert settings.all()["lastValueQueue"] == {"default-last-value-key": "code"}
        assert outcomes(run("declare", "--from", str(broker_xml), "--apply").rows)["lastValueQueue"] == "changed"
        assert settings.all()["lastValueQueue"]["default-last-value-key"] == "reuters_code"


def test_r39_a_queue_is_altered_to_what_the_file_says_if_asked(
    run: Run, memory_cluster: MemoryCluster, tmp_path: Path
) -> None:
    path = tmp_path / "queue.json"
    attributes = {"name": "prices", "type": "lvq", "lvqKey": "ticker"}
    path.write_text(json.dumps(attributes))
    run("declare", "--from", str(path))
    path.write_text(json.dumps(attributes | {"maximumMessageTtl": 60_000}))
    told = run("declare", "--from", str(path))
    assert (told.code, told.row["outcome"]) == (4, "differs")
    assert "--apply alters that" in told.stderr
    would = run("declare", "--from", str(path), "--apply", "--dry-run")
    assert (would.code, would.row["outcome"]) == (0, "changed")
    said = run("declare", "--from", str(path), "--apply", "--dry-run", person=True).text
    assert "queue prices would be altered: ttl: none → 60 s at most" in said
    with LastValueQueue.open("prices", cluster=memory_cluster) as queue:
        assert queue.newest().ttl is None
        assert run("declare", "--from", str(path), "--apply").row["outcome"] == "changed"
        assert queue.newest().ttl == Ttl(maximum=60.0)
    assert run("declare", "--from", str(path)).row["outcome"] == "same"


def test_r39_settings_of_a_file_that_are_new_alter_its_queues_if_asked(
    run: Run, memory_cluster: MemoryCluster, broker_xml: Path
) -> None:
    run("declare", "--from", str(broker_xml))
    with AddressSettings(cluster=memory_cluster) as settings:
        settings.set("foo.#", {"max-delay": 60})
    told = run("declare", "--from", str(broker_xml))
    assert (told.code, outcomes(told.rows)["orders1"]) == (0, "same")
    assert [row["told"].partition(". ")[2] for row in told.rows if row.get("queue") == "orders1"] == [
        "It has `max_delay` none (requested: 60 s); --apply alters that."
    ]
    assert outcomes(run("declare", "--from", str(broker_xml), "--apply").rows)["orders1"] == "changed"
    with LastValueQueue.open("orders1", cluster=memory_cluster) as queue:
        assert queue.newest().max_delay == 60.0


def test_attributes_of_broker_j_are_declared(run: Run, memory_cluster: MemoryCluster, tmp_path: Path) -> None:
    path = tmp_path / "queue.json"
    path.write_text(json.dumps({"name": "prices", "type": "lvq", "lvqKey": "ticker", "durable": True}))
    assert run("declare", "--from", str(path)).code == 0
    assert [queue.key_header for queue in queues(cluster=memory_cluster)] == ["ticker"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--from", "missing.xml"], "missing.xml"),
        (["q", "--from", "broker.xml"], "--from describes all queues: leave name out"),
        (["--from", "broker.xml", "-k", "ticker"], "--from describes all queues: leave --key-header out"),
        (["q", "-k", "ticker", "--dry-run"], "--dry-run and --apply belong to --from"),
        ([], "Name the queue, or give --from FILE"),
    ],
)
def test_a_wrong_call_says_what_to_do(run: Run, arguments: list[str], said: str) -> None:
    ran = run("declare", *arguments)
    assert ran.code == 2
    assert said in " ".join(ran.stderr.split())
