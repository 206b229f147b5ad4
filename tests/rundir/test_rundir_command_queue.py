from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time

import pytest

from accounts import ALICE, BOB, GROUP
from requirements import needs
from tfckpt_trainer.errors import RefusedError
from tfckpt_trainer.rundir import command_queue
from tfckpt_trainer.rundir.command_queue import CommandQueue, advance, requester
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.records.stacks import StackRequest
from tfckpt_trainer.rundir.storage.documents import load, store

NAMES_OF_THE_USER = {"LOGNAME", "USER", "LNAME", "USERNAME"}


@pytest.fixture
def run(tmp_path):
    directory = RunDirectory(tmp_path)
    directory.create()
    return directory


@pytest.fixture
def box(run):
    return CommandQueue(run)


def submit(box, **options):
    return box.submit(CommandKind.SAVE, requested_by=requester("test"), **options)


@needs("root")
def test_somebody_whom_no_password_file_knows_can_ask():
    program = (
        "import os; from tfckpt_trainer.rundir.command_queue import requester; os.setuid(54321); "
        "print(requester('a container'))"
    )
    environment = {k: v for k, v in os.environ.items() if k not in NAMES_OF_THE_USER}
    said = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert said.stdout == f"user 54321@{socket.gethostname()}, a container\n"


@needs("root")
def test_who_asks_is_told_with_the_owner_of_the_file_if_that_is_somebody_else(box, run):
    mine, of_bob = submit(box), submit(box)
    os.chown(run.inbox / f"{of_bob.id}.json", BOB, -1)
    seen = {command.id: command.requested_by for command in box.claims(time.time())}
    assert seen[mine.id] == mine.requested_by
    assert seen[of_bob.id] == f"{of_bob.requested_by} (file of user {BOB})"


def test_a_command_goes_from_request_to_outcome(box):
    command = submit(box)
    seen = box.claim(time.time())
    assert seen.id == command.id
    box.finish(advance(seen, CommandState.DONE, "Saved.", result={"name": "ckpt-5"}))
    outcome = box.wait(command, timeout=5)
    assert outcome.state is CommandState.DONE
    assert outcome.result == {"name": "ckpt-5"}
    assert [t.state for t in outcome.history] == ["requested", "seen", "done"]


def test_commands_are_taken_in_the_order_of_their_requests(box):
    later = submit(box, now=2000.0, lifetime=1e9)
    earlier = submit(box, now=1000.0, lifetime=1e9)
    assert [box.claim(3000.0).id, box.claim(3000.0).id] == [earlier.id, later.id]


def test_of_one_second_too_the_earliest_command_is_taken_first(box):
    kinds = [CommandKind.SAVE, CommandKind.PAUSE, CommandKind.RESUME, CommandKind.STOP]
    for number, kind in enumerate(kinds):
        box.submit(kind, requested_by="test", now=1000 + number / 10, lifetime=1e9)
    assert [command.kind for command in box.pending()] == kinds


def test_the_newest_outcomes_are_kept(box, monkeypatch):
    monkeypatch.setattr(command_queue, "KEPT_OUTCOMES", 2)
    commands = [submit(box, now=1000.0 + number, lifetime=1e9) for number in range(4)]
    while taken := box.claim(2000.0):
        box.finish(advance(taken, CommandState.DONE, "Saved."))
    assert [command for command in commands if box.look_up(command.id) is None] == commands[:2]


def test_commands_that_nobody_took_are_not_kept_either(box, monkeypatch):
    """A timer may ask each hour of a year, while no trainer runs."""
    monkeypatch.setattr(command_queue, "KEPT_OUTCOMES", 2)
    commands = [submit(box, now=1000.0 + number, lifetime=1e9) for number in range(4)]
    for command in commands:
        assert box.withdraw(command) is not None
    assert [command for command in commands if box.look_up(command.id) is None] == commands[:2]


def test_an_overdue_command_is_never_taken(box):
    command = submit(box, now=1000.0, lifetime=10)
    assert box.claim(1011.0) is None
    assert box.look_up(command.id).state is CommandState.EXPIRED


def test_who_waits_learns_that_nobody_took_it(box):
    command = submit(box, lifetime=0.1)
    assert box.wait(command, timeout=5).state is CommandState.EXPIRED
    assert box.claim(time.time()) is None


def test_the_same_command_is_never_carried_out_twice(box, run):
    command = submit(box)
    text = (run.inbox / f"{command.id}.json").read_bytes()
    box.finish(advance(box.claim(time.time()), CommandState.DONE, "Saved."))
    (run.inbox / f"{command.id}.json").write_bytes(text)
    assert box.claim(time.time()) is None
    assert box.look_up(command.id).state is CommandState.DONE


def test_of_many_takers_one_wins(box):
    for _ in range(20):
        submit(box)
    taken, lock = [], threading.Lock()

    def take():
        for _ in range(20):
            if (command := box.claim(time.time())) is not None:
                with lock:
                    taken.append(command.id)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 20
    assert len(set(taken)) == 20


def test_what_a_dead_trainer_left_is_answered(box):
    command = submit(box)
    box.claim(time.time())
    assert [c.id for c in box.abandon_active("The trainer ended.")] == [command.id]
    assert box.look_up(command.id).state is CommandState.FAILED


def test_an_outcome_that_was_written_survives_the_death_of_the_trainer(box, run):
    command = submit(box)
    box.update(advance(box.claim(time.time()), CommandState.DONE, "Saved."))
    assert box.abandon_active("The trainer ended.") == []
    assert box.look_up(command.id).state is CommandState.DONE


def test_garbage_in_the_inbox_does_not_stop_the_next_command(box, run):
    (run.inbox / "0.json").write_bytes(b"{")
    (run.inbox / "1.json").symlink_to("/etc/passwd")
    command = submit(box)
    assert box.claim(time.time()).id == command.id


