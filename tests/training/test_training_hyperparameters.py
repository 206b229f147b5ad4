"""Hyperparameters are changed while a run trains, saved, restored, and change no bit otherwise."""

from __future__ import annotations

import json
import math
import shutil
from functools import partial
from unittest import mock

import msgspec
import pytest
from this_process import copy_before, put_back, until_taken

from tfckpt_trainer.errors import RefusedError, UsageError
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.event_log import read_entries, write_entry
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from tfckpt_trainer.rundir.records.hyperparameter import Bounds, ConfirmedChange, PlannedChange
from tfckpt_trainer.rundir.storage.documents import copy_of, load
from tfckpt_tui.services.control.request import FrontEnd
from tfckpt_tui.services.control.restore import choose_start
from tfckpt_tui.services.runs.hyperparameters import read_hyperparameters
from weekly import weekly

# Options of optimizers are private parts of Keras: each release has to be tried.
pytestmark = [pytest.mark.tensorflow, pytest.mark.matrix]

OPTIMIZERS = [
    ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01, "clipnorm": 1.0}),
    ("Adam", {"global_clipnorm": 0.5, "use_ema": True, "ema_momentum": 0.9}),
    ("AdamW", {"clipvalue": 0.1}),
    *weekly(("Lion", {"weight_decay": 0.1}), ("Nadam", {}), ("Lamb", {}), ("Adamax", {})),
]
"""With options that become variables."""


STEPS = 12


def training(name, options, *, live):
    """Returns a function that trains a small model, its graphs, the sources and the optimizer.

    The function begins anew at each call, calls another one half-way, and returns all values.
    """
    import keras
    import numpy as np
    import tensorflow as tf

    from tfckpt_trainer.training.hyperparameters.sources import sources_of

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    optimizer = getattr(keras.optimizers, name)(**{"learning_rate": 0.01, **options})
    optimizer.build(model.trainable_variables)
    strategy = tf.distribute.get_strategy()
    sources = {s.name: s for s in sources_of([("optimizer", optimizer)], strategy)} if live else {}
    graphs = []

    @tf.function
    def step(x):
        graphs.append(1)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x) ** 2)
        optimizer.apply(tape.gradient(loss, model.trainable_variables))

    batches = tf.constant(np.random.RandomState(0).randn(STEPS, 8, 4), tf.float32)
    variables = [*model.variables, *optimizer.variables]
    first = [variable.numpy() for variable in variables]

    def train(change=lambda: None):
        for variable, value in zip(variables, first, strict=True):
            variable.assign(value)
        for number in range(STEPS):
            if number == STEPS // 2:
                change()
            step(batches[number])
        return [variable.numpy() for variable in variables]

    return train, graphs, sources, optimizer


def are_equal(some, others):
    """Whether two lists of arrays are equal bit by bit."""
    import numpy as np

    return all(np.array_equal(a, b) for a, b in zip(some, others, strict=True))


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_options_that_can_change_train_the_bits_of_constants_and_each_takes_effect(name, options):
    plain, *_ = training(name, options, live=False)
    train, graphs, sources, optimizer = training(name, options, live=True)
    assert len(sources) > 1
    before = train()
    assert are_equal(plain(), before)
    # Keras saves a model with its configuration.
    config = json.loads(json.dumps(optimizer.get_config()))
    assert {k: v for k, v in config.items() if k in sources and k != "learning_rate"} == {
        k: source.get() for k, source in sources.items() if k in config and k != "learning_rate"
    }
    for option, source in sources.items():
        value = source.get()
        after = train(partial(source.set, 0.5 * value))
        source.set(value)
        assert not are_equal(before, after), option
    assert are_equal(before, train())
    assert len(graphs) == 1


def decaying():
    import keras

    return keras.optimizers.schedules.ExponentialDecay(0.1, 5, 0.9)


@pytest.mark.parametrize("name", ["AdamW", *weekly("SGD")])
def test_a_schedule_that_can_be_replaced_trains_the_same_bits_as_one_that_cannot(name):
    plain, *_ = training(name, {"learning_rate": decaying()}, live=False)
    live, graphs, sources, _ = training(name, {"learning_rate": decaying()}, live=True)
    assert {"learning_rate", "learning_rate_factor"} <= sources.keys()
    assert are_equal(plain(), live())
    assert len(graphs) == 1


