"""Guards act without a person: they go back, drop input, change values, and stop by pausing."""

from __future__ import annotations

import json
import math
import re
import threading
from unittest import mock

import pytest
from this_process import copy_before, until_taken
from training_cluster import Cluster

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.guards import Condition, Evidence, Guard, Notify
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.documents import load
from waiting import wait_until
from weekly import weekly

pytestmark = pytest.mark.tensorflow


class Script:
    """Adds the numbers 0, 1, 2, … up; batches in `bad` make the loss and the sum not finite."""

    def __init__(self, directory, *, guards, bad=(), spikes=(), total_steps=40, **options):
        import tensorflow as tf

        from tfckpt_trainer.training import TrainingRun

        self.model = tf.Module()
        self.model.sum = tf.Variable(0.0)
        self.model.rate = tf.Variable(0.5)
        self.run = TrainingRun(
            directory,
            model=self.model,
            dataset=tf.data.Dataset.counter(),
            total_steps=total_steps,
            save_every_steps=5,
            guards=guards,
            **options,
        )
        self.run.tunable("rate", self.model.rate, low=0)
        self.directory = RunDirectory(directory)
        self.bad, self.spikes = (
            tf.constant([-1, *bad], tf.int64),
            tf.constant([-1, *spikes], tf.int64),
        )
        self.batches = []

    def replica_step(self, batch):
        import tensorflow as tf

        value = tf.cast(batch, tf.float32) * self.model.rate
        value = tf.where(tf.reduce_any(self.bad == batch), math.nan, value)
        self.model.sum.assign_add(value)
        spiked = tf.where(
            tf.reduce_any(self.spikes == batch), 1000.0, tf.cast(batch % 3, tf.float32)
        )
        return {"loss": tf.where(tf.math.is_finite(value), spiked, math.nan)}

    def train(self, on_pause=None, steps_per_call=1):
        """Trains; calls `on_pause` from another thread as soon as the run is paused."""
        step = self.run.function(self.replica_step, steps_per_call=steps_per_call)
        if on_pause is not None:
            threading.Thread(target=self._when_paused, args=(on_pause,), daemon=True).start()
        for batch in self.run:
            self.batches += map(int, batch if steps_per_call > 1 else [batch])
            step(batch)
        return self

    def _when_paused(self, act):
        loop = self.run._between.coordinator._loop
        wait_until(lambda: loop.pause_reason, 60, "a pause")
        self.pause_reason = loop.pause_reason
        act(CommandQueue(self.directory))

    def events(self, *kinds):
        return [e for e in read_entries(self.directory) if e.kind in kinds]


def end(queue):
    queue.submit(CommandKind.STOP, {}, requested_by="test")


BACK = "not_finite loss: go_back, skip_batches 2, scale rate 0.5"


def test_a_nan_is_taken_back_its_batches_are_dropped_and_the_rate_falls(tmp_path):
    script = Script(tmp_path, guards=[BACK], bad=[12], total_steps=30).train()
    # The steps before the NaN repeat, and its batch and the next one are dropped.
    first = list(range(script.batches.index(10, 11)))
    assert script.batches[len(first) :] == [10, 11, *range(14, 32)]
    (fired,) = script.events(EventKind.GUARD)
    assert fired.message == (
        "Guard not_finite loss: loss is NaN. "
        "Actions: go_back, skip_batches 2, scale rate 0.5 (1 of 3)."
    )
    assert (fired.step, fired.by) == (13, "worker 0")
    assert fired.details["values"] == {"loss": "NaN"}
    assert fired.details["began"] == 13
    assert fired.details["elements_read"]["dataset"] >= 13
    (restored,) = script.events(EventKind.RESTORE)
    assert restored.checkpoint == "ckpt-10"
    assert restored.by == "Guard not_finite loss, worker 0"
    (changed,) = script.events(EventKind.SET)
    assert changed.message.startswith("rate 0.5 → 0.25 on 1 worker, after step 10")
    # As if these batches had never been in the data.
    trained = 0.5 * sum(range(10)) + 0.25 * sum([10, 11, *range(14, 32)])
    assert float(script.model.sum.numpy()) == trained
    # The change and the plan are saved at once, so no restart loses them.
    assert "ckpt-b1-10" in {e.checkpoint for e in script.events(EventKind.SAVE)}


