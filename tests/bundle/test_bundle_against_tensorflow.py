"""The reader held against TensorFlow itself, tensor by tensor and bit by bit."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from zipfile import ZipFile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversions import write_checkpoint, write_checkpoint_like
from tensorflow_processes import run_with_tensorflow
from tfckpt_trainer.bundle.analysis.contents import describe_tensors
from tfckpt_trainer.bundle.dtypes import ITEM_SIZES
from tfckpt_trainer.bundle.exchange.extract import ArrayFormat, extract_tensors
from tfckpt_trainer.bundle.exchange.npz import NPZ_TYPES
from tfckpt_trainer.bundle.exchange.safetensors import SAFETENSORS_TYPES
from tfckpt_trainer.bundle.index import DTYPES as TYPE_NAMES
from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.bundle.object_graph import KEY, read_object_graph
from tfckpt_trainer.bundle.slices import slice_key
from tfckpt_trainer.bundle.state_file import StateFile, read_state_file, write_state_file
from tfckpt_trainer.bundle.table import IndexTable
from tfckpt_trainer.bundle.tensors import (
    is_numeric,
    numeric_chunks,
    read_strings,
    read_tensor_bytes,
)
from tfckpt_trainer.bundle.verify import verify
from tfckpt_trainer.bundle.writing.bundle_writer import BundleWriter
from tfckpt_trainer.tools.tensors.average import WeightedCheckpoint, is_averaged, write_average
from tfckpt_trainer.tools.tensors.edit import Edit, EditSource, write_edit
from weekly import tries

pytestmark = pytest.mark.tensorflow

DTYPES = [
    "float16", "float32", "float64", "bfloat16", "int8", "int16", "int32", "int64", "uint8",
    "uint16", "uint32", "uint64", "bool", "complex64", "complex128", "float8_e4m3fn",
    "float8_e5m2", "float4_e2m1fn", "int4", "uint4", "int2", "uint2", "qint8", "quint8", "qint32",
]  # fmt: skip
"""All types of which TensorFlow on a CPU can make a variable."""
NEWER_DTYPES = {"float4_e2m1fn", "int2", "uint2"}
"""Of these, those that TensorFlow 2.16 lacks."""


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

    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(5),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.3),
        ]
    )
    optimizer = keras.optimizers.Adam(1e-3)
    model.compile(optimizer, "mse", run_eagerly=True)
    model.fit(np.ones((16, 4)), np.ones((16, 5)), batch_size=8, verbose=0)
    iterator = iter(tf.data.Dataset.range(1000).shuffle(100))
    next(iterator)
    types = tf.train.Checkpoint(
        **{name: of_type(tf, name) for name in DTYPES if has_type(tf, name)},
        text=tf.Variable(["", "a", "ü" * 300]),
        long_text=tf.Variable(["x" * 100_000, "y" * 200]),
        many_texts=tf.Variable([str(number) * (number % 7) for number in range(70_000)]),
        no_text=tf.Variable(tf.zeros([0], tf.string)),
        one_text=tf.Variable("only one"),
        scalar=tf.Variable(1.5),
        empty=tf.Variable(tf.zeros([0, 3])),
    )
    random = np.random.RandomState(0)
    large = tf.train.Checkpoint(
        a=tf.Variable(random.randn(100, 7)), b=tf.Variable(random.randn(33).astype("float32"))
    )
    policy = tf.train.experimental.MaxShardSizePolicy(max_shard_size=500)
    # An index of several blocks, each of 256 KB: no name begins as the one before it.
    many = tf.train.Checkpoint(
        **{f"{number}{'x' * 800}": tf.Variable(float(number)) for number in range(400)}
    )
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
        "task": written(
            "task",
            large,
            options=tf.train.CheckpointOptions(
                experimental_sharding_callback=tf.train.experimental.ShardByTaskPolicy()
            ),
        ),
        "asynchronous": saved_asynchronously(root / "asynchronous"),
        "manager": Path(
            tf.train.CheckpointManager(large, str(root / "manager"), max_to_keep=2).save()
        ),
        "by name": saved_by_name(tf, root / "by name"),
    }


def has_type(tf, name):
    """Whether this release of TensorFlow has a type that is newer than the oldest release."""
    if name not in NEWER_DTYPES:
        return True
    try:
        return bool(tf.as_dtype(name))
    except TypeError:
        return False


def of_type(tf, name):
    """A variable of the type, with the values zero and one."""
    import numpy as np

    dtype = tf.as_dtype(name)
    try:
        return tf.Variable(tf.cast([[0.0, 1.0], [1.0, 0.0]], dtype))
    except (TypeError, tf.errors.OpError):
        values = np.array([[0, 1], [1, 0]]).astype(dtype.as_numpy_dtype)
        return tf.Variable(tf.constant(values, dtype=dtype))


def saved_asynchronously(root):
    """A save that goes on in a thread of TensorFlow's, which lasts as long as its process."""
    done = run_with_tensorflow(Path(__file__).parent / "scripts" / "save_asynchronously.py", root)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def saved_by_name(tf, root):
    """A checkpoint of TensorFlow 1, with a variable that was partitioned from the beginning."""
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        with v1.variable_scope("scope", partitioner=v1.fixed_size_partitioner(3)):
            v1.get_variable("parts", shape=[10, 4])
        plain = v1.get_variable("plain", shape=[3])
        step = v1.train.get_or_create_global_step()
        v1.train.AdamOptimizer().minimize(tf.reduce_sum(plain * plain), global_step=step)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            root.mkdir()
            return Path(v1.train.Saver().save(session, str(root / "model"), global_step=7))


