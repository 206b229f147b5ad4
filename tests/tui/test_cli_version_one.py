"""Checkpoints in TensorFlow's V1 format: listed, and refused with the way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from bundle_writing import array, write


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A directory with one such checkpoint and its graph, and without a state file."""
    index = write(tmp_path / "made", {"a": array([1.0])})[-1]
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "model.ckpt-100").write_bytes(index.read_bytes())
    (tmp_path / "old" / "model.ckpt-100.meta").write_bytes(b"graph")
    return tmp_path / "old"


def test_the_directory_is_opened_and_the_checkpoint_listed(tool, old):
    said = tool("ls", old)
    assert said.code == 0
    assert "NOT SUPPORTED   FORMAT   SIZE  FILES" in said.data
    assert "model.ckpt-100  V1      " in said.data
    assert "import_meta_graph" in said.words
    found = tool("ls", old, "--json").json
    assert found["checkpoints"] == []
    assert [(one["name"], one["format"], one["files"]) for one in found["unsupported"]] == [
        ("model.ckpt-100", "V1", ["model.ckpt-100", "model.ckpt-100.meta"])
    ]


@pytest.mark.parametrize("name", ["model.ckpt-100", "model.ckpt-100.meta"])
@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_it_is_refused_by_name(tool, old, command, name):
    said = tool(command, old, name)
    assert said.code == 4
    assert f"{name} is in TensorFlow's V1 format, which is not supported." in said.words
    assert f"`tfckpt-tui ls {old}` says how to convert it." in said.words


@pytest.mark.parametrize("command", ["inspect", "prune"])
def test_it_is_refused_by_step(tool, old, command):
    said = tool(command, old, "100")
    assert said.code == 4
    assert "100 is in TensorFlow's V1 format, which is not supported." in said.words


def test_verify_says_what_it_did_not_read(tool, old):
    said = tool("verify", old)
    assert "model.ckpt-100 was skipped (It is in TensorFlow's V1 format" in said.words
    skipped = tool("verify", old, "--json").json["skipped"]
    assert [one["name"] for one in skipped] == ["model.ckpt-100"]


def test_a_prune_never_takes_its_files(tool, old):
    before = sorted(path.name for path in old.iterdir())
    assert tool("prune", old, "model.ckpt-100", "--yes").code == 4
    assert tool("prune", old, "--keep-last", "1", "--yes").code == 0
    assert sorted(path.name for path in old.iterdir() if path.name != ".tfckpt") == before