def test_after_the_limit_the_run_pauses_and_says_why_also_over_a_restart(tmp_path):
    guard = "not_finite loss: go_back; at most 2"
    first = Script(tmp_path, guards=[guard], bad=[7]).train(on_pause=end)
    assert first.pause_reason == "Guard not_finite loss: it fired 3 times, and may 2 times"
    fired = first.events(EventKind.GUARD)
    assert [e.message.rpartition(". ")[2] for e in fired] == [
        "Actions: go_back (1 of 2).",
        "Actions: go_back (2 of 2).",
        "The run pauses: it fired 3 times, and may 2 times.",
    ]
    assert len(first.events(EventKind.RESTORE)) == 2
    again = Script(tmp_path, guards=[guard], bad=[7, 30, 31]).train(on_pause=end)
    assert len(again.events(EventKind.GUARD)) == 4
    assert len(again.events(EventKind.RESTORE)) == 2


@pytest.mark.parametrize("action", ["scale rate 0.5", *weekly("set rate 0.25")])
def test_what_a_guard_changed_is_made_again_once_after_a_crash(tmp_path, action):
    rule = f"above loss 500: {action}"
    whole = Script(tmp_path / "run", guards=[rule], spikes=[12], total_steps=15).train()
    lost = copy_before(15, tmp_path / "run", tmp_path / "lost")
    again = Script(lost, guards=[rule], spikes=[12], total_steps=15).train()
    assert float(again.model.rate.numpy()) == 0.25
    assert float(again.model.sum.numpy()) == float(whole.model.sum.numpy())
    # It counts once against the limit.
    assert len(again.events(EventKind.GUARD)) == 1


def test_a_condition_that_holds_over_a_crash_changes_a_value_once(tmp_path):
    rule = "above loss -1: scale rate 0.5"
    Script(tmp_path / "run", guards=[rule], total_steps=15).train()
    lost = copy_before(15, tmp_path / "run", tmp_path / "lost")
    again = Script(lost, guards=[rule], total_steps=15).train()
    assert float(again.model.rate.numpy()) == 0.25
    assert len(again.events(EventKind.GUARD)) == 1


def test_a_guard_that_also_pauses_acts_again_itself_after_a_crash(tmp_path):
    rule = "above loss 500: set rate 0.25, pause"
    script = Script(tmp_path / "run", guards=[rule], spikes=[12], total_steps=15).train(end)
    assert script.pause_reason
    lost = copy_before(13, tmp_path / "run", tmp_path / "lost")
    again = Script(lost, guards=[rule], spikes=[12], total_steps=15).train(end)
    assert again.pause_reason and float(again.model.rate.numpy()) == 0.25
    assert len(again.events(EventKind.GUARD)) == 2
    told = [event.message for event in again.events(EventKind.NOTE)]
    assert any(f"is not made again: The guard {rule!r} acts again if" in words for words in told)


def test_without_a_good_checkpoint_the_run_pauses(tmp_path):
    script = Script(tmp_path, guards=["not_finite loss: go_back"], bad=[2]).train(on_pause=end)
    assert "There is no good checkpoint from before step 3" in script.pause_reason
    assert not script.events(EventKind.RESTORE)


def test_a_checkpoint_that_is_not_finite_is_not_gone_back_to(tmp_path):
    import tensorflow as tf

    script = Script(tmp_path, guards=["above loss 900: go_back"], spikes=[17], total_steps=20)
    original = script.replica_step

    def step(batch):
        reported = original(batch)
        # A NaN that only a metric shows in ckpt-10, and one that no metric shows in ckpt-15.
        script.model.sum.assign_add(tf.where(tf.equal(batch, 14), math.nan, 0.0))
        return {"loss": tf.where(tf.equal(batch, 9), math.nan, reported["loss"])}

    script.replica_step = step
    script.train(on_pause=end)
    assert {"ckpt-10", "ckpt-15"} <= {e.checkpoint for e in script.events(EventKind.SAVE)}
    (restored, *_) = script.events(EventKind.RESTORE)
    assert restored.checkpoint == "ckpt-5"


def test_a_checkpoint_of_the_step_in_which_it_began_is_not_gone_back_to(tmp_path):
    guards = ["above loss 900: go_back, skip_batches 1"]
    script = Script(tmp_path, guards=guards, spikes=[9], total_steps=12).train()
    (restored,) = script.events(EventKind.RESTORE)
    assert restored.checkpoint == "ckpt-5"


def test_a_spike_is_taken_back(tmp_path):
    guard = "spike loss deviations=8 window=20: go_back, skip_batches 1"
    script = Script(tmp_path, guards=[guard], spikes=[31]).train()
    (fired,) = script.events(EventKind.GUARD)
    assert (fired.step, fired.details["values"]["loss"]) == (32, 1000.0)
    assert len(fired.details["window"]) == 20
    assert script.batches.count(31) == 1


