"""Commands take effect on all workers at one step, and say truly what came of them."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil
import pytest
from steered import SteeredRun
from training_cluster import SCRIPTS, Cluster

from event_files import steps_with
from tensorflow_processes import run_with_tensorflow
from tfckpt_trainer.bundle.verify import verify
from tfckpt_trainer.catalog.directory.checkpoints import CheckpointState
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory, checkpoint_name
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.records.command import Command, CommandKind, CommandState
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.records.worker import Activity, Ending
from tfckpt_trainer.rundir.storage.documents import copy_of, load
from tfckpt_tui.services.checkpoints.look_up import list_checkpoints
from tfckpt_tui.services.control.restore import plan_restore_of
from tfckpt_tui.services.runs.stacks import read_stacks
from waiting import MOST_SECONDS, wait_until
from weekly import weekly

pytestmark = pytest.mark.tensorflow

CHOSEN = {"TFCKPT_PREEMPTED_STATUS": "17", "TFCKPT_RESTART_STATUS": "138"}
"""Exit statuses for another scheduler."""


def last_start(run: RunDirectory) -> EventEntry:
    """Returns the newest start."""
    return next(e for e in reversed(read_entries(run)) if e.kind is EventKind.START)


def state_of(steered: SteeredRun, name: str) -> CheckpointState:
    """Returns the state that `ls` shows."""
    checkpoints = Catalog(steered.run).scan(time.time())
    return next(found.state for found in checkpoints if found.name == name)


@pytest.mark.weekly  # In one process, `test_training_hyperparameters.py` compares the bits.
def test_a_change_survives_a_kill_of_all_workers(tmp_path):
    with Cluster(tmp_path / "run", "steered.py", []) as cluster:
        run = SteeredRun(cluster)
        run.wait_for_step(10)
        run.ask(CommandKind.SAVE)
        step = run.ask(CommandKind.SET, values={"learning_rate": 3e-4}).result["step"]
        for process in cluster.processes:
            process.kill()
    with Cluster(tmp_path / "run", "steered.py", []) as cluster:
        run = SteeredRun(cluster)
        run.wait_for_step(step + 5)
        saved = run.ask(CommandKind.SAVE).result["name"]
    record = load(run.run.record(saved), CheckpointRecord)
    values = {one.name: one.value for one in record.hyperparameters}
    assert values["learning_rate"] == pytest.approx(3e-4)
    # A save compares the workers. These have the same rate.
    assert not any("learning_rate" in path for path in record.per_worker)
    changed = [entry for entry in read_entries(run.run) if entry.kind is EventKind.SET]
    assert [entry.step for entry in changed] == [step, step]


@pytest.mark.parametrize(
    ("target", "chosen", "status", "how"),
    [(1, CHOSEN, 17, ["--plain"]), *weekly((0, {}, 143, []))],
)
def test_sigterm_to_one_worker_saves_once_and_ends_all(tmp_path, target, chosen, status, how):
    with Cluster(tmp_path / "run", "steered.py", how, environment=chosen) as cluster:
        run = SteeredRun(cluster)
        run.wait_for_step(5)
        # A loop with a step of its own is steered as any other.
        saved = run.ask(CommandKind.SAVE)
        assert saved.seen_by == [0, 1]
        record = load(run.run.record(saved.result["name"]), CheckpointRecord)
        assert "loss" in record.metrics
        run.progress()
        assert run.ask(CommandKind.RESTORE, name=record.name).state is CommandState.DONE
        run.progress()
        os.kill(cluster.processes[target].pid, signal.SIGTERM)
        assert cluster.wait(MOST_SECONDS) == [status, status], cluster.output()
    (name,) = run.names() - {record.name}
    preempted = load(run.run.record(name), CheckpointRecord)
    assert preempted.trigger == "preemption"
    assert {w.ending for w in run.workers()} == {Ending.PREEMPTED}

    # One worker takes up what two have saved, and says what begins anew.
    with Cluster(tmp_path / "run", "steered.py", how, 1, "one-device") as cluster:
        run = SteeredRun(cluster)
        run.wait_for_step(preempted.step + 1)
        start = last_start(run.run)
        assert (start.step, start.checkpoint) == (preempted.step, name)
        assert "another number of workers" in start.details["notes"][0]
        assert run.ask(CommandKind.STOP, save=False).state is CommandState.DONE
        assert cluster.wait(MOST_SECONDS) == [0], cluster.output()
    assert run.names() == {record.name, name}
    assert run.workers()[0].ending is Ending.STOPPED


def test_sigterm_between_the_strategy_and_the_run_is_not_lost(tmp_path):
    """TensorFlow takes over the signal when it creates a strategy, and swallows it."""
    with Cluster(tmp_path / "run", "steered.py", ["--terminated"]) as cluster:
        assert cluster.wait(MOST_SECONDS) == [143, 143], cluster.output()
    assert SteeredRun(cluster).names() == {"ckpt-1"}


def test_a_killed_worker_makes_the_others_ask_for_a_restart(tmp_path):
    with Cluster(tmp_path / "run", "steered.py", [], environment=CHOSEN) as cluster:
        run = SteeredRun(cluster)
        run.wait_for_step(5)
        cluster.processes[1].kill()
        assert cluster.processes[0].wait(MOST_SECONDS) == 138, cluster.output()
        (said,) = [worker for worker in run.workers() if worker.index == 0]
        assert said.ending is Ending.PEER_LOST
        lost = cluster.processes[1].pid
        assert said.detail.startswith(f"Worker 1 was lost: its process {lost} on ")


def test_saves_that_the_disk_refuses_fail_with_the_figures_and_training_goes_on(small_disk):
    arguments = ["--width", "3000", "--save-every", "2", "--largest-file", "200000"]
    with Cluster(small_disk / "run", "steered.py", arguments, 1, "one-device") as cluster:
        run = SteeredRun(cluster)
        run.wait_for_step(10)
        outcome = run.ask(CommandKind.SAVE)
        assert outcome.state is CommandState.FAILED
        assert "File too large" in outcome.message
        run.progress()
        (small_disk / "filler").write_bytes(bytes(24 << 20))
        outcome = run.ask(CommandKind.SAVE)
        assert outcome.state is CommandState.REFUSED
        assert "are free in" in outcome.message
        run.progress()
        # Else the next scheduled save is at it while this looks.
        assert run.ask(CommandKind.PAUSE).state is CommandState.DONE
        assert run.names() == {"ckpt-2", "ckpt-4"}
        assert all(verify(run.run.root / name).ok for name in run.names())
        assert not list(run.run.saving_directory.iterdir())
        assert {"failed", "refused"} <= {*run.event_log()}


@dataclass
class Killed:
    """Run directories of a process that was killed; tests change copies of them."""

    ahead: Path
    """At its newest checkpoint."""
    back: Path
    """After it went back to the one before it."""
    first: Command
    old: Command
    newest: Command


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    place = tmp_path_factory.mktemp("killed")
    with Cluster(place / "back", "steered.py", [], 1, "one-device") as cluster:
        run, (process,) = SteeredRun(cluster), cluster.processes
        run.wait_for_step(5)
        first = run.ask(CommandKind.SAVE)
        run.progress()
        old = run.ask(CommandKind.SAVE)
        run.progress()
        newest = run.ask(CommandKind.SAVE)
        run.ask(CommandKind.PAUSE)
        process.send_signal(signal.SIGSTOP)
        of_process = psutil.Process(process.pid)
        wait_until(lambda: of_process.status() == psutil.STATUS_STOPPED, 10, "it is held")
        shutil.copytree(cluster.run_dir, place / "ahead")
        process.send_signal(signal.SIGCONT)
        run.ask(CommandKind.RESTORE, name=old.result["name"])
        process.kill()
        process.wait()
    return Killed(place / "ahead", place / "back", first, old, newest)


def started_again(place, tmp_path, *arguments):
    """A cluster of one process for a copy of a run directory."""
    run_dir = shutil.copytree(place, tmp_path / "run")
    return Cluster(run_dir, "steered.py", list(arguments), 1, "one-device")


def test_a_cold_start_continues_the_branch_that_was_trained_last(killed, tmp_path):
    """And it answers the commands that the killed process took."""
    old, high = killed.old, killed.newest
    again = started_again(killed.back, tmp_path)
    run = SteeredRun(again)
    names, notes = run.names(), run.event_log().count("note")
    command = run.box.submit(CommandKind.SAVE, requested_by="test", lifetime=300)
    taken = msgspec.structs.replace(command, state=CommandState.SEEN)
    os.rename(run.run.inbox / f"{command.id}.json", run.run.active / f"{command.id}.json")
    run.box.update(taken)
    # What a power loss may leave of a command.
    (run.run.active / "taken.json").write_bytes(b"")
    (run.run.inbox / "asked.json").write_bytes(b"")
    with again:
        run.wait_for_step(old.step + 1)
        resumed = last_start(run.run)
        assert (resumed.checkpoint, resumed.branch) == (old.result["name"], 1)
        assert run.box.look_up(command.id).state is CommandState.FAILED
        assert run.names() == names
        assert not (run.run.active / "taken.json").exists()
        wait_until(lambda: not (run.run.inbox / "asked.json").exists(), 40, "it is cleared")
        wait_until(lambda: run.event_log().count("note") >= notes + 2, 10, "both are noted")
        saved = run.ask(CommandKind.SAVE)
        assert saved.result["name"].startswith("ckpt-b1-")
        assert high.result["name"] in run.names()


@pytest.mark.parametrize("damaged", ["head", "record"])
def test_a_cold_start_with_damaged_notes_goes_on_where_training_was_and_says_so(
    killed, tmp_path, damaged
):
    old, newest = (command.result["name"] for command in (killed.old, killed.newest))
    used = old if damaged == "head" else newest
    again = started_again(killed.back if damaged == "head" else killed.ahead, tmp_path)
    run = RunDirectory(again.run_dir)
    note = run.head_file if damaged == "head" else run.record(newest)
    for path in (note, copy_of(note)):
        path.write_bytes(path.read_bytes()[:-3])
    with again as cluster:
        run = SteeredRun(cluster)
        wait_until(
            lambda: sum(e.kind is EventKind.START for e in read_entries(run.run)) == 2,
            60,
            "the second start",
        )
        start, entries = last_start(run.run), read_entries(run.run)
        assert (start.checkpoint, start.branch) == (used, 1 if damaged == "head" else 0)
        [said] = [e.message for e in entries if note.name in e.message]
        follows = f"continues from {old}, the latest" if damaged == "head" else "start over"
        assert follows in said


def test_a_cold_start_passes_over_damaged_checkpoints_and_overwrites_nothing(killed, tmp_path):
    commands = (killed.first, killed.old, killed.newest)
    first, cut_off, corrupt = (command.result["name"] for command in commands)
    # To the step of the newest checkpoint, which is saved again.
    again = started_again(killed.ahead, tmp_path, "--steps", str(killed.newest.step))
    damaged = {name: again.run_dir / f"{name}.data-00000-of-00001" for name in (cut_off, corrupt)}
    content = {name: path.read_bytes() for name, path in damaged.items()}
    content[cut_off] = content[cut_off][:-7]
    content[corrupt] = bytes([content[corrupt][0] ^ 1]) + content[corrupt][1:]
    for name, path in damaged.items():
        path.write_bytes(content[name])
    with again as cluster:
        assert cluster.wait() == [0], cluster.output()
    run = SteeredRun(cluster)
    saved = f"ckpt-b1-{killed.newest.step}"
    assert run.names() == {first, cut_off, corrupt, saved}
    assert {name: path.read_bytes() for name, path in damaged.items()} == content
    assert load(run.run.record(saved), CheckpointRecord).parent == first
    assert run.event_log().count("refused") == 2
    assert state_of(run, cut_off) is CheckpointState.INCOMPLETE
    assert state_of(run, corrupt) is CheckpointState.CORRUPT


def test_a_model_that_does_not_fit_is_refused_with_the_list(killed, tmp_path):
    again = started_again(killed.ahead, tmp_path, "--width", "17")
    before = sorted(path.name for path in again.run_dir.iterdir())
    with again as cluster:
        assert cluster.wait() == [1], cluster.output()
        text = cluster.log(0).read_text()
    assert "float32 8×16 in the checkpoint and float32 8×17 in the model" in text
    assert "Traceback" not in text
    assert sorted(path.name for path in again.run_dir.iterdir()) == before


@pytest.fixture(scope="module")
def steered(tmp_path_factory):
    """Two workers that train until they are told to stop."""
    run_dir = tmp_path_factory.mktemp("steered") / "run"
    with Cluster(run_dir, "steered.py", []) as cluster:
        run = SteeredRun(cluster)
        run.wait_for_step(5)
        yield run


@pytest.fixture
def paused(steered):
    assert steered.ask(CommandKind.PAUSE).state is CommandState.DONE
    yield steered
    assert steered.ask(CommandKind.RESUME).state is CommandState.DONE


def test_a_save_is_seen_by_all_workers_and_leaves_a_record(steered):
    outcome = steered.ask(CommandKind.SAVE)
    assert outcome.state is CommandState.DONE
    assert outcome.seen_by == [0, 1]
    assert [t.state for t in outcome.history] == ["requested", "seen", "agreed", "working", "done"]
    name = outcome.result["name"]
    assert verify(steered.run.root / name).ok
    record = load(steered.run.record(name), CheckpointRecord)
    assert (record.step, record.trigger) == (outcome.step, "command")
    assert name == checkpoint_name(record.step, record.branch)
    assert record.command == outcome.id
    assert set(record.metrics) == {"loss", "twice"}
    assert [worker.index for worker in record.workers] == [0, 1]
    assert all(worker.step_seconds > 0 for worker in record.workers)
    for facts in record.files:
        assert (steered.run.root / facts.name).stat().st_size == facts.size


def test_any_program_restores_what_was_saved(steered):
    saved = steered.ask(CommandKind.SAVE)
    done = run_with_tensorflow(SCRIPTS / "plain_load.py", steered.run.root)
    assert done.stdout.split() == [str(saved.step), "True"], done.stderr


def test_while_paused_no_step_is_done_and_commands_are_served(paused):
    def both_paused():
        workers = paused.workers()
        return all(w.activity is Activity.PAUSED for w in workers) and workers

    before = wait_until(both_paused, 20, "both workers paused")
    first = paused.ask(CommandKind.SAVE)
    again = paused.ask(CommandKind.SAVE)
    assert again.result["already"]
    assert again.result["name"] == first.result["name"]
    assert {worker.step for worker in before} == {first.step} == {again.step}


def test_going_back_starts_a_branch_and_overwrites_nothing(steered):
    old = steered.ask(CommandKind.SAVE).result["name"]
    steered.progress()
    newer = steered.ask(CommandKind.SAVE).result["name"]
    pids = [process.pid for process in steered.cluster.processes]
    outcome = steered.ask(CommandKind.RESTORE, name=old)
    assert outcome.state is CommandState.DONE, outcome.message
    assert outcome.result["workers"] == 2
    assert outcome.result["variables"] > 10
    branch = outcome.result["branch"]
    assert branch > 0
    # Who was answered sees no worker at the old place.
    assert {worker.branch for worker in steered.workers()} == {branch}
    saved = steered.ask(CommandKind.SAVE).result["name"]
    assert saved.startswith(f"ckpt-b{branch}-")
    assert load(steered.run.record(saved), CheckpointRecord).parent == old
    assert {old, newer, saved} <= steered.names()
    assert [process.pid for process in steered.cluster.processes] == pids
    back = steered.ask(CommandKind.RESTORE, name=newer)
    assert back.result["branch"] == load(steered.run.record(newer), CheckpointRecord).branch


def values_of(steered: SteeredRun, name: str) -> list[list[float]]:
    """Returns the values that each worker used in the step of a checkpoint."""
    record = load(steered.run.record(name), CheckpointRecord)
    return [worker.state["set"] for worker in record.workers]


def test_hyperparameters_change_on_all_workers_or_on_none_and_come_back(steered):
    before = steered.ask(CommandKind.SAVE).result["name"]
    (noise, rate), same = values_of(steered, before)
    assert same == [noise, rate]
    done = steered.ask(CommandKind.SET, values={"noise": 0.25, "learning_rate": rate / 2})
    assert done.state is CommandState.DONE, done.message
    assert done.message.endswith(f" on 2 workers, after step {done.step:,}.")
    steered.progress()
    changed = steered.ask(CommandKind.SAVE).result["name"]
    assert values_of(steered, changed) == [[0.25, pytest.approx(rate / 2)]] * 2

    refused = steered.ask(CommandKind.SET, values={"learning_rate": rate * 2, "noise": 2})
    assert refused.state is CommandState.REFUSED
    assert refused.message == ("Nothing was changed: worker 1: ValueError: too loud for worker 1.")
    steered.progress()
    same = steered.ask(CommandKind.SAVE).result["name"]
    assert values_of(steered, same) == values_of(steered, changed)

    other = steered.ask(CommandKind.RESTORE, name=before, values={"noise": 0.5})
    assert other.message.endswith(f" noise {noise:g} → 0.5.")
    steered.progress()
    begun = steered.ask(CommandKind.SAVE).result["name"]
    assert values_of(steered, begun) == [[0.5, rate]] * 2

    halfway = steered.ask(CommandKind.RESTORE, name=before, values={"noise": 2})
    assert halfway.state is CommandState.FAILED
    assert halfway.message.startswith(
        f"{before} was restored with its own values: worker 1: ValueError: too loud for worker 1. "
    )
    steered.progress()
    restored = steered.ask(CommandKind.SAVE).result["name"]
    assert values_of(steered, restored) == values_of(steered, before)


def test_a_tip_in_the_trash_makes_the_restore_start_a_branch_as_announced(steered):
    old = steered.ask(CommandKind.SAVE).result["name"]
    steered.progress()
    tip = steered.ask(CommandKind.SAVE).result["name"]
    left = steered.ask(CommandKind.RESTORE, name=old).result["branch"]
    steered.progress()
    steered.ask(CommandKind.SAVE)
    target = plan_restore_of(steered.run, name=old).target
    newer = [
        checkpoint.name
        for checkpoint in list_checkpoints(steered.run)
        if checkpoint.branch == target.branch and checkpoint.step > target.step
    ]
    assert tip in newer
    pruned = steered.ask(CommandKind.PRUNE, names=newer)
    assert pruned.state is CommandState.DONE, pruned.message
    announced = plan_restore_of(steered.run, name=old)
    outcome = steered.ask(CommandKind.RESTORE, name=old)
    assert outcome.result["branch"] == announced.branch > left
    assert announced.is_new_branch


def test_a_damaged_checkpoint_is_refused_and_training_goes_on(steered):
    name = steered.ask(CommandKind.SAVE).result["name"]
    (data,) = steered.run.root.glob(f"{name}.data-*")
    content = bytearray(data.read_bytes())
    content[10] ^= 1
    data.write_bytes(content)
    outcome = steered.ask(CommandKind.RESTORE, name=name)
    assert outcome.state is CommandState.REFUSED
    # Both workers read the same file: what both say is said once, of neither.
    assert outcome.message.count("does not match its checksum") == 1
    assert "worker 0" not in outcome.message
    assert "worker 1" not in outcome.message
    assert state_of(steered, name) is CheckpointState.CORRUPT
    steered.progress()
    data.unlink()


def test_one_worker_that_cannot_read_its_own_state_keeps_all_from_moving(steered):
    name = steered.ask(CommandKind.SAVE).result["name"]
    (state,) = steered.run.worker_state_directory(name).glob("worker-1.data-*")
    content = bytearray(state.read_bytes())
    content[len(content) // 2] ^= 1
    state.write_bytes(content)
    outcome = steered.ask(CommandKind.RESTORE, name=name)
    assert outcome.state is CommandState.REFUSED
    assert f"worker 1: worker-1 of {name} is damaged" in outcome.message
    assert "worker 0" not in outcome.message
    assert state_of(steered, name) is CheckpointState.CORRUPT
    steered.progress()


def test_a_checkpoint_that_is_not_there_is_refused(steered):
    outcome = steered.ask(CommandKind.RESTORE, name="ckpt-999999")
    assert outcome.state is CommandState.REFUSED
    assert "There is no checkpoint ckpt-999999" in outcome.message


def test_a_name_that_leads_elsewhere_is_refused(steered):
    outcome = steered.ask(CommandKind.RESTORE, name="../../etc/passwd")
    assert outcome.state is CommandState.REFUSED


def test_prune_moves_to_the_trash_and_undo_brings_back(steered):
    old = steered.ask(CommandKind.SAVE).result["name"]
    steered.progress()
    newest = steered.ask(CommandKind.SAVE).result["name"]
    pruned = steered.ask(CommandKind.PRUNE, names=[old])
    assert pruned.state is CommandState.DONE, pruned.message
    assert old not in steered.names()
    assert steered.ask(CommandKind.PRUNE, names=[newest]).state is CommandState.REFUSED
    assert steered.ask(CommandKind.UNDO, trash=None).result["names"] == [old]
    assert steered.ask(CommandKind.RESTORE, name=old).state is CommandState.DONE


def test_a_command_that_nobody_took_in_time_is_never_carried_out(steered):
    for process in steered.cluster.processes:
        process.send_signal(signal.SIGSTOP)
    try:
        command = steered.box.submit(
            CommandKind.SAVE, requested_by="test", lifetime=0.2, now=time.time() - 1
        )
    finally:
        for process in steered.cluster.processes:
            process.send_signal(signal.SIGCONT)
    steered.progress()
    assert steered.box.look_up(command.id).state is CommandState.EXPIRED
    records = [load(path, CheckpointRecord) for path in steered.run.records_directory.iterdir()]
    assert command.id not in {record.command for record in records}


def test_a_check_trains_again_on_all_workers_and_training_goes_on(steered):
    restores = steered.event_log().count("restore")
    checked = steered.ask(CommandKind.CHECK)
    assert checked.state is CommandState.DONE, checked
    assert checked.result["exact"], checked.message
    found = "exact over 3 steps, restored in place on 2 workers"
    assert checked.message.startswith(f"Checked: {found}. Not covered: epoch ends, ")
    steered.progress()
    assert load(steered.run.run_file, RunInfo).known_exactness.words == found
    assert not steered.run.check_directory.exists()
    assert steered.event_log().count("restore") == restores


def test_heartbeats_say_how_each_worker_is(steered):
    steered.progress()
    for index, status in enumerate(steered.workers()):
        assert status.index == index
        assert status.pid == steered.cluster.processes[index].pid
        assert status.step_seconds_p95 >= status.step_seconds > 0
        assert status.loss == status.metrics["loss"]
        assert status.examples_per_second > 0
        assert status.memory_bytes > 100 << 20


def test_curves_follow_the_branch(steered):
    name = steered.ask(CommandKind.SAVE).result["name"]
    step = load(steered.run.record(name), CheckpointRecord).step
    steered.progress()
    newest = steered.ask(CommandKind.SAVE).result["name"]
    assert newest != name
    branch = steered.ask(CommandKind.RESTORE, name=name).result["branch"]
    steered.progress()
    directory = steered.run.tensorboard / f"branch-{branch}"
    seen = wait_until(lambda: steps_with("loss", directory), 20, "curves of the new branch")
    assert min(seen) > step
    assert seen == sorted(seen)
    assert (directory / "worker-1").is_dir()


def test_each_worker_says_at_which_line_it_is(steered):
    report = read_stacks(steered.run, 30)
    assert [(worker.worker, worker.problem) for worker in report.workers] == [(0, ""), (1, "")]
    for worker in report.workers:
        main, *others = worker.threads
        assert main.is_main
        assert re.search(r"steered\.py:\d+: \S", main.script_line)
        # The thread that answers is not among them.
        assert "tfckpt-heartbeat" not in {thread.name for thread in others}


def test_a_worker_that_hangs_is_asked_too_and_one_that_is_stopped_does_not_answer(steered):
    os.kill(steered.workers()[1].pid, signal.SIGSTOP)
    try:
        first, second = read_stacks(steered.run, 5).workers
    finally:
        os.kill(steered.workers()[1].pid, signal.SIGCONT)
    assert first.threads
    assert second.problem.startswith("It did not answer; its last heartbeat was ")
    steered.progress()