def test_each_file_of_a_full_inbox_is_read_once(box, run, monkeypatch):
    asked = [submit(box).id for _ in range(20)]
    for number in range(30):
        (run.inbox / f"junk-{number}.json").write_bytes(b"{")
    read = []

    def noted(path, *words):
        if path.parent == run.inbox:
            read.append(path.name)
        return load(path, *words)

    monkeypatch.setattr("tfckpt_trainer.rundir.storage.documents.load", noted)
    monkeypatch.setattr(command_queue, "load", noted)
    assert [command.id for command in box.claims(time.time())] == asked
    assert sorted(read) == sorted(
        [f"{name}.json" for name in asked] + [f"junk-{number}.json" for number in range(30)]
    )
    box.clear_damaged(100.0)
    read.clear()
    later = submit(box)
    assert [command.id for command in box.claims(time.time())] == [later.id]
    assert box.clear_damaged(105.0) == []
    assert read == [f"{later.id}.json"]
    assert len(list(run.inbox.glob("junk-*"))) == 30
    assert box.clear_damaged(110.0)
    assert not list(run.inbox.iterdir())


def test_what_is_no_command_is_deleted_after_some_seconds(box, run):
    (run.inbox / "empty.json").write_bytes(b"")
    (run.active / "half.json").write_bytes(b'{"schema":1,"id":"ha')
    command = submit(box)
    assert box.clear_damaged(100.0) == []
    # Somebody goes on writing it.
    (run.inbox / "empty.json").write_bytes(b"{")
    cleared = box.clear_damaged(111.0)
    assert len(cleared) == 1
    assert "half.json from active" in cleared[0]
    assert not (run.active / "half.json").exists()
    (cleared,) = box.clear_damaged(122.0)
    assert "empty.json from inbox" in cleared
    assert box.clear_damaged(133.0) == []
    assert box.claim(time.time()).id == command.id


def test_a_command_of_a_newer_schema_is_deleted_like_one_that_is_not_valid(box, run):
    newer = b'{"schema":99,"written_by":"9.8.7","id":"newer"}'
    for place in (run.inbox, run.active, run.done):
        (place / "newer.json").write_bytes(newer)
    (run.inbox / "directory.json").mkdir()
    (run.inbox / "link.json").symlink_to(run.done / "newer.json")
    assert box.claim(time.time()) is None
    assert box.clear_damaged(100.0) == []
    assert box.clear_damaged(109.0) == []
    for told, place in zip(box.clear_damaged(110.0), ("inbox", "active"), strict=True):
        assert told.startswith(f"Deleted newer.json from {place}: newer.json was written by ")
        assert "pip install --upgrade 'tfckpt-tui>=9.8.7'" in told
    assert {path.name for path in run.inbox.iterdir()} == {"directory.json", "link.json"}
    assert not any(run.active.iterdir())
    assert (run.done / "newer.json").read_bytes() == newer


def test_a_trainer_that_starts_clears_at_once_what_an_earlier_one_left(box, run):
    (run.active / "empty.json").write_bytes(b"")
    (run.inbox / "being-written.json").write_bytes(b"")
    (cleared,) = box.clear_damaged(0.0, at_once=True)
    assert "empty.json" in cleared
    assert (run.inbox / "being-written.json").exists()


def test_a_command_is_not_written_through_a_link(box, run, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    run.control.rename(elsewhere)
    run.control.symlink_to(elsewhere)
    before = sorted(elsewhere.rglob("*"))
    with pytest.raises(RefusedError, match="symbolic link"):
        submit(box)
    with pytest.raises(RefusedError, match="symbolic link"):
        run.create()
    assert sorted(elsewhere.rglob("*")) == before


def test_the_clock_of_the_disk_is_not_asked_while_there_is_no_command(box, monkeypatch):
    asked = []
    monkeypatch.setattr(command_queue, "file_system_ahead", lambda run: asked.append(run) or 0.0)
    assert list(box.claims(time.time())) == [] and asked == []
    submit(box)
    asked.clear()
    assert box.claim(time.time(), kind=CommandKind.STOP) is None and asked == []
    assert box.claim(time.time()) is not None and asked


@needs("root")
@pytest.mark.parametrize("says", ["done", "refused", "no command"])
def test_an_answer_counts_only_from_who_runs_the_trainer(box, run, says):
    asked = submit(box)
    claimed = next(box.claims(time.time()))
    store(run.worker_status(0), claimed)
    forged = {
        "done": advance(asked, CommandState.DONE, "Saved ckpt-9999."),
        "refused": advance(asked, CommandState.REFUSED, "The disk is full."),
        "no command": StackRequest(id="", at=0.0),
    }
    answer = run.done / f"{asked.id}.json"
    store(answer, forged[says])
    os.chown(answer, BOB, GROUP)
    assert box.look_up(asked.id) == claimed
    told = box.wait(claimed, timeout=0)
    assert told.state is CommandState.FAILED
    assert told.message.startswith(f"user {BOB}, who does not run the trainer, wrote an answer")
    done = advance(claimed, CommandState.DONE, "Saved ckpt-2.")
    box.finish(done)
    os.chown(answer, ALICE, GROUP)
    os.chown(run.worker_status(0), ALICE, GROUP)
    assert box.wait(claimed, timeout=60) == done


@needs("root")
def test_an_answer_of_others_keeps_no_command_from_the_trainer(box, run):
    asked = submit(box)
    store(run.worker_status(0), asked)
    store(run.done / f"{asked.id}.json", advance(asked, CommandState.DONE, "Saved."))
    os.chown(run.done / f"{asked.id}.json", BOB, GROUP)
    assert [command.id for command in box.claims(time.time())] == [asked.id]