class Script:
    """A script with a run: AdamW, and a number of its own."""

    def __init__(self, directory, *, total_steps, rate=0.1, decay=0.01, **options):
        import keras
        import tensorflow as tf

        from tfckpt_trainer.training import TrainingRun

        keras.utils.set_random_seed(3)
        self.model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        self.optimizer = keras.optimizers.AdamW(rate, weight_decay=decay)
        self.optimizer.build(self.model.trainable_variables)
        dataset = (
            tf.data.Dataset.random(seed=5)
            .batch(4)
            .map(lambda numbers: tf.cast(numbers[None], tf.float32) / 2.0**32)
        )
        self.run = TrainingRun(
            directory,
            model=self.model,
            optimizer=self.optimizer,
            dataset=dataset,
            total_steps=total_steps,
            save_every_steps=10,
            **options,
        )
        self.directory = RunDirectory(self.run.directory)
        self.mixup = 0.5
        self.run.tunable("mixup", lambda: self.mixup, self.set_mixup, low=0, high=1)
        self.graphs = 0
        self.outcomes = []

    def set_mixup(self, value):
        self.mixup = value

    def replica_step(self, batch):
        import tensorflow as tf

        self.graphs += 1
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.model(batch) - 1.0) ** 2)
        variables = self.model.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    def train(self, asking=()):
        """Trains; sends these arguments at these steps, and keeps the outcomes and the values.

        Keeps as well what others read of the hyperparameters as soon as there is an answer.
        """
        asked, queue = dict(asking), CommandQueue(self.directory)
        step, self.values, waiting = self.run.function(self.replica_step), {}, []
        self.told = []
        for batch in self.run:
            for command in waiting[len(self.told) :]:
                if queue.look_up(command.id).state.is_final:
                    self.told.append(read_hyperparameters(self.directory).values)
            self.values[self.run.step] = {
                "learning_rate": float(self.optimizer.learning_rate.numpy()),
                "weight_decay": float(self.optimizer.weight_decay or 0.0),
                "mixup": self.mixup,
            }
            if self.run.step in asked:
                given = asked.pop(self.run.step)
                kind = CommandKind.RESTORE if "name" in given else CommandKind.SET
                command = queue.submit(kind, given, requested_by="test", lifetime=60)
                until_taken(self.run)
                waiting.append(command)
            step(batch)
        self.outcomes = [queue.wait(command, timeout=30) for command in waiting]
        return self

    @property
    def weights(self):
        return [
            value.numpy().tolist() for value in (*self.model.variables, *self.optimizer.variables)
        ]

    def record(self, step):
        return load(self.directory.record(f"ckpt-{step}"), CheckpointRecord)

    def events(self, kind):
        return [e.message for e in read_entries(self.directory) if e.kind.value == kind]


def test_a_change_is_made_after_one_step_recorded_and_traces_nothing(tmp_path):
    values = {"learning_rate": 0.03, "weight_decay": 0.02, "mixup": 0.25}
    late = {"values": {"mixup": 0.1}, "at_step": 20}
    script = Script(tmp_path / "run", total_steps=20).train({4: {"values": values}, 16: late})
    assert [o.state for o in script.outcomes] == [CommandState.DONE] * 2
    assert script.outcomes[0].message == (
        "learning_rate 0.1 → 0.03, weight_decay 0.01 → 0.02, mixup 0.5 → 0.25 on 1 worker, "
        "after step 5."
    )
    assert script.values[4]["weight_decay"] == 0.01
    assert script.values[5] == pytest.approx(values)
    assert [script.told[0][name].value for name in values] == pytest.approx([*values.values()])
    assert script.told[1]["mixup"].planned.begins == 20
    assert script.graphs == 1
    assert script.events("set")[0] == script.outcomes[0].message
    saved = {one.name: one for one in script.record(10).hyperparameters}
    assert saved["weight_decay"].value == 0.02
    assert saved["weight_decay"].script_value == 0.01
    assert (saved["weight_decay"].changed_at, saved["weight_decay"].changed_by) == (5, "test")
    assert saved["beta_1"].changed_at is None
    assert script.outcomes[1].message.endswith(
        "planned after step 20. Training ends after step 20, before this has an effect."
    )


def test_an_answer_has_the_value_that_the_script_took(tmp_path):
    class Limited(Script):
        def set_mixup(self, value):
            self.mixup = min(value, 0.75)

    late = {"values": {"mixup": 0.875}, "at_step": 9}
    script = Limited(tmp_path / "run", total_steps=10).train(
        {4: {"values": {"mixup": 1.0}}, 6: late}
    )
    assert script.outcomes[0].message == "mixup 0.5 → 0.75 (asked: 1) on 1 worker, after step 5."
    assert script.outcomes[0].result["hyperparameters"][0]["after"] == 0.75
    assert script.events("set")[-1] == (
        "mixup 0.75 → 0.75 (asked: 0.875) on 1 worker, after step 9, as planned."
    )


NO_NAME = "There is no hyperparameter lr. The run has: learning_rate, "
NO_VALUE = "beta_1 cannot be 1; it must be a number, at least 0 and"
REFUSED = {
    4: ({"values": {"lr": 1.0}}, NO_NAME),
    5: ({"values": {"beta_1": 1.0, "mixup": 0.1}}, NO_VALUE),
    6: (
        {"values": {"mixup": 1.5}},
        "mixup cannot be 1.5; it must be a number, at least 0 and at",
    ),
    7: (
        {"values": {"mixup": 0.1}, "at_step": 2},
        "Step 2 has been trained: the run is at step 8.",
    ),
    13: ({"name": "ckpt-10", "values": {"lr": 1.0}}, NO_NAME),
    14: ({"name": "ckpt-10", "values": {"mixup": 0.1, "beta_1": 1.0}}, NO_VALUE),
}
"""Commands, by the step in which they come, and why they are refused."""


