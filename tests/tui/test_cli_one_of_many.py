"""A command on one named checkpoint looks at no other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bundle_writing import array, write
from command_running import Tool
from tfckpt_trainer.catalog.scan.catalog import Catalog

MANY = 200


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(capsys)


@pytest.fixture
def many(tmp_path: Path) -> Path:
    for step in range(MANY):
        write(tmp_path / f"ckpt-{step}", {"w": array([float(step)])})
    # Another checkpoint whose name begins like the one that is looked for.
    write(tmp_path / "ckpt-7.index.ckpt", {"w": array([1.0])})
    return tmp_path


COMMANDS = [
    ("inspect", "ckpt-7"),
    ("compare", "ckpt-7", "ckpt-8"),
    ("verify", "ckpt-7"),
    ("pin", "ckpt-7"),
    ("unpin", "ckpt-7"),
    ("extract", "ckpt-7", "--to", "npz", "-o", "out.npz"),
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_other_files_are_not_looked_at(tool, many, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    seen = []

    def lstat(path, *rest, real=os.lstat, **options):
        seen.append(os.fspath(path))
        return real(path, *rest, **options)

    monkeypatch.setattr(os, "lstat", lstat)
    monkeypatch.setattr(Catalog, "scan", None)
    said = tool(words[0], many, *words[1:])
    assert said.code == 0
    names = {os.path.basename(path).partition(".")[0] for path in seen}
    assert {name for name in names if name.startswith("ckpt-")} <= {"ckpt-7", "ckpt-8"}


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_a_name_and_a_step_lead_to_the_same(tool, many, command):
    found = [tool(command, many, text, "--json").json for text in ("ckpt-7", "7")]
    for one in found:
        for checkpoint in one.get("checkpoints", []):
            checkpoint.pop("seconds")
            checkpoint.pop("remembered", None)
            checkpoint.pop("verified_at", None)
    assert found[0] == found[1]


def test_damage_is_found_without_the_others(tool, many):
    (many / "ckpt-7.data-00000-of-00001").write_bytes(b"")
    (many / "ckpt-8.index").write_bytes(b"no index")
    states = [tool("inspect", many, name, "--json").json["state"] for name in ("ckpt-7", "ckpt-8")]
    assert states == ["incomplete", "corrupt"]


def test_a_link_is_described_by_its_target(tool, many):
    for part in ("index", "data-00000-of-00001"):
        (many / f"best.{part}").symlink_to(f"ckpt-7.{part}")
    found = tool("inspect", many, "best", "--json").json
    assert found["problem"] == "It is a symbolic link to ckpt-7. Name ckpt-7 instead."
