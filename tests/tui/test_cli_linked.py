"""A checkpoint that is made of symbolic links, at the command line."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from bundle_writing import array, write
from command_running import Tool


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(capsys)


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    for step in (1, 2, 3):
        at = time.time() - 3600 + step
        for path in write(tmp_path / f"ckpt-{step}", {"v": array([float(step)] * 100)}):
            os.utime(path, (at, at))
            if step == 1:
                (tmp_path / path.name.replace("ckpt-1", "best")).symlink_to(path.name)
    return tmp_path


def test_it_reads_as_its_target(tool: Tool, linked: Path) -> None:
    shown, target = (tool("inspect", linked, name, "--json").json for name in ("best", "ckpt-1"))
    assert shown["tensors"] == target["tensors"]
    said = tool("verify", linked, "best")
    assert (said.code, said.data.split()[:2]) == (0, ["best", "sound"])
    said = tool("compare", linked, "best", "ckpt-1", "--json")
    assert (said.code, said.words) == (0, "")
    assert said.json["problems"] == []


def test_no_command_moves_it_or_what_it_leads_to(tool: Tool, linked: Path) -> None:
    before = {path.name: path.read_bytes() for path in linked.glob("*.*")}
    for name, reason in [
        ("best", "symbolic links are not moved; if you do not need it, run `rm "),
        ("ckpt-1", "best is a symbolic link to it"),
    ]:
        said = tool("prune", linked, name, "--yes", "--beside-trainer")
        assert said.code == 4
        assert reason in said.words
    said = tool("prune", linked, "--keep-last", "1", "--yes", "--beside-trainer")
    assert said.code == 0
    there = {path.name: path.read_bytes() for path in linked.glob("*.*") if path.is_file()}
    assert there == {name: data for name, data in before.items() if "ckpt-2" not in name}