def test_what_cannot_be_is_refused_and_nothing_changes(tmp_path):
    asking = {step: given for step, (given, _) in REFUSED.items()}
    script = Script(tmp_path / "run", total_steps=16).train(asking)
    for outcome, (_, problem) in zip(script.outcomes, REFUSED.values(), strict=True):
        assert outcome.state is CommandState.REFUSED
        assert outcome.message.startswith(problem)
    assert all(values == script.values[0] for values in script.values.values())
    assert (script.run.step, script.events("set"), script.events("restore")) == (16, [], [])


def test_one_worker_that_cannot_change_a_value_keeps_all_from_it(tmp_path):
    from tfckpt_trainer.training.commands.handler import CommandVote

    script = Script(tmp_path / "run", total_steps=8)
    group, of_other = (
        script.run._state._group,
        CommandVote("There is no hyperparameter mixup here."),
    )

    def with_another_worker(mine):
        return [mine, of_other if isinstance(mine, CommandVote) else mine]

    with mock.patch.object(group, "all_gather", side_effect=with_another_worker):
        script.train({4: {"values": {"mixup": 0.25}}})
    (outcome,) = script.outcomes
    assert (outcome.state, outcome.message) == (CommandState.REFUSED, of_other.refusal)
    assert script.values[7] == script.values[0]


def test_if_the_script_cannot_take_one_value_none_is_changed(tmp_path):
    script = Script(tmp_path / "run", total_steps=30)

    def limited(value):
        if value > 0.8:
            raise ValueError("the augmenter is closed")
        script.mixup = value

    script.run._state.saved.user.hyperparameters._sources["mixup"]._set = limited
    values = {"learning_rate": 0.001, "weight_decay": 0.5, "mixup": 0.9}
    midway = {"values": {"mixup": 1.0}, "over": 10}
    script.train({4: {"values": values}, 13: {"name": "ckpt-10", "values": values}, 16: midway})
    change, restore, planned = script.outcomes
    why = "worker 0: ValueError: the augmenter is closed. "
    assert (change.state, change.message) == (
        CommandState.REFUSED,
        f"Nothing was changed: {why.strip()}",
    )
    # A restore says what is true.
    assert restore.state is CommandState.FAILED
    own = f"ckpt-10 was restored with its own values: {why}"
    assert restore.message.startswith(f"{own}At ckpt-10 on branch 0, from step 14 to 10: ")
    assert all(script.values[step] == script.values[0] for step in range(17))
    # A change over steps ends where the script refuses it.
    assert planned.state is CommandState.DONE
    assert script.values[29]["mixup"] == pytest.approx(0.8)
    _, of_restore, last = script.events("refused")
    assert of_restore.startswith(f"restore: {own.strip()}")
    assert "the augmenter is closed" in last


RAMP = {"values": {"weight_decay": 0.5, "learning_rate": 0.01}, "at_step": 6, "over": 8}


@pytest.fixture(scope="module")
def ramped(tmp_path_factory):
    """A run of 20 steps with a change over steps, and one of another value at once."""
    directory = tmp_path_factory.mktemp("ramped") / "run"
    changes = {3: RAMP, 16: {"values": {"mixup": 0.25}}}
    with put_back():
        return Script(directory, total_steps=20).train(changes)


def test_a_change_over_steps_comes_back_in_the_middle_with_the_same_bits(ramped, tmp_path):
    assert ramped.outcomes[0].message.endswith("on 1 worker, planned after step 6, over 8 steps.")
    decays = [ramped.values[step]["weight_decay"] for step in range(20)]
    assert decays[:7] == [0.01] * 7
    assert decays[10] == pytest.approx(0.01 + 0.49 * 4 / 8)
    assert decays[14:] == [0.5] * 6
    assert ramped.events("set")[1].endswith("on 1 worker, after step 6, as planned.")
    assert ramped.record(10).hyperparameters[0].planned is not None

    copied = copy_before(20, ramped.directory.root, tmp_path / "copy")
    again = Script(copied, total_steps=20).train()
    assert min(again.values) == 10
    assert again.weights == ramped.weights
    assert again.values[12] == ramped.values[12]