USELESS = {
    "often: pause": "'often: pause' is no guard",
    "not_finite: set rat 1": "There is no hyperparameter rat. The run has: rate.",
    "not_finite: set rate -1": "rate cannot be -1",
}
"""Guards that could not act, and why."""


def test_a_guard_of_the_settings_is_in_force_and_a_useless_one_is_an_event(tmp_path):
    (tmp_path / ".tfckpt").mkdir()
    rules = ["not_finite: pause", *USELESS]
    (tmp_path / ".tfckpt" / "config.toml").write_text(f"guards = {rules!r}\n")
    script = Script(tmp_path, guards=[], bad=[12]).train(on_pause=end)
    assert script.pause_reason.startswith("Guard not_finite: loss is NaN")
    refused = [event.message for event in script.events(EventKind.REFUSED)]
    for message, why in zip(refused, USELESS.values(), strict=True):
        assert message.startswith("guards: ") and why in message
    info = load(script.directory.run_file, RunInfo)
    assert [(g.rule, g.source) for g in info.guards] == [("not_finite: pause", "config")]
    assert len(script.events(EventKind.GUARD)) == 1


@pytest.mark.parametrize("rule", USELESS)
def test_a_useless_guard_of_the_script_is_refused_before_it_fires(tmp_path, rule):
    with pytest.raises(UsageError, match=USELESS[rule]):
        Script(tmp_path, guards=[rule]).train()


def test_guards_of_the_settings_are_read_again_on_command(tmp_path):
    script = Script(tmp_path, guards=["above loss 5: notify"], bad=[30])
    step, outcomes = script.run.function(script.replica_step), []
    queue = CommandQueue(script.directory)
    for batch in script.run:
        if script.run.step == 4:
            script.directory.config_file.write_text('guards = ["not_finite: save"]\n')
            outcomes.append(queue.submit(CommandKind.GUARDS, {}, requested_by="test"))
            until_taken(script.run)
        step(batch)
    outcome = queue.wait(outcomes[0], timeout=30)
    assert (outcome.state, outcome.message) == (CommandState.DONE, "2 guards in force.")
    assert [e.details["rule"] for e in script.events(EventKind.GUARD)] == ["not_finite: save"]
    info = load(script.directory.run_file, RunInfo)
    assert {g.source for g in info.guards} == {"script", "config"}


class Often(Condition):
    """A condition of a script: every tenth step."""

    def look(self, reading):
        if reading.step % 10 == 0:
            return Evidence(what=f"step {reading.step}", began=reading.step)
        if reading.step == 25:
            raise ValueError("broken")
        return None

    def __str__(self):
        return "often"


def test_a_condition_of_the_script_may_fail_and_training_goes_on(tmp_path):
    script = Script(tmp_path, guards=[Guard(Often(), [Notify()])], total_steps=30).train()
    assert [e.step for e in script.events(EventKind.GUARD)] == [10]
    (failed,) = script.events(EventKind.FAILED)
    assert "ValueError: broken" in failed.message
    assert script.batches[-1] == 29


@pytest.mark.parametrize(("bad", "steps_per_call"), [(38, 8), *weekly((38, 1), (39, 1), (39, 8))])
def test_what_begins_in_the_last_steps_is_taken_back_too(tmp_path, bad, steps_per_call):
    guards = ["not_finite loss: go_back, skip_batches 1"]
    script = Script(tmp_path, guards=guards, bad=[bad]).train(steps_per_call=steps_per_call)
    (fired,) = script.events(EventKind.GUARD)
    assert fired.step == bad + 1
    assert float(script.model.sum.numpy()) == 0.5 * (sum(range(41)) - bad)
    (finished,) = script.events(EventKind.FINISH)
    assert finished.step == 40


def test_of_several_guards_at_once_those_after_one_that_went_back_are_told(tmp_path):
    guards = ["not_finite loss: go_back, skip_batches 1", "not_finite: pause"]
    script = Script(tmp_path, guards=guards, bad=[12]).train()
    assert len(script.events(EventKind.GUARD)) == 1
    told = [e.message for e in script.events(EventKind.NOTE) if e.message.startswith("Guard")]
    assert told == [
        "Guard not_finite: loss is NaN. Nothing was done: another guard acted just before."
    ]


def test_nothing_acts_after_a_guard_that_needs_a_person(tmp_path):
    guards = ["not_finite loss: go_back 1000", "not_finite: scale rate 0.5"]
    script = Script(tmp_path, guards=guards, bad=[12]).train(on_pause=end)
    assert "There is no good checkpoint from before step 0." in script.pause_reason
    assert len(script.events(EventKind.GUARD)) == 1
    told = [e.message for e in script.events(EventKind.NOTE) if e.message.startswith("Guard")]
    assert told == ["Guard not_finite: loss is NaN. Nothing was done: the run waits for a person."]