KINDS = [
    "keras",
    "iterator",
    "types",
    "sharded",
    "many",
    "task",
    "asynchronous",
    "manager",
    "by name",
]


@pytest.mark.parametrize("kind", KINDS)
def test_names_shapes_and_types_are_those_that_tensorflow_reads(tf, checkpoints, kind):
    prefix = checkpoints[kind]
    reader = tf.train.load_checkpoint(str(prefix))
    index = read_index(prefix)
    shapes = reader.get_variable_to_shape_map()
    types = reader.get_variable_to_dtype_map()
    assert {name: list(entry.shape) for name, entry in index.entries.items()} == shapes
    assert {n: e.dtype for n, e in index.entries.items()} == {n: t.name for n, t in types.items()}


@pytest.mark.matrix
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


@pytest.mark.parametrize(
    ("kind", "name"),
    [("sharded", "a/.ATTRIBUTES/VARIABLE_VALUE"), ("by name", "scope/parts")],
)
def test_slices_add_up_to_the_tensor(tf, checkpoints, kind, name):
    import numpy as np

    prefix = checkpoints[kind]
    index = read_index(prefix)
    entry = index.entries[name]
    expected = tf.train.load_checkpoint(str(prefix)).get_tensor(name)
    assert len(entry.slices) >= 3
    whole = np.full(entry.shape, np.nan, expected.dtype)
    for part in entry.slices:
        box = tuple(
            slice(start, None if length < 0 else start + length) for start, length in part.extents
        )
        data = read_tensor_bytes(prefix, index.parts[entry.name, part])
        whole[box] = np.frombuffer(data, expected.dtype).reshape(whole[box].shape)
    assert whole.tobytes() == expected.tobytes()


@pytest.mark.matrix
@pytest.mark.parametrize("kind", ["keras", "types", "sharded", "by name"])
def test_numbers_are_those_that_tensorflow_reads(tf, checkpoints, kind):
    """Through the way that statistics and comparisons take, whole or in parts."""
    import numpy as np

    prefix = checkpoints[kind]
    reader = tf.train.load_checkpoint(str(prefix))
    index = read_index(prefix)
    compared = 0
    for name, entry in index.entries.items():
        if is_numeric(entry):
            chunks = list(numeric_chunks(prefix, index, entry))
            ours = np.concatenate(chunks) if chunks else np.array([])
            theirs = reader.get_tensor(name).astype(ours.dtype).ravel()
            if entry.slices:
                # Part by part, and these parts are no rows.
                ours, theirs = np.sort(ours), np.sort(theirs)
            assert np.array_equal(ours, theirs), name
            compared += 1
    assert compared >= 2


