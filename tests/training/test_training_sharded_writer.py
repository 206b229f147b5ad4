"""What is written in parts is, tensor by tensor and bit by bit, what TensorFlow writes whole."""

from __future__ import annotations

import pytest

from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.bundle.object_graph import read_object_graph
from tfckpt_trainer.bundle.verify import verify
from tfckpt_trainer.errors import UsageError

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def shared():
    import keras
    import tensorflow as tf

    from tfckpt_trainer.training.checkpoint.state import SharedState

    model = keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(32),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(4),
        ]
    )
    optimizer = keras.optimizers.Adam(1e-2)
    optimizer.build(model.trainable_variables)
    extra = {
        "noise": tf.random.Generator.from_seed(3),
        "table": tf.Variable(tf.random.normal((7, 3, 2))),
        "words": tf.Variable(["a", "much longer word"]),
        "half": tf.Variable(tf.cast(tf.random.normal((5,)), tf.bfloat16)),
        "with/slash.and.dot": tf.Variable(1, dtype=tf.int64),
    }
    return SharedState(model, optimizer, extra)


@pytest.fixture(scope="module")
def layout(shared):
    from tfckpt_trainer.training.checkpoint.saves.sharded_writer import CheckpointLayout

    return CheckpointLayout.of(shared.checkpoint)


@pytest.mark.parametrize(("writers", "largest"), [(1, None), (1, 500), (3, None), (2, 300)])
def test_parts_make_the_checkpoint_that_tensorflow_writes(
    tmp_path, shared, layout, writers, largest
):
    import tensorflow as tf

    from tfckpt_trainer.training.checkpoint.saves.sharded_writer import ShardedWriter

    shared.write(tmp_path / "whole")
    each = [
        ShardedWriter(layout, writers=writers, writer=writer, largest=largest)
        for writer in range(writers)
    ]
    for parts in each:
        for prefix in parts.write(parts.snapshot(), tmp_path / "parts"):
            assert verify(prefix, part=parts.shard_count > 1).findings == ()
    names = each[0].merge(tmp_path / "parts")
    assert verify(tmp_path / "parts").findings == ()
    shards = {path.name for path in tmp_path.glob("parts.data-*")}
    assert set(names.values()) == shards
    assert {path.name for path in tmp_path.glob("parts.*")} == shards | {"parts.index"}
    if largest:
        # One has the object graph too, and strings are counted as nothing.
        sizes = sorted((tmp_path / shard).stat().st_size for shard in shards)
        assert sizes[-2] <= largest + 100
        assert any(entry.slices for entry in read_index(tmp_path / "parts").entries.values())

    assert read_object_graph(tmp_path / "parts") == read_object_graph(tmp_path / "whole")
    whole = tf.train.load_checkpoint(str(tmp_path / "whole"))
    merged = tf.train.load_checkpoint(str(tmp_path / "parts"))
    assert merged.get_variable_to_shape_map() == whole.get_variable_to_shape_map()
    for key in whole.get_variable_to_shape_map():
        expected, found = whole.get_tensor(key), merged.get_tensor(key)
        if isinstance(expected, bytes):
            assert found == expected, key
        else:
            assert found.tobytes() == expected.tobytes() or (found == expected).all(), key


def bytes_read(act):
    """How many bytes of variables a call reads, and its result."""
    from tensorflow.python.framework import op_callbacks

    sizes = []

    def note(kind, inputs, attributes, outputs, name=None, graph=None) -> None:
        if "ReadVariableOp" in str(kind):
            sizes.append(len(outputs[0].numpy().tobytes()))

    op_callbacks.add_op_callback(note)
    try:
        result = act()
    finally:
        op_callbacks.remove_op_callback(note)
    return sum(sizes), result


def test_each_worker_reads_and_keeps_only_what_it_writes(layout):
    from tfckpt_trainer.training.checkpoint.saves.sharded_writer import ShardedWriter

    each = [ShardedWriter(layout, writers=3, writer=writer, largest=500) for writer in range(3)]
    alone = ShardedWriter(layout, writers=1, writer=0, largest=500)
    whole, of_all = bytes_read(alone.snapshot)
    reads, snapshots = zip(*(bytes_read(parts.snapshot) for parts in each), strict=True)
    assert sum(reads) == whole
    assert min(reads) > 0
    kept = [key for snapshot in snapshots for key in snapshot.values]
    assert sorted(kept) == sorted(of_all.values)


def test_values_are_those_of_the_moment_in_which_they_were_taken(tmp_path, shared, layout):
    import tensorflow as tf

    from tfckpt_trainer.training.checkpoint.saves.sharded_writer import ShardedWriter

    parts = ShardedWriter(layout, writers=1, writer=0, largest=None)
    table = shared.checkpoint.table
    before = table.numpy()
    snapshot = parts.snapshot()
    table.assign_add(tf.ones_like(table))
    table.scatter_nd_update([[0]], tf.zeros((1, 3, 2)))
    parts.write(snapshot, tmp_path / "snapshot")
    reader = tf.train.load_checkpoint(str(tmp_path / "snapshot"))
    found = reader.get_tensor("table/.ATTRIBUTES/VARIABLE_VALUE")
    assert found.tobytes() == before.tobytes()


def test_what_is_no_variable_is_refused_and_not_left_out(shared):
    import tensorflow as tf

    from tfckpt_trainer.training.checkpoint.saves.sharded_writer import CheckpointLayout

    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    with pytest.raises(UsageError, match="vocabulary is a MutableHashTable"):
        CheckpointLayout.of(tf.train.Checkpoint(vocabulary=table))
    optimizer = tf.compat.v1.train.MomentumOptimizer(0.1, 0.9)
    with pytest.raises(UsageError, match="old is a MomentumOptimizer"):
        CheckpointLayout.of(tf.train.Checkpoint(old=optimizer))
    iterator = iter(tf.data.Dataset.range(3))
    with pytest.raises(UsageError, match="input is a OwnedIterator"):
        CheckpointLayout.of(tf.train.Checkpoint(input=iterator))
