"""`fit` takes what `keras.Model.fit` takes, and trains as it does."""

from __future__ import annotations

import ast
import json

import pytest
from training_cluster import SCRIPTS

from tensorflow_processes import run_with_tensorflow
from weekly import weekly

pytestmark = pytest.mark.tensorflow

SCRIPT = SCRIPTS / "fitted_like_keras.py"

FIRST = ["validation_split", "batches by index, threads"]
"""Cases that have most of what the others have."""


def names_of_cases():
    """The keys of the tables of cases in the script."""
    tables = {
        statement.targets[0].id: statement.value
        for statement in ast.parse(SCRIPT.read_text()).body
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
    }
    names = [key.value for name in ("ALIKE", "DIFFERENT") for key in tables[name].keys]
    assert set(names) >= set(FIRST)
    rest = [name for name in names if name not in FIRST]
    return [*FIRST, *weekly(*rest)]


def compared(directory, *arguments):
    """Runs the script; returns what it found, by the name of the case."""
    done = run_with_tensorflow(SCRIPT, directory, *arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    found = [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("case ")]
    return {case.pop("name"): case for case in found}


@pytest.fixture(scope="module")
def on_one_device(tmp_path_factory, selected):
    return compared(tmp_path_factory.mktemp("runs"), "--only", *selected)


@pytest.mark.parametrize("name", names_of_cases())
def test_a_fit_is_bit_for_bit_that_of_keras(on_one_device, name):
    case = on_one_device[name]
    assert case["ours"] == case["keras"]


# The replicas divide the last batches of these unequally.
@pytest.mark.weekly  # `test_training_fit_positions.py` shows how batches are divided.
@pytest.mark.parametrize("uneven", ["dataset, class_weight", "validation weights"])
def test_a_batch_is_divided_among_the_replicas_as_keras_does(tmp_path, uneven):
    case = compared(tmp_path, "--strategy", "mirrored", "--only", uneven)[uneven]
    assert isinstance(case["ours"], dict), case["ours"]
    for metric, values in case["keras"]["history"].items():
        assert case["ours"]["history"][metric] == pytest.approx(values, rel=1e-5)


@pytest.fixture(scope="module")
def messages(tmp_path_factory):
    done = run_with_tensorflow(SCRIPTS / "fit_refused.py", tmp_path_factory.mktemp("runs"))
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("generator", "Pass the function that returns it: x=batches instead of x=batches()"),
        ("generator function", "The number of steps in x is unknown. Pass steps_per_epoch."),
        ("lists of numbers", "x is a list of values that are not arrays. Convert them with numpy"),
        ("list of targets", "y is a list of values that are not arrays. Convert them with numpy"),
        ("other library", "x is a DataLoader of another library, whose position cannot be saved."),
        ("nothing", "x is None. Pass arrays, a tf.data.Dataset or a keras.utils.PyDataset."),
        ("no data", "x is an int. Pass arrays, a tf.data.Dataset, a keras.utils.PyDataset, or a"),
        ("function", "It has to return a generator of batches, or to take a tf.distribute.Input"),
        ("arguments", "Pass one without, such as functools.partial(function, argument)."),
        ("optional context", "taken"),
        ("targets beside", "Yield (x, y) or (x, y, sample_weight) from x instead."),
        ("weights beside", "sample_weight is given together with a"),
        ("directory", "y is the text 'runs/first'. Pass run_dir='runs/first'."),
        ("both weights", "at the same time"),
        ("lengths", "Make sure all arrays contain the same number of samples."),
        ("split", "validation_split needs arrays; x is a tf.data.Dataset. Pass the data of"),
        ("small split", "not sufficient to split it"),
        ("validation", "validation_data has 4 parts. Pass (x, y), (x, y, sample_weight), or a"),
        ("validation_freq", "validation_freq is 0. Pass a number of epochs, at least 1, or a list"),
        ("validation_steps", "validation_data is unknown. Pass validation_steps."),
        ("steps", "The number of steps in x is unknown. Pass steps_per_epoch."),
        ("no batches", "Empty has no batches: its length is 0."),
        ("epochs", "nothing is left to train. Pass the number of the last epoch as epochs."),
        ("not a callback", "expected a keras.callbacks.Callback"),
        ("OrbaxCheckpoint", "Remove OrbaxCheckpoint from the callbacks."),
    ],
)
def test_what_fit_cannot_take_is_refused_with_what_to_do(messages, case, message):
    assert message in messages[case]
    assert not messages[case].startswith(("TypeError", "ValueError", "AttributeError"))