@pytest.mark.parametrize("kind", KINDS)
def test_what_tensorflow_wrote_verifies(checkpoints, kind):
    seen = []
    prefix = checkpoints[kind]
    found = verify(prefix, on_progress=lambda done, total: seen.append((done, total)), digests=True)
    assert found.findings == ()
    assert found.tensors == len(read_index(prefix).entries.keys() - {KEY})
    assert seen[-1][0] == seen[-1][1] > 0
    files = {path.name for path in prefix.parent.glob(f"{prefix.name}.*")}
    files.discard(f"{prefix.name}.meta")
    assert set(found.file_checksums) == files


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_is_written_byte_for_byte_as_tensorflow_writes_it(checkpoints, tmp_path, kind):
    prefix = checkpoints[kind]
    index = read_index(prefix)
    starts = dict.fromkeys(index.entries, (0, 0))
    for entry in index.stored():
        starts[entry.name] = (entry.offset, entry.size)
    with BundleWriter(tmp_path / "copy") as writer:
        for name in sorted(starts, key=lambda name: starts[name]):
            writer.copy(prefix, index, index.entries[name])
        paths = writer.commit()
    assert verify(tmp_path / "copy").findings == ()
    theirs = sorted(prefix.parent.glob(f"{prefix.name}.[di]*"))
    if index.shard_count == 1:
        for ours, their in zip(paths, theirs, strict=True):
            assert ours.read_bytes() == their.read_bytes(), their.name


@pytest.mark.parametrize("kind", ["sharded", "types", "by name"])
def test_tensorflow_reads_what_was_written(tf, checkpoints, tmp_path, kind):
    import numpy as np

    prefix = checkpoints[kind]
    index = read_index(prefix)
    with BundleWriter(tmp_path / "copy", shard_size=300) as writer:
        for name in sorted(index.entries):
            writer.copy(prefix, index, index.entries[name])
        writer.commit()
    ours, theirs = (tf.train.load_checkpoint(str(one)) for one in (tmp_path / "copy", prefix))
    shapes = theirs.get_variable_to_shape_map()
    assert ours.get_variable_to_shape_map() == shapes
    for name in shapes:
        one, other = (np.asarray(reader.get_tensor(name)) for reader in (ours, theirs))
        assert (one.dtype, one.tolist()) == (other.dtype, other.tolist()), name


def source_of(prefix):
    """A checkpoint with its variables, as commands that make new ones read it."""
    index = read_index(prefix)
    nodes = read_object_graph(prefix) if KEY in index.entries else None
    return EditSource(prefix, index, describe_tensors(index, nodes))


def numeric_by_path(source):
    return {one.path: one.entry for one in source.variables if is_numeric(one.entry)}


def values_of(tf, prefix):
    """All tensors that NumPy can hold, as TensorFlow reads them."""
    import numpy as np

    reader = tf.train.load_checkpoint(str(prefix))
    types = reader.get_variable_to_dtype_map()
    return {
        name: np.asarray(reader.get_tensor(name))
        for name, dtype in types.items()
        if dtype != tf.variant
    }


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert (found[name].dtype, found[name].shape) == (values.dtype, values.shape), name
        # Objects, such as texts, are compared by value.
        same = found[name].tolist() == values.tolist() if values.dtype == object else None
        assert same or found[name].tobytes() == values.tobytes(), name


