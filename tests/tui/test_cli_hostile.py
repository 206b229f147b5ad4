"""Names, files and directories as nobody expects them: one message, no traceback, nothing lost."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from rundir_factory import RunFactory, two_branches, without_heartbeats

from command_running import Tool
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_tui.cli.network_paths import network_paths

NO_UTF_8 = os.fsdecode(b"bad-\xff-5")

ESCAPE = "\x1b]52;c;QUFB\x07[red]hi[/red]"


def without_trainer(made: RunFactory) -> RunDirectory:
    for index in range(2):
        made.run.worker_status(index).unlink()
    return made.run


def is_plain(text: str) -> bool:
    return not any((ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 for c in text)


@pytest.mark.parametrize("words", [["restore", "--name"], ["pin"]])
def test_a_name_that_is_no_utf_8_is_refused_before_anything_changes(
    tool: Tool, tmp_path: Path, words: list[str]
) -> None:
    made = two_branches(tmp_path, live=True)
    made.checkpoint(5, name=NO_UTF_8, recorded=False, listed=False)
    said = tool(words[0], tmp_path, *words[1:], NO_UTF_8)
    assert said.code == 2
    assert "is not valid UTF-8" in said.words
    assert "Rename" in said.words
    assert CommandQueue(made.run).pending() == []
    assert not any(made.run.pins_directory.iterdir())


def test_a_name_that_is_no_utf_8_is_not_pruned_by_halves(tool: Tool, tmp_path: Path) -> None:
    made = two_branches(tmp_path)
    made.checkpoint(5, name=NO_UTF_8, recorded=False, listed=False)
    old = made.now - 10_000
    for suffix in (".index", ".data-00000-of-00001"):
        os.utime(tmp_path / f"{NO_UTF_8}{suffix}", (old, old))
    run = without_trainer(made)
    before = sorted(os.listdir(tmp_path))
    named = tool("prune", tmp_path, "5", "--yes")
    assert "Nothing was changed" in named.words or "0 checkpoints to delete" in named.data
    assert sorted(os.listdir(tmp_path)) == before
    said = tool("prune", tmp_path, "--keep-last", "1", "--yes")
    assert said.code == 0
    assert "its name is not UTF-8; rename its files first" in said.data
    assert {f"{NO_UTF_8}.index", f"{NO_UTF_8}.data-00000-of-00001"} <= set(os.listdir(tmp_path))
    assert any(run.trash.iterdir())


@pytest.mark.parametrize("place", ["directory", "command"])
def test_a_launch_with_a_name_that_is_no_utf_8_starts_nothing(
    tool: Tool, tmp_path: Path, place: str
) -> None:
    root = tmp_path / (NO_UTF_8 if place == "directory" else "run")
    said = tool("launch", root, "--detach", "--", "echo", NO_UTF_8)
    assert (said.code, "not valid UTF-8" in said.words) == (2, True)
    assert not root.exists()


@pytest.mark.parametrize("words", [["restore", "RUN", "--name", ESCAPE], ["pin", "RUN", ESCAPE]])
def test_a_name_with_escapes_is_told_without_them(
    tool: Tool, tmp_path: Path, words: list[str]
) -> None:
    two_branches(tmp_path, live=True)
    said = tool(*[tmp_path if word == "RUN" else word for word in words])
    assert said.code == 2
    assert is_plain(said.data + said.words)
    assert "[red]hi[/red]" in said.words


def test_a_name_with_the_end_of_a_line_does_not_look_like_a_message(
    tool: Tool, tmp_path: Path
) -> None:
    made = two_branches(tmp_path)
    made.checkpoint(5, name="ckpt\ntfckpt-tui: All is well.-5", recorded=False, listed=False)
    said = tool("inspect", tmp_path, "nosuch")
    assert said.code == 2
    assert "ckpt\u240atfckpt-tui: All is well.-5" in said.words
    assert len(said.words.splitlines()) == 1


def test_what_others_wrote_reaches_no_terminal_raw(tool: Tool, tmp_path: Path) -> None:
    made = two_branches(tmp_path)
    made.worker(1, host=ESCAPE, detail=ESCAPE)
    made.event_log(EventKind.FAILED, ESCAPE, by=ESCAPE)
    made.checkpoint(600, 1, "ckpt-b1-400", trigger=ESCAPE, metrics={ESCAPE: 1.0})
    made.run.worker_log(0).write_text(f"{ESCAPE}\rdone\n")
    for command in ("status", "journal", "ls", "logs"):
        assert is_plain(tool(command, tmp_path).data), command
        assert is_plain(tool(command, tmp_path, "--json").data), command
    assert tool("journal", tmp_path, "--json").json["entries"][-1]["message"] == ESCAPE


@pytest.mark.parametrize("at", [1e300, -1e300, 1e18])
def test_an_entry_beyond_all_calendars_is_listed(tool: Tool, tmp_path: Path, at: float) -> None:
    made = two_branches(tmp_path)
    made.event_log(EventKind.SAVE, "A clock went wrong.", made.now - at)
    last = tool("journal", tmp_path).data.splitlines()[-1]
    assert last.startswith("unknown")
    assert last.endswith("A clock went wrong.")


@pytest.mark.parametrize("content", [b"", b"{torn", b"\x00" * 9])
def test_a_heartbeat_torn_by_a_power_loss_is_no_heartbeat(
    tool: Tool, tmp_path: Path, content: bytes
) -> None:
    made = two_branches(tmp_path)
    made.run.supervisor_status.write_bytes(content)
    made.run.worker_status(1).write_bytes(content)
    said = tool("status", tmp_path, "--json")
    assert said.code == 0
    assert [worker["index"] for worker in said.json["workers"]] == [0]


@pytest.mark.parametrize("kind", ["directory", "pipe", "link", "garbage", "huge"])
def test_something_else_in_the_place_of_a_file_is_named(
    tool: Tool, tmp_path: Path, kind: str
) -> None:
    made = two_branches(tmp_path)
    file = made.run.run_file
    file.unlink()
    if kind == "directory":
        file.mkdir()
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "link":
        file.symlink_to("/etc/passwd")
    elif kind == "garbage":
        file.write_bytes(b"\xff\x00garbage")
    else:
        with open(file, "wb") as sparse:
            sparse.truncate(1 << 34)
    for command in ("status", "ls"):
        said = tool(command, tmp_path, "--json")
        assert said.code == said.json["error"]["code"] == 1
        assert "run.json" in said.words


@pytest.mark.parametrize("kind", ["directory", "pipe", "link"])
def test_a_log_that_is_no_file_is_named(tool: Tool, tmp_path: Path, kind: str) -> None:
    log = two_branches(tmp_path).run.worker_log(0)
    if kind == "directory":
        log.mkdir()
    elif kind == "pipe":
        os.mkfifo(log)
    else:
        log.symlink_to("/etc/passwd")
    said = tool("logs", tmp_path)
    assert (said.code, said.data) == (1, "")
    assert "worker-0.log cannot be read" in said.words


@pytest.mark.parametrize("words", [("pin", "ckpt-300"), ("prune", "ckpt-300", "--yes")])
def test_a_full_pipe_in_the_place_of_the_event_log_keeps_no_command_waiting(
    tool: Tool, tmp_path: Path, words: tuple[str, str]
) -> None:
    log = without_heartbeats(two_branches(tmp_path)).run.event_log
    log.unlink(missing_ok=True)
    os.mkfifo(log)
    held = os.open(log, os.O_RDWR | os.O_NONBLOCK)
    try:
        with suppress(BlockingIOError):
            while True:
                os.write(held, b"x" * 4096)
        said = tool(words[0], tmp_path, *words[1:])
    finally:
        os.close(held)
    assert said.code == 0
    assert f"missing in the event log: {log}: it is not a regular file" in said.words


def test_a_word_too_long_for_a_name_is_no_command(tool: Tool) -> None:
    said = tool("x" * 300)
    assert said.code == 2
    assert "is neither a command nor a directory" in said.words


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_checkpoint_is_refused_before_the_trainer_hears_of_it(
    tool: Tool, tmp_path: Path, damage: str
) -> None:
    made = two_branches(tmp_path, live=True)
    data = tmp_path / ("ckpt-300.data-00000-of-00001" if damage == "cut" else "ckpt-300.index")
    content = data.read_bytes()
    data.write_bytes(content[:-1] if damage == "cut" else content[:5] + b"\xff" + content[6:])
    said = tool("restore", tmp_path, "--step", "300")
    assert said.code == 4
    assert "ckpt-300 is" in said.words
    assert "cannot be restored" in said.words
    assert CommandQueue(made.run).pending() == []


def test_a_run_whose_checkpoints_are_all_gone_still_opens(tool: Tool, tmp_path: Path) -> None:
    made = two_branches(tmp_path)
    for path in [*tmp_path.glob("ckpt-*"), made.run.state_file]:
        path.unlink()
    shutil.rmtree(made.run.records_directory)
    assert tool("ls", tmp_path, "--json").json["checkpoints"] == []
    assert tool("status", tmp_path).code == 0
    said = tool("restore", tmp_path, "--step", "300")
    assert (said.code, "near are: none" in said.words) == (2, True)


@pytest.mark.parametrize("command", [["status"], ["ls"], ["verify"], ["export"], ["runs"]])
def test_the_home_directory_of_nobody_is_no_directory(tool: Tool, command: list[str]) -> None:
    said = tool(*command, "~nobody-of-this-name/run", *(["out"] if command == ["export"] else []))
    assert said.code == 2
    assert "~nobody-of-this-name/run" in said.words


def test_a_word_with_the_home_directory_of_nobody_is_not_on_a_network_disk() -> None:
    assert network_paths(["~nobody-of-this-name"]) == []


def test_a_launch_in_the_home_directory_of_nobody_is_in_one_of_this_name(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = tool("launch", "~nobody-of-this-name", "--slurm", "--dry-run", "--", "true")
    assert said.code == 0
    assert "--job-name=~nobody-of-this-name" in said.data
