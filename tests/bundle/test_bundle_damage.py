"""Every kind of damage: what verifying finds, and what TensorFlow itself says of the same files.

The rows are those of an experiment on TensorFlow 2.21. Where it is silent, so must be its half of
the row, or the table is out of date.
"""

from __future__ import annotations

import os
import shutil
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bundle_writing import array, write
from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.bundle.state_file import read_state_file
from tfckpt_trainer.bundle.verify import verify
from tfckpt_trainer.bundle.wire import read_varint
from tfckpt_trainer.errors import BundleError, DamagedFileError

GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
FOOTER = 48


def key(name: str) -> str:
    return f"{name}/.ATTRIBUTES/VARIABLE_VALUE"


class Damaged:
    """Two steps of one program in a directory; step 2 is what gets damaged."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.prefix = root / "ckpt-2"
        self.index = root / "ckpt-2.index"
        self.shards = sorted(root.glob("ckpt-2.data-*"))
        self.data = self.shards[0]

    def flip(self, path: Path, offset: int) -> None:
        content = bytearray(path.read_bytes())
        content[offset] ^= 0x10
        path.write_bytes(content)

    def flip_in(self, name: str, place: int) -> None:
        entry = read_index(self.prefix).entries[name]
        self.flip(self.data, entry.offset + place)

    def cut(self, path: Path, size: int) -> None:
        os.truncate(path, size)

    def footer(self) -> list[int]:
        """Offset and size of the metaindex block, then of the index block."""
        content = self.index.read_bytes()
        position, numbers = len(content) - FOOTER, []
        for _ in range(4):
            number, position = read_varint(content, position)
            numbers.append(number)
        return [*numbers, position]


@pytest.fixture(scope="module")
def tf():
    import tensorflow

    return tensorflow


def objects(tf):
    """The program: a large and a small tensor, a number, strings, and one that is not restored."""
    return {
        "large": tf.Variable(tf.zeros([400_000])),
        "small": tf.Variable(tf.zeros([30])),
        "count": tf.Variable(tf.zeros([], tf.int64)),
        "text": tf.Variable(["", ""]),
    }


@pytest.fixture(scope="module")
def originals(tf, tmp_path_factory):
    """The directory as TensorFlow wrote it, in one data file and in several."""
    places = {}
    for kind in ("one", "many"):
        root = places[kind] = tmp_path_factory.mktemp(kind)
        variables = objects(tf)
        policy = tf.train.experimental.MaxShardSizePolicy(max_shard_size=1_600_050)
        options = tf.train.CheckpointOptions(
            experimental_sharding_callback=policy if kind == "many" else None
        )
        checkpoint = tf.train.Checkpoint(**variables, unused=tf.Variable(tf.ones([50])))
        manager = tf.train.CheckpointManager(checkpoint, str(root), max_to_keep=None)
        for step in (1, 2):
            variables["large"].assign(tf.random.normal([400_000], seed=step))
            variables["small"].assign(tf.random.normal([30], seed=step))
            variables["count"].assign(step)
            variables["text"].assign(["abc", "d" * 40 + str(step)])
            manager.save(options=options)
    return places


@pytest.fixture
def damaged(originals, tmp_path):
    shutil.copytree(originals["one"], tmp_path / "run")
    return Damaged(tmp_path / "run")


@pytest.fixture
def sharded(originals, tmp_path):
    shutil.copytree(originals["many"], tmp_path / "run")
    made = Damaged(tmp_path / "run")
    assert len(made.shards) == 2
    return made


def restored(tf, prefix: Path) -> str:
    """What TensorFlow says when the program restores a checkpoint; nothing if it is content."""
    checkpoint = tf.train.Checkpoint(**objects(tf))
    try:
        checkpoint.restore(str(prefix)).expect_partial().assert_existing_objects_matched()
    except (tf.errors.OpError, IndexError, ValueError, AssertionError) as error:
        return str(error)
    return ""


def found(prefix: Path) -> set[tuple[str, str, str | None]]:
    return {(f.severity, f.kind, f.tensor) for f in verify(prefix).findings}


def checksum(name: str) -> tuple[str, str, str]:
    return "error", "checksum", name


@dataclass(frozen=True)
class Row:
    """A kind of damage: what is done, what verifying finds, what TensorFlow says."""

    name: str
    damage: Callable[[Damaged], None]
    findings: set[tuple[str, str, str | None]]
    says: str


SHORT = ("error", "shard-short", None)
BAD_INDEX = {("error", "index", None)}
UNUSED = {("warning", "index-unused", None)}


ROWS = [
    Row("nothing", lambda d: None, set(), ""),
    Row("large", lambda d: d.flip_in(key("large"), 900_000), {checksum(key("large"))}, "Checksum"),
    Row("small", lambda d: d.flip_in(key("small"), 7), {checksum(key("small"))}, "Checksum"),
    Row("integer", lambda d: d.flip_in(key("count"), 0), {checksum(key("count"))}, "Checksum"),
    Row("string bytes", lambda d: d.flip_in(key("text"), 9), {checksum(key("text"))}, "Checksum"),
    Row(
        "string checksum",
        lambda d: d.flip_in(key("text"), 3),
        {checksum(key("text"))},
        "length checksum does not match",
    ),
    Row(
        "object graph",
        lambda d: d.flip_in(GRAPH, 30),
        {checksum(GRAPH)},
        "Checksum does not match",
    ),
    # TensorFlow reads nothing of it.
    Row("not restored", lambda d: d.flip_in(key("unused"), 5), {checksum(key("unused"))}, ""),
    Row(
        "one byte less",
        lambda d: d.cut(d.data, d.data.stat().st_size - 1),
        {SHORT, ("error", "tensor-cut", GRAPH)},
        "Read less bytes than requested",
    ),
    # TensorFlow does not look behind the last tensor.
    Row(
        "100 bytes more",
        lambda d: d.data.write_bytes(d.data.read_bytes() + bytes(100)),
        {("warning", "shard-long", None)},
        "",
    ),
    Row("no data", lambda d: d.data.unlink(), {("error", "shard-missing", None)}, "No such file"),
    Row("no index", lambda d: d.index.unlink(), {("error", "index-missing", None)}, "matching"),
    Row("empty index", lambda d: d.cut(d.index, 0), {("error", "index-empty", None)}, "too short"),
    Row(
        "index less a byte",
        lambda d: d.cut(d.index, d.index.stat().st_size - 1),
        BAD_INDEX,
        "bad magic number",
    ),
    Row(
        "half an index",
        lambda d: d.cut(d.index, d.index.stat().st_size // 2),
        BAD_INDEX,
        "bad magic number",
    ),
    Row(
        "magic",
        lambda d: d.flip(d.index, d.index.stat().st_size - 1),
        BAD_INDEX,
        "bad magic number",
    ),
    Row("header entry", lambda d: d.flip(d.index, 4), BAD_INDEX, "checksum mismatch"),
    Row("data block", lambda d: d.flip(d.index, 60), BAD_INDEX, "checksum mismatch"),
    Row("index block", lambda d: d.flip(d.index, d.footer()[2] + 3), BAD_INDEX, "mismatch"),
    # Nobody reads the metaindex, nor what fills up the footer.
    Row("metaindex", lambda d: d.flip(d.index, d.footer()[0] + 1), UNUSED, ""),
    Row("metaindex handle", lambda d: d.flip(d.index, -FOOTER), UNUSED, ""),
    Row("footer padding", lambda d: d.flip(d.index, -10), UNUSED, ""),
]


@pytest.mark.tensorflow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name.replace(" ", "-"))
def test_the_table(tf, damaged, row):
    row.damage(damaged)
    assert found(damaged.prefix) == row.findings
    said = restored(tf, damaged.prefix)
    assert row.says in said
    assert bool(row.says) == bool(said), said


@pytest.mark.tensorflow
@pytest.mark.parametrize("part", [0.5, 0.0], ids=["half", "nothing"])
def test_much_less_data(tf, damaged, part):
    size = int(damaged.data.stat().st_size * part)
    damaged.cut(damaged.data, size)
    entries = read_index(damaged.prefix).entries
    cut = {name for name, entry in entries.items() if entry.offset + entry.size > size}
    assert SHORT in found(damaged.prefix)
    assert {name for _, kind, name in found(damaged.prefix) if kind == "tensor-cut"} == cut
    assert "Read less bytes than requested" in restored(tf, damaged.prefix)


@pytest.mark.tensorflow
def test_a_variable_that_is_created_later(tf, damaged):
    """The restore itself is content; the damage shows when the variable comes."""
    damaged.flip_in(key("small"), 7)
    checkpoint = tf.train.Checkpoint()
    checkpoint.restore(str(damaged.prefix))
    with pytest.raises(tf.errors.DataLossError):
        checkpoint.small = tf.Variable(tf.zeros([30]))
    assert found(damaged.prefix) == {checksum(key("small"))}


@pytest.mark.tensorflow
def test_one_of_two_shards_is_gone(tf, sharded):
    sharded.shards[1].unlink()
    kinds = {kind for _, kind, _ in found(sharded.prefix)}
    assert "shard-missing" in kinds
    assert "No such file" in restored(tf, sharded.prefix)


@pytest.mark.tensorflow
def test_two_shards_swapped(tf, sharded):
    first, second = sharded.shards
    first.rename(sharded.root / "third")
    second.rename(first)
    (sharded.root / "third").rename(second)
    kinds = {kind for severity, kind, _ in found(sharded.prefix) if severity == "error"}
    assert "checksum" in kinds
    assert "shard-short" in kinds
    assert restored(tf, sharded.prefix)


@pytest.mark.tensorflow
def test_a_shard_of_another_step(tf, sharded):
    other = sharded.root / sharded.shards[0].name.replace("ckpt-2", "ckpt-1")
    assert other.stat().st_size == sharded.shards[0].stat().st_size
    shutil.copy(other, sharded.shards[0])
    assert {kind for _, kind, _ in found(sharded.prefix)} == {"checksum"}
    assert "Checksum does not match" in restored(tf, sharded.prefix)


@pytest.mark.tensorflow
def test_the_index_of_one_step_and_the_data_of_another(tf, damaged):
    """Sizes are equal, so that only the tensors which changed tell."""
    shutil.copy(damaged.root / "ckpt-1.index", damaged.index)
    changed = {key(name) for name in ("large", "small", "count", "text", "save_counter")}
    assert found(damaged.prefix) == {checksum(name) for name in changed}
    assert "Checksum does not match" in restored(tf, damaged.prefix)


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("content", "starts_manager"),
    [(b"", False), (b"not a state file at all {", True), (b'model_checkpoint_path: "ck', True)],
    ids=["empty", "garbage", "cut"],
)
def test_a_damaged_state_file(tf, damaged, content, starts_manager):
    state = damaged.root / "checkpoint"
    state.write_bytes(content)
    with pytest.raises(DamagedFileError, match="Restore the file from a copy"):
        read_state_file(state)
    checkpoint = tf.train.Checkpoint(**objects(tf))
    if starts_manager:
        assert tf.train.latest_checkpoint(str(damaged.root)) is None
        tf.train.CheckpointManager(checkpoint, str(damaged.root), max_to_keep=3)
    else:
        with pytest.raises(ValueError, match="Invalid checkpoint state"):
            tf.train.CheckpointManager(checkpoint, str(damaged.root), max_to_keep=3)


@pytest.mark.tensorflow
def test_a_state_file_that_names_what_is_not_there(tf, damaged):
    for path in [damaged.index, damaged.data]:
        path.unlink()
    state = read_state_file(damaged.root / "checkpoint")
    assert state is not None
    assert state.latest_name == "ckpt-2"
    assert tf.train.latest_checkpoint(str(damaged.root)) is None


# What follows aborts TensorFlow's process, or has it ask for all the memory there is.


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((1 << 40, 1 << 40), "more elements than TensorFlow can count"),
        ((-5,), "dimension of size -5"),
        ((1,) * 300, "300 dimensions"),
    ],
    ids=["overflow", "negative", "300-dimensions"],
)
def test_absurd_shapes_are_refused(tmp_path, shape, words):
    tensor = array([1.0, 2.0])
    tensor.shape = shape
    write(tmp_path / "ckpt", {"v": tensor})
    with pytest.raises(BundleError, match=words):
        read_index(tmp_path / "ckpt")


def test_an_unknown_type_is_refused(tmp_path):
    tensor = array([1.0, 2.0])
    tensor.dtype = 99
    write(tmp_path / "ckpt", {"v": tensor})
    with pytest.raises(BundleError, match="type number 99"):
        read_index(tmp_path / "ckpt")


@pytest.mark.parametrize("gigabytes", [200, 8192])
def test_a_shape_of_more_than_the_memory_allocates_nothing(tmp_path, gigabytes):
    tensor = array([1.0, 2.0])
    tensor.shape = (gigabytes << 28,)
    write(tmp_path / "ckpt", {"v": tensor})
    tracemalloc.start()
    assert ("error", "size", "v") in found(tmp_path / "ckpt")
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()