@pytest.mark.parametrize("kind", KINDS)
def test_extracted_tensors_are_those_that_tensorflow_reads(tf, checkpoints, tmp_path, kind):
    """As NumPy and safetensors write what TensorFlow reads."""
    import numpy as np
    import safetensors
    import safetensors.numpy

    source = source_of(checkpoints[kind])
    theirs, numeric = values_of(tf, source.prefix), numeric_by_path(source)
    expected = {path: theirs[entry.name] for path, entry in numeric.items()}
    extract_tensors(source.prefix, source.index, numeric, tmp_path / "a.npz", ArrayFormat.NPZ)
    kept = [path for path, entry in numeric.items() if entry.dtype not in NPZ_TYPES]
    np.savez(tmp_path / "b.npz", **{path: expected[path] for path in kept})
    with ZipFile(tmp_path / "a.npz") as ours, ZipFile(tmp_path / "b.npz") as other:
        for name in other.namelist():
            assert ours.read(name) == other.read(name), name
    with np.load(tmp_path / "a.npz") as arrays:
        assert set(arrays) == set(numeric)
        for path, values in expected.items():
            assert arrays[path].astype(values.dtype).tobytes() == values.tobytes(), path
    numeric.pop("complex128", None)  # safetensors does not have this type.
    target, other = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    extract_tensors(source.prefix, source.index, numeric, target, ArrayFormat.SAFETENSORS)
    kept = [path for path in numeric if numeric[path].dtype not in SAFETENSORS_TYPES]
    safetensors.numpy.save_file({path: expected[path] for path in kept}, other)
    # Not `load_file`, which does not know all types.
    found = dict(safetensors.deserialize(target.read_bytes()))
    assert found.keys() == numeric.keys()
    for path, tensor in safetensors.deserialize(other.read_bytes()):
        assert found[path] == tensor, path
    with safetensors.safe_open(target, "np") as file:
        for path in numeric.keys() - kept:
            values = expected[path]
            assert file.get_tensor(path).astype(values.dtype).tobytes() == values.tobytes(), path


@pytest.mark.parametrize("form", [ArrayFormat.NPZ, ArrayFormat.SAFETENSORS])
@pytest.mark.parametrize("kind", KINDS)
def test_tensorflow_reads_the_same_after_extract_and_convert(tf, checkpoints, tmp_path, kind, form):
    source = source_of(checkpoints[kind])
    numeric = numeric_by_path(source)
    if form is ArrayFormat.SAFETENSORS:
        # It does not have this type; the other checkpoint gives it.
        numeric.pop("complex128", None)
    extract_tensors(source.prefix, source.index, numeric, tmp_path / "file", form)
    done = write_checkpoint_like(tmp_path / "file", tmp_path / "new", source)
    assert {one.path for one in done.taken} == {one.path for one in source.variables} - set(numeric)
    assert verify(tmp_path / "new").findings == ()
    assert_same(values_of(tf, tmp_path / "new"), values_of(tf, source.prefix))


@pytest.mark.parametrize("kind", KINDS)
def test_an_average_is_the_one_of_the_values_that_tensorflow_reads(tf, checkpoints, tmp_path, kind):
    import numpy as np

    first = source_of(checkpoints[kind])
    theirs = values_of(tf, first.prefix)
    with BundleWriter(tmp_path / "second") as writer:
        for name, entry in first.index.entries.items():
            if is_averaged(entry):
                writer.add(name, entry.dtype, entry.shape, [theirs[name].ravel()[::-1].tobytes()])
            else:
                writer.copy(first.prefix, first.index, entry)
        writer.commit()
    weights = {first.prefix: 0.25, tmp_path / "second": 0.75}
    sources = [WeightedCheckpoint(one, read_index(one), weight) for one, weight in weights.items()]
    with BundleWriter(tmp_path / "mean") as writer:
        write_average(writer, sources)
        writer.commit()
    expected = dict(theirs)
    for name, entry in first.index.entries.items():
        if is_averaged(entry):
            one = theirs[name]
            wide = one.astype(np.complex128 if one.dtype.kind == "c" else np.float64)
            other = wide.ravel()[::-1].reshape(wide.shape)
            same = one.tobytes() == one.ravel()[::-1].tobytes() and not entry.slices
            expected[name] = one if same else (wide * 0.25 + other * 0.75).astype(one.dtype)
    assert_same(values_of(tf, tmp_path / "mean"), expected)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "iterator"])
def test_an_edit_changes_nothing_but_what_it_says(tf, checkpoints, tmp_path, kind):
    """For the iterator, see `test_an_iterator_goes_on_under_another_name`."""
    source = source_of(checkpoints[kind])
    theirs = values_of(tf, source.prefix)
    nodes = read_object_graph(source.prefix) if KEY in source.index.entries else None
    cast, dropped, *_ = (v for v in source.variables if v.entry.dtype in {"float32", "float64"})
    edit = Edit(source, nodes)
    edit.cast(cast.path, "float16")
    edit.drop(dropped.path)
    with BundleWriter(tmp_path / "new") as writer:
        write_edit(writer, edit, source, lambda size: None)
        writer.commit()
    found = values_of(tf, tmp_path / "new")
    expected = {**theirs, cast.entry.name: theirs[cast.entry.name].astype("float16")}
    del expected[dropped.entry.name]
    for values in (found, expected):
        values.pop(KEY, None)
    assert_same(found, expected)


