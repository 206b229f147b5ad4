"""What steps draw, change and call is found in their graphs, with the line, and nothing else."""

from __future__ import annotations

import gc
import inspect

import numpy as np
import pytest
from training_cluster import Cluster

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.records.worker import Activity
from tfckpt_trainer.rundir.storage.documents import load
from weekly import weekly

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def cases():
    """The module `step_cases`, which imports TensorFlow."""
    import step_cases

    return step_cases


@pytest.fixture
def state(cases):
    return cases.State()


@pytest.fixture
def trained(make_run, tmp_path_factory):
    """Trains two steps; returns what is known of resuming, as the run and its checkpoint say."""

    import tensorflow as tf

    def train(step, directory=None, **options):
        # Not below `tmp_path`: the event log of these runs does name what was not passed.
        place = directory or tmp_path_factory.mktemp("run")
        run = make_run(place, total_steps=2, save_every_steps=2, **options)
        train_step = run.function(lambda _: tf.reduce_sum(tf.cast(step(), tf.float32)))
        for _ in run:
            train_step(tf.zeros([]))
        return known(place)

    return train


def known(directory):
    """Returns what is known of resuming; the same in the run, its checkpoint and its event log."""
    run = RunDirectory(directory)
    found = load(run.run_file, RunInfo).exactness
    assert load(run.record("ckpt-2"), CheckpointRecord).exactness == found
    notes = [entry.message for entry in read_entries(run) if entry.message.startswith("Exact ")]
    assert len(notes) == found.is_missing_state
    assert all(found.words in note and found.remedies[0] in note for note in notes)
    return found


def lines_of(function):
    """Returns the places of a function, as messages name them."""
    lines, first = inspect.getsourcelines(function)
    name = inspect.getsourcefile(function).rpartition("/")[2]
    return [f"{name}:{number}" for number in range(first, first + len(lines))]


def all_of(steps, *arguments):
    """Returns a step that does what all of these do."""
    import tensorflow as tf

    def total(step):
        return tf.reduce_sum(tf.cast(step(*arguments), tf.float32))

    return lambda: sum(total(step) for step in steps)


def test_each_random_operation_is_named_with_its_line(trained, cases):
    found = trained(all_of(cases.DRAWS.values()))
    assert found.level == "not possible"
    draws = [draw.partition(" at ") for draw in found.step.draws]
    places = {operation.rpartition(".")[2]: place for operation, _, place in draws}
    assert (places.keys(), len(draws)) == (cases.DRAWS.keys(), len(places))
    for name, step in cases.DRAWS.items():
        assert places[name] in lines_of(step), name
    (reason,) = found.reasons
    assert reason.startswith(f"the step draws random numbers with {found.step.draws[0]}, ")


def test_a_seed_of_the_run_is_advised_where_it_helps_and_used(trained, cases):
    step = all_of([cases.DRAWS["normal"], cases.DRAWS["uniform_candidate_sampler"]])
    with_seed, without = trained(step).remedies
    assert with_seed.startswith("Pass random_seed to TrainingRun. Or draw from a tf.random.Gen")
    assert without.startswith("Draw from a tf.random.Generator ")
    seeded = trained(step, random_seed=1)
    assert seeded.remedies == [without]
    (draw,) = seeded.step.draws
    assert draw.startswith("tf.random.uniform_candidate_sampler at ")
    assert trained(cases.DRAWS["normal"], random_seed=1).level == "expected"


def test_they_are_found_wherever_a_step_calls_them(trained, cases):
    steps = [step if isinstance(step, tuple) else (step, step) for step in cases.WHERE.values()]
    draws = trained(all_of(step for step, _ in steps)).step.draws
    assert len(draws) == len(steps)
    places = [draw.partition(" at ")[2] for draw in draws]
    for _, drawing in steps:
        if drawing is not cases.recomputed:
            assert [place in lines_of(drawing) for place in places].count(True) == 1, drawing


def test_what_a_step_changes_is_named_unless_it_was_passed(trained, cases, state):
    step = all_of(cases.CHANGED.values(), state)
    found = trained(step)
    assert found.level == "not possible"
    names = [changed.partition(" at ")[0] for changed in found.step.changes]
    assert sorted(names) == sorted(cases.CHANGED)
    expected = set()
    for name in names:
        argument = "metrics" if name.startswith("metric") else "extra"
        expression = name.rpartition(" ")[2]
        expected.add(f"Pass {argument}={{'{expression.rpartition('.')[2]}': {expression}}}.")
    assert set(found.remedies) == expected
    passed = trained(step, extra={"state": state})
    assert (passed.level, passed.reasons, passed.remedies) == ("expected", [], [])


