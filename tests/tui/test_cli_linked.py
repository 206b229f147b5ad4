"""A checkpoint that is made of symbolic links, at the command line."""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path

import pytest
from checkpoint_directory import CheckpointDirectory

from bundle_writing import array, write
from command_running import Tool


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


def test_links_are_listed_with_their_targets(tool: Tool, linked: Path) -> None:
    listed = {one["name"]: one for one in tool("ls", linked, "--json").json["checkpoints"]}
    assert listed["best"]["links"] == [
        {"name": f"best.{part}", "target": f"ckpt-1.{part}"}
        for part in ("data-00000-of-00001", "index")
    ]
    assert listed["ckpt-1"]["links"] == []
    assert "It is a symbolic link to ckpt-1." in tool("ls", linked).data


@pytest.mark.parametrize("target", ["../{}", "{root}/{}"], ids=["relative", "absolute"])
def test_the_target_of_a_link_in_a_subdirectory_is_in_use(
    tool: Tool, linked: Path, target: str
) -> None:
    (linked / "best").mkdir()
    for part in ("index", "data-00000-of-00001"):
        place = target.format(f"ckpt-2.{part}", root=linked)
        (linked / "best" / f"ckpt.{part}").symlink_to(place)
    (linked / "best" / "elsewhere.index").symlink_to("/nowhere/ckpt-3.index")
    said = tool("prune", linked, "ckpt-2", "--yes", "--beside-trainer")
    assert said.code == 4
    assert re.search(r"best/ckpt\.\S+ is a symbolic link to it", said.words)
    said = tool("prune", linked, "--keep-last", "1", "--yes", "--beside-trainer")
    assert said.code == 0
    assert (linked / "ckpt-2.index").exists()
    shutil.rmtree(linked / "best")
    assert tool("prune", linked, "ckpt-2", "--yes", "--beside-trainer").code == 0
    assert not (linked / "ckpt-2.index").exists()


def test_commands_that_need_its_target_name_it(tool: Tool, linked: Path) -> None:
    (linked / "loop.index").symlink_to("loop.index")
    said = tool("pin", linked, "best")
    assert said.code == 2
    assert "best is a symbolic link to ckpt-1 and cannot be pinned." in said.words
    assert f"`tfckpt-tui pin {linked} ckpt-1`" in said.words
    assert "Prunes never move links." in tool("pin", linked, "loop").words
    said = tool("edit", linked, "best", "--cast", "v", "float16")
    assert "It is a symbolic link to ckpt-1. Name ckpt-1 instead." in said.words


def test_a_link_to_itself_is_incomplete_for_every_command(tool: Tool, linked: Path) -> None:
    (linked / "loop.index").symlink_to("loop.index")
    listed = {one["name"]: one for one in tool("ls", linked, "--json").json["checkpoints"]}
    assert listed["loop"]["state"] == "incomplete"
    said = tool("verify", linked, "loop")
    assert said.data.startswith("loop  incomplete")
    assert "loop.index is a symbolic link that leads to no file" in said.data


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


@pytest.mark.parametrize("directory", [".tfckpt", ".tfckpt/records", ".tfckpt/control/inbox"])
def test_a_run_whose_own_directories_are_links_is_refused(
    tool: Tool, tmp_path: Path, directory: str
) -> None:
    made = CheckpointDirectory(tmp_path / "run")
    made.run.create()
    made.ours(1)
    root, elsewhere = made.run.root, tmp_path / "elsewhere"
    shutil.move(root / directory, elsewhere)
    (root / directory).symlink_to(elsewhere)
    before = sorted(elsewhere.rglob("*"))
    for words in (["ls"], ["status"], ["verify"], ["journal"], ["prune", "--keep-last", "1"]):
        said = tool(words[0], root, *words[1:])
        assert said.code == 4, words
        assert f"{root / directory} is a symbolic link; expected a directory" in said.words
        assert "Remove the link." in said.words
    assert sorted(elsewhere.rglob("*")) == before
    assert "Traceback" not in tool("runs", tmp_path).words


def test_a_run_directory_may_be_a_link(tool: Tool, tmp_path: Path) -> None:
    made = CheckpointDirectory(tmp_path / "scratch")
    made.run.create()
    made.ours(1)
    (tmp_path / "run").symlink_to("scratch")
    assert tool("verify", tmp_path / "run").code == 0
    assert any(made.run.verifications_directory.iterdir())
    assert tool("copy", tmp_path / "run", "1", tmp_path / "copy").code == 0