@pytest.mark.parametrize("background", [False, True])
def test_a_guard_whose_save_is_refused_does_nothing_more_and_pauses(small_disk, background):
    from tfckpt_trainer.training import SaveOptions

    filler = small_disk / "filler"
    filler.write_bytes(bytes(24 << 20))

    def make_room(queue):
        filler.unlink()
        end(queue)

    guards = ["above loss 500: save, set rate 0.25, stop"]
    saving = SaveOptions(background=background)
    script = Script(small_disk / "run", guards=guards, spikes=[12], saving=saving)
    script.train(on_pause=make_room)
    assert re.match(r"Guard above loss 500: save: .* have to stay free", script.pause_reason)
    assert float(script.model.rate.numpy()) == 0.5
    # A person ended it, once there was room.
    assert [e.by for e in script.events(EventKind.STOP)] == ["test"]
    assert script.events(EventKind.SAVE)[-1].checkpoint == f"ckpt-{script.run.step}"


def test_a_guard_that_fires_on_several_workers_acts_once(tmp_path):
    from tfckpt_trainer.training.loop.coordinator import WorkerRequest

    script = Script(tmp_path, guards=["not_finite loss: scale rate 0.5"], bad=[12], total_steps=20)
    group = script.run._state._group
    gather = group.all_gather

    def with_another_worker(mine):
        return [mine, mine] if isinstance(mine, WorkerRequest) else gather(mine)

    with mock.patch.object(group, "all_gather", side_effect=with_another_worker):
        script.train()
    assert [event.by for event in script.events(EventKind.GUARD)] == ["worker 0"]
    assert float(script.model.rate.numpy()) == 0.25


@pytest.mark.parametrize("given", ["not_finite loss: pause", [5]])
def test_what_is_no_guard_is_refused_at_the_start(tmp_path, given):
    with pytest.raises(UsageError, match="guard"):
        Script(tmp_path, guards=given)


def reports_in(run_dir):
    return [json.loads((run_dir / f"report-{index}.json").read_text()) for index in (0, 1)]


def test_what_worker_1_alone_sees_is_taken_back_on_both_with_the_same_bits(tmp_path):
    guard = "not_finite norm: go_back, skip_batches 2, scale learning_rate 1"
    # The same processes train another run, in whose data the bad batches never are.
    whole = ["--omit", "12", "13", "25", "26", "--whole", str(tmp_path / "whole")]
    arguments = ["--guard", guard, "--bad", "12", "25", *whole]
    with Cluster(tmp_path / "run", "guarded.py", arguments) as cluster:
        assert cluster.wait() == [0, 0], cluster.output()
    guarded, events = reports_in(cluster.run_dir), read_entries(RunDirectory(cluster.run_dir))
    fired = [event for event in events if event.kind is EventKind.GUARD]
    # What worker 1 sees in the last step counts too.
    assert [(event.by, event.details["began"]) for event in fired] == [
        ("worker 1", 13),
        ("worker 1", 24),
    ]
    restored = [event.message for event in events if event.kind is EventKind.RESTORE]
    assert [message.partition(" workers")[0] for message in restored] == [
        "Restored ckpt-10 on 2",
        "Restored ckpt-b1-20 on 2",
    ]
    for report in guarded:
        again = report["batches"].index(10, 11)
        assert report["batches"][:again] == list(range(again))
        assert report["batches"][again:] == [10, 11, *range(14, 26), 22, 23, 24, 27]
    plain = reports_in(tmp_path / "whole")
    assert plain[0]["batches"] == [*range(12), *range(14, 25), 27]
    assert [report["values"] for report in guarded] == [report["values"] for report in plain]


def test_under_fit_a_bad_example_is_skipped_in_each_epoch(tmp_path):
    import keras
    import numpy as np

    from tfckpt_trainer.training import fit

    x = np.random.RandomState(0).rand(80, 3).astype("float32")
    x[50] = np.nan
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse")
    history = fit(
        model,
        x,
        x[:, :1],
        batch_size=4,
        epochs=2,
        shuffle=False,
        verbose=0,
        run_dir=tmp_path,
        save_every_steps=5,
        guards=["not_finite loss: go_back, skip_batches 1"],
    )
    events = read_entries(RunDirectory(tmp_path))
    assert [e.step for e in events if e.kind is EventKind.GUARD] == [13, 32]
    assert np.isfinite(history.history["loss"]).all()
    assert all(np.isfinite(value.numpy()).all() for value in model.variables)
