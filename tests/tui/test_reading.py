"""Checkpoints and runs, read from Python without TensorFlow."""

from __future__ import annotations

import ast
import math
import mmap
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from rundir_factory import two_branches

import tfckpt_tui
from bundle_writing import (
    GRAPH_KEY,
    Object,
    Stored,
    array,
    graph,
    in_parts,
    key_of,
    rows,
    strings,
    variable,
    variants,
    write,
)
from documentation import DOCS, ROOT, python_blocks
from tfckpt_trainer.catalog.scan.foreign_writers import foreign_writers
from tfckpt_trainer.errors import BundleError, RefusedError, TfckptError, UsageError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import SeriesPoint
from tfckpt_trainer.rundir.storage.documents import append
from tfckpt_tui import open_checkpoint, open_run
from tfckpt_tui.services.runs.report import status_report

PAGE = DOCS / "how-to" / "read-from-python.md"
REFERENCE = DOCS / "reference" / "python.md"
PATH = "model/sequential/dense/kernel"
KERNEL = np.arange(12, dtype=np.float32).reshape(3, 4)


def write_model(prefix: Path, kernel: np.ndarray = KERNEL) -> list[Path]:
    """A model with one layer, as `tf.train.Checkpoint(model=model)` saves it."""
    nodes = [
        Object({"model": 1}),
        Object({"dense": 2}),
        Object({"kernel": 3}),
        Object(attributes=[variable("model/dense/kernel", "sequential/dense/kernel")]),
    ]
    return write(prefix, {key_of("model/dense/kernel"): array(kernel), GRAPH_KEY: graph(nodes)})


def is_mapped(found: np.ndarray) -> bool:
    while isinstance(found, np.ndarray):
        found = found.base
    return isinstance(getattr(found, "obj", found), mmap.mmap)


def test_the_page_runs_as_it_stands(tmp_path, monkeypatch, capsys):
    made = two_branches(tmp_path / "runs" / "digits", live=True)
    made.run.record("ckpt-500").unlink()
    write_model(made.run.root / "ckpt-500")
    monkeypatch.chdir(tmp_path)
    pandas = SimpleNamespace(DataFrame=dict, concat=lambda frames, names: (frames, names))
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    names: dict[str, object] = {}
    for block in python_blocks(PAGE):
        exec(block, names)
    shown = capsys.readouterr().out
    assert shown.startswith("(3, 4) float32 11.0\n")
    assert f"{PATH} float32 (3, 4) weight" in shown
    assert "ckpt-300 300 verified" in shown
    assert names["result"].ok
    assert list(names["model"].children) == ["dense"]
    assert names["everything"][0]["loss"].keys() == names["frame"].keys()


VALUES = {
    "scalar": np.array(7, np.int64),
    "empty": np.zeros((0, 3), np.float32),
    "flag": np.array([True, False]),
    "half": np.arange(5).astype(ml_dtypes.bfloat16),
    "complex": np.array([1 + 2j], np.complex64),
    "odd": np.arange(7, dtype=np.int8),
    "after an odd offset": KERNEL,
}


def test_tensors_are_the_arrays_that_were_saved(tmp_path):
    tensors = {name: array(values) for name, values in VALUES.items()}
    tensors["parts"] = in_parts(KERNEL, rows(3, 4, 1, 2))
    tensors["texts"] = strings([b"a", b"", b"long"], (3, 1))
    write(tmp_path / "ckpt-1", tensors)
    checkpoint = open_checkpoint(tmp_path / "ckpt-1.index")
    for name, values in {**VALUES, "parts": KERNEL}.items():
        for found in (checkpoint[name], checkpoint.read(name)):
            assert found.dtype == values.dtype
            np.testing.assert_array_equal(found, values)
        assert not checkpoint[name].flags.writeable
        assert checkpoint.read(name).flags.writeable
        assert is_mapped(checkpoint[name]) is (name not in {"empty", "parts"})
    assert checkpoint["texts"].tolist() == [[b"a"], [b""], [b"long"]]
    assert set(checkpoint) == checkpoint.tensors.keys() == set(checkpoint.keys()) == set(tensors)
    assert checkpoint.tensors["half"].dtype == "bfloat16"
    assert checkpoint.tensors["parts"].bytes == KERNEL.nbytes
    assert checkpoint.objects is None
    assert checkpoint.problem == ""


def test_a_tensor_has_the_names_that_commands_take(tmp_path):
    write_model(tmp_path / "ckpt-1")
    checkpoint = open_checkpoint(str(tmp_path / "ckpt-1"))
    assert list(checkpoint) == [PATH]
    assert key_of("model/dense/kernel") in checkpoint
    np.testing.assert_array_equal(checkpoint[key_of("model/dense/kernel")], KERNEL)
    with pytest.raises(KeyError, match=r"^ckpt-1 has no tensor 'kernle'") as caught:
        checkpoint["kernle"]
    assert isinstance(caught.value, UsageError)
    with pytest.raises(KeyError, match=f"Did you mean {PATH}"):
        checkpoint.read("dense")


