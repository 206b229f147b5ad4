"""The reader held against TensorFlow itself, tensor by tensor and bit by bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.bundle.object_graph import read_object_graph
from tfckpt_trainer.bundle.state_file import StateFile, read_state_file, write_state_file
from tfckpt_trainer.bundle.table import Table
from tfckpt_trainer.bundle.tensors import read_strings, read_tensor_bytes
from tfckpt_trainer.bundle.verify import verify

pytestmark = pytest.mark.tensorflow

DTYPES = [
    "float16", "float32", "float64", "bfloat16", "int8", "int16", "int32", "int64", "uint8",
    "uint16", "uint32", "uint64", "bool", "complex64", "complex128", "float8_e4m3fn",
    "float8_e5m2",
]  # fmt: skip


@pytest.fixture(scope="module")
def tf():
    import tensorflow

    return tensorflow


@pytest.fixture(scope="module")
def checkpoints(tf, tmp_path_factory):
    """Checkpoints of every kind that the reader must know, by name."""
    import keras
    import numpy as np

    root = tmp_path_factory.mktemp("checkpoints")

    def written(name, checkpoint, **options):
        checkpoint.write(str(root / name), **options)
        return root / name

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(5), keras.layers.Dropout(0.3)])
    optimizer = keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)
    iterator = iter(tf.data.Dataset.range(1000).shuffle(100))
    types = tf.train.Checkpoint(
        **{name: tf.Variable(tf.cast([[0.0, 1.0], [1.0, 0.0]], name)) for name in DTYPES},
        text=tf.Variable(["", "a", "ü" * 300]),
        one_text=tf.Variable("only one"),
        scalar=tf.Variable(1.5),
        empty=tf.Variable(tf.zeros([0, 3])),
    )
    random = np.random.RandomState(0)
    large = tf.train.Checkpoint(
        a=tf.Variable(random.randn(100, 7)), b=tf.Variable(random.randn(33).astype("float32"))
    )
    policy = tf.train.experimental.MaxShardSizePolicy(max_shard_size=500)
    many = tf.train.Checkpoint(v=[tf.Variable(float(number)) for number in range(6000)])
    return {
        "keras": written("keras", tf.train.Checkpoint(model=model, optimizer=optimizer)),
        "iterator": written("iterator", tf.train.Checkpoint(iterator=iterator)),
        "types": written("types", types),
        "sharded": written(
            "sharded",
            large,
            options=tf.train.CheckpointOptions(experimental_sharding_callback=policy),
        ),
        "many": written("many", many),
    }


KINDS = ["keras", "iterator", "types", "sharded", "many"]


@pytest.mark.parametrize("kind", KINDS)
def test_names_shapes_and_types_are_those_that_tensorflow_reads(tf, checkpoints, kind):
    prefix = checkpoints[kind]
    reader = tf.train.load_checkpoint(str(prefix))
    index = read_index(prefix)
    shapes = reader.get_variable_to_shape_map()
    types = reader.get_variable_to_dtype_map()
    assert {name: list(entry.shape) for name, entry in index.entries.items()} == shapes
    assert {n: e.dtype for n, e in index.entries.items()} == {n: t.name for n, t in types.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_every_byte_is_the_one_that_tensorflow_reads(tf, checkpoints, kind):
    prefix = checkpoints[kind]
    reader = tf.train.load_checkpoint(str(prefix))
    compared = 0
    for name, entry in read_index(prefix).entries.items():
        if entry.dtype == "string":
            expected = reader.get_tensor(name)
            flat = [expected] if isinstance(expected, bytes) else expected.ravel().tolist()
            assert read_strings(prefix, entry) == flat
        elif entry.dtype != "variant" and not entry.slices:
            assert read_tensor_bytes(prefix, entry) == reader.get_tensor(name).tobytes(), name
        else:
            continue
        compared += 1
    assert compared > 0


def test_slices_add_up_to_the_tensor(tf, checkpoints):
    import numpy as np

    prefix = checkpoints["sharded"]
    index = read_index(prefix)
    assert index.shard_count > 5
    entry = index.entries["a/.ATTRIBUTES/VARIABLE_VALUE"]
    assert len(entry.slices) > 5
    whole = np.full(entry.shape, np.nan)
    for part in entry.slices:
        box = tuple(
            slice(start, None if length < 0 else start + length) for start, length in part.extents
        )
        data = read_tensor_bytes(prefix, index.parts[entry.name, part])
        whole[box] = np.frombuffer(data).reshape(whole[box].shape)
    expected = tf.train.load_checkpoint(str(prefix)).get_tensor(entry.name)
    assert whole.tobytes() == expected.tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_what_tensorflow_wrote_verifies(checkpoints, kind):
    seen = []
    prefix = checkpoints[kind]
    found = verify(prefix, on_progress=lambda done, total: seen.append((done, total)), digests=True)
    assert found.findings == ()
    assert found.tensors == len(read_index(prefix).stored())
    assert seen[-1][0] == seen[-1][1] > 0
    files = {path.name for path in prefix.parent.glob(f"{prefix.name}.*")}
    assert set(found.file_checksums) == files


def test_six_thousand_variables_take_several_blocks(checkpoints):
    table = Table(Path(f"{checkpoints['many']}.index"))
    assert len(list(table._handles())) > 1
    assert len(list(table.entries())) == len(read_index(checkpoints["many"]).entries) + 1


@pytest.mark.parametrize("kind", ["keras", "types", "many"])
def test_the_object_graph_is_the_one_that_tensorflow_parses(tf, checkpoints, kind):
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    prefix = checkpoints[kind]
    reader = tf.train.load_checkpoint(str(prefix))
    proto = trackable_object_graph_pb2.TrackableObjectGraph()
    proto.ParseFromString(reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"))
    nodes = read_object_graph(prefix)
    assert len(nodes) == len(proto.nodes)
    for ours, theirs in zip(nodes, proto.nodes, strict=True):
        assert ours.children == {c.local_name: c.node_id for c in theirs.children}
        assert [(a.name, a.full_name, a.checkpoint_key) for a in ours.attributes] == [
            (a.name, a.full_name, a.checkpoint_key) for a in theirs.attributes
        ]


def test_tensorflow_understands_our_state_file_and_we_its(tf, tmp_path):
    checkpoint = tf.train.Checkpoint(x=tf.Variable(1.0))
    manager = tf.train.CheckpointManager(checkpoint, str(tmp_path), max_to_keep=5)
    for _ in range(3):
        manager.save()
    theirs = read_state_file(tmp_path / "checkpoint")
    assert theirs is not None
    assert theirs.names == ("ckpt-1", "ckpt-2", "ckpt-3")
    assert len(theirs.timestamps) == 3
    write_state_file(
        tmp_path / "checkpoint",
        StateFile(
            "ckpt-2",
            ("ckpt-1", "ckpt-3", "ckpt-2"),
            theirs.timestamps,
            theirs.last_preserved,
        ),
    )
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "ckpt-2")
    again = tf.train.CheckpointManager(checkpoint, str(tmp_path), max_to_keep=5)
    assert [Path(path).name for path in again.checkpoints] == ["ckpt-1", "ckpt-3", "ckpt-2"]
