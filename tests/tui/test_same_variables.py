"""Commands that read one variable from checkpoints where its tensor has different names."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from bundle_writing import GRAPH_KEY, Object, array, graph, key_of, variable, write
from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.bundle.tensors import read_tensor_bytes
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.services.checkpoints.compatibility import check_compatibility
from tfckpt_tui.services.checkpoints.look_up import list_checkpoints

KERNEL = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
EARLIER, LATER = "model/layer/kernel", "optimizer/_trainable_variables/0"


def saved(root: Path, step: int, key: str) -> None:
    """A checkpoint of a script that later passes an optimizer too."""
    nodes = [
        Object({"model": 1, "step": 4} | ({"optimizer": 2} if key == LATER else {})),
        Object({"layer": 3}),
        Object({"_iterations": 5, "_trainable_variables": 6}),
        Object({"kernel": 7}),
        Object(attributes=[variable("step")]),
        Object(attributes=[variable("optimizer/_iterations")]),
        Object({"0": 7}),
        Object(attributes=[variable(key, "kernel")]),
    ]
    tensors = {key_of("step"): array(np.int64(step)), key_of(key): array(KERNEL * step)}
    if key == LATER:
        tensors[key_of("optimizer/_iterations")] = array(np.int64(step))
    write(root / f"ckpt-{step}", {**tensors, GRAPH_KEY: graph(nodes)})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for step in (1, 2, 3, 4):
        saved(tmp_path, step, EARLIER if step < 3 else LATER)
    return tmp_path


def test_track_follows_a_variable_through_all_its_names(tool, run):
    said = tool("track", run, "model/layer/kernel", "--json")
    assert said.code == 0
    norm = float(np.linalg.norm(KERNEL))
    found = said.json["checkpoints"]
    assert [one["norm"] for one in found] == pytest.approx([norm * step for step in (1, 2, 3, 4)])
    assert [one["update"] for one in found[1:]] == pytest.approx([norm] * 3)
    assert tool("track", run, key_of(EARLIER), "--json").json["checkpoints"] == found


def test_track_finds_layers_by_name_after_a_conversion_without_a_model(tool, run):
    np.savez(run / "w.npz", **{"model/layer/kernel": KERNEL})
    nodes = [
        Object({"model": 1}),
        Object({"_operations": 2}),
        Object({"0": 3}),
        Object({"_kernel": 4}),
        Object(attributes=[variable("model/_operations/0/_kernel", "layer/kernel")]),
    ]
    key = key_of("model/_operations/0/_kernel")
    write(run / "ckpt-5", {key: array(KERNEL), GRAPH_KEY: graph(nodes)})
    assert tool("convert", run, "ckpt-6", run / "w.npz").code == 0
    # As a copy without records; `track` leaves out what training did not save.
    shutil.rmtree(run / ".tfckpt")
    found = tool("track", run, "model/layer/kernel", "--json").json["checkpoints"]
    assert [one["problem"] for one in found] == [""] * 6


def test_compare_matches_variables_by_object(tool, run):
    said = tool("compare", run, "2", "3", "--norms", "--histogram", "model/layer/kernel", "--json")
    assert said.code == 0
    found = {one["path"]: one for one in said.json["tensors"]}
    kernel = found["model/layer/kernel"]
    assert (kernel["name"], kernel["difference"]) == (key_of(LATER), "changed")
    norm = float(np.linalg.norm(KERNEL))
    assert kernel["change"]["distance"] == pytest.approx(norm)
    assert kernel["difference_statistics"]["norm"] == pytest.approx(norm)
    assert said.json["counts"]["removed"] == 0
    assert [path for path, one in found.items() if one["difference"] == "added"] == [
        "optimizer/_iterations"
    ]


def test_all_commands_count_the_same_tensors(tool, run):
    np.savez(run / "w.npz", **{"net/kernel": KERNEL, "net/bias": KERNEL[0]})
    for name in ("new-1", "new-2"):
        assert f"{name}: 2 tensors" in tool("convert", run, name, run / "w.npz").data
    assert "new-1  sound  (2 tensors" in tool("verify", run, "new-1").data
    assert tool("compare", run, "new-1", "new-2").data == "new-1 → new-2: 2 equal\n"
    totals = tool("inspect", run, "new-1", "--json").json["totals"]
    assert sum(one["tensors"] for one in totals.values()) == 2


def test_compare_names_damage_on_either_side_by_the_path(tool, run):
    (run / "ckpt-2.data-00000-of-00001").write_bytes(b"")
    said = tool("compare", run, "2", "3", "--json")
    assert said.code == 1
    found = {one["path"]: one["problem"] for one in said.json["tensors"]}
    assert found["model/layer/kernel"] == (
        "model/layer/kernel reaches beyond the end of ckpt-2.data-00000-of-00001"
    )


def test_average_matches_variables_by_object(tool, tmp_path):
    saved(tmp_path, 1, EARLIER)
    saved(tmp_path, 2, LATER)
    said = tool("average", tmp_path, "1", "2")
    assert said.words.splitlines()[1:] == [
        "  optimizer/_iterations: missing in ckpt-1, int64 scalar in ckpt-2"
    ]
    write(tmp_path / "ckpt-4", _only_named(KERNEL * 5))
    assert tool("average", tmp_path, "1", "4").code == 0
    key = key_of("other/name")
    entry = read_index(tmp_path / "average-4").entries[key]
    stored = np.frombuffer(read_tensor_bytes(tmp_path / "average-4", entry), np.float32)
    assert stored.tolist() == (KERNEL * 3).ravel().tolist()


def _only_named(kernel: np.ndarray) -> dict:
    """The same objects as in the first checkpoints, with another name of the tensor."""
    nodes = [
        Object({"model": 1, "step": 3}),
        Object({"layer": 2}),
        Object({"kernel": 4}),
        Object(attributes=[variable("step")]),
        Object(attributes=[variable("other/name", "kernel")]),
    ]
    return {
        key_of("step"): array(np.int64(4)),
        key_of("other/name"): array(kernel),
        GRAPH_KEY: graph(nodes),
    }


def test_a_restore_says_what_tensorflow_would_not_restore(tool, run):
    known = {checkpoint.name: checkpoint for checkpoint in list_checkpoints(RunDirectory(run))}
    found = check_compatibility(RunDirectory(run), known["ckpt-4"], known["ckpt-1"])
    assert found.mismatches == ("optimizer/_iterations is in the model but not in the checkpoint",)
    assert check_compatibility(RunDirectory(run), known["ckpt-1"], known["ckpt-4"]).mismatches == (
        "optimizer/_iterations is in the checkpoint but not in the model",
    )
