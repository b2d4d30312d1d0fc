"""Proves that a good definition stays in force whatever happens to its file, and that no file hides another."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.workflows.loading import Catalog, Change
from engine.workflows.schema import compile_schema

BROKEN = "name: [\n"


def text(name: str, timeout: int = 1) -> str:
    return (
        f"name: {name}\njobs:\n  - name: main\n    steps:\n"
        f"      - name: s\n        task: {{ type: wait_for_signal, timeout: {timeout} }}\n"
    )


def brief(changes: list[Change]) -> list[tuple[str, str, str]]:
    return [(change.kind, change.workflow, change.filename) for change in changes]


def timeout_of(catalog: Catalog, name: str) -> float:
    definition = catalog.get(name)
    assert definition is not None
    return definition.jobs[0].steps[0].task.timeout  # type: ignore[union-attr]


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(tmp_path)


def test_a_directory_that_is_not_there_yet_holds_no_workflows(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "later")
    assert catalog.reload() == []
    assert (catalog.names(), catalog.problems()) == ([], {})
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "a.yml").write_text(text("a"))
    assert brief(catalog.reload()) == [("added", "a", "a.yml")]


def test_a_file_is_added_changed_and_removed(catalog: Catalog) -> None:
    path = catalog.directory / "a.yaml"
    path.write_text(text("a"))
    assert brief(catalog.reload()) == [("added", "a", "a.yaml")]
    assert catalog.reload() == []
    path.write_text(text("a", 2))
    assert brief(catalog.reload()) == [("changed", "a", "a.yaml")]
    assert timeout_of(catalog, "a") == 2
    assert catalog.filename("a") == "a.yaml"
    path.unlink()
    assert brief(catalog.reload()) == [("removed", "a", "a.yaml")]
    assert catalog.get("a") is None
    assert catalog.filename("a") is None


def test_a_broken_edit_keeps_the_good_version_until_it_is_mended(catalog: Catalog) -> None:
    path = catalog.directory / "a.yaml"
    path.write_text(text("a"))
    catalog.reload()
    path.write_text(BROKEN)
    (change,) = catalog.reload()
    assert (change.kind, change.workflow, change.filename) == ("broken", "a", "a.yaml")
    assert change.problems
    assert timeout_of(catalog, "a") == 1
    assert list(catalog.problems()) == ["a.yaml"]
    assert catalog.reload() == []
    path.write_text(text("a", 3))
    assert brief(catalog.reload()) == [("changed", "a", "a.yaml"), ("mended", "a", "a.yaml")]
    assert timeout_of(catalog, "a") == 3
    assert catalog.problems() == {}


def test_mending_a_file_back_to_what_it_was_is_mended_and_not_changed(catalog: Catalog) -> None:
    path = catalog.directory / "a.yaml"
    path.write_text(text("a"))
    catalog.reload()
    path.write_text("")
    catalog.reload()
    path.write_text("\n# still wrong\n")
    assert catalog.reload() == []
    path.write_text(text("a") + "# a comment\n")
    assert brief(catalog.reload()) == [("mended", "a", "a.yaml")]


def test_a_broken_file_hides_no_other(catalog: Catalog) -> None:
    (catalog.directory / "a.yaml").write_text(BROKEN)
    (catalog.directory / "b.yaml").write_text(text("b"))
    assert brief(catalog.reload()) == [("added", "b", "b.yaml"), ("broken", "", "a.yaml")]
    assert catalog.names() == ["b"]


def test_of_two_files_with_one_name_the_first_loaded_is_in_force_and_both_are_told(catalog: Catalog) -> None:
    (catalog.directory / "z.yaml").write_text(text("door", 1))
    catalog.reload()
    (catalog.directory / "a.yaml").write_text(text("door", 2))
    assert brief(catalog.reload()) == [("broken", "door", "a.yaml"), ("broken", "door", "z.yaml")]
    assert timeout_of(catalog, "door") == 1
    assert sorted(catalog.problems()) == ["a.yaml", "z.yaml"]
    (catalog.directory / "z.yaml").unlink()
    assert brief(catalog.reload()) == [("changed", "door", "a.yaml"), ("mended", "door", "a.yaml")]
    assert timeout_of(catalog, "door") == 2


def test_a_workflow_that_is_renamed_in_its_file_is_removed_and_added(catalog: Catalog) -> None:
    path = catalog.directory / "a.yaml"
    path.write_text(text("a"))
    catalog.reload()
    path.write_text(text("b"))
    assert brief(catalog.reload()) == [("removed", "a", "a.yaml"), ("added", "b", "a.yaml")]


def test_a_write_that_leaves_size_and_time_as_they_were_is_seen_all_the_same(catalog: Catalog) -> None:
    path = catalog.directory / "a.yaml"
    path.write_text(text("a", 1))
    catalog.reload()
    before = path.stat()
    with path.open("r+") as stream:  # the same file, size and, within one tick of the clock, times
        stream.write(text("a", 2))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert brief(catalog.reload()) == [("changed", "a", "a.yaml")]


def test_what_is_no_definition_file_is_left_alone(catalog: Catalog) -> None:
    (catalog.directory / ".a.yaml").write_text(BROKEN)
    (catalog.directory / "notes.txt").write_text(BROKEN)
    (catalog.directory / "a.yaml~").write_text(BROKEN)
    (catalog.directory / "dir.yaml").mkdir()
    assert catalog.reload() == []
    assert catalog.problems() == {}


def test_a_file_that_cannot_be_read_is_a_problem_of_its_own(catalog: Catalog) -> None:
    (catalog.directory / "a.yaml").symlink_to(catalog.directory / "nowhere")
    (catalog.directory / "b.yaml").write_bytes(b"name: b\n# \xff\n")
    (catalog.directory / "c.yaml").write_text("#" * 300_000)
    (catalog.directory / "d.yaml").write_bytes(b"\xef\xbb\xbf" + text("d").encode())
    assert brief(catalog.reload()) == [
        ("added", "d", "d.yaml"), ("broken", "", "a.yaml"), ("broken", "", "b.yaml"), ("broken", "", "c.yaml"),
    ]  # fmt: skip
    told = {name: problem.message for name, (problem,) in catalog.problems().items()}
    assert "cannot be read" in told["a.yaml"]
    assert "not UTF-8" in told["b.yaml"]
    assert "larger than" in told["c.yaml"]
    assert catalog.problems()["b.yaml"][0].line == 2
    assert catalog.reload() == []


def test_a_directory_that_goes_away_takes_nothing_out_of_force(catalog: Catalog) -> None:
    (catalog.directory / "a.yaml").write_text(text("a"))
    catalog.reload()
    shutil.rmtree(catalog.directory)
    assert catalog.reload() == []
    assert catalog.names() == ["a"]
    assert "cannot be listed" in catalog.problems()["."][0].message
    catalog.directory.mkdir()
    assert brief(catalog.reload()) == [("removed", "a", "a.yaml")]
    assert catalog.problems() == {}


def test_preparing_compiles_what_is_in_force_and_changes_nothing(catalog: Catalog) -> None:
    keyed = text("a").replace("timeout: 1", "timeout: 1, key: k, schema: { required: [prepared] }")
    (catalog.directory / "a.yaml").write_text(keyed)
    catalog.reload()
    compiled = compile_schema.cache_info().currsize
    catalog.prepare()
    assert compile_schema.cache_info().currsize == compiled + 1
    assert catalog.names() == ["a"]


FILES = ["a.yaml", "b.yaml", "c.yml"]
edits = st.lists(
    st.tuples(
        st.sampled_from(FILES),
        st.none() | st.just(BROKEN) | st.builds(text, st.sampled_from(["x", "y"]), st.integers(1, 3)),
    ),
    max_size=8,
)


@settings(max_examples=60)
@given(edits)
def test_whatever_is_edited_the_last_good_versions_are_in_force(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str | None]]
) -> None:
    catalog = Catalog(tmp_path_factory.mktemp("workflows"))
    good: dict[str, str] = {}  # in the order of their first loading
    present: list[str] = []
    for filename, content in steps:
        path = catalog.directory / filename
        if content is None:
            path.unlink(missing_ok=True)
            good.pop(filename, None)
            present = [name for name in present if name != filename]
        else:
            path.write_text(content)
            present = present if filename in present else [*present, filename]
            if content != BROKEN:
                good[filename] = content
        catalog.reload()
        expected: dict[str, str] = {}
        for name in present:
            if name in good:
                expected.setdefault(good[name].split()[1], good[name])
        assert catalog.names() == sorted(expected)
        for workflow, source in expected.items():
            assert f"timeout: {timeout_of(catalog, workflow):.0f} " in source
        assert catalog.reload() == []


def test_an_unchanged_directory_costs_little(catalog: Catalog) -> None:
    for number in range(200):
        (catalog.directory / f"w{number}.yaml").write_text(text(f"w{number}"))
    started = time.perf_counter()
    catalog.reload()
    first = time.perf_counter() - started
    catalog.reload()
    started = time.perf_counter()
    assert catalog.reload() == []
    assert time.perf_counter() - started < first / 3