def test_an_iterator_goes_on_under_another_name(tf, checkpoints, tmp_path):
    """Its only tensor has no numbers; it can only be renamed."""
    source = source_of(checkpoints["iterator"])
    edit = Edit(source, read_object_graph(source.prefix))
    edit.rename_all([("iterator", "input")])
    with BundleWriter(tmp_path / "new") as writer:
        write_edit(writer, edit, source, lambda size: None)
        writer.commit()
    (key,) = (name for name in source.index.entries if name != KEY)
    reader = tf.train.load_checkpoint(str(tmp_path / "new"))
    assert set(reader.get_variable_to_dtype_map()) == {KEY, key.replace("iterator", "input", 1)}
    following = []
    for prefix, name in [(source.prefix, "iterator"), (tmp_path / "new", "input")]:
        iterator = iter(tf.data.Dataset.range(1000).shuffle(100))
        tf.train.Checkpoint(**{name: iterator}).read(str(prefix)).assert_consumed()
        following.append([int(next(iterator)) for _ in range(5)])
    assert following[0] == following[1]


def test_a_whole_keras_model_goes_out_and_comes_back(tf, checkpoints, tmp_path):
    """Into new objects, all of them, with the optimizer."""
    import keras
    import numpy as np

    source = source_of(checkpoints["keras"])
    numeric = numeric_by_path(source)
    extract_tensors(source.prefix, source.index, numeric, tmp_path / "w.npz", ArrayFormat.NPZ)
    write_checkpoint_like(tmp_path / "w.npz", tmp_path / "like", source)
    write_checkpoint(tmp_path / "w.npz", tmp_path / "plain")

    def made():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(5)])
        model.add(keras.layers.BatchNormalization())
        model.add(keras.layers.Dropout(0.3))
        model.compile(keras.optimizers.Adam(1e-3), "mse")
        model.optimizer.build(model.trainable_variables)
        return model, tf.train.Checkpoint(model=model, optimizer=model.optimizer)

    first, checkpoint = made()
    checkpoint.read(str(source.prefix)).assert_consumed()
    second, checkpoint = made()
    checkpoint.read(str(tmp_path / "like")).assert_consumed()
    pairs = zip(
        (*first.weights, *first.optimizer.variables),
        (*second.weights, *second.optimizer.variables),
        strict=True,
    )
    for one, other in pairs:
        assert one.numpy().tobytes() == other.numpy().tobytes(), one.path
    edit = Edit(source, read_object_graph(source.prefix))
    kernel = next(path for path in numeric if path.startswith("model/") and path.endswith("kernel"))
    layer = kernel.removesuffix("/kernel")
    edit.rename_all([(layer, f"{layer.rpartition('/')[0]}/encoder")])
    with BundleWriter(tmp_path / "renamed") as writer:
        write_edit(writer, edit, source, lambda size: None)
        writer.commit()
    third, checkpoint = made()
    checkpoint.read(str(tmp_path / "renamed")).assert_consumed()
    assert third.weights[0].numpy().tobytes() == first.weights[0].numpy().tobytes()
    # Without the other checkpoint, the tensors are there under their paths, and for a Keras
    # model that is all: its attributes have other names.
    reader = tf.train.load_checkpoint(str(tmp_path / "plain"))
    for path in numeric:
        expected = tf.train.load_variable(str(source.prefix), numeric[path].name)
        assert np.array_equal(reader.get_tensor(f"{path}/.ATTRIBUTES/VARIABLE_VALUE"), expected)
    _, checkpoint = made()
    with pytest.raises(AssertionError):
        checkpoint.read(str(tmp_path / "plain")).assert_existing_objects_matched()


