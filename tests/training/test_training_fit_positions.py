"""The position in the data of `fit` is small, exact, and the same for any number of workers."""

from __future__ import annotations

import json
from itertools import chain

import pytest
from kerases import KERAS_2, KERAS_3, environment_of
from training_cluster import SCRIPTS

from tensorflow_processes import run_with_tensorflow

pytestmark = pytest.mark.tensorflow

EXAMPLES, BATCH, STEPS = 47, 8, 6
FORMS = ["arrays", "arrays, within batches", "by index", "generator", "dataset"]


@pytest.fixture(scope="module", params=[KERAS_3, KERAS_2])
def read(tmp_path_factory, request):
    place, environment = tmp_path_factory.mktemp("positions"), environment_of(request.param)
    done = run_with_tensorflow(SCRIPTS / "fit_positions.py", place, **environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1].replace("the Sequence ", "the PyDataset "))


def joined(batches):
    return list(chain.from_iterable(batches))


@pytest.mark.parametrize("form", FORMS)
def test_reading_goes_on_where_it_was_saved(read, form):
    found = read["forms"][form]
    assert found["again"] == found["after"]
    one_pass = found["seen"][:STEPS]
    assert sorted(joined(one_pass)) == list(range(EXAMPLES))
    second = [*found["seen"][STEPS:], *found["after"][: STEPS - 3]]
    assert sorted(joined(second)) == list(range(EXAMPLES))


@pytest.mark.parametrize("form", ["arrays", "arrays, within batches", "by index"])
def test_each_pass_is_shuffled_otherwise(read, form):
    found = read["forms"][form]
    passes = [found["seen"][:STEPS], found["after"][3 : 3 + STEPS]]
    in_order = [list(range(BATCH * n, min(BATCH * (n + 1), EXAMPLES))) for n in range(STEPS)]
    assert in_order not in passes
    assert passes[0] != passes[1]
    if form == "arrays, within batches":
        assert [sorted(batch) for batch in passes[0]] == in_order


@pytest.mark.parametrize("form", ["arrays", "arrays, within batches"])
def test_the_position_in_arrays_is_a_few_numbers(read, form):
    assert read["forms"][form]["size"] < 2000


@pytest.mark.parametrize("form", FORMS)
def test_two_workers_with_two_replicas_take_the_batches_of_one(read, form):
    found = read["forms"][form]
    for batch, parts in zip(found["seen"][:STEPS], found["parts"], strict=True):
        assert joined(parts) == batch
        sizes = [len(part) for part in parts]
        assert max(sizes) - min(sizes) <= 1
    # So that they need not ask each other whether there is more.
    assert found["is_endless"] == [True, True]


def test_a_dataset_that_changes_after_an_epoch_is_not_read_ahead(read):
    first, second = (joined(epoch) for epoch in read["reshuffled"])
    assert first == list(range(EXAMPLES))
    assert second == [*range(1, EXAMPLES), 0]


NOT_EQUAL = {
    "reshuffled": "the PyDataset Reshuffled, which has code between epochs and no state_dict",
    "drawn": "the PyDataset Drawn, whose batches differ in each read",
    "drawn by a generator": "a generator function whose batches differ in each call",
}


@pytest.mark.parametrize("replicas", [1, 4])
@pytest.mark.parametrize(
    "name", ["by index", "by index, in threads", "with a state", "generator", *NOT_EQUAL]
)
def test_python_code_counts_as_exact_if_it_reads_the_same_again(read, name, replicas):
    facts = read["facts"][f"{name}, {replicas} replicas"]
    causes = [NOT_EQUAL[name]] if name in NOT_EQUAL else []
    assert facts["causes"] == causes
    assert facts["position"] == ("position" if causes else "exact")
    assert len(facts["remedies"]) == len(causes)


def test_another_function_of_python_beside_it_is_still_named(read):
    (function,) = read["facts"]["another function"]["python"]
    assert function.startswith("tf.numpy_function in map (fit_positions.py line ")


def test_a_script_without_repeat_is_told_that_fit_repeats(read):
    assert read["orders"] == {
        "no seed": ["a shuffle without a seed, which `fit` repeats"],
        "seed": ["a shuffle that batch separates from the repeat of `fit`"],
        "repeated": ["a repeated shuffle without a seed"],
    }
