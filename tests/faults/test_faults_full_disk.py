"""A disk that runs full under a live trainer: what commands do and say then."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from steered import SteeredRun
from training_cluster import SCRIPTS, Cluster

from real_file_systems import fill, is_full, small_tmpfs
from tensorflow_processes import run_with_tensorflow
from tfckpt_trainer.rundir.disk_reserve import release_reserve
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.heartbeats.reading import trainer_answers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from waiting import wait_until
from weekly import weekly

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def disk(tmp_path):
    with small_tmpfs(tmp_path / "disk", megabytes=64) as root:
        yield root


@pytest.fixture
def run(disk):
    # No rule of retention: a prune of its own would take the reserve.
    arguments = ["--save-every", "20"]
    with Cluster(disk / "run", "steered.py", arguments, 1, "one-device") as cluster:
        run = SteeredRun(cluster)
        wait_until(lambda: len(run.names()) >= 2 or None, 90, "two checkpoints")
        yield run


def fill_up(run: SteeredRun, *, reserve: bool) -> Path:
    """Fills the disk, and waits until a heartbeat tells of it."""
    disk = run.run.root.parent

    def filled() -> Path | None:
        # A save that the full disk cuts off deletes what it has written.
        filler = fill(disk)
        if not reserve:
            # Not before: the trainer writes it again while there is room.
            release_reserve(run.run)
            fill(disk)
        return filler if is_full(disk) else None

    filler = wait_until(filled, 20, "a full disk")
    wait_until(lambda: "disk is full" in run.workers()[0].detail, 20, "a heartbeat tells of it")
    return filler


def make_room(run: SteeredRun, filler: Path) -> None:
    """Frees the disk, and waits until a heartbeat tells of it and the reserve is there again."""
    filler.unlink()
    wait_until(lambda: "disk is full" not in run.workers()[0].detail, 20, "room again")
    wait_until(run.run.reserve.exists, 20, "a reserve again")


def by_step(run: SteeredRun) -> list[str]:
    return sorted(run.names(), key=lambda name: int(name.split("-")[1]))


def test_heartbeats_go_on_and_commands_are_carried_out_with_the_reserve(tool, run):
    wait_until(lambda: len(run.names()) >= 3, 60, "a checkpoint to prune before, and one after")
    first, second, *_ = by_step(run)
    assert run.ask(CommandKind.PRUNE, names=[first]).state is CommandState.DONE
    filler = fill_up(run, reserve=True)
    before = run.workers()[0]
    # Longer than a heartbeat may be missing.
    wait_until(lambda: run.workers()[0].updated_at > before.updated_at + 6, 30, "more heartbeats")
    assert trainer_answers(run.run, time.time())
    told = tool("status", run.run.root, "--json")
    assert told.json["run"]["state"] == "training", told

    emptied = tool("trash", run.run.root, "empty", "--yes", "--json")
    assert emptied.code == 0, emptied
    assert emptied.json["names"] == [first]

    fill(run.run.root.parent)
    saved = tool("save", run.run.root)
    assert saved.code == 4, saved
    assert ", and 16.8 MB have to stay free; " in saved.words
    assert saved.words.count("Free disk space") == 1
    assert "Training goes on" not in saved.words
    assert "trash" not in saved.words

    make_room(run, filler)
    filler = fill_up(run, reserve=True)
    pruned = tool("prune", run.run.root, second, "--delete", "--yes", "--json")
    assert pruned.code == 0, pruned
    assert pruned.json["emptied"]["names"] == [second]

    make_room(run, filler)
    fill_up(run, reserve=True)
    stopped = tool("stop", run.run.root, "--no-save")
    assert stopped.code == 0, stopped
    assert run.cluster.wait() == [0], run.cluster.output()


def waits_to_end(run: SteeredRun) -> bool:
    return any("Waits for room on the disk to save its last" in w.detail for w in run.workers())


def test_a_stop_waits_for_room_and_ends_with_a_save(tool, run):
    filler = fill(run.run.root.parent, leave=4 << 20)
    stop = run.box.submit(CommandKind.STOP, {}, requested_by="test", lifetime=60)
    wait_until(lambda: waits_to_end(run), 20, "a visible wait")
    told = tool("status", run.run.root, "--json")
    assert "Waits for room on the disk to save its last step" in told.json["run"]["reason"]
    again = tool("stop", run.run.root)
    assert again.code == 4, again
    assert f"tfckpt-tui stop {run.run.root} --no-save" in again.words
    filler.unlink()
    stopped = run.box.wait(stop, timeout=60)
    assert stopped.state is CommandState.DONE, stopped
    assert run.cluster.wait() == [0], run.cluster.output()
    assert stopped.result["name"] in run.names()


def test_a_stop_that_waits_is_given_up_by_one_without_a_save(tool, run):
    fill(run.run.root.parent, leave=4 << 20)
    stop = run.box.submit(CommandKind.STOP, {}, requested_by="test", lifetime=60)
    wait_until(lambda: waits_to_end(run), 20, "a visible wait")
    assert tool("stop", run.run.root, "--no-save").code == 0
    assert "without a save" in run.box.wait(stop, timeout=60).message
    assert run.cluster.wait() == [0], run.cluster.output()


def test_without_the_reserve_the_true_reason_is_told_and_force_ends_it(tool, run):
    # One to prune before, one after, and those that training goes on from.
    wait_until(lambda: len(run.names()) >= 4, 60, "more checkpoints")
    names = by_step(run)
    assert run.ask(CommandKind.PRUNE, names=names[:1]).state is CommandState.DONE
    fill_up(run, reserve=False)
    for words in (
        ("save",),
        ("stop", "--no-save"),
        ("prune", names[1], "--delete", "--yes"),
        ("undo",),
    ):
        refused = tool(words[0], run.run.root, *words[1:])
        assert refused.code == 1, refused
        assert "No space left on device" in refused.words
        assert "Free space elsewhere on this disk" in refused.words
        empties = f"tfckpt-tui trash {run.run.root} empty"
        assert (empties in refused.words) is (words[0] != "undo"), refused
    assert trainer_answers(run.run, time.time())
    # Until then, the last block of the event log has room, which refused saves fill.
    block = os.statvfs(run.run.root).f_bsize
    wait_until(lambda: run.run.event_log.stat().st_size % block == 0, 60, "a full event log")
    forced = tool("stop", run.run.root, "--force", "--no-save", "--json")
    assert forced.code == 0, forced
    assert "Done, but: It is missing in the event log: " in forced.words
    assert forced.json["warnings"]
    run.cluster.wait()
    emptied = tool("trash", run.run.root, "empty", "--yes")
    assert emptied.code == 0, emptied


def test_a_preemption_on_a_full_disk_does_not_say_that_training_goes_on(run):
    # Room for the journal, and none for a save.
    filler = fill(run.run.root.parent, leave=4 << 20)
    run.cluster.processes[0].terminate()
    run.cluster.wait()
    filler.unlink()
    # Not by the word alone: it is in the path of this test, and so in every message.
    told = [entry.message for entry in read_entries(run.run)]
    refused = [message for message in told if message.startswith("Save (preemption)")]
    assert any("Training ends without a save of its last steps." in m for m in refused)
    assert not any("Training goes on" in message for message in refused)


def test_a_start_on_a_full_disk_says_what_to_do(disk):
    command = (SCRIPTS / "three_steps.py", disk / "run")
    first = run_with_tensorflow(*command)
    assert first.returncode == 0, first.stderr
    release_reserve(RunDirectory(disk / "run"))
    fill(disk)
    ended = run_with_tensorflow(*command)
    assert ended.returncode == 1, ended
    (told,) = (line for line in ended.stderr.splitlines() if "Training cannot start in" in line)
    assert "Traceback" not in ended.stderr
    assert "No space left on device" in told
    assert f"tfckpt-tui trash {disk / 'run'} empty" in told


def test_the_end_of_a_run_waits_for_room(disk):
    filler = fill(disk, leave=4 << 20)
    with Cluster(disk / "run", "steered.py", ["--steps", "40"], 1, "one-device") as cluster:
        run = SteeredRun(cluster)
        wait_until(lambda: waits_to_end(run), 60, "a visible wait")
        saves = run.workers()[0].saves
        assert "The run waits for room, saves by itself" in saves.problem
        filler.unlink()
        assert cluster.wait() == [0], cluster.output()
        assert "ckpt-40" in run.names()


def test_a_preemption_while_the_end_waits_for_room_ends_the_run(disk):
    fill(disk, leave=4 << 20)
    with Cluster(disk / "run", "steered.py", ["--steps", "40"], 1, "one-device") as cluster:
        run = SteeredRun(cluster)
        wait_until(lambda: waits_to_end(run), 60, "a visible wait")
        cluster.processes[0].terminate()
        assert cluster.wait() == [143], cluster.output()


@pytest.mark.parametrize("workers", [*weekly(1), 2])
def test_the_last_save_goes_to_the_fallback_directory_and_comes_back(disk, tmp_path, workers):
    strategy = "multi-worker" if workers > 1 else "one-device"
    arguments = ["--fallback", str(tmp_path / "elsewhere")]
    with Cluster(disk / "run", "steered.py", arguments, workers, strategy) as cluster:
        run = SteeredRun(cluster)
        run.wait_for_step(5)
        filler = fill(disk, leave=4 << 20)
        cluster.processes[0].terminate()
        assert cluster.wait() == [143] * workers, cluster.output()
    assert run.names() == set()
    (kept,) = (tmp_path / "elsewhere").glob("*/ckpt-*.index")

    filler.unlink()
    with Cluster(disk / "run", "steered.py", arguments, workers, strategy) as cluster:
        run.cluster = cluster
        run.wait_for_step(int(kept.stem.split("-")[1]) + 1)
        starts = [entry for entry in read_entries(run.run) if entry.kind.value == "start"]
        assert f"Restored {kept.stem} on {workers} worker" in starts[-1].message
        assert not kept.exists()
        stopped = run.ask(CommandKind.STOP)
        assert stopped.state is CommandState.DONE, stopped
        assert cluster.wait() == [0] * workers, cluster.output()