@pytest.mark.parametrize("by_name", [False, True])
def test_tensorflow_restores_what_was_converted(tf, tmp_path, by_name):
    import keras
    import numpy as np

    random = np.random.RandomState(1)
    kernel, bias = random.randn(3, 2).astype("float32"), np.ones(2, np.float32)
    np.savez(tmp_path / "w.npz", **{"net/kernel": kernel, "net/bias": bias, "step": np.int64(7)})
    write_checkpoint(tmp_path / "w.npz", tmp_path / "ckpt", by_name=by_name)
    reader = tf.train.load_checkpoint(str(tmp_path / "ckpt"))
    if by_name:
        assert reader.get_tensor("net/kernel").tobytes() == kernel.tobytes()
        assert sorted(reader.get_variable_to_shape_map()) == ["net/bias", "net/kernel", "step"]
        return
    layer, step = keras.layers.Dense(2), tf.Variable(0, dtype=tf.int64)
    layer.build((None, 3))
    net = tf.train.Checkpoint(kernel=layer.kernel, bias=layer.bias)
    status = tf.train.Checkpoint(net=net, step=step).read(str(tmp_path / "ckpt"))
    status.assert_consumed()
    assert step.numpy() == 7
    assert layer.kernel.numpy().tobytes() == kernel.tobytes()
    assert layer.bias.numpy().tobytes() == bias.tobytes()


def test_tensorflow_restores_an_average(tf, tmp_path):
    """A Keras model with its optimizer: floats are the mean, integers those of the newest."""
    import keras
    import numpy as np

    def saved(name, steps):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(5)])
        model.add(keras.layers.BatchNormalization())
        model.compile(keras.optimizers.Adam(1e-2), "mse", run_eagerly=True)
        inputs = np.random.RandomState(0).randn(8, 4)
        model.fit(inputs, np.ones((8, 5)), epochs=steps, batch_size=8, verbose=0)
        tf.train.Checkpoint(model=model).write(str(tmp_path / name))
        return model, [one.numpy().copy() for one in (*model.variables, *model.optimizer.variables)]

    _, first = saved("first", 2)
    model, second = saved("second", 5)
    weights = {"first": 0.25, "second": 0.75}
    sources = [
        WeightedCheckpoint(tmp_path / name, read_index(tmp_path / name), weight)
        for name, weight in weights.items()
    ]
    with BundleWriter(tmp_path / "mean") as writer:
        write_average(writer, sources)
        writer.commit()
    tf.train.Checkpoint(model=model).read(str(tmp_path / "mean")).assert_existing_objects_matched()
    variables = (*model.variables, *model.optimizer.variables)
    for variable, one, other in zip(variables, first, second, strict=True):
        found = variable.numpy()
        if not np.issubdtype(found.dtype, np.floating):
            assert np.array_equal(found, other)
            continue
        wide = one.astype(np.float64) * 0.25 + other.astype(np.float64) * 0.75
        assert found.tobytes() == wide.astype(found.dtype).tobytes(), variable.path
    reader = tf.train.load_checkpoint(str(tmp_path / "mean"))
    assert set(reader.get_variable_to_shape_map()) == set(read_index(tmp_path / "second").entries)


def test_tensorflow_restores_an_edited_checkpoint(tf, tmp_path):
    """Into objects with the new names, all of them, and nothing else."""

    def saved(name, value):
        net = tf.train.Checkpoint(kernel=tf.Variable([value, 2.0]), bias=tf.Variable([3.0]))
        table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
        table.insert(["a"], [7])
        root = tf.train.Checkpoint(net=net, same=net, old=tf.Variable(1), table=table)
        root.write(str(tmp_path / name))
        index = read_index(tmp_path / name)
        nodes = read_object_graph(tmp_path / name)
        return EditSource(tmp_path / name, index, describe_tensors(index, nodes)), nodes

    source, nodes = saved("first", 1.0)
    other, _ = saved("second", 10.0)
    edit = Edit(source, nodes)
    edit.copy(other, "net/kernel", "net/kernel")
    edit.cast("net/bias", "bfloat16")
    edit.drop("old")
    edit.rename_all([("net/kernel", "net/weights")])
    edit.rename_all([("net", "encoder")])
    edit.rename_all([("table", "words")])
    with BundleWriter(tmp_path / "new") as writer:
        assert write_edit(writer, edit, source, lambda size: None) == 0
        writer.commit()
    assert verify(tmp_path / "new").findings == ()
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    encoder = tf.train.Checkpoint(
        weights=tf.Variable([0.0, 0.0]), bias=tf.Variable(tf.zeros([1], tf.bfloat16))
    )
    root = tf.train.Checkpoint(encoder=encoder, same=encoder, words=table)
    root.read(str(tmp_path / "new")).assert_consumed()
    assert encoder.weights.numpy().tolist() == [10.0, 2.0]
    assert encoder.bias.numpy().tolist() == [3.0]
    assert table.lookup(tf.constant(["a"])).numpy().tolist() == [7]
    reader = tf.train.load_checkpoint(str(tmp_path / "new"))
    name = "encoder/weights/.ATTRIBUTES/VARIABLE_VALUE"
    assert reader.get_tensor(name).tolist() == [10.0, 2.0]


