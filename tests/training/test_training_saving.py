"""Saves beside training, in parts, by improvement and by signal; and what they cost."""

from __future__ import annotations

import json
import math
import signal
from contextlib import ExitStack

import pytest
from steered import SteeredRun
from training_cluster import Cluster

from leftovers import lasting
from tfckpt_trainer.bundle.verify import verify
from tfckpt_trainer.catalog.directory.history import Records
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.records.worker import Activity
from tfckpt_trainer.rundir.storage.documents import load
from waiting import wait_until

pytestmark = pytest.mark.tensorflow

IN_PARTS = ["--background", "--spread", "--largest-shard", "4000"]


def record_of(run, name):
    return load(run.run.record(name), CheckpointRecord)


def names_in(run):
    return {path.stem for path in run.root.glob("*.index")}


@pytest.fixture(scope="module")
def begin_beside(tmp_path_factory):
    """Returns two workers that save beside training; others once a test has stopped those."""
    runs = []
    with ExitStack() as stack:

        def begin():
            if not runs or runs[-1].cluster.processes[0].poll() is not None:
                with lasting():
                    run_dir = tmp_path_factory.mktemp("beside") / "run"
                    cluster = Cluster(run_dir, "steered.py", [*IN_PARTS, "--width", "200"])
                    runs.append(SteeredRun(stack.enter_context(cluster)))
                runs[-1].wait_for_step(5)
            return runs[-1]

        yield begin


@pytest.fixture
def beside(begin_beside):
    return begin_beside()


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


def test_stopping_waits_for_the_save_under_way_and_saves_the_end(beside):
    before = beside.names()
    save = beside.box.submit(CommandKind.SAVE, {}, requested_by="test", lifetime=60)
    stop = beside.ask(CommandKind.STOP)
    assert beside.cluster.wait() == [0, 0], beside.cluster.output()
    saved = beside.box.look_up(save.id)
    assert saved.state is CommandState.DONE, saved.message
    assert {saved.result["name"], stop.result["name"]} <= beside.names() - before
    assert all(verify(beside.run.root / name).ok for name in beside.names())


def test_a_busy_run_can_leave_scheduled_saves_out(make_run):
    from tfckpt_trainer.training import SaveOptions

    training = make_run(
        save_every_steps=1,
        total_steps=40,
        saving=SaveOptions(background=True, when_busy="skip"),
    )
    assert len(list(training)) == 40
    run = RunDirectory(training.directory)
    messages = [entry.message for entry in read_entries(run)]
    assert any("skipped because ckpt-1 is being written" in message for message in messages)
    names = names_in(run)
    assert {"ckpt-1", "ckpt-40"} <= names
    assert all(verify(run.root / name).ok for name in names)


SCORES = (
    {2: 0.5, 4: 0.4, 6: math.nan, 8: 0.7, 10: 0.7, 12: 0.6},
    {22: 0.65, 24: 0.8},
)
"""What the first and the second start report; the step that a report belongs to ends after it."""


def assert_saved_by_improvement(run, names):
    """Compares the names of the checkpoints after the first and the second start."""
    first, second = names
    assert first == {"ckpt-3", "ckpt-9", "ckpt-20"}
    assert load(run.record("ckpt-9"), CheckpointRecord).trigger == "score improved to 0.7"
    assert second == {"ckpt-3", "ckpt-9", "ckpt-20", "ckpt-25", "ckpt-40"}


def test_it_saves_when_a_metric_improves_and_remembers_the_best_across_restarts(make_run):
    names = []
    for steps, scores in zip((20, 40), SCORES, strict=True):
        training = make_run(save_on_improvement="score:max", total_steps=steps)
        run = RunDirectory(training.directory)
        for step in training:
            if step in scores:
                training.report(score=scores[step])
        names.append(names_in(run))
    assert_saved_by_improvement(run, names)


@pytest.mark.weekly
def test_two_workers_save_when_a_metric_improves(tmp_path):
    names = []
    for steps, scores in zip((20, 40), SCORES, strict=True):
        arguments = ["--improve", "score:max", "--steps", str(steps), "--scores"]
        with Cluster(
            tmp_path / "run", "steered.py", [*arguments, json.dumps(scores)], 2
        ) as cluster:
            assert cluster.wait() == [0, 0], cluster.output()
        run = SteeredRun(cluster)
        names.append(run.names())
    assert_saved_by_improvement(run.run, names)


def test_a_rule_for_improvement_that_makes_no_sense_is_refused(make_run):
    with pytest.raises(UsageError, match="save_on_improvement is 'loss'; expected METRIC:min"):
        make_run(save_on_improvement="loss")


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
