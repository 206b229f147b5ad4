"""A reader of steps knows which one is the last, and restores any position that was saved."""

from __future__ import annotations

import itertools

import pytest

from waiting import attempts
from weekly import weekly

pytestmark = pytest.mark.tensorflow


def numbers(size, *, known=True):
    import tensorflow as tf

    dataset = tf.data.Dataset.range(size).shuffle(4, seed=2)
    return dataset if known else dataset.filter(lambda _: True)


def reader_of(dataset, replicas, *, mark):
    from tfckpt_trainer.training.steps.step_reader import StepReader

    return StepReader(dataset, replicas, mark=mark)


def rest(reader):
    steps = []
    for _ in attempts("the last step"):
        if not reader.has_next():
            break
        assert reader.has_next()
        elements = [int(element) for element in reader.read()]
        steps.append((elements, reader.steps, reader.is_last))
    return steps


SIZES = [(1, 0), (1, 2), (2, 0), (2, 1), (2, 4), (2, 5), (3, 2), (3, 3), (3, 7)]
"""Numbers of replicas, and of elements: none, too few, just enough, and some left over."""
OTHER_SIZES = sorted({*itertools.product((1, 2, 3), range(8))} - {*SIZES})


@pytest.mark.parametrize("known", [True, False], ids=["known length", "unknown length"])
@pytest.mark.parametrize(("replicas", "size"), [*SIZES, *weekly(*OTHER_SIZES)])
def test_the_last_step_is_known_when_it_is_read(size, replicas, known):
    reader = reader_of(numbers(size, known=known), replicas, mark=True)
    plain = reader_of(numbers(size, known=known), replicas, mark=False)
    steps = rest(reader)
    assert [elements for elements, *_ in steps] == [elements for elements, *_ in rest(plain)]
    count = size // replicas
    assert [mark for _, *mark in steps] == [[n, n == count] for n in range(1, count + 1)]
    with pytest.raises(StopIteration):
        reader.read()


def test_an_endless_dataset_has_no_last_step():
    reader = reader_of(numbers(3).repeat(), 2, mark=True)
    assert reader.is_endless
    for _ in range(9):
        assert reader.has_next()
        reader.read()
        assert reader.is_last is False


def test_elements_of_any_structure_keep_it():
    import tensorflow as tf

    ragged = tf.ragged.constant([[1], [2, 3]])
    sparse = tf.sparse.from_dense([[0, 4]])
    elements = {"a": ragged, "b": (sparse, "text"), "c": tf.constant([True])}
    dataset = tf.data.Dataset.from_tensors(elements).repeat(3).filter(lambda _: True)
    (element,) = reader_of(dataset, 1, mark=True).read()
    assert element["a"].to_list() == [[1], [2, 3]]
    assert tf.sparse.to_dense(element["b"][0]).numpy().tolist() == [[0, 4]]
    assert element["b"][1].numpy() == b"text"
    assert element["c"].numpy().tolist() == [True]


@pytest.mark.parametrize("known", [True, False], ids=["known length", "unknown length"])
@pytest.mark.parametrize("then", [True, False], ids=["saved with marks", "saved without"])
def test_a_position_is_restored_whether_it_was_saved_with_marks_or_without(tmp_path, then, known):
    import tensorflow as tf

    saved = reader_of(numbers(9, known=known), 2, mark=then)
    saved.read()
    prefix = tf.train.Checkpoint(input=saved.iterator).write(str(tmp_path / "position"))
    expected = [elements for elements, *_ in rest(saved)]
    assert len(expected) == 3

    reader = reader_of(numbers(9, known=known), 2, mark=True)
    reader.read()
    for _ in range(2):
        checkpoint = tf.train.Checkpoint(input=reader.iterator)
        checkpoint.read(prefix).assert_existing_objects_matched()
        assert [elements for elements, *_ in rest(reader)] == expected