def test_what_a_step_reads_may_change_elsewhere_unless_it_was_passed(trained, cases, state):
    step = all_of(cases.READ.values(), state)
    found = trained(step)
    assert found.level == "unknown"
    (reason,) = found.reasons
    assert reason.startswith("no checkpoint holds what the step reads: ")
    reads = {read.partition(" at ")[0] for read in found.step.reads}
    assert reads == cases.READ.keys()
    tables = {
        f"Pass extra={{'{name}': state.{name}}}." for name in ("table", "dynamic", "embedding")
    }
    assert set(found.remedies) == {"Pass extra={'state': state}.", *tables}
    assert trained(step, extra={"state": state}).level == "expected"


def test_what_keeps_no_state_is_not_named(trained, cases, state):
    assert trained(all_of(cases.HARMLESS.values(), state)).level == "expected"


def test_nothing_is_said_of_python_that_nobody_can_look_into(trained, cases):
    found = trained(all_of(cases.PYTHON.values()))
    assert found.level == "unknown"
    (reason,) = found.reasons
    assert reason.startswith("the step calls Python with ")
    for name in cases.PYTHON:
        assert f"{name} at step_cases.py:" in reason


def test_the_generator_of_keras_is_named_with_what_to_do(trained):
    import keras

    found = trained(lambda: keras.random.normal([]))
    (changed,) = found.step.changes
    assert changed.startswith("seed generator of keras.random at ")
    assert found.remedies[0].startswith("Pass `seed=keras.random.SeedGenerator(…)`")


@pytest.mark.parametrize("saved", [True, *weekly(False)])
def test_what_is_called_not_exact_is_not_and_the_rest_is(make_run, tmp_path, saved):
    import tensorflow as tf

    def train(place, total_steps):
        tf.random.set_seed(1)
        noise = tf.random.Generator.from_seed(1)
        draw = noise.normal if saved else tf.random.normal
        run = make_run(tmp_path / place, extra={"noise": noise}, total_steps=total_steps)
        step = run.function(lambda _: draw([]))
        losses = [step(tf.zeros([]))["loss"] for _ in run]
        level = load(RunDirectory(run.directory).run_file, RunInfo).exactness.level
        assert level == ("expected" if saved else "not possible")
        return losses

    whole = train("whole", 4)
    train("parts", 2)
    assert (train("parts", 4) == whole[2:]) == saved


def test_a_step_is_looked_into_again_when_another_is_compiled(make_run):
    import tensorflow as tf

    run = make_run(total_steps=3, save_every_steps=1)
    steps = [run.function(lambda _: 1.0), run.function(lambda _: tf.random.normal([]))]
    for _ in run:
        steps[run.step > 0](tf.zeros([]))
    levels = [
        load(run_directory.record(name), CheckpointRecord).exactness.level
        for run_directory in [RunDirectory(run.directory)]
        for name in ("ckpt-1", "ckpt-2")
    ]
    assert levels == ["unknown", "not possible"]


def test_a_run_that_requires_exactness_ends_after_the_first_step(make_run):
    import tensorflow as tf

    from tfckpt_trainer import SaveOptions

    run = make_run(total_steps=3, save_every_steps=1, saving=SaveOptions(require_exact=True))
    step = run.function(lambda _: tf.random.normal([]))
    with pytest.raises(UsageError, match=r"tf\.random\.normal at .*\. Pass random_seed to "):
        list(map(step, run))
    assert list(run.directory.glob("ckpt-*")) == []


@pytest.mark.parametrize("functions", [*weekly((("zero", "zero"),)), ("draw", "draw_held_out")])
def test_the_steps_of_fit_are_looked_into(cases, tmp_path, functions):
    from tfckpt_trainer.training import fit

    x, y = np.ones((8, 2), np.float32), np.ones((8, 1), np.float32)
    options = {"validation_data": (x, y), "run_dir": tmp_path / "run", "save_every_epochs": 1}
    fit(cases.compiled_model(*functions), x, y, batch_size=4, epochs=2, verbose=0, **options)
    found = load(RunDirectory(tmp_path / "run").run_file, RunInfo).exactness
    drawing = [getattr(cases, name) for name in functions if name != "zero"]
    assert found.level == ("not possible" if drawing else "expected")
    assert len(found.step.draws) == len(drawing)
    for draw, function in zip(found.step.draws, drawing, strict=True):
        assert draw.partition(" at ")[2] in lines_of(function)


