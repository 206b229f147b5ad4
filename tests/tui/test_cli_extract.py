"""The commands `extract` and `convert`."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from json_reference import check

from bundle_writing import GRAPH_KEY, Object, array, graph, key_of, strings, variable, write
from command_running import Tool
from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.bundle.tensors import read_tensor_bytes
from tfckpt_trainer.bundle.verify import verify

KERNEL = np.arange(6.0, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(capsys)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a checkpoint; the current directory is another one."""
    nodes = [
        Object({"model": 1, "step": 3, "text": 4}),
        Object({"kernel": 2, "scale": 5}),
        Object(attributes=[variable("model/kernel", "kernel")]),
        Object(attributes=[variable("step")]),
        Object(attributes=[variable("text")]),
        Object(attributes=[variable("model/scale", "scale")]),
    ]
    (tmp_path / "run").mkdir()
    write(
        tmp_path / "run" / "ckpt-7",
        {
            key_of("model/kernel"): array(KERNEL),
            key_of("model/scale"): array(KERNEL[0].astype("float16")),
            key_of("step"): array(np.int64(7)),
            key_of("text"): strings([b"abc"]),
            GRAPH_KEY: graph(nodes),
        },
    )
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "run"


def test_all_numeric_tensors_are_extracted_and_the_rest_is_named(tool, run):
    said = tool("extract", run, "7", "--to", "npz")
    assert said.code == 0
    assert said.data == "ckpt-7.npz: 3 tensors, 38 B\n"
    assert said.words == "Left out, because they are not numeric: text.\n"
    with np.load("ckpt-7.npz") as found:
        assert sorted(found) == ["model/kernel", "model/scale", "step"]
        assert found["model/kernel"].tobytes() == KERNEL.tobytes()
        assert found["step"] == 7


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (["model/kernel"], ["model/kernel"]),
        ([key_of("step")], ["step"]),
        (["model/*", "step"], ["model/kernel", "model/scale", "step"]),
        (["*"], ["model/kernel", "model/scale", "step"]),
    ],
)
def test_tensors_are_chosen_by_path_name_and_pattern(tool, run, wanted, names):
    said = tool("extract", run, "ckpt-7", *wanted, "--to", "npy", "--json")
    assert said.code == 0
    found = said.json
    check("`extract`", found)
    assert found["path"] == "ckpt-7"
    assert [one["stored_as"] for one in found["tensors"]] == names
    assert found["left_out"] == ([key_of("text")] if wanted == ["*"] else [])
    files = sorted(path.as_posix() for path in Path("ckpt-7").rglob("*.npy"))
    assert files == [f"ckpt-7/{name}.npy" for name in names]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["ckpt-7", "nothing"], 2, "ckpt-7 has no tensor 'nothing'; list its tensors with"),
        (["ckpt-7", "text"], 2, "text is string; only numeric tensors can be extracted."),
        (["ckpt-9"], 2, "There is no checkpoint ckpt-9"),
    ],
)
def test_what_cannot_be_extracted_is_said(tool, run, words, code, message):
    said = tool("extract", run, *words, "--to", "npz")
    assert said.code == code
    assert message in said.words
    assert list(Path().iterdir()) == []


def test_a_file_is_not_replaced(tool, run):
    Path("mine").write_text("mine")
    said = tool("extract", run, "7", "--to", "npz", "-o", "mine")
    assert said.code == 4
    assert "mine exists; choose another file with --output." in said.words
    assert Path("mine").read_text() == "mine"


def test_damage_is_reported_and_leaves_no_file(tool, run):
    data = run / "ckpt-7.data-00000-of-00001"
    data.write_bytes(b"\1" + data.read_bytes()[1:])
    said = tool("extract", run, "7", "--to", "safetensors")
    assert said.code == 1
    assert "does not match its checksum" in said.words
    assert list(Path().iterdir()) == []


