"""The directory of definitions, and which of them are in force.

One file holds one workflow. A broken edit keeps the version that was good, a broken file hides no other, and of two
files with one name the first that was loaded is in force. Reads happen in `reload` only; `get` looks into memory.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from engine.limits import MAX_DEFINITION_BYTES
from engine.workflows.definition import Definition
from engine.workflows.problems import Problem
from engine.workflows.schema import compile_schema
from engine.workflows.validation import load_text

_SUFFIXES: Final = frozenset({".yaml", ".yml"})
_DIRECTORY: Final = "."

ChangeKind = Literal["added", "changed", "removed", "broken", "mended"]


@dataclass(frozen=True, slots=True)
class Change:
    """What a reload found different.

    `broken`: the file has problems now (other ones, if it was broken before); a good version of it that was in
    force stays so. `mended`: it has none any more. `workflow` is "" for a broken file that never gave one.
    """

    kind: ChangeKind
    workflow: str
    filename: str
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class _Stamp:
    """What tells that a file was written. Two writes within one tick of the file system's clock may share one."""

    modified: int
    changed: int
    size: int
    inode: int


@dataclass(slots=True)
class _File:
    """A file as it was read last, and the last good definition that it gave."""

    stamp: _Stamp | None = None
    confirmed: bool = False  # read again since the stamp was first seen, with the same bytes
    content: bytes | None = None  # None: nothing readable yet
    good: Definition | None = None
    problems: list[Problem] = field(default_factory=list)
    clash: list[Problem] = field(default_factory=list)

    def all_problems(self) -> list[Problem]:
        return [*self.problems, *self.clash]


class Catalog:
    """The definitions in force. Make one, then call `reload` before the first `get`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._files: dict[str, _File] = {}  # in the order of their first loading: of two with one name, the first wins
        self._in_force: dict[str, tuple[str, Definition]] = {}
        self._directory_problem: list[Problem] = []

    def get(self, name: str) -> Definition | None:
        """Give the definition that is in force under `name`."""
        found = self._in_force.get(name)
        return found[1] if found else None

    def names(self) -> list[str]:
        """List the workflows in force, sorted."""
        return sorted(self._in_force)

    def filename(self, name: str) -> str | None:
        """Tell which file the definition in force came from."""
        found = self._in_force.get(name)
        return found[0] if found else None

    def prepare(self) -> None:
        """Compile the schemas in force, so that the first signal does not pay for it: 100 ms at worst, then nothing."""
        for _, definition in self._in_force.values():
            for key in definition.keys():  # noqa: SIM118 - a method of its own, not a mapping's
                keyed = definition.keyed(key)
                if keyed is not None and keyed.task.schema is not None:
                    compile_schema(keyed.task.schema)

    def problems(self) -> dict[str, list[Problem]]:
        """Give the problems of each file that has any; those of the directory itself stand under "."."""
        found = {name: problems for name, file in sorted(self._files.items()) if (problems := file.all_problems())}
        return {_DIRECTORY: list(self._directory_problem), **found} if self._directory_problem else found

    def reload(self) -> list[Change]:
        """Read what was written since the last time; a few microseconds a file that was not.

        A directory that cannot be listed changes nothing, and is a problem unless it is only not there yet.
        """
        stamps = self._list()
        if stamps is None:
            return []
        before_problems = {name: file.all_problems() for name, file in self._files.items()}
        before = dict(self._in_force)
        for name in [name for name in self._files if name not in stamps]:
            del self._files[name]
        for name, stamp in stamps.items():
            self._read(name, stamp)
        self._settle()
        return self._changes(before, before_problems)

    def _list(self) -> dict[str, _Stamp] | None:
        try:
            with os.scandir(self.directory) as entries:
                wanted = [e for e in entries if Path(e.name).suffix in _SUFFIXES and not e.name.startswith(".")]
                stamps = {entry.name: _stamp(entry) for entry in sorted(wanted, key=lambda e: e.name)}
        except OSError as error:
            missing = isinstance(error, FileNotFoundError) and not self._files
            message = f"the directory cannot be listed: {error.strerror}"
            self._directory_problem = [] if missing else [Problem("", "", 0, message, "what was loaded stays in force")]
            return None
        self._directory_problem = []
        return {name: stamp for name, stamp in stamps.items() if stamp is not None}

    def _read(self, name: str, stamp: _Stamp) -> None:
        file = self._files.setdefault(name, _File())
        if file.stamp == stamp and file.confirmed:
            return
        try:
            with (self.directory / name).open("rb") as stream:
                content = stream.read(MAX_DEFINITION_BYTES + 1)
        except OSError as error:
            file.stamp, file.confirmed, file.content = None, False, None
            file.problems = [Problem("", "", 0, f"the file cannot be read: {error.strerror}", "")]
            return
        # The same bytes under the same stamp twice: whatever was written within one tick of the clock has been seen.
        same = content == file.content
        file.confirmed = same and file.stamp == stamp
        file.stamp, file.content = stamp, content
        if same:
            return
        loaded = _load(content, name)
        if isinstance(loaded, Definition):
            file.good, file.problems = loaded, []
        else:
            file.problems = loaded

    def _settle(self) -> None:
        """Decide which definition is in force under each name."""
        in_force: dict[str, tuple[str, Definition]] = {}
        for name, file in self._files.items():
            file.clash = []
            if file.good is None:
                continue
            other = in_force.setdefault(file.good.name, (name, file.good))[0]
            if other != name:
                message = f"{name} and {other} both define the workflow {file.good.name}"
                file.clash = [Problem("", "/name", 0, message, f"{other} is in force; rename or remove one")]
                self._files[other].clash.append(replace(file.clash[0]))
        self._in_force = in_force

    def _changes(
        self, before: dict[str, tuple[str, Definition]], before_problems: dict[str, list[Problem]]
    ) -> list[Change]:
        changes: list[Change] = []
        for name in sorted(before.keys() | self._in_force.keys()):
            old, new = before.get(name), self._in_force.get(name)
            if old is None and new is not None:
                changes.append(Change("added", name, new[0]))
            elif old is not None and new is None:
                changes.append(Change("removed", name, old[0]))
            elif old is not None and new is not None and old[1].source != new[1].source:
                changes.append(Change("changed", name, new[0]))
        for filename, file in sorted(self._files.items()):
            problems, had = file.all_problems(), before_problems.get(filename, [])
            workflow = file.good.name if file.good else ""
            if problems and problems != had:
                changes.append(Change("broken", workflow, filename, tuple(problems)))
            elif had and not problems:
                changes.append(Change("mended", workflow, filename))
        return changes


def _load(content: bytes, filename: str) -> Definition | list[Problem]:
    try:
        return load_text(content.decode("utf-8-sig"), filename)
    except UnicodeDecodeError as error:
        return [Problem("", "", content.count(b"\n", 0, error.start) + 1, "not UTF-8", "")]


def _stamp(entry: os.DirEntry[str]) -> _Stamp | None:
    try:
        status = entry.stat()
    except OSError:
        return _Stamp(0, 0, 0, 0)  # a link to nothing: reading it will say so
    if not entry.is_file():
        return None
    return _Stamp(status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