def test_damage_is_found_by_read_and_verify(tmp_path):
    data, _ = write_model(tmp_path / "ckpt-1")
    assert open_checkpoint(tmp_path / "ckpt-1").verify(finite=True).ok
    data.write_bytes(b"\xff" + data.read_bytes()[1:])
    checkpoint = open_checkpoint(tmp_path / "ckpt-1")
    with pytest.raises(BundleError, match=f"{PATH} does not match its checksum"):
        checkpoint.read(PATH)
    assert checkpoint[PATH][1, 1] == KERNEL[1, 1], "mapped: not checked"
    result = checkpoint.verify()
    assert not result.ok
    assert [one.kind for one in result.findings] == ["checksum"]


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (Stored(1, (1 << 40,), [bytes(8)]), "has 8 bytes; expected"),
        (Stored(1, (1 << 40,), [bytes(8)], size=1 << 42), "ends at byte 8"),
        (Stored(1, (2,), [bytes(8)], offset=1 << 62), "ends at byte 8"),
        (Stored(1, (), [b"123"]), "has 3 bytes; expected 4"),
        (strings([b"a"], (1 << 30,)), "more strings than bytes"),
        (variants([b"state"]), "is a variant, which no array can hold"),
    ],
)
def test_an_index_that_lies_is_refused(tmp_path, tensor, message):
    write(tmp_path / "ckpt-1", {"lie": tensor})
    checkpoint = open_checkpoint(tmp_path / "ckpt-1")
    for take in (checkpoint.__getitem__, checkpoint.read):
        with pytest.raises(TfckptError, match=message):
            take("lie")


def test_a_data_file_that_is_missing_or_cut_is_reported(tmp_path):
    data, _ = write_model(tmp_path / "ckpt-1")
    cut, missing = open_checkpoint(tmp_path / "ckpt-1"), open_checkpoint(tmp_path / "ckpt-1")
    os.truncate(data, 20)
    with pytest.raises(BundleError, match="ends at byte 20"):
        cut[PATH]
    # The object graph is in a data file too: without it, tensors have the names of TensorFlow.
    assert open_checkpoint(tmp_path / "ckpt-1").problem
    data.unlink()
    with pytest.raises(FileNotFoundError):
        missing[PATH]


def test_a_checkpoint_that_was_saved_again_is_not_mapped_with_the_old_index(tmp_path):
    write_model(tmp_path / "best")
    held = open_checkpoint(tmp_path / "best")
    mapped = held[PATH]
    old = open_checkpoint(tmp_path / "best")
    (tmp_path / "new").mkdir()
    for path in write_model(tmp_path / "new" / "best", -KERNEL):
        path.rename(tmp_path / path.name)
    with pytest.raises(RefusedError, match="Open it again"):
        old[PATH]
    np.testing.assert_array_equal(mapped, KERNEL)
    np.testing.assert_array_equal(held[PATH], KERNEL)
    np.testing.assert_array_equal(open_checkpoint(tmp_path / "best")[PATH], -KERNEL)


