"""The same variables in two checkpoints, by hand-written object graphs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bundle_writing import GRAPH_KEY, Object, array, graph, in_parts, key_of, variable, write
from tfckpt_trainer.bundle.analysis.contents import Contents, read_contents
from tfckpt_trainer.bundle.analysis.counterparts import (
    find_counterparts,
    renamed_index,
)
from tfckpt_trainer.bundle.exchange.whole_tensors import row_major_chunks
from tfckpt_trainer.bundle.index import read_index

KERNEL = np.arange(6, dtype=np.float32).reshape(2, 3)


def contents(prefix: Path, nodes: list[Object] | None, *names: str) -> Contents:
    tensors = {name: array(KERNEL + place) for place, name in enumerate(names)}
    write(prefix, tensors | ({GRAPH_KEY: graph(nodes)} if nodes is not None else {}))
    return read_contents(prefix, read_index(prefix))


def holding(name: str, full_name: str = "") -> Object:
    """A variable at a path."""
    return Object(attributes=[variable(name, full_name)])


def a_model(root: Path, name: str = "a", key: str = "model/kernel", shown: str = "") -> Contents:
    nodes = [Object({"model": 1}), Object({"kernel": 2}), holding(key, shown)]
    return contents(root / name, nodes, key_of(key))


def with_optimizer(root: Path, *trained: int) -> Contents:
    """A model with two variables that TensorFlow names after the optimizer, and their slots."""
    keys = [f"optimizer/_trainable_variables/{place}" for place in range(2)]
    slots = [f"optimizer/_momentums/{place}" for place in range(2)]
    nodes = [
        Object({"optimizer": 1, "model": 2}),
        Object({"_iterations": 7, "_trainable_variables": 8, "_momentums": 9}),
        Object({"kernel": 3, "bias": 4}),
        holding(keys[trained.index(3)]),
        holding(keys[trained.index(4)]),
        holding(slots[0]),
        holding(slots[1]),
        holding("optimizer/_iterations"),
        Object({str(place): number for place, number in enumerate(trained)}),
        Object({"0": 5, "1": 6}),
    ]
    name = "b" + "".join(map(str, trained))
    return contents(root / name, nodes, *map(key_of, [*keys, *slots, "optimizer/_iterations"]))


def test_a_variable_is_found_that_is_named_after_an_optimizer_later(tmp_path):
    before, after = a_model(tmp_path), with_optimizer(tmp_path, 3, 4)
    kernel = key_of("optimizer/_trainable_variables/0")
    expected = {GRAPH_KEY: GRAPH_KEY, key_of("model/kernel"): kernel}
    for as_restored in (False, True):
        assert find_counterparts(before, after, as_restored=as_restored) == expected
        found = find_counterparts(after, before, as_restored=as_restored)
        assert found == {new: old for old, new in expected.items()}


def test_variables_and_slots_are_found_though_the_optimizer_has_them_in_another_order(tmp_path):
    before, after = with_optimizer(tmp_path, 3, 4), with_optimizer(tmp_path, 4, 3)
    found = find_counterparts(before, after)
    for of in ("_trainable_variables", "_momentums"):
        keys = [key_of(f"optimizer/{of}/{place}") for place in range(2)]
        assert [found[key] for key in keys] == keys[::-1]


def test_names_of_layers_do_not_matter_to_the_graph(tmp_path):
    before = a_model(tmp_path, "a", shown="net/dense/kernel")
    after = a_model(tmp_path, "b", "model/other", shown="net/dense_1/kernel")
    assert find_counterparts(before, after)[key_of("model/kernel")] == key_of("model/other")


def test_the_path_that_is_shown_tells_if_the_graph_does_not(tmp_path):
    """As in a checkpoint from an array file: layers are objects there."""
    nodes = [
        *[Object({name: place + 1}) for place, name in enumerate(("model", "net", "kernel"))],
        holding("model/net/kernel", "kernel"),
    ]
    made = contents(tmp_path / "made", nodes, key_of("model/net/kernel"))
    before = a_model(tmp_path, shown="net/kernel")
    found = find_counterparts(before, made)
    assert found[key_of("model/kernel")] == key_of("model/net/kernel")
    assert key_of("model/kernel") not in find_counterparts(before, made, as_restored=True)


def test_without_a_graph_names_tell(tmp_path):
    before = contents(tmp_path / "a", None, "w", "gone")
    after = contents(tmp_path / "b", None, "w", "new")
    assert find_counterparts(before, after) == {"w": "w"}
    shown = a_model(tmp_path, "c", shown="w")
    assert find_counterparts(before, shown) == {}
    named = contents(tmp_path / "d", None, "model/kernel")
    assert find_counterparts(named, shown) == {"model/kernel": key_of("model/kernel")}


def test_objects_with_several_tensors_are_found(tmp_path):
    sides = []
    for name, key in (("a", "table"), ("b", "optimizer/table")):
        keys = [key_of(key) + end for end in ("-keys", "-values")]
        nodes = [Object({"table": 1}), Object(attributes=[variable(key)])]
        sides.append(contents(tmp_path / name, nodes, *keys))
    found = find_counterparts(*sides)
    for end in ("-keys", "-values"):
        assert found[key_of("table") + end] == key_of("optimizer/table") + end


def test_a_cycle_and_a_graph_that_is_damaged_end_the_search(tmp_path):
    nodes = [Object({"self": 0, "v": 1}), holding("v")]
    before = contents(tmp_path / "a", nodes, key_of("v"))
    after = contents(tmp_path / "b", [*nodes, Object()], key_of("v"))
    assert find_counterparts(before, after)[key_of("v")] == key_of("v")
    write(tmp_path / "c", {key_of("v"): array(KERNEL), GRAPH_KEY: array(KERNEL)})
    damaged = read_contents(tmp_path / "c", read_index(tmp_path / "c"))
    assert damaged.nodes is None
    assert find_counterparts(before, damaged)[key_of("v")] == key_of("v")


@pytest.mark.parametrize("in_rows", [False, True])
def test_a_renamed_tensor_is_read_as_before_and_names_stay_unique(tmp_path, in_rows):
    stored = in_parts(KERNEL, [((0, 1), (0, 3)), ((1, 1), (0, 3))]) if in_rows else array(KERNEL)
    write(tmp_path / "a", {"x": stored, "y": array(KERNEL + 1)})
    index = read_index(tmp_path / "a")
    assert renamed_index(index, {"x": "x"}) is index
    renamed = renamed_index(index, {"x": "y"})
    assert list(renamed.entries) == ["y", "y (removed)"]
    chunks = row_major_chunks(tmp_path / "a", renamed, renamed.entries["y"])
    assert np.concatenate(list(chunks)).tolist() == KERNEL.ravel().tolist()