def test_wider_types_are_said(tool, run):
    import ml_dtypes

    write(run / "ckpt-8", {"w": array(np.ones(3, ml_dtypes.bfloat16)), "v": array([1.0])})
    said = tool("extract", run, "8", "--to", "npz")
    assert said.words == (
        "1 tensor of type bfloat16 became float32, because npz does not have this type. "
        "The values are the same.\n"
    )


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_a_checkpoint_goes_out_and_comes_back(tool, run, kind):
    assert tool("extract", run, "7", "--to", kind).code == 0
    said = tool("convert", run, "ckpt-8", f"ckpt-7.{kind}")
    assert said.code == 0
    assert said.data == "ckpt-8: 3 tensors, 38 B\n"
    assert "tfckpt-tui verify" in said.words
    assert verify(run / "ckpt-8").findings == ()
    before, after = read_index(run / "ckpt-7"), read_index(run / "ckpt-8")
    for name in map(key_of, ["model/kernel", "model/scale", "step"]):
        read = [read_tensor_bytes(run / "ckpt-7", before.entries[name])]
        assert read == [read_tensor_bytes(run / "ckpt-8", after.entries[name])]
    listed = tool("ls", run, "--json").json["checkpoints"]
    assert {one["name"]: one["state"] for one in listed} == {
        "ckpt-7": "complete",
        "ckpt-8": "complete",
    }
    shown = tool("inspect", run, "ckpt-8", "--json").json
    assert shown["object_graph"] is True
    assert {one["path"] for one in shown["tensors"]} == {"model/kernel", "model/scale", "step"}


def test_a_directory_is_made_and_shards_are_cut(tool, tmp_path):
    np.savez(tmp_path / "w.npz", **{f"v{n}": np.ones(100_000) for n in range(4)})
    arguments = ("--by-name", "--shard-size", 1, "--json")
    said = tool("convert", tmp_path / "new" / "run", "ckpt-0", tmp_path / "w.npz", *arguments)
    assert said.code == 0
    check("`convert`", said.json)
    assert said.json["tensors"] == 4
    assert [Path(path).name for path in said.json["files"]] == [
        "ckpt-0.data-00000-of-00002",
        "ckpt-0.data-00001-of-00002",
        "ckpt-0.index",
    ]
    assert sorted(read_index(tmp_path / "new" / "run" / "ckpt-0").entries) == [
        "v0", "v1", "v2", "v3",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "file", "code", "message"),
    [
        ("ckpt-7", "w.npz", 4, "exists; choose another name"),
        ("../up", "w.npz", 2, "'../up' is not a valid checkpoint name; use one such as ckpt-0."),
        ("ckpt-8", "missing.npz", 2, "missing.npz is not a file"),
        ("ckpt-8", "text", 1, "text is not a valid safetensors file"),
    ],
)
def test_what_cannot_be_converted_is_said(tool, run, name, file, code, message):
    np.savez("w.npz", a=np.ones(3))
    Path("text").write_text("no tensors here")
    before = sorted(run.iterdir())
    said = tool("convert", run, name, file)
    assert said.code == code
    assert message in said.words
    assert sorted(run.iterdir()) == before


def test_the_name_of_a_pruned_checkpoint_is_not_used_again(tool, run):
    for step in (8, 9):
        write(run / f"ckpt-{step}", {"a": array([1.0])})
    for path in run.iterdir():
        os.utime(path, (1e9, 1e9))
    assert tool("prune", run, "ckpt-7", "--yes").code == 0
    np.savez("w.npz", a=np.ones(3))
    said = tool("convert", run, "ckpt-7", "w.npz")
    assert said.code == 4
    assert "choose another name" in said.words


def test_a_missing_option_is_named_in_one_line(tool: Tool, tmp_path: Path) -> None:
    said = tool("extract", tmp_path, "1")
    assert said.code == 2
    assert "'--to'. Choose from: npy, npz, safetensors. See `tfckpt-tui extract" in said.words