def curve(script, name, branch=0):
    """The points of a hyperparameter in TensorBoard."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(script.directory.tensorboard / f"branch-{branch}"))
    events.Reload()
    points = events.Tensors(f"hyperparameters/{name}")
    return [(point.step, pytest.approx(point.tensor_proto.float_val[0])) for point in points]


def test_tensorboard_draws_the_values_that_each_step_used(ramped):
    at_10 = ramped.values[10]["weight_decay"]
    decay = curve(ramped, "weight_decay")
    # Planned, begun, saved, ended; then a change of another one, and the last save.
    assert decay == [
        (1, 0.01), (4, 0.01), (5, 0.01), (6, 0.01), (7, 0.01),
        (11, at_10), (15, 0.5), (18, 0.5), (21, 0.5),
    ]  # fmt: skip
    assert curve(ramped, "mixup")[-3:] == [(17, 0.5), (18, 0.25), (21, 0.25)]


def test_a_restore_brings_the_values_of_its_checkpoint_back(tmp_path):
    change = {"values": {"learning_rate": 0.01, "weight_decay": 0.5, "mixup": 0.25}}
    asking = {13: change, 24: {"name": "ckpt-10"}, 27: {"name": "ckpt-20"}}
    whole = Script(tmp_path / "run", total_steps=30).train(asking)
    assert [outcome.state for outcome in whole.outcomes] == [CommandState.DONE] * 3
    restores = whole.events("restore")
    assert restores[0].endswith(
        "Hyperparameters: learning_rate 0.01 → 0.1, weight_decay 0.5 → 0.01, mixup 0.25 → 0.5."
    )
    record = whole.record(30)
    assert {one.name: one.value for one in record.hyperparameters}["weight_decay"] == 0.5


LOWER = {"learning_rate": 0.001, "weight_decay": 0.5, "mixup": 0.125}


def test_a_restore_begins_its_branch_with_other_values_and_the_same_bits(tmp_path):
    back = {"name": "ckpt-10", "values": LOWER}
    script = Script(tmp_path / "run", total_steps=20).train({13: back, 17: back})
    assert [outcome.state for outcome in script.outcomes] == [CommandState.DONE] * 2
    assert script.outcomes[0].message.endswith(
        " learning_rate 0.1 → 0.001, weight_decay 0.01 → 0.5, mixup 0.5 → 0.125."
    )
    assert script.outcomes[0].result["hyperparameters"][2] == {
        "name": "mixup",
        "before": 0.5,
        "after": 0.125,
    }
    assert script.values[10] == pytest.approx(LOWER)
    assert script.events("set")[0] == (
        "learning_rate 0.1 → 0.001, weight_decay 0.01 → 0.5, mixup 0.5 → 0.125 on 1 worker, "
        "after the restore of ckpt-10."
    )
    values = {one.name: one.value for one in script.record(20).hyperparameters}
    assert {name: values[name] for name in LOWER} == pytest.approx(LOWER)
    # In place, and at a start.
    copied = shutil.copytree(tmp_path / "run", tmp_path / "copy")
    choose_start(RunDirectory(copied), "ckpt-10", values=LOWER, through=FrontEnd.COMMAND_LINE)
    again = Script(copied, total_steps=20).train()
    assert again.weights == script.weights
    assert again.values[10] == pytest.approx(LOWER)
    # After a crash before the next save.
    lost = copy_before(20, tmp_path / "run", tmp_path / "lost")
    assert Script(lost, total_steps=20).train().weights == script.weights


AFTER_SAVE = {
    13: {"values": {"learning_rate": 0.03, "mixup": 0.25}},
    15: {"values": {"mixup": 0.75}, "at_step": 17, "over": 4},
    16: {"values": {"weight_decay": 0.5}},
    17: {"values": {"weight_decay": 0.25}},
}
"""Changes between the saves of steps 10 and 20; one is not complete at the end."""


def test_what_was_confirmed_is_made_again_at_its_step_after_a_crash(tmp_path):
    whole = Script(tmp_path / "run", total_steps=20).train(AFTER_SAVE)
    assert [outcome.state for outcome in whole.outcomes] == [CommandState.DONE] * 4
    lost = copy_before(20, tmp_path / "run", tmp_path / "lost")
    for directory in ("once", "twice"):
        again = Script(lost, total_steps=20).train()
        assert again.weights == whole.weights
        assert again.values == {step: whole.values[step] for step in range(10, 20)}
        # What was made again is not made twice after another crash.
        lost = copy_before(20, lost, tmp_path / directory)
    assert again.events("note")[-1] == (
        "Changes that no checkpoint has are made again: learning_rate 0.03, mixup 0.25 after step "
        "14; mixup 0.75 after step 17; weight_decay 0.5 after step 17; weight_decay 0.25 after "
        "step 18."
    )
    assert (
        "learning_rate 0.1 → 0.03, mixup 0.5 → 0.25 on 1 worker, after step 14, as before the "
        "restart." in again.events("set")
    )
    # What the script gives otherwise since stays.
    edited = Script(copy_before(20, lost, tmp_path / "edited"), total_steps=20, decay=0.07).train()
    assert edited.values[19]["weight_decay"] == 0.07
    assert edited.events("note")[-1] == (
        "weight_decay 0.25 after step 18 is not made again: The script now begins with "
        "weight_decay 0.07, not 0.01."
    )
    # So does what a person left behind, and is told.
    left = Script(copy_before(20, lost, tmp_path / "left"), total_steps=20)
    left.train({12: {"name": "ckpt-10"}})
    assert left.values[19] == pytest.approx(left.values[10])
    assert left.events("restore")[-1].endswith(
        " No longer to be made again: learning_rate 0.03, mixup 0.25 after step 14; mixup 0.75 "
        "after step 17; weight_decay 0.5 after step 17; weight_decay 0.25 after step 18."
    )
    choose_start(RunDirectory(lost), "ckpt-10", through=FrontEnd.COMMAND_LINE)
    chosen = Script(lost, total_steps=20).train()
    assert chosen.values[19] == pytest.approx(chosen.values[10])


def test_a_restore_leaves_changes_behind_also_after_a_crash(tmp_path):
    back = {12: {"values": {"mixup": 0.25}}, 14: {"name": "ckpt-10"}}
    whole = Script(tmp_path / "run", total_steps=20).train(back)
    assert [outcome.state for outcome in whole.outcomes] == [CommandState.DONE] * 2
    lost = copy_before(20, tmp_path / "run", tmp_path / "lost")
    assert Script(lost, total_steps=20).train().values[19]["mixup"] == 0.5


def test_a_change_before_the_first_save_is_made_again(tmp_path):
    whole = Script(tmp_path / "run", total_steps=8).train({3: {"values": {"mixup": 0.25}}})
    lost = RunDirectory(copy_before(0, tmp_path / "run", tmp_path / "lost"))
    before = [one for one in read_entries(lost) if one.kind.value in ("start", "set")]
    lost.event_log.unlink()
    for entry in before:
        write_entry(lost, entry)
    assert Script(lost.root, total_steps=8).train().values == whole.values
    # Whoever takes the checkpoints away begins anew.
    anew = copy_before(0, tmp_path / "run", tmp_path / "anew")
    assert Script(anew, total_steps=8).train().values[7]["mixup"] == 0.5


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """The directory of a run that was changed and ended after step 10; tests use copies."""
    directory = tmp_path_factory.mktemp("changed") / "run"
    change = {"values": {"weight_decay": 0.5, "mixup": 0.25}}
    with put_back():
        Script(directory, total_steps=10).train({4: change})
    return directory


def test_a_start_with_values_that_the_script_no_longer_has_is_refused(changed, tmp_path):
    run = RunDirectory(shutil.copytree(changed, tmp_path / "run"))
    with pytest.raises(RefusedError, match="mixup cannot be 7"):
        choose_start(run, "ckpt-10", values={"mixup": 7.0}, through=FrontEnd.COMMAND_LINE)
    choose_start(run, "ckpt-10", values=LOWER, through=FrontEnd.COMMAND_LINE)
    with pytest.raises(RefusedError, match=r"chosen with `--set learning_rate=0.001 .*no hyperp"):
        Script(run.root, total_steps=20, decay=0.0).train()


def test_the_script_has_the_last_word_if_it_gives_another_value_than_before(changed, tmp_path):
    run = RunDirectory(shutil.copytree(changed, tmp_path / "run"))
    # The last choice holds.
    choose_start(run, "ckpt-10", values=LOWER, through=FrontEnd.COMMAND_LINE)
    choose_start(run, "ckpt-10", through=FrontEnd.COMMAND_LINE)
    again = Script(run.root, total_steps=12, decay=0.07).train()
    assert again.values[10]["weight_decay"] == 0.07
    assert again.values[10]["mixup"] == 0.25


@pytest.fixture(scope="module")
def scheduled(tmp_path_factory):
    """The values of 30 steps with a schedule that nobody changed."""
    directory = tmp_path_factory.mktemp("scheduled") / "run"
    with put_back():
        return Script(directory, total_steps=30, rate=decaying()).train().values


def test_a_schedule_has_a_factor(scheduled, tmp_path):
    asking = {4: {"values": {"learning_rate_factor": 0.5}}}
    changed = Script(tmp_path / "run", total_steps=10, rate=decaying()).train(asking)
    assert changed.outcomes[0].state is CommandState.DONE
    assert changed.values[5]["learning_rate"] == pytest.approx(scheduled[5]["learning_rate"] / 2)
    assert changed.values[4] == scheduled[4]
    assert changed.graphs == 1


def test_a_rate_by_a_schedule_is_told_with_the_factor_that_was_restored_after_it():
    from tfckpt_trainer.training.hyperparameters.hyperparameters import Hyperparameters
    from tfckpt_trainer.training.hyperparameters.sources import OwnSource

    values = {"factor": 1.0}
    found = Hyperparameters()
    rate = OwnSource("rate", lambda: 0.1 * values["factor"], lambda _: None, Bounds())
    rate.schedule = "Decay"
    found.add(rate)
    factor = partial(values.__setitem__, "factor")
    found.add(OwnSource("factor", lambda: values["factor"], factor, Bounds()))
    saved = found.look(7)
    factor(0.5)
    found.look(18)
    found.restore(saved, 7)
    assert {one.name: one.value for one in found.told()} == {"rate": 0.1, "factor": 1.0}


def vanishing():
    """A schedule that is NaN after step 5: a root of a negative number."""
    import keras
    import tensorflow as tf

    class Root(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            return 0.1 * tf.pow(1.0 - tf.cast(step, tf.float32) / 5.0, 0.9)

        def get_config(self):
            return {}

    return Root()


def test_a_rate_that_is_not_finite_damages_no_record_and_can_be_set(tmp_path):
    first = Script(tmp_path / "run", total_steps=10, rate=vanishing()).train()
    assert math.isnan(first.values[9]["learning_rate"])
    rate = {one.name: one for one in first.record(10).hyperparameters}["learning_rate"]
    assert math.isnan(rate.value)

    change = {12: {"values": {"learning_rate": 0.05}, "until_step": 20}}
    again = Script(first.directory.root, total_steps=16, rate=vanishing()).train(change)
    assert min(again.values) == 10
    assert again.outcomes[0].state is CommandState.DONE
    assert again.values[15]["learning_rate"] == pytest.approx(0.05)


def test_no_value_beyond_those_of_its_type_is_taken(tmp_path):
    values = {"learning_rate": 1e39, "weight_decay": 1e39, "mixup": 1e39}
    asking = {2 + n: {"values": {name: value}} for n, (name, value) in enumerate(values.items())}
    script = Script(tmp_path / "run", total_steps=8).train(asking)
    assert {outcome.state for outcome in script.outcomes} == {CommandState.REFUSED}
    for outcome in script.outcomes[:2]:
        assert "and its type holds at most 3.40282347e+38" in outcome.message


def test_a_schedule_is_replaced_until_a_step_with_the_same_bits(scheduled, tmp_path):
    def script(directory, asking=()):
        return Script(directory, total_steps=30, rate=decaying()).train(asking)

    def rates(values, first, last):
        return [values[step]["learning_rate"] for step in range(first, last)]

    constant = {"values": {"learning_rate": 0.5}, "until_step": 8}
    ramp = {"values": {"learning_rate": 1.0}, "at_step": 12, "over": 4, "until_step": 22}
    whole = script(tmp_path / "whole", {3: constant, 9: ramp})
    assert [outcome.state for outcome in whole.outcomes] == [CommandState.DONE] * 2
    assert whole.outcomes[0].message.endswith(" → 0.5 on 1 worker, after step 4, until step 8.")
    assert whole.outcomes[1].message.endswith(
        " → 1 on 1 worker, planned after step 12, over 4 steps, until step 22."
    )
    assert [one["learning_rate"].until for one in whole.told] == [8, None]
    assert whole.told[0]["learning_rate"].value == 0.5
    assert rates(whole.values, 4, 8) == [0.5] * 4
    start = scheduled[12]["learning_rate"]
    climb = [start + (1.0 - start) * done / 4 for done in range(4)]
    assert rates(whole.values, 12, 22) == pytest.approx([*climb, *[1.0] * 6])
    for first, last in [(0, 4), (8, 12), (22, 30)]:
        assert rates(whole.values, first, last) == rates(scheduled, first, last)
    assert whole.graphs == 1
    said = whole.events("set")
    assert said[1].startswith("learning_rate 0.5 → 0.0")
    assert said[1].endswith(" on 1 worker, after step 8, as planned.")
    assert whole.record(20).hyperparameters[0].until == 22
    # In the middle: at a start, and in place.
    again = script(copy_before(30, tmp_path / "whole", tmp_path / "parts"))
    assert min(again.values) == 20
    assert again.weights == whole.weights
    assert again.events("set")[-1].endswith(" on 1 worker, after step 22, as planned.")
    back = script(tmp_path / "back", {3: constant, 9: ramp, 25: {"name": "ckpt-20"}})
    assert back.weights == whole.weights
    assert "Hyperparameters: learning_rate" in back.events("restore")[0]


def test_a_replaced_schedule_needs_a_step_at_which_it_goes_on(tmp_path):
    refused = {
        4: (
            {"values": {"learning_rate": 0.5}},
            "learning_rate follows ExponentialDecay. Replace it until a step, or change "
            "learning_rate_factor.",
        ),
        5: (
            {"values": {"weight_decay": 0.5}, "until_step": 9},
            "weight_decay follows no schedule that goes on after a step.",
        ),
        6: (
            {"values": {"learning_rate": 0.5}, "over": 5, "until_step": 9},
            "The schedule would go on after step 9, and the change is complete after step 12. "
            "Give a later step.",
        ),
    }
    asking = {step: given for step, (given, _) in refused.items()}
    script = Script(tmp_path / "run", total_steps=8, rate=decaying()).train(asking)
    assert [(o.state, o.message) for o in script.outcomes] == [
        (CommandState.REFUSED, problem) for _, problem in refused.values()
    ]


def test_a_schedule_that_can_only_be_read_in_a_step_stays_as_it_is():
    import keras
    import tensorflow as tf

    from tfckpt_trainer.training.hyperparameters.sources import sources_of

    class InSteps(keras.optimizers.schedules.LearningRateSchedule):
        is_open = False

        def __call__(self, step):
            if not (tf.inside_function() or self.is_open):
                raise RuntimeError("no step")
            return 0.25

        def get_config(self):
            return {}

    schedule = InSteps()
    optimizer = keras.optimizers.SGD(schedule)
    optimizer.build([keras.Variable([1.0])])

    def names():
        return {s.name: s for s in sources_of([("o", optimizer)], tf.distribute.get_strategy())}

    assert [*names()] == ["learning_rate_factor"]
    assert tf.function(lambda: tf.convert_to_tensor(optimizer.learning_rate))().numpy() == 0.25
    schedule.is_open = True
    rate = names()["learning_rate"]
    schedule.is_open = False
    assert rate.get() == 0.25


def test_names_and_values_that_cannot_be_tunable_are_refused(tmp_path):
    import tensorflow as tf

    run = Script(tmp_path / "run", total_steps=4).run
    for arguments in [
        ("mixup", lambda: 1.0, print),
        ("a=b", lambda: 1.0, print),
        ("text", lambda: "x", print),
        ("flag", lambda: True, print),
        ("vector", tf.Variable([1.0, 2.0])),
        ("nothing", 3.0),
    ]:
        with pytest.raises(UsageError):
            run.tunable(*arguments)
    with pytest.raises(UsageError, match="at least 2"):
        run.tunable("low", lambda: 1.0, print, low=2)


def test_a_change_after_a_save_of_the_same_step_is_saved_beside_it(tmp_path):
    from tfckpt_trainer.catalog.scan.catalog import Catalog

    change = {"values": {"weight_decay": 0.5}}
    asking = {9: change}
    script = Script(tmp_path / "run", total_steps=10).train(asking)
    assert [outcome.state for outcome in script.outcomes] == [CommandState.DONE]
    assert {one.name for one in Catalog(script.directory).scan(0.0)} == {"ckpt-10", "ckpt-b1-10"}
    again = Script(tmp_path / "run", total_steps=12).train()
    assert again.values[10]["weight_decay"] == 0.5


def test_a_script_that_assigns_an_option_itself_is_not_in_the_way(tmp_path):
    script = Script(tmp_path / "run", total_steps=30)
    replica_step = script.replica_step

    def step(batch):
        script.optimizer.weight_decay = None if script.run.step < 8 else 0.07
        return replica_step(batch)

    script.replica_step = step
    changes = {13: {"values": {"weight_decay": 0.2}}, 16: {"name": "ckpt-10"}}
    script.train(changes)
    assert [outcome.state for outcome in script.outcomes] == [CommandState.DONE] * 2


@pytest.mark.parametrize("kind", ["negative rate", "refusing", "int", "root of options"])
def test_optimizers_that_are_unlike_keras_train_as_before(tmp_path, kind):
    import math

    import keras
    import tensorflow as tf

    from tfckpt_trainer.training.hyperparameters.sources import sources_of

    class Refusing(keras.optimizers.SGD):
        def __setattr__(self, name, value):
            if name == "momentum" and getattr(self, "momentum", None) is not None:
                raise AttributeError("momentum is fixed")
            super().__setattr__(name, value)

    class Rooted(keras.optimizers.Adam):
        def update_step(self, gradient, variable, learning_rate):
            scale = math.sqrt(self.beta_1 * self.beta_2)
            super().update_step(gradient * scale, variable, learning_rate)

    optimizer = {
        "negative rate": lambda: keras.optimizers.SGD(-0.1),
        "refusing": lambda: Refusing(0.1, momentum=0.9),
        "int": lambda: keras.optimizers.SGD(0.1, clipnorm=1),
        "root of options": lambda: Rooted(0.1),
    }[kind]()
    variable = keras.Variable([1.0, 2.0])
    optimizer.build([variable])
    strategy = tf.distribute.get_strategy()
    names = {source.name for source in sources_of([("optimizer", optimizer)], strategy)}
    assert "learning_rate" in names
    assert ("clipnorm" in names) == (kind == "int")
    tf.function(lambda: optimizer.apply([tf.constant([1.0, 1.0])], [variable]))()


def test_a_second_run_of_a_process_changes_what_the_first_traced():
    import keras
    import tensorflow as tf

    from tfckpt_trainer.training.hyperparameters.sources import sources_of

    variable = keras.Variable([1.0])
    optimizer = keras.optimizers.SGD(
        keras.optimizers.schedules.ExponentialDecay(1.0, 10, 1.0), weight_decay=0.5
    )
    optimizer.build([variable])
    strategy = tf.distribute.get_strategy()
    first = {s.name: s for s in sources_of([("optimizer", optimizer)], strategy)}
    rate = tf.function(lambda: tf.convert_to_tensor(optimizer.learning_rate))
    first["learning_rate_factor"].set(0.5)
    assert rate().numpy() == 0.5
    second = {s.name: s for s in sources_of([("optimizer", optimizer)], strategy)}
    second["learning_rate_factor"].set(0.25)
    assert rate().numpy() == 0.25
    assert len(second) == len(first)


def test_a_whole_number_in_a_variable_stays_one(tmp_path):
    import tensorflow as tf

    script = Script(tmp_path / "run", total_steps=12)
    count = tf.Variable(5, dtype=tf.int64, trainable=False)
    script.run.tunable("count", count, low=1)
    script.train({4: {"values": {"count": 9}, "over": 3}, 8: {"values": {"count": 2.5}}})
    done, refused = script.outcomes
    assert (done.state, refused.state) == (CommandState.DONE, CommandState.REFUSED)
    assert refused.message.startswith("count cannot be 2.5; it must be a whole number, at least 1")
    assert int(count) == 9


def worker(**values):
    """A worker whose script declares some hyperparameters."""
    from tfckpt_trainer.training.hyperparameters.hyperparameters import Hyperparameters
    from tfckpt_trainer.training.hyperparameters.sources import OwnSource

    made = Hyperparameters()
    for name, value in values.items():
        made.add(OwnSource(name, lambda value=value: value, print, Bounds(low=0)))
    return made


def test_what_is_to_be_made_again_is_told_as_planned():
    one = worker(crop=4.0, noise=1.0, only=2.0)
    one.make_again(
        [
            ConfirmedChange(step=5, values={"crop": 6.0}, begins=5, by="ada"),
            ConfirmedChange(step=7, values={"crop": 7.0, "noise": 0.5}, begins=9, over=4),
        ]
    )
    one.plan({"only": 3.0}, begins=8, steps=0, by="bob")
    told = {hyperparameter.name: hyperparameter.planned for hyperparameter in one.told()}
    assert told == {
        "crop": PlannedChange(value=6.0, begins=5, by="ada"),
        "noise": PlannedChange(value=0.5, begins=9, steps=4),
        "only": PlannedChange(value=3.0, begins=8, by="bob"),
    }
    # A checkpoint has none of them: the event log does.
    assert [had.name for had in one.look(3) if had.planned] == ["only"]


def test_what_another_worker_has_otherwise_is_found():
    chief, other = worker(crop=4.0, noise=1.0, only=2.0), worker(crop=5.0, noise=1.0)
    assert chief.differing(list(other.seen.values())) == ["crop", "only"]
    assert other.differing(list(chief.seen.values())) == ["crop", "only"]
    assert chief.differing(list(chief.seen.values())) == []


def test_options_that_workers_have_otherwise_are_named_once(tmp_path):
    script = Script(tmp_path / "run", total_steps=3)

    def with_another_worker(mine):
        values = [
            msgspec.structs.replace(one, value=0.8) if one.name.startswith("beta") else one
            for one in mine.values
        ]
        return [mine, msgspec.structs.replace(mine, values=values)]

    group = script.run._state._group
    with mock.patch.object(group, "all_gather", side_effect=with_another_worker):
        script.run._state._agree_on_hyperparameters()
    script.train()
    assert script.events("note")[0] == (
        "Not equal on all workers, so `set` cannot change them: beta_1, beta_2."
    )
    assert "beta_1" not in {one.name for one in script.record(3).hyperparameters}


def test_a_command_that_fails_before_it_acts_takes_no_earlier_change_back(tmp_path):
    script = Script(tmp_path / "run", total_steps=14)
    hyperparameters = script.run._state.saved.user.hyperparameters
    hyperparameters.problem_of = mock.Mock(side_effect=["", ZeroDivisionError("injected")])
    changes = {4: {"values": {"weight_decay": 0.5}}, 8: {"values": {"weight_decay": 0.7}}}
    script.train(changes)
    assert [o.state for o in script.outcomes] == [CommandState.DONE, CommandState.FAILED]
    assert script.values[13]["weight_decay"] == 0.5


def test_a_step_whose_record_is_damaged_counts_as_saved(tmp_path):
    script = Script(tmp_path / "run", total_steps=10)
    record = script.directory.record("ckpt-10")

    def damage():
        for path in (record, copy_of(record)):
            if path.exists():
                path.write_text("{")

    script.run.before_save(damage)
    script.train()
    assert [path.name for path in script.directory.root.glob("*.index")] == ["ckpt-10.index"]
    assert script.events("finish") == ["Finished after step 10."]
