"""The proof of a restore reads the memory of variables, of every type, and copies none of it."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.tensorflow

TYPES = ["float32", "float64", "float16", "bfloat16", "int4", "int8", "uint16", "bool", "complex64"]


def values(kind, first):
    """Six elements, of which the first two differ with `first`."""
    import tensorflow as tf

    if kind == "string":
        long = b"two" * 50_000
        return tf.constant([[b"one" if first else b"", b""], [long, "drei \u2713".encode()]])
    numbers = [int(first), int(not first), 0, 1, 1, 0]
    return tf.cast(tf.reshape(tf.constant(numbers), (2, 3)), kind)


def matches_of(root, prefix):
    from tfckpt_trainer.training.state.comparison import compare

    comparison = compare(root, prefix)
    assert not comparison.problems
    return comparison.matched


@pytest.mark.parametrize("kind", [*TYPES, "string"])
def test_a_value_in_memory_is_told_from_another(tmp_path, kind):
    import tensorflow as tf

    from tfckpt_trainer.training.state.comparison import wrong_values

    variable = tf.Variable(values(kind, True))
    root = tf.train.Checkpoint(weights=variable, scalar=tf.Variable(3, dtype=tf.int64))
    root.write(str(tmp_path / "saved"))
    matches = matches_of(root, tmp_path / "saved")
    assert wrong_values(matches, tmp_path / "saved") == []
    # The files stay as they are: only memory tells.
    variable.assign(values(kind, False))
    assert wrong_values(matches, tmp_path / "saved") == ["weights/.ATTRIBUTES/VARIABLE_VALUE"]


def test_a_tensor_that_is_stored_in_parts_is_proven_part_by_part(tmp_path):
    import tensorflow as tf

    from tfckpt_trainer.training.checkpoint.sharded_writer import ShardedWriter
    from tfckpt_trainer.training.state.comparison import wrong_values

    variable = tf.Variable(tf.random.normal((64, 4)))
    root = tf.train.Checkpoint(weights=variable)
    parts = ShardedWriter(root, writers=1, writer=0, largest=300)
    parts.write(parts.snapshot(), tmp_path / "saved")
    parts.merge(tmp_path / "saved")
    assert parts.shard_count > 2
    matches = matches_of(root, tmp_path / "saved")
    assert wrong_values(matches, tmp_path / "saved") == []
    variable[40, 2].assign(7.0)
    assert wrong_values(matches, tmp_path / "saved") == ["weights/.ATTRIBUTES/VARIABLE_VALUE"]


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_the_memory_of_a_variable_is_read_where_it_is(kind):
    import tensorflow as tf

    from tfckpt_trainer.training.state.comparison import memory_of

    variable = tf.Variable(tf.zeros((1000, 1000), kind))
    one, two = memory_of(variable), memory_of(variable)
    assert one.ctypes.data == two.ctypes.data
    place = one.ctypes.data
    del one, two
    # Nothing refers to it any more, so it is updated in place.
    variable.assign_add(tf.ones((1000, 1000), kind))
    updated = memory_of(variable)
    assert updated.ctypes.data == place
    assert float(updated[0, 0]) == 1.0