def test_on_a_network_disk_tensors_are_read_and_checked(tmp_path, monkeypatch):
    from tfckpt_tui.reading import checkpoint_reader

    monkeypatch.setattr(checkpoint_reader, "is_network_file_system", lambda path: True)
    write_model(tmp_path / "ckpt-1")
    found = open_checkpoint(tmp_path / "ckpt-1")[PATH]
    assert not is_mapped(found)
    assert not found.flags.writeable


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("run", r"is a directory. Open one of its checkpoints, .*open_run\(.*run'\).open\(\)"),
        ("/", "is a directory"),
        ("run/ckpt-7", "There is no checkpoint .*run/ckpt-7: ckpt-7.index does not exist"),
        ("gs://bucket/ckpt-7", "gs://bucket/ckpt-7 cannot be a checkpoint"),
    ],
)
def test_what_is_no_checkpoint_is_refused(tmp_path, monkeypatch, path, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    with pytest.raises(UsageError, match=message):
        open_checkpoint(path)


def test_text_from_disk_is_escaped_in_notebooks(tmp_path):
    root = tmp_path / "<b>run"
    root.mkdir()
    write(root / "<img src=x>-1", {"<script>\x1b[2J": array(KERNEL)})
    for shown in (
        open_checkpoint(root / "<img src=x>-1")._repr_html_(),
        open_run(root)._repr_html_(),
    ):
        assert re.findall(r"<(?!/?(?:table|caption|tr|th|td)>)", shown) == []
        assert "\x1b" not in shown
        assert "&lt;img src=x&gt;-1" in shown


def test_a_notebook_shows_the_first_tensors_and_counts_the_others(tmp_path):
    write(tmp_path / "ckpt-1", {f"v{n}": array(KERNEL) for n in range(250)})
    shown = open_checkpoint(tmp_path / "ckpt-1")._repr_html_()
    assert shown.count("<tr>") == 102
    assert "… and 150 more" in shown


def test_a_run_is_what_status_says(tmp_path):
    made = two_branches(tmp_path / "run", live=True)
    broken = {"loss": None, "accuracy": 0.5}
    append(made.run.series, SeriesPoint(at=made.now, step=439, branch=1, metrics=broken))
    run, status = open_run(made.run.root), status_report(made.run).run
    for field in ("state", "reason", "step", "branch", "total_steps"):
        assert getattr(run, field) == getattr(status, field)
    assert [one.name for one in run.checkpoints][:2] == ["ckpt-b1-400", "ckpt-500"]
    assert run.lineage()[:2] == ("ckpt-b1-400", "ckpt-300")
    assert run.lineage(500) == tuple(f"ckpt-{step}" for step in range(500, 0, -100))
    assert run.open().path.name == "ckpt-b1-400"
    assert run.open("ckpt-200").path == made.run.root / "ckpt-200"
    loss, accuracy = run.metrics["loss"], run.metrics["accuracy"]
    assert math.isnan(loss.values[-1])
    assert (loss.steps[-2], loss.branches[-2], loss.branches[0]) == (436, 1, 0)
    assert accuracy.values.tolist() == [0.5]
    with pytest.raises(UsageError, match="77"):
        run.open(77)
    assert repr(run) == f"<RunReader {str(made.run.root)!r}: training at step 438, 6 checkpoints>"


def test_a_metric_is_a_frame_of_pandas_where_it_is_installed(tmp_path, monkeypatch):
    loss = open_run(two_branches(tmp_path / "run").run.root).metrics["loss"]
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=dict))
    frame = loss.to_pandas()
    assert list(frame) == ["at", "step", "branch", "value"]
    assert [column[-1] for column in frame.values()] == [
        loss.times[-1],
        loss.steps[-1],
        loss.branches[-1],
        loss.values[-1],
    ]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match="`pip install pandas`"):
        loss.to_pandas()


def test_any_directory_of_checkpoints_is_a_run(tmp_path):
    write_model(tmp_path / "ckpt-3")
    run = open_run(tmp_path)
    assert (run.state, run.step, run.metrics) == ("unattended", 3, {})
    np.testing.assert_array_equal(run.open()[PATH], KERNEL)


HOLD = """
import sys
from tfckpt_tui import open_checkpoint, open_run
kernel = open_checkpoint(sys.argv[1])["model/sequential/dense/kernel"]
open_run
print(sorted({"tensorflow", "textual", "keras"} & sys.modules.keys()), flush=True)
sys.stdin.read()
"""


@pytest.mark.e2e
def test_another_process_that_maps_a_checkpoint_uses_it_and_needs_no_tensorflow(tmp_path):
    write_model(tmp_path / "ckpt-1")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path / "ckpt-1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout.readline() == "[]\n"
        opened = foreign_writers(RunDirectory(tmp_path), time.time()).open_checkpoints
        holder.stdin.close()
    assert opened == {"ckpt-1"}


def exported(package: str) -> list[str]:
    """`__all__` of a package, without importing it."""
    tree = ast.parse((ROOT / package / "__init__.py").read_text())
    (names,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    return names


@pytest.mark.parametrize(
    "package", ["trainer/tfckpt_trainer", "trainer/tfckpt_trainer/training", "tui/tfckpt_tui"]
)
def test_what_is_public_is_documented_and_nothing_else(package):
    page = REFERENCE.read_text()
    module = package.partition("/")[2].replace("/", ".")
    lines = re.findall(rf"^from {re.escape(module)} import (.+)$", page, re.MULTILINE)
    names = {name for line in lines for name in line.split(", ")}
    elsewhere = {"__version__", "SaveOptions", "SaveWhen", "StrategyName", "TrainingRun"}
    assert set(exported(package)) - elsewhere == names - elsewhere
    for name in names:
        assert re.search(rf"^::: tfckpt_\S+\.{name}$", page, re.MULTILINE), name


def test_only_public_names_are_listed():
    assert dir(tfckpt_tui) == sorted(tfckpt_tui.__all__)
    assert all(hasattr(tfckpt_tui, name) for name in tfckpt_tui.__all__)
    with pytest.raises(AttributeError):
        tfckpt_tui.open_nothing  # noqa: B018
