"""A check finds what a script left out, by name, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from training_cluster import SCRIPTS

from tensorflow_processes import run_with_tensorflow
from tfckpt_trainer.exactness.likely_causes import likely_cause
from tfckpt_trainer.exactness.step_differences import What, first_difference, steps_compared
from tfckpt_trainer.rundir.records.check import CheckOrder, Pass, StateKind
from tfckpt_tui.services.exactness.check import read_traces
from weekly import weekly

pytestmark = pytest.mark.tensorflow

REPEATED = [Pass.IN_PLACE, Pass.COLD]

OMITTED = {
    "generator": (StateKind.GENERATOR, "noise"),
    "layer": (StateKind.LAYER, "dropout"),
    "metric": (StateKind.METRIC, "accuracy"),
    "optimizer": (StateKind.OPTIMIZER, "second_optimizer"),
    "model": (StateKind.MODEL, "head"),
    "ema": (StateKind.VARIABLE, "averages"),
    "counter": (StateKind.VARIABLE, "seen"),
    "table": (StateKind.TABLE, "table"),
    "rng": (StateKind.PYTHON_GENERATOR, "rng"),
}
"""Omissions that are in an object: its kind, and its name in the script."""

SOME = ["generator", "optimizer", "rng"]
"""Those of three kinds; `test_only_state_that_was_not_passed…` has the other kinds too."""

ENDS = ["data", *weekly("total")]
"""What ends the training one step before the end of the check."""


@pytest.fixture(scope="module")
def recorded(selected, tmp_path_factory):
    """The traces of the script `omissions.py`, by omission."""
    directory = tmp_path_factory.mktemp("omissions")
    # Its function graphs stay in the process, so the operation comes last.
    names = ["nothing", *selected, "python", "own_data", "operation"]
    ended = run_with_tensorflow(SCRIPTS / "omissions.py", directory, *names)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return {
        name: read_traces(CheckOrder(directory=str(directory / name / "trace"), warm_up=2, steps=3))
        for name in names
    }


@pytest.mark.parametrize("phase", REPEATED)
def test_a_script_that_passes_everything_is_exact(recorded, phase):
    traces = recorded["nothing"]
    assert first_difference(traces, phase) is None
    assert steps_compared(traces, phase) == 3
    first = traces[0][Pass.FIRST, 2]
    # Nothing is taken for an omission that is none: metrics of compile, variables of the library.
    assert [name for name, one in first.state.items() if not one.passed] == ["table"]
    # The check trains elsewhere, and its result counts for every run directory.
    assert traces[0][Pass.FIRST, 3].facts.run_directory == str(Path.cwd() / "runs" / "passed")


@pytest.mark.parametrize("phase", REPEATED)
@pytest.mark.parametrize("name", ENDS)
def test_a_training_that_ends_earlier_repeats_the_steps_that_it_has(recorded, name, phase):
    assert first_difference(recorded[name], phase) is None
    assert steps_compared(recorded[name], phase) == 2


@pytest.mark.parametrize("phase", REPEATED)
@pytest.mark.parametrize("name", [*SOME, *weekly(*sorted({*OMITTED} - {*SOME}))])
def test_an_omitted_object_is_found_by_name(recorded, name, phase):
    found = first_difference(recorded[name], phase)
    assert found is not None
    assert (found.kind, found.name) == OMITTED[name]
    assert (found.what, found.after_steps, found.passed) == (What.STATE, 0, False)
    cause = likely_cause(found)
    assert OMITTED[name][1] in cause.advice


@pytest.mark.parametrize("phase", REPEATED)
def test_a_stateful_operation_is_found_with_its_line(recorded, phase):
    found = first_difference(recorded["operation"], phase)
    assert found is not None and found.after_steps == 1
    # Neither the step's own result nor a position that was only looked at later is evidence.
    assert [name for name, _, _ in found.values] == ["calls"]
    cause = likely_cause(found)
    assert cause.id == "stateful-operation"
    script = (SCRIPTS / "omissions.py").read_text().splitlines()
    line = next(number for number, text in enumerate(script, 1) if "tf.random.normal(" in text)
    assert f"tf.random.normal at omissions.py:{line}" in cause.why


def test_a_dataset_that_the_script_reads_itself_is_named(recorded):
    found = first_difference(recorded["own_data"], Pass.IN_PLACE)
    assert found is not None and found.after_steps == 1
    cause = likely_cause(found)
    assert cause.id == "input" and "dataset and mini_batches" in cause.why
    assert "shuffle(…, seed=run.step)" in cause.advice


@pytest.mark.parametrize("phase", REPEATED)
def test_a_python_value_that_changes_training_is_named(recorded, phase):
    found = first_difference(recorded["python"], phase)
    assert found is not None and found.after_steps == 1
    assert found.name == "adam/learning_rate"
    cause = likely_cause(found)
    assert cause.id == "learning-rate"
    assert "calls was 2 at the save" in cause.why


def test_only_state_that_was_not_passed_is_found_and_told_what_to_do():
    ended = run_with_tensorflow(SCRIPTS / "untracked.py")
    assert ended.returncode == 0, ended.stderr[-3000:]
    lines = [line.split(" | ") for line in ended.stdout.splitlines()]
    assert {what: keras for what, keras, _ in lines} == {
        "iterator iterator": "False",
        "lookup table embeddings": "False",
        "metric trainer.losses['total']": "False",
        "SavedModel encoder": "False",
        "model second": "False",
        "seed generator of keras.random": "True",
        "tf.random.Generator trainer.noise": "False",
        "variable hidden": "False",
        "variable read_by_all": "False",
        "variable weights": "False",
    }
    sentences = {what: sentence for what, _, sentence in lines}
    assert sentences["tf.random.Generator trainer.noise"] == (
        "Not saved: tf.random.Generator trainer.noise, because nothing that was passed to "
        "TrainingRun holds it. If training changes it, pass extra={'noise': trainer.noise}."
    )
    assert sentences["lookup table embeddings"] == (
        "Not saved: lookup table embeddings, because it was made to be in no checkpoint. "
        "If training changes it, make it with checkpoint=True."
    )
    metric = sentences["metric trainer.losses['total']"]
    assert metric.endswith("pass metrics={'losses': trainer.losses['total']}.")


@pytest.mark.needs("tf_keras")
def test_a_metric_of_keras_2_is_no_layer(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import tensorflow as tf\n"
        "from tfckpt_trainer.training.check.untracked import describe_untracked, find_untracked\n"
        "accuracy = tf.keras.metrics.Mean()\n"
        "print(*map(describe_untracked, find_untracked([])))\n"
    )
    ended = run_with_tensorflow(script, TF_USE_LEGACY_KERAS="1")
    assert ended.stdout.startswith("Not saved: metric accuracy,"), ended.stderr[-3000:]
    assert ended.stdout.endswith("pass metrics={'accuracy': accuracy}.\n")


def test_state_that_is_older_than_the_import_is_found(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import importlib\n"
        "import tensorflow as tf\n"
        "import tfckpt_trainer.training\n"
        "from tfckpt_trainer.training.check.untracked import find_untracked\n"
        "older = tf.Variable(0.0)\n"
        "importlib.reload(tfckpt_trainer.training)\n"
        "print(*find_untracked([]))\n"
    )
    ended = run_with_tensorflow(script)
    assert ended.stdout == "variable older\n", ended.stderr[-3000:]


def test_a_class_may_have_a_property_that_names_a_module():
    import tensorflow as tf

    from tfckpt_trainer.training.check.untracked import find_untracked
    from tfckpt_trainer.training.state.walk import find_state

    class Proxy:
        __module__ = property(lambda self: "another")

    proxy = Proxy()
    proxy.count = tf.Variable(0.0)
    (found,) = find_state(tf.train.Checkpoint(), {"proxy": proxy})
    assert (found.path, found.thing) == ("proxy/count", proxy.count)
    assert "variable proxy.count" not in map(str, find_untracked([proxy.count]))


def test_numbers_that_tensorflow_keeps_in_a_model_are_no_values_of_the_script():
    import keras

    from tfckpt_trainer.training.check.script_names import ScriptNames

    class Decayed(keras.Model):
        pass

    decayed = Decayed()
    decayed.rate = 0.5
    values = ScriptNames().values
    assert values["decayed.rate"] == "0.5"
    assert [name for name in values if "_self_" in name] == []
