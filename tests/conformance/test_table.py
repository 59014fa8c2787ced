"""The table of README.md names tests that exist."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
TABLE = (TESTS / "conformance/README.md").read_text(encoding="utf-8")


def named():
    """(path below tests/, name) of every test that the table names; ``::name`` alone belongs to the path before it."""
    found, path = set(), ""
    for match in re.finditer(r"`([\w/]*test_\w+\.py)?(?:::(\w+))?(?:\[[^\]]*\])?`", TABLE):
        path = match[1] or path
        if match[2]:
            found.add((path, match[2]))
    return sorted(found)


@pytest.mark.parametrize("path", sorted({path for path, _ in named()}))
def test_every_test_of_the_table_exists(path):
    source = (TESTS / path).read_text(encoding="utf-8")
    for name in [name for other, name in named() if other == path]:
        assert re.search(rf"^def {name}\(", source, re.M), f"{path}::{name}"


def test_every_module_is_in_the_table():
    modules = {file.name for file in (TESTS / "conformance").glob("test_*.py")} - {"test_table.py"}
    assert {module for module in modules if module not in TABLE} == set()
