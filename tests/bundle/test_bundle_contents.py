"""What the tensors of a checkpoint are for: of checkpoints as TensorFlow and Keras write them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from bundle_writing import GRAPH_KEY, Object, array, graph, key_of, strings, variable, write
from executed_lines import ExecutedLines
from tfckpt_trainer.bundle.analysis.contents import (
    Role,
    Variable,
    describe_tensors,
    describe_tensors_without_graph,
)
from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.bundle.object_graph import KEY, SlotVariable, read_object_graph

SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
ONE = array(np.ones(3, np.float32))


def contents_of(prefix: Path) -> dict[str, Variable]:
    """Variables by path; no two have the same."""
    index = read_index(prefix)
    nodes = read_object_graph(prefix, index) if KEY in index.entries else None
    found = describe_tensors(index, nodes)
    assert {v.entry.name for v in found} == index.entries.keys() - {KEY}
    by_path = {variable.path: variable for variable in found}
    assert len(by_path) == len(found)
    return by_path


def with_role(found: dict[str, Variable], role: Role) -> list[str]:
    return sorted(path for path, variable in found.items() if variable.role is role)


def slots(found: dict[str, Variable]) -> dict[str, set[str]]:
    """Names of slots by the path of their variable."""
    by_owner: dict[str, set[str]] = {}
    for one in found.values():
        if one.role is Role.SLOT:
            by_owner.setdefault(one.slot_of, set()).add(one.slot_name)
    return by_owner


# written by TensorFlow


@pytest.fixture(scope="module")
def tf():
    import tensorflow

    return tensorflow


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("contents")


def keras_model(width: int = 4):
    import keras

    layers = [keras.layers.Dense(5, name="hidden"), keras.layers.BatchNormalization(name="norm")]
    return keras.Sequential(
        [keras.Input((width,)), *layers, keras.layers.Dense(1, name="out")], name="net"
    )


TRAINED = [
    f"model/net/{layer}/{name}"
    for layer, names in (("hidden", "bias kernel"), ("norm", "beta gamma"), ("out", "bias kernel"))
    for name in names.split()
]
MOVING = ["model/net/norm/moving_mean", "model/net/norm/moving_variance"]


@pytest.mark.tensorflow
@pytest.mark.parametrize("compiled", [True, False])
def test_a_keras_model_is_known_by_its_own_names_whichever_way_the_optimizer_is_saved(
    tf, root, compiled
):
    import keras

    model, optimizer = keras_model(), keras.optimizers.Adam(1e-3)
    prefix = root / f"keras-{compiled}"
    if compiled:
        model.compile(optimizer, "mse", metrics=["mae"])
        model.fit(np.ones((4, 4)), np.ones((4, 1)), verbose=0)
        tf.train.Checkpoint(model=model).write(str(prefix))
    else:
        optimizer.build(model.trainable_variables)
        tf.train.Checkpoint(optimizer=optimizer, model=model).write(str(prefix))
    found = contents_of(prefix)
    assert with_role(found, Role.WEIGHT) == sorted(TRAINED + MOVING)
    assert slots(found) == {path: {"momentums", "velocities"} for path in TRAINED}
    names = {path.rpartition("/")[2] for path in with_role(found, Role.OPTIMIZER)}
    assert names == {"_iterations", "_learning_rate"}
    for one in found.values():
        if one.role is Role.SLOT:
            shapes = one.entry.shape, found[one.slot_of].entry.shape
            assert shapes[0] == shapes[1]


@pytest.mark.tensorflow
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_an_optimizer_of_one_variable_has_a_slot_only_if_it_has_momentum(tf, root, momentum):
    import keras

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, use_bias=False, name="d")])
    optimizer = keras.optimizers.SGD(0.1, momentum=momentum)
    optimizer.build(model.trainable_variables)
    prefix = root / f"one-{momentum}"
    tf.train.Checkpoint(net=model, opt=optimizer).write(str(prefix))
    found = contents_of(prefix)
    (weight,) = with_role(found, Role.WEIGHT)
    assert weight.endswith("/d/kernel")
    assert slots(found) == ({weight: {"momentums"}} if momentum else {})


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("Adagrad", {"accumulators"}),
        ("RMSprop", {"velocities"}),
        ("Ftrl", {"accumulators", "linears"}),
        ("Lion", {"momentums"}),
    ],
)
def test_the_slots_of_every_optimizer_of_keras(tf, root, kind, expected):
    import keras

    model, optimizer = keras_model(), getattr(keras.optimizers, kind)(0.1)
    optimizer.build(model.trainable_variables)
    tf.train.Checkpoint(model=model, optimizer=optimizer).write(str(root / kind))
    found = slots(contents_of(root / kind))
    assert found.keys() == set(TRAINED)
    assert all(expected <= names for names in found.values())


@pytest.mark.tensorflow
def test_a_module_and_the_optimizers_of_tensorflow_1_in_a_checkpoint(tf, root):
    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.w = tf.Variable(tf.ones([3, 4]), name="w")
            self.scale = tf.Variable(2.0)
            self.layers = [tf.Variable(tf.ones([2]), name="b")]

    module = Module()
    variables = [module.w, module.scale, module.layers[0]]
    gradients = [(tf.ones_like(one), one) for one in variables]
    paths = {"mod/w", "mod/scale", "mod/layers/0"}
    for optimizer, names in (
        (tf.compat.v1.train.MomentumOptimizer(0.1, 0.9), {"momentum"}),
        (tf.compat.v1.train.AdamOptimizer(0.1), {"m", "v"}),
    ):
        optimizer.apply_gradients(gradients)
        prefix = root / f"legacy-{len(names)}"
        step = tf.Variable(3, dtype=tf.int64)
        tf.train.Checkpoint(mod=module, opt=optimizer, global_step=step).write(str(prefix))
        found = contents_of(prefix)
        assert set(with_role(found, Role.WEIGHT)) == paths
        assert slots(found) == dict.fromkeys(paths, names)
        assert with_role(found, Role.STEP) == ["global_step"]
        assert with_role(found, Role.OTHER) == []


@pytest.mark.tensorflow
def test_everything_that_is_no_weight(tf, root):
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    table.insert(tf.constant(["a", "b"]), tf.constant([1, 2], tf.int64))
    tf.train.Checkpoint(
        table=table,
        iterator=iter(tf.data.Dataset.range(10).shuffle(4)),
        rng=tf.random.Generator.from_seed(1),
        step=tf.Variable(7, dtype=tf.int64),
        best_loss=tf.Variable(0.5),
        words=tf.Variable(["a", "b"]),
    ).write(str(root / "rest"))
    assert {path: one.role for path, one in contents_of(root / "rest").items()} == {
        "table-keys": Role.OTHER,
        "table-values": Role.OTHER,
        "iterator": Role.INPUT,
        "rng/_state_var": Role.RANDOM,
        "step": Role.STEP,
        "best_loss": Role.OTHER,
        "words": Role.OTHER,
    }


@pytest.mark.tensorflow
def test_what_tensorflow_1_saved_by_name(tf, root):
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        kernel = v1.get_variable("layer/kernel", [3, 4])
        cut = v1.get_variable("words", [10, 4], partitioner=v1.fixed_size_partitioner(3))
        step = v1.train.get_or_create_global_step()
        loss = tf.reduce_sum(kernel) + tf.reduce_sum(tf.convert_to_tensor(cut))
        train = v1.train.AdamOptimizer().minimize(loss, global_step=step)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(train)
            v1.train.Saver().save(session, str(root / "tf1"))
    found = contents_of(root / "tf1")
    assert with_role(found, Role.WEIGHT) == ["layer/kernel", "words"]
    assert slots(found) == {name: {"Adam", "Adam_1"} for name in ("layer/kernel", "words")}
    assert with_role(found, Role.OPTIMIZER) == ["beta1_power", "beta2_power"]
    assert with_role(found, Role.STEP) == ["global_step"]
    assert found["words"].size == 160


# written by hand


def test_groups_come_in_order_and_count_every_tensor_once(tmp_path):
    nodes = [Object({"a": 1, "z": 2, "step": 3}), Object({}, [variable("a")])]
    nodes += [Object({}, [variable("z")]), Object({}, [variable("step")])]
    tensors = {key_of("a"): ONE, key_of("z"): ONE, key_of("step"): array(np.int64(1))}
    write(tmp_path / "c", {**tensors, "lost/.ATTRIBUTES/X": ONE, GRAPH_KEY: graph(nodes)})
    found = contents_of(tmp_path / "c")
    assert list(found) == ["a", "z", "lost.X", "step"]
    assert Counter(one.group for one in found.values()) == {"model": 2, "rest": 2}


def test_a_graph_with_circles_shared_objects_and_dangling_slots(tmp_path):
    nodes = [
        Object({"first": 1, "second": 1, "self": 0, "opt": 2}),
        Object({"parent": 0, "w": 3}),
        Object({"owner": 0}),
        Object({}, [variable("first/w", "w")]),
        Object({}, [variable("nobody")]),
    ]
    tensors = {key_of("first/w"): ONE, key_of("nobody"): ONE, GRAPH_KEY: graph(nodes)}
    write(tmp_path / "c", tensors)
    index, read = read_index(tmp_path / "c"), list(read_object_graph(tmp_path / "c"))
    # One slot of no object, one of no variable, one of an object that holds no tensor. The reader
    # refuses the first two, and whoever has nodes from elsewhere must not stumble over them.
    dangling = (SlotVariable(3, "m", 99), SlotVariable(77, "m", 3), SlotVariable(3, "m", 1))
    read[2] = replace(read[2], slot_variables=dangling)
    found = {one.path: one for one in describe_tensors(index, read)}
    assert {path: one.role for path, one in found.items()} == {
        "first/w": Role.WEIGHT,
        "nobody.VARIABLE_VALUE": Role.OTHER,
    }


def test_the_slots_of_an_optimizer_of_tf_keras_belong_to_the_variable_in_their_full_name(tmp_path):
    # As tf_keras 2.16 writes it: all variables in one list, each slot in one of its own.
    nodes = [
        Object({"model": 1, "optimizer": 2}),
        Object({"layer_with_weights-0": 3, "layer_with_weights-1": 4, "optimizer": 2}),
        Object({"_variables": 5, "_iterations": 6, "_index_dict": 7, "_momentums": 8}),
        Object({"kernel": 9}),
        Object({"kernel": 10}),
        Object({"0": 6, "1": 11, "2": 12}),
        Object({}, [variable("optimizer/_iterations", "iteration")]),
        Object({}),
        # In the order of the optimizer, which need not be that of the model.
        Object({"0": 11, "1": 12}),
        Object({}, [variable("model/layer_with_weights-0/kernel", "dense/kernel")]),
        Object({}, [variable("model/layer_with_weights-1/kernel", "dense_1/kernel")]),
        Object({}, [variable("optimizer/_variables/1", "Adam/m/dense_1/kernel")]),
        Object({}, [variable("optimizer/_variables/2", "Adam/m/dense/kernel")]),
    ]
    paths = [attribute[2].removesuffix(SUFFIX) for node in nodes for attribute in node.attributes]
    write(tmp_path / "c", {**{key_of(path): ONE for path in paths}, GRAPH_KEY: graph(nodes)})
    found = contents_of(tmp_path / "c")
    slot = "optimizer/momentums/model"
    assert {path: (one.role, one.entry.name) for path, one in found.items()} == {
        "model/dense/kernel": (Role.WEIGHT, key_of(paths[1])),
        "model/dense_1/kernel": (Role.WEIGHT, key_of(paths[2])),
        f"{slot}/dense/kernel": (Role.SLOT, key_of(paths[4])),
        f"{slot}/dense_1/kernel": (Role.SLOT, key_of(paths[3])),
        "optimizer/_iterations": (Role.OPTIMIZER, key_of(paths[0])),
    }


def test_a_graph_of_another_save_is_described_in_no_time(tmp_path):
    count = 4000
    children = {str(number): number + 1 for number in range(count)}
    nodes = [Object(children), *(Object({}, [variable(f"gone/{n}")]) for n in range(count))]
    tensors = {f"here/{number}": ONE for number in range(count)}
    write(tmp_path / "c", {**tensors, GRAPH_KEY: graph(nodes)})
    index, nodes = read_index(tmp_path / "c"), read_object_graph(tmp_path / "c")
    with ExecutedLines() as lines:
        found = describe_tensors(index, nodes)
    # Each name looked for among all others is 4,000 lines a name.
    assert lines.count < 200 * count
    assert {one.role for one in found} == {Role.OTHER}


def test_numbers_in_paths_are_in_their_order(tmp_path):
    names = [f"layers/{number}/w" for number in (10, 2, 1)] + ["layers/x/w", "layers/2b/w"]
    write(tmp_path / "a", {name: array(np.ones(2)) for name in names})
    shown = [one.path for one in describe_tensors(read_index(tmp_path / "a"), None)]
    assert shown == [f"layers/{part}/w" for part in ("1", "2", "2b", "10", "x")]


def test_names_of_tensorflow_1_tell_most(tmp_path):
    names = ["model/kernel", "model/kernel/Adam", "step"]
    write(tmp_path / "c", {**dict.fromkeys(names[:2], ONE), "step": array(np.int64(4))})
    found = {one.path: one.role for one in describe_tensors(read_index(tmp_path / "c"), None)}
    assert found == {
        "model/kernel": Role.WEIGHT,
        "model/kernel/Adam": Role.SLOT,
        "step": Role.STEP,
    }


def test_scalars_at_the_root_are_weights_of_tensorflow_1_if_nothing_else_is(tmp_path):
    """As in the models of TensorFlow Serving's tests, which compute `a * x + b`."""
    scalars = {"a": array(np.float32(0.5)), "b": array(np.float32(2)), "c": array(np.int32(3))}
    write(tmp_path / "c", {**scalars, "global_step": array(np.int64(4))})
    found = {one.path: one.role for one in describe_tensors(read_index(tmp_path / "c"), None)}
    assert found == {
        "a": Role.WEIGHT,
        "b": Role.WEIGHT,
        "c": Role.OTHER,
        "global_step": Role.STEP,
    }
    write(tmp_path / "d", {**scalars, "w": array(np.ones((1, 1)))})
    found = {one.path: one.role for one in describe_tensors(read_index(tmp_path / "d"), None)}
    assert [path for path, role in found.items() if role is Role.WEIGHT] == ["w"]


