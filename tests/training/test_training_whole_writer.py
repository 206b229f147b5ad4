"""A save by the layout of the one before is the checkpoint that TensorFlow writes."""

from __future__ import annotations

import pytest

from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.bundle.verify import verify

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def state():
    import keras
    import tensorflow as tf

    from tfckpt_trainer.training.checkpoint.state import SharedState

    model = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(32), keras.layers.BatchNormalization()]
    )
    optimizer = keras.optimizers.Adam(1e-2)
    optimizer.build(model.trainable_variables)
    extra = {
        "module": tf.Module(),
        "words": tf.Variable(["a", "much longer word"]),
        "half": tf.Variable(tf.cast(tf.random.normal((5,)), tf.bfloat16)),
        "nothing": tf.Variable(tf.zeros((0, 3))),
    }
    return SharedState(model, optimizer, extra)


class Writes:
    """Writes of a state, and of the same state by TensorFlow alone."""

    def __init__(self, directory, state):
        from tfckpt_trainer.training.checkpoint.saves.worker_part import WholeWriter

        self.directory = directory
        self.state = state
        self.writer = WholeWriter(state)
        self.number = 0
        self.by_tensorflow = []
        write = state.write
        state.write = lambda prefix: (self.by_tensorflow.append(prefix.name), write(prefix))
        self.write_plainly = write

    def next(self):
        """Writes both; returns their prefixes, and whether TensorFlow wrote the first."""
        self.number += 1
        self.state.set_step(self.number)
        ours = self.directory / f"ours-{self.number}"
        theirs = self.directory / f"theirs-{self.number}"
        self.writer.write(ours, self.state.find(), {})
        self.write_plainly(theirs)
        return ours, theirs, ours.name in self.by_tensorflow


@pytest.fixture
def writes(tmp_path, state):
    return Writes(tmp_path, state)


def facts_of(prefix):
    entries = read_index(prefix).entries.items()
    return {name: (entry.dtype, entry.shape, entry.size, entry.crc32c) for name, entry in entries}


def test_later_saves_have_what_tensorflow_would_write(writes):
    assert writes.next()[2]
    for _ in range(2):
        writes.state.model.weights[0].assign_add(writes.state.model.weights[0])
        ours, theirs, is_by_tensorflow = writes.next()
        assert not is_by_tensorflow
        # The object graph is one of the tensors.
        assert facts_of(ours) == facts_of(theirs)
        assert verify(ours).findings == ()


def test_an_object_that_comes_or_goes_changes_the_layout(writes):
    import tensorflow as tf

    module = writes.state.checkpoint.module
    writes.next()

    def add_variable():
        module.late = tf.Variable(1.0)

    def add_another_name():
        module.alias = module.late

    def replace_variable():
        module.late = module.alias = tf.Variable(2.0)

    def remove_name():
        del module.alias

    for change in (add_variable, add_another_name, replace_variable, remove_name):
        change()
        for is_first in (True, False):
            ours, theirs, is_by_tensorflow = writes.next()
            assert is_by_tensorflow == is_first
            assert facts_of(ours) == facts_of(theirs)


def test_tensorflow_writes_what_is_no_variable(writes):
    import tensorflow as tf

    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    writes.state.checkpoint.module.table = table
    for number in range(3):
        table.insert(tf.constant([str(number)]), tf.constant([number], tf.int64))
        ours, theirs, is_by_tensorflow = writes.next()
        assert is_by_tensorflow
        assert facts_of(ours).keys() == facts_of(theirs).keys()
        assert len(facts_of(ours)) > 10
