"""Proves that the source keeps its layout: sizes, names, one clock, and docstrings where they are promised."""

from __future__ import annotations

import ast
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("engine", "devices", "gateway")
SIMULATOR = "devices/simulator.py"  # one file by design, so that it can be copied to a small machine
# The only other places that may read a clock or draw a number: everywhere else time and identity are arguments.
CLOCKS = {"engine/clock.py", SIMULATOR}
CLOCK_CALLS = {
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "date.today",
    "time.time",
    "time.time_ns",
    "uuid.uuid4",
    "uuid4",
    "uuid.uuid1",
}


def sources(*directories: str) -> list[Path]:
    return sorted(path for directory in directories for path in (ROOT / directory).rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno
            yield f"{name(path)}:{node.lineno} {node.name}", node.end_lineno - node.lineno + 1


@pytest.mark.skipif(not (ROOT / ".git").exists() or not shutil.which("git"), reason="this is no checkout")
def test_the_top_holds_what_belongs_there_and_nothing_else() -> None:
    allowed = {*PACKAGES, "tests", "deploy", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE"}
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = {path.split("/")[0] for path in tracked.split("\0") if path}
    assert {entry for entry in found if not entry.startswith(".")} == allowed


def test_no_file_is_longer_than_400_lines() -> None:
    lengths = {name(path): len(path.read_text().splitlines()) for path in sources(*PACKAGES)}
    assert {path: length for path, length in lengths.items() if length > 400 and path != SIMULATOR} == {}


def test_no_function_is_longer_than_70_lines_and_nine_in_ten_are_under_25() -> None:
    lengths = dict(found for path in sources(*PACKAGES) for found in functions(path))
    assert {where: length for where, length in lengths.items() if length > 70} == {}
    assert sum(length < 25 for length in lengths.values()) >= 0.9 * len(lengths)


def test_nothing_reads_a_clock_or_draws_a_number_outside_the_clock() -> None:
    found = []
    for path in sources(*PACKAGES):
        if name(path) in CLOCKS:
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in CLOCK_CALLS:
                found.append(f"{name(path)}:{node.lineno} {ast.unparse(node.func)}()")
            if isinstance(node, ast.Import) and any(alias.name in {"random", "uuid"} for alias in node.names):
                found.append(f"{name(path)}:{node.lineno} import")
            if isinstance(node, ast.ImportFrom) and node.module in {"random", "uuid"}:
                found.append(f"{name(path)}:{node.lineno} import")
    assert found == []


@pytest.mark.parametrize("word", ["manager", "helper", "util"])
def test_no_module_and_no_class_has_a_name_that_says_nothing(word: str) -> None:
    found = [name(path) for path in sources(*PACKAGES) if word in path.name]
    for path in sources(*PACKAGES):
        found += [
            f"{name(path)}:{node.lineno} {node.name}"
            for node in ast.walk(tree(path))
            if isinstance(node, ast.ClassDef) and word in node.name.lower()
        ]
    assert found == []


def test_every_module_starts_with_a_docstring() -> None:
    missing = [name(path) for path in sources(*PACKAGES) if ast.get_docstring(tree(path)) is None]
    missing += [
        name(path)
        for path in sources("tests")
        if path.name.startswith("test_") and ast.get_docstring(tree(path)) is None
    ]
    assert missing == []


def test_every_directory_of_tests_is_a_package() -> None:
    directories = {path.parent for path in sources("tests")}
    assert [name(directory) for directory in directories if not (directory / "__init__.py").exists()] == []


def test_a_test_names_a_behaviour_in_a_sentence() -> None:
    short = [
        where
        for path in sources("tests")
        if path.name.startswith("test_")
        for where, _ in functions(path)
        if (test := where.split()[1]).startswith("test_") and test.count("_") < 3
    ]
    assert short == []
