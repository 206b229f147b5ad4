"""The command `edit`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from json_reference import check

from bundle_writing import GRAPH_KEY, Object, array, graph, in_parts, key_of, strings, write
from bundle_writing import variable as attribute
from real_file_systems import fill, small_tmpfs
from tfckpt_trainer.bundle.dtypes import numpy_dtype
from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.bundle.object_graph import read_object_graph
from tfckpt_trainer.bundle.tensors import read_tensor_bytes
from tfckpt_trainer.bundle.verify import verify
from tfckpt_tui.reports.new_files import EditReport

KERNEL = np.arange(6, dtype=np.float32).reshape(2, 3)


def saved(root: Path, step: int, kernel: np.ndarray = KERNEL) -> None:
    """Two objects that share a kernel, an optimizer with a slot of it, and a step."""
    nodes = [
        Object({"model": 1, "optimizer": 4, "step": 6}),
        Object({"dense": 2, "alias": 3}),
        Object({"kernel": 3, "bias": 7}),
        Object(attributes=[attribute("model/dense/kernel", "kernel")]),
        Object({"m": 5}, slots=[(3, "momentum", 5)]),
        Object(attributes=[attribute("optimizer/m")]),
        Object(attributes=[attribute("step")]),
        Object(attributes=[attribute("model/dense/bias", "bias")]),
    ]
    write(
        root / f"ckpt-{step}",
        {
            key_of("model/dense/kernel"): array(kernel),
            key_of("model/dense/bias"): array(kernel[0]),
            key_of("optimizer/m"): array(kernel * 2),
            key_of("step"): array(np.int64(step)),
            GRAPH_KEY: graph(nodes),
        },
    )


@pytest.fixture
def run(tmp_path: Path) -> Path:
    saved(tmp_path, 5)
    saved(tmp_path, 9, KERNEL + 100)
    return tmp_path


def value(prefix: Path, name: str) -> np.ndarray:
    entry = read_index(prefix).entries[name]
    data = read_tensor_bytes(prefix, entry)
    return np.frombuffer(data, numpy_dtype(entry.dtype)).reshape(entry.shape)


def keys(prefix: Path) -> set[str]:
    return set(read_index(prefix).entries) - {GRAPH_KEY}


def test_a_plan_comes_first_and_changes_nothing(tool, run):
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    words = ("edit", run, "5", "--drop", "optimizer/*", "--cast", "model/dense/bias", "float16")
    said = tool(*words, "--dry-run")
    assert said.code == 0
    assert said.data == (
        "model/dense/bias: float32 becomes float16\noptimizer/momentum/model/alias is dropped\n"
    )
    found = tool(*words, "--dry-run", "--json").json
    check(EditReport, found)
    assert found["checkpoint"] == "edited-5"
    assert (found["written"], found["tensors"]) == (False, 3)
    assert said.words == ""
    said = tool(*words)
    assert said.code == 4
    assert "Give --yes." in said.words
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_a_default_name_that_is_taken_is_said_before_anything_is_written(tool, run):
    words = ("edit", run, "5", "--drop", "step")
    assert tool(*words, "--yes").code == 0
    said = tool("edit", run, "ckpt-5", "--drop", "step", "--dry-run")
    assert said.words == (
        "The name edited-5 is taken, or was once, so the new checkpoint is edited2-5.\n"
    )


def test_a_renamed_variable_keeps_its_value_and_its_other_paths(tool, run):
    arguments = ("--rename", "model/dense/kernel", "model/dense/weights", "--yes", "--json")
    said = tool("edit", run, "5", *arguments)
    assert said.code == 0
    check(EditReport, said.json)
    prefix = run / "edited-5"
    assert verify(prefix).findings == ()
    key = key_of("model/dense/weights")
    assert np.array_equal(value(prefix, key), KERNEL)
    assert key_of("model/dense/kernel") not in keys(prefix)
    nodes = read_object_graph(prefix)
    model = nodes[nodes[0].children["model"]]
    dense = nodes[model.children["dense"]]
    assert set(dense.children) == {"weights", "bias"}
    assert dense.children["weights"] == model.children["alias"]
    assert nodes[dense.children["weights"]].checkpoint_key == key
    slot = nodes[nodes[0].children["optimizer"]].slot_variables[0]
    assert slot.variable_node == model.children["alias"]


def test_an_object_is_moved_with_all_below_it(tool, run):
    assert tool("edit", run, "5", "--rename", "model/dense", "encoder", "--yes").code == 0
    prefix = run / "edited-5"
    assert verify(prefix).findings == ()
    assert keys(prefix) == {
        key_of(path) for path in ("encoder/kernel", "encoder/bias", "optimizer/m", "step")
    }
    nodes = read_object_graph(prefix)
    assert set(nodes[0].children) == {"model", "encoder", "optimizer", "step"}
    assert set(nodes[nodes[0].children["model"]].children) == {"alias"}


def test_dropped_variables_leave_the_graph_with_their_slots(tool, run):
    assert tool("edit", run, "5", "--drop", "model/*/kernel", "--yes").code == 0
    prefix = run / "edited-5"
    assert verify(prefix).findings == ()
    nodes = read_object_graph(prefix)
    model = nodes[nodes[0].children["model"]]
    assert "alias" not in model.children
    assert set(nodes[model.children["dense"]].children) == {"bias"}
    assert nodes[nodes[0].children["optimizer"]].slot_variables == ()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_types_are_cast(tool, run, dtype):
    said = tool("edit", run, "5", "--cast", "*", dtype, "--yes")
    assert said.code == 4
    assert "step is int64 and cannot be cast to" in said.words
    said = tool("edit", run, "5", "--cast", "model/*", dtype, "--yes")
    assert said.code == 0
    found = value(run / "edited-5", key_of("model/dense/kernel"))
    assert found.dtype == numpy_dtype(dtype)
    assert found.tobytes() == KERNEL.astype(numpy_dtype(dtype)).tobytes()
    assert verify(run / "edited-5").findings == ()


def test_values_that_do_not_fit_are_said(tool, tmp_path):
    large = np.array([[1e6, 1.0], [np.inf, 2.0]], np.float32)
    parts = in_parts(large, [((0, 1), (0, 2)), ((1, 1), (0, 2))])
    write(tmp_path / "ckpt-1", {"a": parts, "n": array(np.array([1, 300]))})
    said = tool("edit", tmp_path, "1", "--cast", "a", "float16", "--yes")
    assert said.code == 0
    assert "Done, but: 1 value became infinite: too large for the new type." in said.words
    assert value(tmp_path / "edited-1", "a").tolist() == [[np.inf, 1.0], [np.inf, 2.0]]
    said = tool("edit", tmp_path, "1", "--cast", "n", "int8", "--yes")
    assert said.code == 4
    assert "n has values that do not fit into int8." in said.words
    assert not list(tmp_path.glob("edited2*"))
    assert tool("edit", tmp_path, "ckpt-1", "--cast", "n", "int16", "--yes").code == 0
    assert value(tmp_path / "edited2-1", "n").tolist() == [1, 300]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (np.array([200], np.uint8), "int8"),
        (np.array([2**64 - 1, 5], np.uint64), "int64"),
        (np.array([-1, -128]), "uint64"),
    ],
)
def test_a_sign_is_not_lost_in_a_cast(tool, tmp_path, values, dtype):
    nodes = [Object({"n": 1}), Object(attributes=[attribute("n")])]
    write(tmp_path / "ckpt-1", {key_of("n"): array(values), GRAPH_KEY: graph(nodes)})
    said = tool("edit", tmp_path, "1", "--cast", "n", dtype, "--yes")
    assert (said.code, said.words) == (
        4,
        f"tfckpt-tui: n has values that do not fit into {dtype}.\n",
    )
    assert not list(tmp_path.glob("edited*"))


def test_a_tensor_is_taken_from_another_checkpoint(tool, run):
    arguments = ["--copy", "9:model/dense/kernel", "model/dense/kernel", "--name", "mixed"]
    arguments += ["--copy", "ckpt-9:step", "model/count"]
    assert tool("edit", run, "5", *arguments, "--yes").code == 0
    prefix = run / "mixed"
    assert verify(prefix).findings == ()
    assert np.array_equal(value(prefix, key_of("model/dense/kernel")), KERNEL + 100)
    assert np.array_equal(value(prefix, key_of("model/dense/bias")), KERNEL[0])
    assert value(prefix, key_of("model/count")) == 9
    nodes = read_object_graph(prefix)
    count = nodes[nodes[nodes[0].children["model"]].children["count"]]
    assert count.checkpoint_key == key_of("model/count")
    said = tool("inspect", run, "mixed")
    assert "made by     edit of ckpt-9, ckpt-5\n" in said.data
    assert "model/alias becomes model/alias of ckpt-9" in said.data


def test_a_checkpoint_without_an_object_graph_is_edited_by_names(tool, tmp_path):
    write(
        tmp_path / "model.ckpt-3",
        {"layer/w": array([1.0]), "layer/w/Adam": array([2.0]), "text": strings([b"a"])},
    )
    words = ("--rename", "layer/w", "dense/kernel", "--drop", "text", "--yes")
    assert tool("edit", tmp_path, "3", *words).code == 0
    assert keys(tmp_path / "edited-3") == {"dense/kernel", "dense/kernel/Adam"}
    assert GRAPH_KEY not in read_index(tmp_path / "edited-3").entries


def test_names_are_swapped(tool, run, tmp_path):
    one, other = "model/dense/kernel", "model/dense/bias"
    words = ["--rename", one, other, "--rename", other, one, "--yes"]
    said = tool("edit", run, "5", *words)
    assert said.code == 0, said.words
    assert f"{one} becomes {other} (1 tensor)\n{other} becomes {one} (1 tensor)\n" in said.data
    prefix = run / "edited-5"
    assert verify(prefix).findings == ()
    assert np.array_equal(value(prefix, key_of(other)), KERNEL)
    assert np.array_equal(value(prefix, key_of(one)), KERNEL[0])
    nodes = read_object_graph(prefix)
    dense = nodes[nodes[nodes[0].children["model"]].children["dense"]].children
    assert {name: nodes[n].checkpoint_key for name, n in dense.items()} == {
        "kernel": key_of(one), "bias": key_of(other),
    }  # fmt: skip


def test_names_without_an_object_graph_go_round(tool, tmp_path):
    values = {"a/w": 1.0, "b/w": 2.0, "c/w": 3.0}
    write(tmp_path / "model-3", {name: array([number]) for name, number in values.items()})
    pairs = [("a", "b"), ("b", "c"), ("c", "a")]
    words = [word for pair in pairs for word in ("--rename", *pair)]
    assert tool("edit", tmp_path, "3", *words, "--yes").code == 0
    found = {name: value(tmp_path / "edited-3", name)[0] for name in values}
    assert found == {"b/w": 1.0, "c/w": 2.0, "a/w": 3.0}


def test_a_table_is_dropped_and_renamed_as_a_whole(tool, tmp_path):
    place = "words/.ATTRIBUTES/table"
    nodes = [
        Object({"words": 1, "w": 2}),
        Object(attributes=[("table", "words", place)]),
        Object(attributes=[attribute("w")]),
    ]
    tensors = {f"{place}-keys": strings([b"a"]), f"{place}-values": array(np.array([1]))}
    write(tmp_path / "ckpt-1", {**tensors, key_of("w"): array([1.0]), GRAPH_KEY: graph(nodes)})
    said = tool("edit", tmp_path, "1", "--drop", f"{place}-keys", "--yes")
    assert said.code == 4
    assert f"{place}-keys is one part of {place}. Drop it all: --drop '{place}*'" in said.words
    assert tool("edit", tmp_path, "1", "--drop", f"{place}*", "--yes").code == 0
    assert keys(tmp_path / "edited-1") == {key_of("w")}
    assert len(read_object_graph(tmp_path / "edited-1")) == 2
    assert tool("edit", tmp_path, "ckpt-1", "--rename", "words", "terms", "--yes").code == 0
    assert verify(tmp_path / "edited2-1").findings == ()
    assert "terms/.ATTRIBUTES/table-keys" in keys(tmp_path / "edited2-1")


def test_objects_with_savers_of_their_own_allow_casts_only(tool, tmp_path):
    """The field `registered_saver` of a node, empty, in a root that has nothing else."""
    root = strings([b"\x0a\x02\x22\x00"], shape=())
    write(tmp_path / "ckpt-1", {"w": array([1.0]), "v": array([1.0]), GRAPH_KEY: root})
    said = tool("edit", tmp_path, "1", "--drop", "w", "--yes")
    assert said.code == 4
    assert "Only --cast is possible." in said.words
    assert tool("edit", tmp_path, "1", "--cast", "w", "float16", "--yes").code == 0
    stored = [
        read_tensor_bytes(tmp_path / n, read_index(tmp_path / n).entries[GRAPH_KEY])
        for n in ("ckpt-1", "edited-1")
    ]
    assert stored[0] == stored[1]


def test_everything_together_refers_to_names_before_the_edit(tool, run):
    words = ["--rename", "model/dense", "model/layer", "--cast", "model/*", "float16"]
    assert tool("edit", run, "5", *words, "--drop", "model/dense/bias", "--yes").code == 0
    found = value(run / "edited-5", key_of("model/layer/kernel"))
    assert found.dtype == np.float16
    assert key_of("model/layer/bias") not in keys(run / "edited-5")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "Nothing to change: give --rename, --drop, --cast or --copy."),
        (["--drop", "nothing"], 2, "ckpt-5 has no tensor 'nothing'."),
        (["--drop", "*"], 4, "No tensor would be left."),
        (["--cast", "model/*", "float99"], 2, "float99 is not a numeric TensorFlow type"),
        (
            ["--cast", "model/*", "int32"],
            4,
            "float32 and cannot be cast to int32. Floating-point types",
        ),
        (["--cast", "model/*", "float32"], 2, "Nothing would change"),
        (["--rename", "no/such", "a"], 2, "ckpt-5 has no object or variable 'no/such'. List"),
        (["--rename", "model/dense", "step"], 4, "There is an object at step already."),
        (["--rename", "model/dense", "a/b"], 4, "There is no object at a to hold b;"),
        (["--rename", "model", "model/dense/x"], 4, "model cannot be moved into itself"),
        (["--rename", "model", "model"], 2, "The new name of model is the same as the old one."),
        (["--rename", "model", ""], 2, "The new name of model is empty."),
        (["--copy", "9", "step"], 2, "write it as CKPT:TENSOR"),
        (["--copy", "9:nothing", "step"], 2, "ckpt-9 has no tensor 'nothing'."),
        (["--copy", "9:step", "model/dense/bias"], 4, "step of ckpt-9 is int64 scalar; expected"),
        (["--copy", "9:step", "a/b"], 4, "There is no object at a to hold b;"),
        (
            ["--copy", "9:step", "step", "--copy", "9:step", "step"],
            2,
            "Two copies give step its values. Give one.",
        ),
        (["--drop", "step", "--name", "ckpt-9"], 4, "choose another name"),
        (["--drop", "step", "--name", "n\n"], 2, "'n\\n' is not a valid checkpoint name"),
        (["--drop", "step", "--name", ".tfckpt"], 2, "'.tfckpt' is not a valid checkpoint name"),
    ],
)
def test_what_is_not_possible_is_refused(tool, run, words, code, message):
    before = sorted(run.rglob("*"))
    said = tool("edit", run, "5", *words, "--yes")
    assert said.code == code
    assert message in said.words
    assert sorted(run.rglob("*")) == before


def test_on_a_full_disk_no_empty_trash_is_to_be_emptied(tool, tmp_path):
    with small_tmpfs(tmp_path / "disk", megabytes=2) as disk:
        saved(disk, 5)
        fill(disk)
        before = sorted(disk.rglob("*"))
        said = tool("edit", disk, "5", "--drop", "step", "--yes")
        assert said.code == 1
        assert "Nothing was written. Free space on this disk" in said.words
        assert "trash" not in said.words
        assert sorted(disk.rglob("*")) == before


def saved_like_keras(root: Path, step: int = 5) -> None:
    """A weight that TensorFlow names after the optimizer, and Keras after its layer."""
    nodes = [
        Object({"optimizer": 1, "model": 4, "a/b": 7, "c.d": 8}),
        Object({"_iterations": 2, "_trainable_variables": 3, "_momentums": 5}),
        Object(attributes=[attribute("optimizer/_iterations")]),
        Object({"0": 6}),
        Object({"layer-0": 6}),
        Object({"0": 9}),
        Object(attributes=[attribute("optimizer/_trainable_variables/0", "net/dense/kernel")]),
        Object(attributes=[("VARIABLE_VALUE", "a", key_of("a.Sb"))]),
        Object(attributes=[("VARIABLE_VALUE", "c", key_of("c..d"))]),
        Object(attributes=[attribute("optimizer/_momentums/0")]),
    ]
    write(
        root / f"ckpt-{step}",
        {
            key_of("optimizer/_iterations"): array(np.int64(step)),
            key_of("optimizer/_trainable_variables/0"): array(KERNEL + step),
            key_of("optimizer/_momentums/0"): array(KERNEL * 2),
            key_of("a.Sb"): array(KERNEL[0]),
            key_of("c..d"): array(KERNEL[1]),
            GRAPH_KEY: graph(nodes),
        },
    )


def test_a_pattern_means_the_paths_that_inspect_shows(tool, tmp_path):
    """Not the names that TensorFlow gave to weights: they lead through the optimizer."""
    saved_like_keras(tmp_path)
    said = tool("edit", tmp_path, "5", "--drop", "optimizer/*", "--yes")
    assert said.data.splitlines()[:2] == [
        "optimizer/_iterations is dropped",
        "optimizer/momentums/model/net/dense/kernel is dropped",
    ]
    assert keys(tmp_path / "edited-5") == {
        key_of("optimizer/_trainable_variables/0"), key_of("a.Sb"), key_of("c..d"),
    }  # fmt: skip
    shown = tool("inspect", tmp_path, "ckpt-5", "--json").json["tensors"]
    assert {one["path"] for one in shown} == {
        "model/net/dense/kernel", "optimizer/_iterations", "a/b", "c.d",
        "optimizer/momentums/model/net/dense/kernel",
    }  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "optimizer/momentums/model/net/dense/kernel",
        "model/net/dense/kernel (momentums)",
        "optimizer/_momentums/0",
        key_of("optimizer/_momentums/0"),
    ],
)
def test_every_command_knows_a_tensor_by_each_of_its_names(tool, tmp_path, monkeypatch, name):
    for step in (5, 9):
        saved_like_keras(tmp_path, step)
    monkeypatch.chdir(tmp_path)
    path = "optimizer/momentums/model/net/dense/kernel"
    said = tool("extract", tmp_path, "5", name, "--to", "npz", "-o", "w.npz", "--json")
    assert [one["stored_as"] for one in said.json["tensors"]] == [path]
    with np.load("w.npz") as found:
        assert list(found) == [path]
    assert tool("track", tmp_path, name, "--json").json["path"] == path
    said = tool("compare", tmp_path, "5", "9", "--histogram", name)
    assert f"\n{path}  6 elements, 6 equal" in said.data
    said = tool("edit", tmp_path, "5", "--copy", f"9:{name}", name, "--dry-run")
    assert said.data == f"{path} becomes {path} of ckpt-9\n"
    said = tool("average", tmp_path, "5", "9", "--json")
    assert {"name": key_of("optimizer/_momentums/0"), "path": path} in said.json["tensors"]


@pytest.mark.parametrize(
    "name",
    ["model/net/dense/kernl", "dense/kernel", "Model/Net/Dense/Kernel", "optimizer/iterations"],
)
def test_every_command_tells_the_path_that_a_misspelt_name_is_like(tool, tmp_path, name):
    for step in (5, 9):
        saved_like_keras(tmp_path, step)
    near = "optimizer/_iterations" if "iterations" in name else "model/net/dense/kernel"
    for words in (
        ["extract", tmp_path, "5", name, "--to", "npz"],
        ["track", tmp_path, name],
        ["compare", tmp_path, "5", "9", "--histogram", name],
        ["edit", tmp_path, "5", "--rename", name, "x"],
        ["edit", tmp_path, "5", "--drop", name],
        ["edit", tmp_path, "5", "--cast", name, "float16"],
        ["edit", tmp_path, "5", "--copy", f"9:{name}", "x"],
    ):
        said = tool(*words)
        assert said.code == 2
        assert f"{name!r}. Did you mean {near}?" in said.words
        assert f"with `tfckpt-tui inspect {tmp_path} ckpt-" in said.words


def test_names_from_keras_and_escaped_ones_are_told_apart_in_a_rename(tool, tmp_path):
    saved_like_keras(tmp_path)
    for name, new in [
        ("model/net/dense/kernel", "x"),
        ("model/net", "x"),
        ("model/net/dense/kernel", "model/net/kernel"),
    ]:
        said = tool("edit", tmp_path, "5", "--rename", name, new, "--yes")
        assert said.code == 4
        assert "model/net/dense/kernel is at model/layer-0" in said.words
    said = tool("edit", tmp_path, "5", "--rename", "model/layer-0", "model/first", "--yes")
    assert said.data.splitlines()[0] == "model/layer-0 becomes model/first"
    nodes = read_object_graph(tmp_path / "edited-5")
    assert set(nodes[nodes[0].children["model"]].children) == {"first"}
    words = ("--rename", "a/b", "e", "--rename", "c.d", "f", "--yes")
    assert tool("edit", tmp_path, "ckpt-5", *words).code == 0
    assert {key_of("e"), key_of("f")} <= keys(tmp_path / "edited2-5")


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("model/net/dense/kernel", "model/net/dense/weights", "model/net/dense/weights"),
        ("model/net/dense", "model/net/encoder", "model/net/encoder/kernel"),
        ("model/net", "model/encoder", "model/encoder/dense/kernel"),
    ],
)
def test_variables_are_renamed_by_the_names_that_inspect_shows(tool, tmp_path, old, new, path):
    """No attribute is called so: all objects stay where TensorFlow looks for them."""
    saved_like_keras(tmp_path)
    said = tool("edit", tmp_path, "5", "--rename", old, new, "--yes")
    assert said.data.splitlines()[0] == (
        f"{old} becomes {new}; the objects that hold it stay as they are"
    )
    prefix = tmp_path / "edited-5"
    assert verify(prefix).findings == ()
    shown = tool("inspect", tmp_path, "edited-5", "--json").json["tensors"]
    assert {one["path"] for one in shown} == {
        path, f"optimizer/momentums/{path}", "optimizer/_iterations", "a/b", "c.d",
    }  # fmt: skip
    assert keys(prefix) == keys(tmp_path / "ckpt-5")
    graphs = [read_object_graph(tmp_path / name) for name in ("ckpt-5", "edited-5")]
    children = [sorted(map(sorted, (node.children for node in nodes))) for nodes in graphs]
    assert children[0] == children[1]


def saved_with_layer(root: Path) -> None:
    """A layer in a list, with variables that its attributes hold, as in a functional model."""
    nodes = [
        Object({"model": 1}),
        Object({"layers": 2}),
        Object({"0": 3}),
        Object({"_kernel": 4, "bias": 5}),
        Object(attributes=[attribute("model/layers/0/_kernel", "dense/kernel")]),
        Object(attributes=[attribute("model/layers/0/bias", "dense/bias")]),
    ]
    tensors = {f"model/layers/0/{name}": array(KERNEL) for name in ("_kernel", "bias")}
    named = {key_of(path): tensor for path, tensor in tensors.items()}
    write(root / "ckpt-5", {**named, GRAPH_KEY: graph(nodes)})


def test_an_attribute_of_the_same_name_is_renamed_too(tool, tmp_path):
    saved_with_layer(tmp_path)
    words = ("--rename", "model/dense/kernel", "model/dense/weights")
    words += ("--rename", "model/dense/bias", "model/dense/offset")
    said = tool("edit", tmp_path, "5", *words, "--yes")
    assert said.data.splitlines()[:2] == [
        "model/dense/kernel becomes model/dense/weights, held by model/layers/0/_weights instead "
        "of model/layers/0/_kernel",
        "model/dense/bias becomes model/dense/offset, held by model/layers/0/offset instead of "
        "model/layers/0/bias",
    ]
    assert keys(tmp_path / "edited-5") == {
        key_of("model/layers/0/_weights"), key_of("model/layers/0/offset"),
    }  # fmt: skip
    shown = tool("inspect", tmp_path, "edited-5", "--json").json["tensors"]
    assert {one["path"] for one in shown} == {"model/dense/weights", "model/dense/offset"}
    said = tool("edit", tmp_path, "ckpt-5", "--rename", "model/dense/bias", "model/dense/kernel")
    assert said.code == 4
    assert "There is a tensor model/dense/kernel already." in said.words


def test_renames_by_names_from_keras_follow_each_other_and_drops(tool, tmp_path):
    saved_with_layer(tmp_path)
    words = ["--drop", "model/dense/bias", "--rename", "model/dense/kernel", "model/dense/weights"]
    words += ["--rename", "model/dense", "model/encoder"]
    assert tool("edit", tmp_path, "5", *words, "--yes").code == 0
    shown = tool("inspect", tmp_path, "edited-5", "--json").json["tensors"]
    assert [one["path"] for one in shown] == ["model/encoder/weights"]
    words = ["--drop", "model/dense/bias", "--rename", "model/dense/bias", "model/dense/offset"]
    said = tool("edit", tmp_path, "ckpt-5", *words)
    assert said.code == 4
    assert "model/dense/bias is dropped or renamed by the same edit." in said.words


def test_a_slot_variable_is_renamed_by_its_variable_only(tool, tmp_path):
    saved_like_keras(tmp_path)
    name = "optimizer/momentums/model/net/dense/kernel"
    said = tool("edit", tmp_path, "5", "--rename", name, f"{name}2", "--yes")
    assert said.code == 4
    assert f"{name} is a slot variable, named after its variable: rename that." in said.words


def test_damage_is_told_by_the_path_that_inspect_shows(tool, tmp_path, monkeypatch):
    """Not by the name in the index, which is another one for a model of Keras."""
    for step in (5, 9):
        saved_like_keras(tmp_path, step)
    entry = read_index(tmp_path / "ckpt-9").entries[key_of("optimizer/_trainable_variables/0")]
    data = tmp_path / "ckpt-9.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    content[entry.offset] ^= 1
    data.write_bytes(content)
    monkeypatch.chdir(tmp_path)
    np.savez("w.npz", **{"a/b": KERNEL[0]})
    path = "model/net/dense/kernel"
    for words in (
        ["extract", tmp_path, "9", "--to", "npz"],
        ["convert", tmp_path, "new-9", "w.npz", "--like", tmp_path, "9"],
        ["average", tmp_path, "5", "9"],
        ["edit", tmp_path, "9", "--drop", "a/b", "--yes"],
        ["edit", tmp_path, "9", "--cast", path, "float16", "--yes"],
        ["inspect", tmp_path, "9", "--stats"],
        ["compare", tmp_path, "5", "9", "--norms"],
        ["compare", tmp_path, "5", "9", "--histogram"],
        ["track", tmp_path, path],
        ["verify", tmp_path, "ckpt-9"],
    ):
        said = tool(*words)
        assert said.code == 1
        shown = said.data + said.words
        assert f"{path} does not match its checksum" in shown.replace(f" in {data.name}", ""), words
        assert "ATTRIBUTES" not in shown
    said = tool("inspect", tmp_path, "9")
    assert f"problem     {path} in {data.name} does not match" in said.data
