"""The proof of a restore reads the memory of variables, of every type, and copies none of it."""

from __future__ import annotations

import re

import pytest

from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind

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


@pytest.mark.parametrize(
    ("kind", "change"),
    [*((kind, "another") for kind in TYPES), ("float32", "one element"), ("int8", "one element")],
)
def test_values_that_were_read_before_do_not_hide_a_change(tmp_path, kind, change):
    import tensorflow as tf

    from tfckpt_trainer.training.state.comparison import (
        assign_values,
        stored_values,
        wrong_values,
    )

    prefix, variable = tmp_path / "saved", tf.Variable(values(kind, True))
    root = tf.train.Checkpoint(weights=variable)
    root.write(str(prefix))
    matches = matches_of(root, prefix)
    variable.assign(values(kind, False))
    read = stored_values(prefix, matches)
    assert wrong_values(matches, prefix, values=read) == ["weights/.ATTRIBUTES/VARIABLE_VALUE"]
    assign_values(matches, read)
    assert wrong_values(matches, prefix, values=read) == []
    if change == "another":
        variable.assign(values(kind, False))
    else:
        variable[:1].assign(values(kind, False)[:1])
    assert wrong_values(matches, prefix, values=read) == ["weights/.ATTRIBUTES/VARIABLE_VALUE"]


def test_only_a_checkpoint_of_numbers_is_whole(tmp_path):
    import tensorflow as tf

    from tfckpt_trainer.training.state.comparison import compare

    def is_whole(**objects: object) -> bool:
        root = tf.train.Checkpoint(**objects)
        root.write(str(tmp_path / "saved"))
        return compare(root, tmp_path / "saved").is_whole

    number = tf.Variable(1.0)
    assert is_whole(number=number)
    assert not is_whole(number=number, text=tf.Variable("text"))
    assert not is_whole(number=number, iterator=iter(tf.data.Dataset.range(3)))


def test_a_tensor_that_is_stored_in_parts_is_proven_part_by_part(tmp_path):
    import tensorflow as tf

    from tfckpt_trainer.training.checkpoint.saves.sharded_writer import (
        CheckpointLayout,
        ShardedWriter,
    )
    from tfckpt_trainer.training.state.comparison import wrong_values

    variable = tf.Variable(tf.random.normal((64, 4)))
    root = tf.train.Checkpoint(weights=variable)
    parts = ShardedWriter(CheckpointLayout.of(root), writers=1, writer=0, largest=300)
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


def built(make_optimizer, units=4):
    """A small model and its optimizer, which have trained nothing."""
    import keras

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(units)])
    optimizer = make_optimizer(keras.optimizers)
    optimizer.build(model.trainable_variables)
    return {"model": model, "optimizer": optimizer}


def differences(place, saved_by, compared_with, units=4):
    """What a restore says of a checkpoint that another optimizer or another model saved."""
    import tensorflow as tf

    from tfckpt_trainer.training.state.comparison import compare

    tf.train.Checkpoint(**built(saved_by)).write(str(place / "saved"))
    return compare(tf.train.Checkpoint(**built(compared_with, units)), place / "saved").summary


def decaying(optimizers):
    return optimizers.Adam(optimizers.schedules.ExponentialDecay(0.1, 10, 0.9))


CHANGES = {
    "Adam, SGD": (
        lambda of: of.Adam(),
        lambda of: of.SGD(),
        "the optimizer was Adam and is SGD, so 4 of its variables do not fit",
    ),
    # Both keep one number for each weight, which means something else.
    "Adagrad, momentum": (
        lambda of: of.Adagrad(),
        lambda of: of.SGD(momentum=0.9),
        "the optimizer was Adagrad and is SGD, so 2 of its variables do not fit",
    ),
    "scaled": (
        lambda of: of.Adam(),
        lambda of: of.LossScaleOptimizer(of.Adam()),
        "the optimizer was Adam and is LossScaleOptimizer, so 10 of its variables do not fit",
    ),
    "schedule": (
        lambda of: of.Adam(),
        decaying,
        "the learning rate of the optimizer was a number and is a schedule, so 4 of its "
        "variables do not fit",
    ),
    "averages": (
        lambda of: of.Adam(),
        lambda of: of.Adam(use_ema=True),
        "the optimizer was created with other options, such as use_ema, so 6 of its variables do "
        "not fit",
    ),
    "amsgrad": (
        lambda of: of.Adam(),
        lambda of: of.Adam(amsgrad=True),
        "adam/sequential_dense_kernel_velocity_hat, adam/sequential_dense_bias_velocity_hat are "
        "missing in the checkpoint",
    ),
}