SERVING = Path(__file__).parent.parent / "data" / "tensorflow-serving"


@pytest.mark.parametrize(
    "model",
    ["saved_model_half_plus_two_cpu", "saved_model_half_plus_two_tf2_cpu", "tf_text_regression"],
)
def test_models_of_tensorflow_serving_are_read_as_tensorflow_reads_them(tf, tmp_path, model):
    """Two of them have compressed indexes, as TensorFlow writes them within Google."""
    import numpy as np

    source = source_of(SERVING / model / "variables")
    theirs = values_of(tf, source.prefix)
    assert {n: e.shape for n, e in source.index.entries.items()} == {
        name: values.shape for name, values in theirs.items()
    }
    assert verify(source.prefix).findings == ()
    numeric = numeric_by_path(source)
    extract_tensors(source.prefix, source.index, numeric, tmp_path / "w.npz", ArrayFormat.NPZ)
    with np.load(tmp_path / "w.npz") as found:
        assert_same(dict(found), {path: theirs[entry.name] for path, entry in numeric.items()})
    write_checkpoint_like(tmp_path / "w.npz", tmp_path / "new", source)
    assert_same(values_of(tf, tmp_path / "new"), theirs)


def test_many_long_names_take_several_blocks(checkpoints):
    table = IndexTable(Path(f"{checkpoints['many']}.index"))
    assert len(table._handles) > 1
    assert len(list(table.entries())) == len(read_index(checkpoints["many"]).entries) + 1


@pytest.mark.matrix
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "by name"])
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


def test_types_have_the_names_and_numbers_of_tensorflow(tf):
    """Those beyond 100 are references, which are never saved."""
    from tensorflow.core.framework import types_pb2

    numbers = [number for number in types_pb2.DataType.values() if 0 < number < 100]
    assert {number: tf.as_dtype(number).name for number in numbers} == TYPE_NAMES


SHAPES = st.lists(st.sampled_from([0, 1, 1, 2, 3, 5]), max_size=5).map(tuple)


@st.composite
def tensors(draw):
    """A type, a shape, and as many bytes, or texts, as that takes."""
    name = draw(st.sampled_from([*sorted(ITEM_SIZES), "string", "string"]))
    shape = draw(SHAPES)
    count = 1
    for length in shape:
        count *= length
    if name == "string":
        texts = st.binary(max_size=9) | st.integers(100, 40_000).map(bytes)
        return name, shape, [draw(texts) for _ in range(count)] if count < 20 else [b"x"] * count
    # TensorFlow itself does not take every bit of a type that has less than eight.
    few = {"bool": 1, "int2": 1, "uint2": 3, "int4": 7, "uint4": 15, "float4_e2m1fn": 15}
    size = count * ITEM_SIZES[name]
    seed = draw(st.integers(0, 255))
    return name, shape, bytes((seed + 37 * n) % 256 & few.get(name, 255) for n in range(size))


def constant(tf, name, shape, content):
    import numpy as np

    if name == "string":
        return tf.reshape(tf.constant(content, tf.string), shape)
    dtype = tf.as_dtype(name)
    return tf.constant(np.frombuffer(content, dtype.as_numpy_dtype).reshape(shape), dtype=dtype)


NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


