"""Saves beside training, in parts, by improvement and by signal; and what they cost."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
from steered import SteeredRun
from training_cluster import Cluster

from tfckpt_trainer.bundle.verify import verify
from tfckpt_trainer.catalog.directory.history import Records
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.records.worker import Activity
from tfckpt_trainer.rundir.storage.documents import load
from waiting import wait_until
from weekly import weekly

pytestmark = pytest.mark.tensorflow

IN_PARTS = ["--background", "--spread", "--largest-shard", "4000"]


def record_of(run, name):
    return load(run.run.record(name), CheckpointRecord)


@pytest.fixture(scope="module")
def beside(tmp_path_factory):
    """Two workers that save beside training."""
    run_dir = tmp_path_factory.mktemp("beside") / "run"
    with Cluster(run_dir, "steered.py", [*IN_PARTS, "--width", "200"]) as cluster:
        run = SteeredRun(cluster)
        run.wait_for_step(5)
        yield run


def test_a_save_beside_training_is_done_only_when_it_is_in_view(beside):
    outcome = beside.ask(CommandKind.SAVE)
    assert outcome.state is CommandState.DONE, outcome.message
    name = outcome.result["name"]
    assert outcome.result["step"] == outcome.step == record_of(beside, name).step
    assert verify(beside.run.root / name).findings == ()
    assert max(worker.step for worker in beside.workers()) > outcome.step
    record = record_of(beside, name)
    assert record.cost.background
    assert 0 < record.cost.stall_seconds < record.duration_seconds
    told = f"in {record.duration_seconds:.2f} s, training stood still"
    assert any(told in entry.message for entry in read_entries(beside.run, newest=50))
    assert record.cost.write_seconds > 0
    assert record.cost.flush_seconds > 0
    assert record.cost.bytes_per_second > 0
    for facts in record.files:
        assert (beside.run.root / facts.name).stat().st_size == facts.size
    shards = {facts.name for facts in record.files if ".data-" in facts.name}
    assert len({name for name in shards if "/" not in name}) > 2
    assert not list(beside.run.saving_directory.iterdir())


def test_what_a_save_does_to_the_steps_after_it_leaves_its_record_as_it_was(beside):
    name = beside.ask(CommandKind.SAVE).result["name"]
    committed = beside.run.record(name).read_bytes()
    records = Records(beside.run)
    wait_until(
        lambda: records.look()[name].unpack().cost.slowing_seconds is not None,
        30,
        "the after-effect",
    )
    assert records.look()[name].unpack().cost.slowing_steps >= 10
    assert beside.run.record(name).read_bytes() == committed


def test_commands_that_come_while_a_save_is_written_wait_for_it(beside):
    commands = [
        beside.box.submit(CommandKind.SAVE, {}, requested_by="test", lifetime=60),
        beside.box.submit(CommandKind.SAVE, {}, requested_by="test", lifetime=60),
    ]
    first, second = (beside.box.wait(command, timeout=60) for command in commands)
    assert (first.state, second.state) == (CommandState.DONE, CommandState.DONE)
    names = {first.result["name"], second.result["name"]}
    assert names <= beside.names()
    restored = beside.ask(CommandKind.RESTORE, name=first.result["name"])
    assert restored.state is CommandState.DONE, restored.message
    assert restored.result["workers"] == 2
    beside.progress()


def test_a_signal_to_any_worker_saves_on_all(beside):
    before = beside.names()
    beside.cluster.processes[1].send_signal(signal.SIGUSR1)
    wait_until(lambda: beside.names() - before, 30, "a save by signal")
    (name,) = beside.names() - before
    assert record_of(beside, name).trigger == "SIGUSR1"
    beside.progress()


def test_stopping_waits_for_the_save_under_way_and_saves_the_end(tmp_path):
    with Cluster(tmp_path / "run", "steered.py", IN_PARTS) as cluster:
        run = SteeredRun(cluster)
        run.wait_for_step(5)
        save = run.box.submit(CommandKind.SAVE, {}, requested_by="test", lifetime=60)
        stop = run.ask(CommandKind.STOP)
        assert cluster.wait() == [0, 0], cluster.output()
    saved = run.box.look_up(save.id)
    assert saved.state is CommandState.DONE, saved.message
    assert {saved.result["name"], stop.result["name"]} <= run.names()
    assert all(verify(run.run.root / name).ok for name in run.names())


def test_a_busy_run_can_leave_scheduled_saves_out(tmp_path):
    arguments = ["--background", "--when-busy", "skip", "--save-every", "1", "--steps", "40"]
    with Cluster(tmp_path / "run", "steered.py", arguments, 1, "one-device") as cluster:
        assert cluster.wait() == [0], cluster.output()
    run = SteeredRun(cluster)
    messages = [entry.message for entry in read_entries(run.run)]
    assert any("skipped because ckpt-1 is being written" in message for message in messages)
    assert {"ckpt-1", "ckpt-40"} <= run.names()
    assert all(verify(run.run.root / name).ok for name in run.names())


@pytest.mark.parametrize("workers", [1, *weekly(2)])
def test_it_saves_when_a_metric_improves_and_remembers_the_best_across_restarts(tmp_path, workers):
    def train(steps, scores):
        arguments = ["--improve", "score:max", "--steps", str(steps), "--scores"]
        with Cluster(
            tmp_path / "run", "steered.py", [*arguments, json.dumps(scores)], workers
        ) as cluster:
            assert cluster.wait() == [0] * workers, cluster.output()
        return SteeredRun(cluster)

    # The step that a report belongs to ends after it.
    run = train(20, {2: 0.5, 4: 0.4, 6: "NaN", 8: 0.7, 10: 0.7, 12: 0.6})
    assert run.names() == {"ckpt-3", "ckpt-9", "ckpt-20"}
    assert record_of(run, "ckpt-9").trigger == "score improved to 0.7"
    run = train(40, {22: 0.65, 24: 0.8})
    assert run.names() == {"ckpt-3", "ckpt-9", "ckpt-20", "ckpt-25", "ckpt-40"}


def test_a_rule_for_improvement_that_makes_no_sense_is_refused(tmp_path):
    arguments = ["--improve", "loss"]
    with Cluster(tmp_path / "run", "steered.py", arguments, 1, "one-device") as cluster:
        assert cluster.wait() == [1]
    assert "save_on_improvement is 'loss'; expected METRIC:min" in cluster.output()


def test_a_full_disk_pauses_the_run_if_told_to_and_room_resumes_it(small_disk):
    filler = small_disk / "filler"
    filler.write_bytes(bytes(20 << 20))
    arguments = ["--when-full", "pause", "--save-every", "20", "--steps", "40"]
    with Cluster(small_disk / "run", "steered.py", arguments, 1, "one-device") as cluster:
        run = SteeredRun(cluster)

        def waits():
            return [w for w in run.workers() if w.activity is Activity.PAUSED]

        wait_until(waits, 60, "a pause for want of room")
        assert waits()[0].step == 20
        assert "Waits for room" in waits()[0].detail
        assert waits()[0].saves.waits_for_room
        filler.unlink()
        assert cluster.wait() == [0], cluster.output()
    assert not run.workers()[0].saves.waits_for_room
    assert run.names() == {"ckpt-20", "ckpt-40"}
    assert record_of(run, "ckpt-20").trigger == "room on the disk again"


def test_what_a_script_keeps_goes_with_each_checkpoint_and_comes_back_with_it(tmp_path):
    """The script counts its steps in `run.state`, and in `run.worker_state` by its own measure."""
    with Cluster(tmp_path / "run", "steered.py", ["--steps", "10"]) as cluster:
        assert cluster.wait() == [0, 0], cluster.output()
    with Cluster(tmp_path / "run", "steered.py", ["--save-every", "20"]) as cluster:
        run = SteeredRun(cluster)
        run.wait_for_step(22)
        assert run.ask(CommandKind.RESTORE, name="ckpt-10").state is CommandState.DONE
        # Heartbeats may still tell of a step before the restore.
        wait_until(lambda: "ckpt-b1-20" in run.names(), 90, "a save on the new branch")
        assert run.ask(CommandKind.STOP).state is CommandState.DONE
        assert cluster.wait() == [0, 0], cluster.output()
    with Cluster(tmp_path / "run", "steered.py", ["--steps", "5"], 1) as cluster:
        assert cluster.wait() == [0], cluster.output()
    records = [record_of(run, name) for name in run.names()]
    assert len(records) >= 4
    for record in records:
        assert record.state == {"count": record.step}
        mine = [worker.state["mine"] for worker in record.workers]
        assert mine == [record.step, 2 * record.step]
    shown = subprocess.run(
        [sys.executable, "-m", "tfckpt_tui.cli.main", "inspect", run.run.root, "ckpt-10"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "kept count: 10" in shown
    assert "mine=20" in shown