def test_where_the_object_graph_is_lost_nothing_is_said_of_what_tensors_are_for(tmp_path):
    tensors = {key_of(name): ONE for name in ("model/kernel", "optimizer/m")}
    write(tmp_path / "c", {**tensors, GRAPH_KEY: strings([b""], ())})
    found = {(v.path, v.role) for v in describe_tensors_without_graph(read_index(tmp_path / "c"))}
    assert found == {("model/kernel", Role.UNKNOWN), ("optimizer/m", Role.UNKNOWN)}


def test_values_of_the_root_object_have_a_path(tmp_path):
    # As Keras 2 writes it with `save_weights`.
    config, nameless = "/.ATTRIBUTES/OBJECT_CONFIG_JSON", key_of("")
    values = [("OBJECT_CONFIG_JSON", "", config), variable("", "w")]
    nodes = [Object({"dense": 1}, values), Object({}, [variable("dense")])]
    text = strings([b"{}"], ())
    tensors = {config: text, nameless: ONE, key_of("dense"): ONE}
    write(tmp_path / "c", {**tensors, GRAPH_KEY: graph(nodes)})
    paths = {"dense", ".OBJECT_CONFIG_JSON", ".VARIABLE_VALUE"}
    assert contents_of(tmp_path / "c").keys() == paths
    lost = describe_tensors_without_graph(read_index(tmp_path / "c"))
    assert {one.path for one in lost} == {"dense", config, nameless}


def test_tensors_that_would_have_one_path_get_others(tmp_path):
    nodes = [
        Object({"a/b": 1, "a": 2, "m": 3}),
        Object(attributes=[("VARIABLE_VALUE", "", key_of("a.Sb"))]),
        Object({"b": 4}),
        Object({"x": 5, "n": 6}),
        Object(attributes=[("VARIABLE_VALUE", "", key_of("a/b"))]),
        Object(attributes=[("VARIABLE_VALUE", "n/y", key_of("m/x"))]),
        Object({"y": 7, "_iterations": 7, "_trainable_variables": 8}),
        Object(attributes=[("VARIABLE_VALUE", "i", key_of("m/n/y"))]),
        Object(),
    ]
    names = [key_of(path) for path in ("a.Sb", "a/b", "m/x", "m/n/y")]
    write(tmp_path / "c", {**dict.fromkeys(names, ONE), GRAPH_KEY: graph(nodes)})
    found = contents_of(tmp_path / "c")
    assert {one.entry.name: path for path, one in found.items()} == {
        key_of("a.Sb"): "a.Sb", key_of("a/b"): "a/b", key_of("m/x"): "m/x",
        key_of("m/n/y"): "m/n/y",
    }  # fmt: skip