@tries(200)
@given(made=st.dictionaries(NAMES, tensors(), min_size=1, max_size=6))
def test_whatever_tensorflow_writes_is_read(tf, tmp_path_factory, made):
    """Any type, shape, content and name, bit by bit, as it was given and as TensorFlow reads it."""
    prefix = tmp_path_factory.mktemp("any") / "ckpt"
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=list(made),
        shape_and_slices=[""] * len(made),
        tensors=[constant(tf, *tensor) for tensor in made.values()],
    )
    reader = tf.train.load_checkpoint(str(prefix))
    entries = read_index(prefix).entries
    found = {name: (entry.dtype, entry.shape) for name, entry in entries.items()}
    assert found == {name: (dtype, shape) for name, (dtype, shape, _) in made.items()}
    for name, (dtype, _, content) in made.items():
        if dtype == "string":
            assert read_strings(prefix, entries[name]) == content
        else:
            read = read_tensor_bytes(prefix, entries[name])
            assert read == content == reader.get_tensor(name).tobytes()
    assert verify(prefix).findings == ()


@tries(100)
@given(
    made=st.dictionaries(NAMES, tensors(), min_size=1, max_size=6),
    shard_size=st.none() | st.integers(1, 2000),
)
def test_tensorflow_reads_whatever_is_written(tf, tmp_path_factory, made, shard_size):
    """Any type, shape, content and name, in any number of data files."""
    prefix = tmp_path_factory.mktemp("any") / "ckpt"
    with BundleWriter(prefix, shard_size=shard_size) as writer:
        for name, (dtype, shape, content) in made.items():
            if dtype == "string":
                writer.add_strings(name, content, shape)
            else:
                writer.add(name, dtype, shape, [content])
        writer.commit()
    reader = tf.train.load_checkpoint(str(prefix))
    shapes, types = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    assert {name: (types[name].name, tuple(shapes[name])) for name in shapes} == {
        name: (dtype, shape) for name, (dtype, shape, _) in made.items()
    }
    for name, (dtype, shape, content) in made.items():
        found = reader.get_tensor(name)
        if dtype == "string":
            flat = [found] if shape == () else found.ravel().tolist()
            assert flat == content
        else:
            assert found.tobytes() == content
    assert verify(prefix).findings == ()


@tries(100)
@given(data=st.data())
def test_a_tensor_that_is_cut_along_any_dimension_is_read(tf, tmp_path_factory, data):
    """Names with the bytes that their keys must escape, slices of any length, whole dimensions."""
    import numpy as np

    prefix = tmp_path_factory.mktemp("parts") / "ckpt"
    raw = b"w" + bytes(data.draw(st.lists(st.sampled_from(b"\0\xff\1a"), max_size=8)))
    shape = data.draw(st.lists(st.integers(2, 70), min_size=1, max_size=3).map(tuple))
    axis = data.draw(st.integers(0, len(shape) - 1))
    cuts = data.draw(st.sets(st.integers(1, shape[axis] - 1), min_size=1, max_size=4))
    edges = [0, *sorted(cuts), shape[axis]]
    whole = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    parts, specs = [], []
    for start, stop in pairwise(edges):
        parts.append(np.take(whole, range(start, stop), axis))
        box = ["-"] * len(shape)
        box[axis] = f"{start},{stop - start}"
        specs.append(f"{' '.join(map(str, shape))} {':'.join(box)}")
    count = len(parts)
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        # Not as text, and not as an array of texts, which would lose what ends in zeros.
        tensor_names=np.array([raw] * count, object),
        shape_and_slices=specs,
        tensors=parts,
    )
    index, name = read_index(prefix), os.fsdecode(raw)
    entry = index.entries[name]
    assert (entry.shape, entry.dtype) == (shape, "int32")
    assert set(index.parts) == {(name, part) for part in entry.slices}
    keys = {key for key, _ in IndexTable(Path(f"{prefix}.index")).entries() if key[:1] == b"\0"}
    assert keys == {slice_key(name, part) for part in entry.slices}
    read = [read_tensor_bytes(prefix, index.parts[name, part]) for part in entry.slices]
    assert sorted(read) == sorted(part.tobytes() for part in parts)
    # TensorFlow restores a name that is not UTF-8, and cannot list it.
    assert [one for one in verify(prefix).findings if one.kind != "name"] == []


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