@pytest.mark.parametrize(("saved_by", "compared_with", "why"), CHANGES.values(), ids=CHANGES)
def test_a_changed_optimizer_is_named_with_all_that_does_not_fit(
    tmp_path, saved_by, compared_with, why
):
    (found,) = differences(tmp_path, saved_by, compared_with)
    assert re.sub(r"(sequential|dense|adam)_\d+", r"\1", found) == why


def test_all_variables_that_do_not_fit_are_named_those_of_the_model_first(tmp_path):
    found = differences(tmp_path, lambda of: of.Adam(), lambda of: of.Adam(), units=3)
    assert len(found) == 6
    for one, name, shape in zip(found, ("kernel", "bias"), ("2×{}", "{}"), strict=False):
        path, _, words = one.partition(" is ")
        assert path.endswith(f"/{name}")
        saved, live = shape.format(4), shape.format(3)
        assert words == f"float32 {saved} in the checkpoint and float32 {live} in the model"
    assert all(re.match(r"adam\w*/\w+_(momentum|velocity) is ", one) for one in found[2:])


def trains(*frozen):
    """A model of which some layers are frozen, with an optimizer of the others."""
    import keras

    model = keras.Sequential([keras.Input((2,)), *(keras.layers.Dense(2) for _ in range(3))])
    for number in frozen:
        model.layers[number].trainable = False
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    return {"model": model, "optimizer": optimizer}


@pytest.mark.parametrize(
    ("saved", "live", "why"),
    [
        ([0, 1], [], "trained 2 variables and trains 6"),
        ([], [0, 1], "trained 6 variables and trains 2"),
        # All of them fit by their shapes.
        ([0], [1], "trained other variables"),
    ],
)
def test_an_optimizer_of_other_layers_is_named_and_the_model_fits(tmp_path, saved, live, why):
    import tensorflow as tf

    from tfckpt_trainer.training.state.comparison import compare

    tf.train.Checkpoint(**trains(*saved)).write(str(tmp_path / "saved"))
    now = trains(*live)
    found = compare(tf.train.Checkpoint(**now), tmp_path / "saved")
    (told,) = found.summary
    assert re.fullmatch(rf"the optimizer {why}, so \d+ of its variables do not fit", told)
    names = {match.variable.path.partition("/")[2] for match in found.matched}
    assert names == {variable.path.partition("/")[2] for variable in now["model"].variables}


def test_an_optimizer_that_takes_over_the_state_of_another_says_so(make_run):
    list(make_run(**built(lambda of: of.Adam()), total_steps=1))
    run = make_run(**built(lambda of: of.AdamW()), total_steps=2)
    list(run)
    started = [e for e in read_entries(RunDirectory(run.directory)) if e.kind is EventKind.START]
    assert started[-1].message.endswith(
        " The optimizer was Adam and is AdamW, and takes over its state."
    )


def test_a_table_that_is_restored_without_a_proof_is_named_in_the_event_log(make_run):
    import tensorflow as tf

    for _ in range(2):
        table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)
        run = make_run(**built(lambda of: of.Adam()), extra={"table": table}, total_steps=1)
        list(run)
    started = [e for e in read_entries(RunDirectory(run.directory)) if e.kind is EventKind.START]
    note = (
        "table (MutableHashTable) keeps its value outside variables; it was restored and not "
        "compared."
    )
    assert started[-1].message.endswith(f" {note}")
    assert started[-1].details["notes"] == [f"worker 0: {note}"]
