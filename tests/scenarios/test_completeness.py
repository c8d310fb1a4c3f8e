"""The completeness of the scenarios, and of the table in the package's docstring."""

from __future__ import annotations

import ast
import re
from pathlib import Path

SECTIONS = {
    "1. Conflation basics": [1, 2, 3, 6, 9, 10, 11, 14, 15, 16],
    "2. Key presence and type": [18, 21, 22, 23, 25, 26, 29, 30],
    "3. Browsing": [31, 32, 33, 35, 36, 37, 38, 41, 42, 44, 47],
    "4. Consume, hold, release": [49, 50, 54, 56, 57, 59, 60, 61, 62, 63, 65, 68, 69, 71],
    "5. Non-destructive queues": [74, 75, 76, 77],
    "6. Transactions": [79, 80, 83, 85, 86, 87],
    "7. Restart": [88, 90, 91, 94],
    "8. Expiry": [95, 96, 97, 100, 101, 102, 103, 106],
    "9. Management and counters": [108, 109, 111, 113],
    "10. Scheduled and held": [114, 115, 116, 117],
    "11. Overflow": [120, 121, 122, 123, 125, 128, 129],
    "12. Groups": [131, 132, 133, 137],
    "15. Same ground: compacted log cases": [155, 156, 157, 158, 159, 161, 162],
}

HERE = Path(__file__).parent


def _tests() -> dict[str, list[int]]:
    """Return the numbers of the tested scenarios, by module."""
    found = {}
    for path in sorted(HERE.glob("test_*.py")):
        names = re.findall(r"^def test_s(\d{3})_\w+\(", path.read_text(), re.MULTILINE)
        found[path.name] = list(dict.fromkeys(map(int, names)))
    return found


def _table() -> dict[str, list[int]]:
    """Return the same from the package's docstring."""
    text = ast.get_docstring(ast.parse((HERE / "__init__.py").read_text())) or ""
    found: dict[str, list[int]] = {}
    for number, module in re.findall(r"^S(\d{3}) +(test_\w+\.py)", text, re.MULTILINE):
        found.setdefault(module, []).append(int(number))
    return found


def test_every_scenario_of_these_sections_has_a_test_of_its_number() -> None:
    tested = {number for numbers in _tests().values() for number in numbers}
    missing = {title: left for title, numbers in SECTIONS.items() if (left := sorted(set(numbers) - tested))}
    assert not missing


def test_the_table_names_every_test_where_it_is() -> None:
    tests = {module: sorted(numbers) for module, numbers in _tests().items() if numbers}
    assert {module: sorted(numbers) for module, numbers in _table().items()} == tests
