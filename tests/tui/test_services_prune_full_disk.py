"""Space can be freed, and taken back, on a disk that has none left."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from answering_trainer import AnsweringTrainer, moving_files
from rundir_factory import RunFactory, two_branches

from beating import beating
from bundle_writing import array, write
from command_running import Tool
from real_file_systems import fill, is_full, small_ext4, small_tmpfs
from tfckpt_trainer.catalog.directory.trash import list_trash
from tfckpt_trainer.rundir.disk_reserve import RESERVE_BYTES, keep_reserve, release_reserve
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.full_disk import DiskFullError
from tfckpt_trainer.rundir.heartbeats.reading import trainer_answers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.services.control import prune, trainer_presence
from tfckpt_tui.services.control.request import FrontEnd
from waiting import LEAST_SECONDS, wait_until

TEST = FrontEnd.COMMAND_LINE


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    mounted = small_tmpfs if request.param == "tmpfs" else small_ext4
    with mounted(tmp_path / "disk", megabytes=6) as root:
        yield root


@pytest.fixture
def ended(disk: Path, monkeypatch: pytest.MonkeyPatch) -> RunFactory:
    """A run on a disk of its own; its trainer is gone, and is not waited for."""
    monkeypatch.setattr(trainer_presence, "HEARTBEAT_SECONDS", 0.1)
    made = two_branches(disk / "run")
    for index in range(2):
        made.run.worker_status(index).unlink()
    for path in made.run.root.glob("ckpt-*.data-*"):
        # Deleting must free blocks on any file system.
        path.write_bytes(path.read_bytes().ljust(64 << 10, b"\0"))
    assert keep_reserve(made.run)
    assert made.run.reserve.stat().st_size == RESERVE_BYTES
    return made


def names(run: RunDirectory) -> set[str]:
    return {path.stem for path in run.root.glob("*.index")}


def trashed(run: RunDirectory) -> list[str]:
    return [manifest.id for manifest in list_trash(run)]


def test_prune_undo_pin_and_emptying_with_the_reserve(ended: RunFactory) -> None:
    run = ended.run
    fill(run.root.parent)
    assert is_full(run.root)
    pruned = prune.prune(run, ["ckpt-100"], through=TEST)
    assert "ckpt-100" not in names(run)
    assert pruned.warnings == ()
    prune.undo(run, through=TEST)
    assert "ckpt-100" in names(run)
    prune.set_pins(run, ["ckpt-100"], pinned=True, through=TEST)
    prune.prune(run, ["ckpt-200", "ckpt-300"], through=TEST)
    emptied = prune.empty(run, trashed(run), through=TEST)
    assert set(emptied.names) == {"ckpt-200", "ckpt-300"}
    assert emptied.problems == ()
    assert [entry.kind.value for entry in read_entries(run)][-5:] == [
        "prune",
        "undo",
        "pin",
        "prune",
        "empty trash",
    ]


def test_without_the_reserve_nothing_is_moved_and_the_message_helps(ended: RunFactory) -> None:
    run = ended.run
    release_reserve(run)
    fill(run.root.parent)
    before = names(run)
    with pytest.raises(DiskFullError, match=r"No space left.*Free: .*trash .* empty.*--delete"):
        prune.prune(run, ["ckpt-100"], through=TEST)
    assert names(run) == before
    assert [path for path in run.trash.iterdir() if path.is_dir()] == []


def test_an_undo_without_room_leaves_the_trash_as_it_was(ended: RunFactory) -> None:
    run = ended.run
    pruned = prune.prune(run, ["ckpt-100"], through=TEST)
    release_reserve(run)
    fill(run.root.parent)
    with pytest.raises(DiskFullError, match="No space left"):
        prune.undo(run, through=TEST)
    assert "ckpt-100" not in names(run)
    (run.root.parent / "filler").unlink()
    assert prune.undo(run, through=TEST).trash == pruned.trash
    assert "ckpt-100" in names(run)


def test_the_trash_is_emptied_without_any_room(ended: RunFactory, tool: Tool) -> None:
    run = ended.run
    prune.prune(run, ["ckpt-100", "ckpt-200"], through=TEST)
    release_reserve(run)
    fill(run.root.parent)
    said = tool("trash", run.root, "empty", "--yes", "--json")
    assert said.code == 0
    assert sorted(said.json["names"]) == ["ckpt-100", "ckpt-200"]
    assert said.json["freed_bytes"] > 100_000
    assert not is_full(run.root)


def test_checkpoints_are_deleted_at_once_without_any_room(ended: RunFactory, tool: Tool) -> None:
    run = ended.run
    tool("pin", run.root, "ckpt-300")
    release_reserve(run)
    fill(run.root.parent)
    refused = tool("prune", run.root, "ckpt-200", "ckpt-300", "--delete", "--yes")
    assert (refused.code, "pinned" in refused.words) == (4, True)
    said = tool("prune", run.root, "--keep-last", "2", "--delete", "--yes", "--json")
    assert (said.code, said.json["trash"]) == (0, None)
    assert sorted(said.json["emptied"]["names"]) == ["ckpt-100", "ckpt-200", "ckpt-400"]
    assert names(run) == {"ckpt-300", "ckpt-500", "ckpt-b1-400"}
    assert 'paths: "ckpt-200"' not in run.state_file.read_text()
    left = {path.name for path in run.root.rglob("*ckpt-200*")}
    assert left == set()
    assert read_entries(run)[-1].kind.value == "empty trash"
    assert tool("trash", run.root, "--json").json["trash"] == []


def test_in_a_foreign_directory_without_any_room(disk: Path, tool: Tool) -> None:
    root = disk / "foreign"
    root.mkdir()
    for step in (1, 2, 3):
        for path in write(root / f"ckpt-{step}", {"v": array([step] * 9999)}):
            os.utime(path, (1e9 + step, 1e9 + step))
    fill(disk)
    said = tool("prune", root, "--keep-last", "1", "--delete", "--yes", "--json")
    assert said.code == 0, said.words
    assert names(RunDirectory(root)) == {"ckpt-3"}


def test_a_journal_that_is_full_is_a_warning(ended: RunFactory, tool: Tool) -> None:
    """What is done is done: the status is 0, and the words say what is missing."""
    run = ended.run
    os.rename(run.event_log, run.control / "journal.before")
    run.event_log.mkdir()
    said = tool("prune", run.root, "ckpt-100", "--yes", "--json")
    assert said.code == 0
    (warning,) = said.json["warnings"]
    assert "missing in the event log" in warning
    assert f"Done, but: {warning}" in said.words
    undone = tool("undo", run.root, "--json")
    assert (undone.code, len(undone.json["warnings"])) == (0, 1)
    pinned = tool("pin", run.root, "ckpt-100", "--json")
    assert (pinned.code, pinned.json["pinned"], len(pinned.json["warnings"])) == (0, True, 1)
    tool("prune", run.root, "ckpt-200", "--yes")
    emptied = tool("trash", run.root, "empty", "--yes", "--json")
    assert (emptied.code, emptied.json["names"]) == (0, ["ckpt-200"])
    assert len(emptied.json["warnings"]) == 1


def test_the_reserve_comes_back_when_there_is_room(ended: RunFactory) -> None:
    run = ended.run
    filler = fill(run.root.parent)
    prune.prune(run, ["ckpt-100"], through=TEST)
    assert not run.reserve.exists()
    assert not keep_reserve(run)
    filler.unlink()
    prune.empty(run, trashed(run), through=TEST)
    assert run.reserve.stat().st_size == RESERVE_BYTES


def test_a_trainer_whose_heartbeat_does_not_fit_is_asked(
    ended: RunFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lives and holds the run, and looks dead: the reserve lets it say so."""
    monkeypatch.setattr(trainer_presence, "HEARTBEAT_SECONDS", LEAST_SECONDS)
    run = ended.run
    with beating(run, interval=0.2), AnsweringTrainer(run, moving_files(run)) as trainer:
        wait_until(lambda: trainer_answers(run, time.time()), 10, "it beats")
        fill(run.root.parent)
        wait_until(lambda: not trainer_answers(run, time.time()), 20, "it looks dead")
        assert prune.prune(run, ["ckpt-100"], through=TEST).names == ("ckpt-100",)
    assert [command.kind.value for command in trainer.taken] == ["prune"]


def test_no_reserve_through_a_link_or_in_a_foreign_directory(tmp_path: Path) -> None:
    foreign = RunDirectory(tmp_path)
    assert not keep_reserve(foreign)
    (tmp_path / "elsewhere").mkdir()
    foreign.control.symlink_to(tmp_path / "elsewhere")
    assert not keep_reserve(foreign)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_an_undo_without_room_does_not_advise_to_empty_the_trash(
    ended: RunFactory, tool: Tool
) -> None:
    run = ended.run
    prune.prune(run, ["ckpt-100"], through=TEST)
    release_reserve(run)
    fill(run.root.parent)
    said = tool("undo", run.root)
    assert said.code == 1
    assert "No space left on device" in said.words
    assert "Do not empty the trash" in said.words
    assert f"tfckpt-tui trash {run.root} empty" not in said.words
    assert f"tfckpt-tui prune {run.root} CKPT --delete" in said.words
    # The advice is followed.
    deleted = tool("prune", run.root, "ckpt-200", "ckpt-300", "--delete", "--yes")
    assert deleted.code == 0, deleted.words
    assert tool("undo", run.root).code == 0
    assert "ckpt-100" in names(run)