@pytest.mark.parametrize(("noise", "level"), [("zero", "unknown"), ("draw", "not possible")])
def test_the_train_function_of_keras_is_looked_into(cases, tmp_path, noise, level):
    from tfckpt_trainer.training import SteeringCallback, TrainingRun

    model = cases.compiled_model(noise, "zero")
    run = TrainingRun(tmp_path / "run", model=model, optimizer=model.optimizer)
    x, y = np.ones((8, 2), np.float32), np.ones((8, 1), np.float32)
    model.fit(x, y, batch_size=4, epochs=1, verbose=0, callbacks=[SteeringCallback(run)])
    found = load(RunDirectory(tmp_path / "run").run_file, RunInfo).exactness
    assert found.level == level
    assert len(found.step.draws) == (level != "unknown")


def test_a_finished_run_that_is_started_again_keeps_what_was_found(trained, cases, tmp_path):
    place = tmp_path / "run"
    first = trained(cases.DRAWS["normal"], place)
    assert trained(cases.DRAWS["normal"], place) == first


def test_before_the_first_step_and_in_a_loop_of_its_own_nothing_is_expected(make_run):
    run = make_run(total_steps=2, save_every_steps=2)
    for _ in run:
        if run.step == 0:
            found = load(RunDirectory(run.directory).run_file, RunInfo).exactness
            assert (found.level, found.reasons) == ("unknown", ["no step has run yet"])
        run.report(loss=0.0)
    found = known(run.directory)
    assert found.level == "unknown"
    assert found.reasons[0].startswith("the loop does not use run.function")


def test_a_start_keeps_what_the_last_one_found_until_its_first_step(make_run):
    run = make_run(total_steps=2)
    for _ in run:
        run.report(loss=0.0)
    found = known(run.directory)
    assert found.reasons[0].startswith("the loop does not use run.function")
    again = make_run(total_steps=3)
    for _ in again:
        assert load(RunDirectory(run.directory).run_file, RunInfo).exactness == found
        again.report(loss=0.0)


def test_a_worker_trains_once_its_first_step_is_counted(make_run, monkeypatch):
    run = make_run(total_steps=2)
    told = []
    heartbeat = run._telemetry.heartbeat
    metrics = run._telemetry.metrics
    nudge = heartbeat.nudge
    monkeypatch.setattr(
        heartbeat, "nudge", lambda: (told.append((metrics.activity, metrics.step)), nudge())
    )
    for _ in run:
        assert metrics.activity is (Activity.TRAINING if run.step else Activity.STARTING)
        run.report(loss=0.0)
    assert (Activity.TRAINING, 1) in told
    assert (Activity.TRAINING, 0) not in told


@pytest.mark.parametrize(
    ("draw", "levels"),
    [
        ("later", ["expected", "not possible"]),
        *weekly(("never", ["expected"] * 2), ("first", ["not possible"] * 2)),
    ],
)
def test_what_one_worker_alone_draws_holds_for_the_run(tmp_path, draw, levels):
    with Cluster(tmp_path / "run", "drawing_apart.py", ["--draw", draw]) as cluster:
        assert cluster.wait() == [0, 0], cluster.output()
    run = RunDirectory(tmp_path / "run")
    records = [load(run.record(name), CheckpointRecord) for name in ("ckpt-2", "ckpt-4")]
    assert [record.exactness.level for record in records] == levels
    assert load(run.run_file, RunInfo).exactness == records[1].exactness
    draws = records[1].exactness.step.draws
    assert [text.partition(" at drawing_apart.py:")[0] for text in draws] == [
        "tf.random.normal"
    ] * (draw != "never")


def test_a_function_of_a_dataset_that_is_gone_is_none_of_the_step(make_run):
    import tensorflow as tf

    drawn = tf.function(lambda number: tf.random.uniform([]) + tf.cast(number, tf.float32))
    dataset = tf.data.Dataset.range(3).map(drawn)
    run = make_run(total_steps=2, save_every_steps=2)
    for step in run:
        if step == 0:
            del dataset
            gc.collect()
        run.report(loss=1.0)
    assert known(run.directory).step.draws == []
