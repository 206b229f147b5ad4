"""A command on named checkpoints looks at these and a few others, however many there are."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bundle_writing import array, write
from tfckpt_trainer.catalog.directory.checkpoint_files import owner_of
from tfckpt_trainer.catalog.scan.named_checkpoints import NEWEST_COMPARED
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.storage.documents import store

MANY = 60
LONG_AGO = 1.7e9


@pytest.fixture
def many(tmp_path: Path) -> Path:
    for step in range(MANY):
        for path in write(tmp_path / f"ckpt-{step}", {"w": array([float(step)])}):
            os.utime(path, (LONG_AGO + step, LONG_AGO + step))
    # Another checkpoint whose name begins like the one that is looked for.
    for path in write(tmp_path / "ckpt-7.index.ckpt", {"w": array([1.0])}):
        os.utime(path, (LONG_AGO, LONG_AGO))
    return tmp_path


@pytest.fixture
def many_recorded(many: Path) -> Path:
    run = RunDirectory(many)
    run.records_directory.mkdir(parents=True)
    for step in range(MANY):
        record = CheckpointRecord(
            name=f"ckpt-{step}",
            step=step,
            branch=0,
            sequence=step,
            saved_at=LONG_AGO + step,
            trigger="every 100 steps",
        )
        store(run.record(record.name), record, durable=False)
    return many


class FileAccess:
    """The files of checkpoints whose facts or content this process asks for.

    Attributes:
        names: The checkpoints.
        opened: How often each file was opened.
    """

    def __init__(self) -> None:
        self.opened: Counter[str] = Counter()
        self.names: set[str] = set()
        self.is_on = False
        self._lstat = os.lstat
        sys.addaudithook(self._on_event)

    def _on_event(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.is_on and event == "open":
            self._add(arguments[0])
            self.opened[str(arguments[0])] += 1

    def lstat(self, path: object, *rest: object, **options: object) -> os.stat_result:
        """Takes the place of `os.lstat`, which has no audit event."""
        self._add(path)
        return self._lstat(path, *rest, **options)

    def _add(self, path: object) -> None:
        if isinstance(path, str | os.PathLike):
            file = os.path.basename(os.fspath(path)).removesuffix(".copy").removesuffix(".json")
            name = owner_of(file) or file
            if name.startswith("ckpt-"):
                self.names.add(name)


@pytest.fixture(scope="module")
def watched() -> FileAccess:
    """One for all tests: a process keeps its audit hook, which takes time of every later test."""
    return FileAccess()


@pytest.fixture
def access(watched: FileAccess, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileAccess]:
    watched.names.clear()
    watched.opened.clear()
    watched.is_on = True
    monkeypatch.setattr(os, "lstat", watched.lstat)
    yield watched
    watched.is_on = False


COMMANDS = [
    ("inspect", "ckpt-7"),
    ("compare", "ckpt-7", "ckpt-8"),
    ("verify", "ckpt-7"),
    ("verify", "ckpt-7", "ckpt-8"),
    ("pin", "ckpt-7"),
    ("unpin", "ckpt-7"),
    ("extract", "ckpt-7", "--to", "npz", "-o", "out.npz"),
    ("average", "ckpt-7", "ckpt-8", "--name", "mean"),
    ("copy", "ckpt-7", "ckpt-8", "elsewhere", "--dry-run"),
]
PRUNES = [
    ("prune", "ckpt-7", "--dry-run"),
    ("prune", "ckpt-7", "ckpt-8", "--yes"),
    ("prune", "ckpt-7", "--delete", "--yes"),
]


def by_step(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word.removeprefix("ckpt-") for word in words)


@pytest.mark.parametrize("made", ["many", "many_recorded"])
@pytest.mark.parametrize("words", [*COMMANDS, *map(by_step, COMMANDS)], ids="-".join)
def test_other_files_are_not_looked_at(tool, request, access, tmp_path, monkeypatch, made, words):
    directory = request.getfixturevalue(made)
    monkeypatch.chdir(tmp_path)
    access.names.clear()
    said = tool(words[0], directory, *words[1:])
    assert said.code == 0
    # Which of several names with a step is meant, its record tells.
    assert access.names - {"ckpt-7.index.ckpt"} <= {"ckpt-7", "ckpt-8"}


@pytest.mark.parametrize("made", ["many", "many_recorded"])
@pytest.mark.parametrize("words", [*PRUNES, *map(by_step, PRUNES)], ids="-".join)
def test_a_prune_looks_only_at_the_newest_others(tool, request, access, made, words):
    directory = request.getfixturevalue(made)
    access.names.clear()
    said = tool(words[0], directory, *words[1:])
    assert said.code == 0, said.words
    others = access.names - {"ckpt-7", "ckpt-8", "ckpt-7.index.ckpt"}
    assert others <= {f"ckpt-{step}" for step in range(MANY - NEWEST_COMPARED, MANY)}
    access.names.clear()
    if words[-1] == "--yes" and "--delete" not in words:
        assert tool("undo", directory).code == 0
        assert access.names <= {"ckpt-7", "ckpt-8"}


@pytest.mark.parametrize("command", ["ls", "status"])
def test_a_list_of_all_reads_each_record_once(tool, many_recorded, access, command):
    access.opened.clear()
    assert tool(command, many_recorded).code == 0
    records = {path: n for path, n in access.opened.items() if path.endswith(".json")}
    assert sum("/records/ckpt-" in path for path in records) == MANY
    assert {path: n for path, n in records.items() if "/records/" in path and n > 1} == {}


def test_a_policy_needs_all(tool, many_recorded, access):
    access.names.clear()
    assert tool("prune", many_recorded, "--keep-last", 5, "--dry-run").code == 0
    assert len(access.names) >= MANY


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_a_name_and_a_step_lead_to_the_same(tool, many, command):
    found = [tool(command, many, text, "--json").json for text in ("ckpt-7", "7")]
    for one in found:
        for checkpoint in one.get("checkpoints", []):
            checkpoint.pop("seconds")
            checkpoint.pop("remembered", None)
            checkpoint.pop("verified_at", None)
    assert found[0] == found[1]


def test_damage_is_found_without_the_others(tool, many):
    (many / "ckpt-7.data-00000-of-00001").write_bytes(b"")
    (many / "ckpt-8.index").write_bytes(b"no index")
    states = [tool("inspect", many, name, "--json").json["state"] for name in ("ckpt-7", "ckpt-8")]
    assert states == ["incomplete", "corrupt"]


def test_a_link_is_described_by_its_target(tool, many):
    for part in ("index", "data-00000-of-00001"):
        (many / f"best.{part}").symlink_to(f"ckpt-7.{part}")
    found = tool("inspect", many, "best", "--json").json
    assert found["problem"] == "It is a symbolic link to ckpt-7. Name ckpt-7 instead."


def test_all_are_verified_with_few_listings_of_the_directory(tool, many, monkeypatch):
    listed = []

    for function in ("scandir", "listdir"):
        real = getattr(os, function)
        monkeypatch.setattr(
            os, function, lambda path=".", real=real: (listed.append(str(path)), real(path))[1]
        )
    assert tool("verify", many, "--again").code == 0
    assert listed.count(str(many)) < 10
