"""Commands on variables of SavedModels that TensorFlow Serving tests with, two of them compressed.

`tests/bundle/test_bundle_against_tensorflow.py` compares the same files with TensorFlow.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tfckpt_trainer.bundle.table import IndexTable

MODELS = Path(__file__).parent.parent / "data" / "tensorflow-serving"


@pytest.fixture
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(MODELS / request.param, tmp_path / "variables"))


def is_compressed(index: Path) -> bool:
    """Whether a block of an index is compressed with Snappy."""
    table = IndexTable(index)
    return any(table._kind(offset, size) == 1 for _, offset, size in table._handles)


HALF_PLUS_TWO = {"a": 0.5, "b": 2.0, "c": 3.0}


@pytest.mark.parametrize(
    ("run", "values"),
    [
        ("saved_model_half_plus_two_cpu", {**HALF_PLUS_TWO, "a2": 0.5, "c2": 3.0}),
        ("saved_model_half_plus_two_tf2_cpu", HALF_PLUS_TWO),
    ],
    indirect=["run"],
)
def test_a_compressed_index_is_like_any_other(tool, run, tmp_path, values):
    assert is_compressed(run / "variables.index")
    (listed,) = tool("ls", run, "--json").json["checkpoints"]
    assert (listed["name"], listed["state"]) == ("variables", "complete")
    shown = tool("inspect", run, "variables", "--json").json
    assert (shown["state"], shown["problem"]) == ("complete", "")
    assert {one["path"]: (one["dtype"], one["shape"], one["role"]) for one in shown["tensors"]} == {
        name: ("float32", [], "weight") for name in values
    }
    assert {one["what"]: one["comes_back"] for one in shown["resuming"]}["weights"] is True
    said = tool("verify", run, "variables")
    assert (said.code, said.data.splitlines()[-1]) == (0, "1 checkpoint: 1 sound.")
    assert tool("extract", run, "variables", "--to", "npz", "-o", tmp_path / "w.npz").code == 0
    with np.load(tmp_path / "w.npz") as found:
        assert {name: float(found[name]) for name in found} == values


@pytest.mark.parametrize("run", ["tf_text_regression"], indirect=True)
def test_a_model_without_variables_is_sound_and_has_nothing_to_extract(tool, run, tmp_path):
    shown = tool("inspect", run, "variables", "--json").json
    assert (shown["tensors"], shown["problem"], shown["object_graph"]) == ([], "", True)
    assert tool("verify", run, "variables").code == 0
    said = tool("extract", run, "variables", "--to", "npz", "-o", tmp_path / "w.npz")
    assert (said.code, said.words) == (2, "tfckpt-tui: variables has no numeric tensors.\n")
