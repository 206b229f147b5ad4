"""What is passed as a dataset or returned by a step works, or is refused with what to do."""

from __future__ import annotations

import pytest

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.scripts.script_errors import describe_script_error

pytestmark = pytest.mark.tensorflow


def batches():
    import tensorflow as tf

    return tf.data.Dataset.from_tensors(tf.ones((2, 2))).repeat()


def distributed():
    import tensorflow as tf

    return tf.distribute.MirroredStrategy(["CPU:0"]).experimental_distribute_dataset(batches())


NO_DATASETS = {
    "iterator": (lambda: iter(batches()), "dataset is an OwnedIterator;", "not iter(dataset)"),
    "named": (lambda: {"train": iter(batches())}, "an OwnedIterator", "not iter(dataset)"),
    "list": (lambda: [batches(), batches()], "dataset is a list;", "dataset={'train': …"),
    "arrays": (lambda: ([1.0], [2.0]), "dataset is a tuple;", "from_tensor_slices(…).batch(…)"),
    "no argument": (lambda: batches, "The function batches passed", "dataset=batches()."),
    "returns": (lambda: lambda _: iter(batches()), "passed as dataset returned an Own", "not iter"),
    "distributed": (distributed, "dataset is a DistributedDataset;", "each worker reads its own"),
    "number": (lambda: 5, "dataset is an int; expected a tf.data.Dataset", "InputContext"),
}


@pytest.mark.parametrize(("make", "found", "advice"), NO_DATASETS.values(), ids=NO_DATASETS)
def test_what_is_no_dataset_is_refused_with_what_to_pass(make_run, make, found, advice):
    with pytest.raises(UsageError) as refused:
        make_run(dataset=make())
    assert found in str(refused.value) and advice in str(refused.value)


@pytest.mark.parametrize("strategy", ["default", "mirrored"])
def test_a_step_may_report_nothing(make_run, strategy):
    import tensorflow as tf

    mirrored = {"strategy": tf.distribute.MirroredStrategy(["CPU:0"])}
    options = mirrored if strategy == "mirrored" else {}
    run = make_run(dataset=batches(), total_steps=2, **options)
    step = run.function(lambda _: None)
    assert [step(batch) for batch in run] == [{}, {}]


@pytest.mark.parametrize(
    ("reported", "found"),
    [
        ((1.0, 2.0), "The step returned a tuple;"),
        ({"loss": 1.0, "other": None}, "The step returned 'other' as None;"),
        ({"all": [1.0, 2.0]}, "The step returned 'all' as a list;"),
    ],
)
def test_what_is_no_metric_is_refused_and_not_averaged(make_run, reported, found):
    run = make_run(dataset=batches(), total_steps=2)
    step = run.function(lambda _: reported)
    with pytest.raises(Exception, match=found) as refused:
        step(next(iter(run)))
    told = describe_script_error(refused.value).message
    assert told.startswith(f"UsageError: {found} expected its loss, or a dictionary of scalars")
