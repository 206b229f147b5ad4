"""The position in the data of `fit` is small, exact, and the same for any number of workers."""

from __future__ import annotations

import json
from itertools import chain

import pytest
from training_cluster import SCRIPTS

from tensorflow_processes import run_with_tensorflow

pytestmark = pytest.mark.tensorflow

EXAMPLES, BATCH, STEPS = 47, 8, 6
FORMS = ["arrays", "arrays, within batches", "by index", "generator", "dataset"]


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    done = run_with_tensorflow(SCRIPTS / "fit_positions.py", tmp_path_factory.mktemp("positions"))
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


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


def test_a_dataset_that_changes_after_an_epoch_is_not_read_ahead(read):
    first, second = (joined(epoch) for epoch in read["reshuffled"])
    assert first == list(range(EXAMPLES))
    assert second == [*range(1, EXAMPLES), 0]
