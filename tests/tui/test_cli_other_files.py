"""Checkpoint directories as hubs, Git LFS and other programs leave them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest
from checkpoint_directory import contents
from rundir_factory import two_branches, without_heartbeats

from bundle_writing import array, write
from command_running import Tool
from tfckpt_trainer.rundir.paths import position_in_name
from tfckpt_tui.formats import units
from tfckpt_tui.services.runs.search import runs_below


def save(root: Path, *steps: int) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for step in steps:
        for path in write(root / f"ckpt-{step}", {"w": array(np.ones(300) * step)}):
            os.utime(path, (1e9 + step, 1e9 + step))


def hub_cache(root: Path) -> Path:
    """A snapshot of links to blobs, as the hub of Hugging Face stores it."""
    save(root / "made", 1, 2)
    snapshot, blobs = root / "snapshots" / "abc", root / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, path in enumerate(sorted((root / "made").iterdir())):
        path.rename(blobs / f"{number:040x}")
        (snapshot / path.name).symlink_to(f"../../blobs/{number:040x}")
    return snapshot


def test_files_of_one_save_of_weights_are_no_epochs(tool: Tool, tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / "m.weights.json").write_text("{}")
    for name in ("m_00000.weights.h5", "m_00001.weights.h5", "n_00002.weights.h5"):
        (tmp_path / name).write_bytes(b"\0")
    listed = tool("ls", tmp_path, "--json").json["other_files"]
    assert {one["name"]: one["epoch"] for one in listed} == {
        "m_00000.weights.h5": None,
        "m_00001.weights.h5": None,
        "n_00002.weights.h5": 2,
    }


def test_an_epoch_of_files_of_keras_names_them(tool: Tool, tmp_path: Path) -> None:
    save(tmp_path, 1)
    for epoch in range(7, 10):
        (tmp_path / f"m-{epoch:02}.weights.h5").write_bytes(b"\0")
    for words in (["inspect"], ["compare", "1"], ["verify"]):
        said = tool(words[0], tmp_path, *words[1:], "08")
        assert said.code == 2
        assert "There is no checkpoint 08, but" in said.words
        assert "m-08.weights.h5 (epoch 8). Give the name of one." in said.words
    assert "m-0" not in tool("inspect", tmp_path, "5").words


def test_a_hub_cache_is_read_and_never_pruned(tool: Tool, tmp_path: Path) -> None:
    root = hub_cache(tmp_path)
    blobs = contents(tmp_path / "blobs")
    listed = tool("ls", root, "--json").json
    assert [(one["name"], one["state"]) for one in listed["checkpoints"]] == [
        ("ckpt-2", "complete"),
        ("ckpt-1", "complete"),
    ]
    assert [one["kind"] for one in listed["diagnostics"]] == ["link-elsewhere"]
    said = tool("extract", root, "1", "--to", "npz", "-o", tmp_path / "out.npz")
    assert said.code == 0, said.words
    with np.load(tmp_path / "out.npz") as found:
        assert found["w"].tolist() == [1.0] * 300
    assert tool("verify", root).data.endswith("2 checkpoints: 2 sound.\n")
    assert tool("compare", root, "1", "2").code == 0
    for words in (["ckpt-1", "--yes"], ["ckpt-1", "--delete", "--yes"]):
        said = tool("prune", root, *words)
        assert (said.code, "symbolic links are not moved" in said.words) == (4, True), said
    tool("prune", root, "--keep-last", "1", "--yes")
    said = tool("edit", root, "1", "--rename", "w", "v", "--name", "new-1", "--yes")
    assert said.code == 0, said.words
    assert contents(tmp_path / "blobs") == blobs
    assert all((root / f"ckpt-{step}.index").is_symlink() for step in (1, 2))


POINTER = """version https://git-lfs.github.com/spec/v1
oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393
size 12345
"""


PARTS = pytest.mark.parametrize("suffix", ["index", "data-00000-of-00001"])


@PARTS
def test_a_pointer_of_git_lfs_is_said_once(tool: Tool, tmp_path: Path, suffix: str) -> None:
    save(tmp_path, 1, 2)
    (tmp_path / f"ckpt-2.{suffix}").write_text(POINTER)
    for _ in range(2):
        # The second time after `verify`.
        (found, _) = tool("ls", tmp_path, "--json").json["checkpoints"]
        assert (found["name"], found["state"]) == ("ckpt-2", "unreadable")
        assert "`git lfs pull` fetches" in tool("ls", tmp_path).data
        said = tool("verify", tmp_path)
        assert said.data.count("git lfs pull") == 1
        assert f"ckpt-2  unreadable  ({units.size(found['bytes'])})\n" in said.data
    extracted = tool("extract", tmp_path, "2", "--to", "npz", "-o", tmp_path / "x")
    assert "git lfs pull" in extracted.words
    inspected = tool("inspect", tmp_path, "2").data
    assert "git lfs pull" in inspected and "damaged" not in inspected


def test_a_pointer_of_git_lfs_is_said_once_with_a_record_too(tool: Tool, tmp_path: Path) -> None:
    run = without_heartbeats(two_branches(tmp_path / "run")).run
    (run.root / "ckpt-300.data-00000-of-00001").write_text(POINTER)
    assert tool("verify", run.root, "300").data.count("git lfs pull") == 1


@PARTS
def test_no_rule_deletes_a_pointer_of_git_lfs(tool: Tool, tmp_path: Path, suffix: str) -> None:
    save(tmp_path, 1, 2, 3)
    (tmp_path / f"ckpt-2.{suffix}").write_text(POINTER)
    os.utime(tmp_path / f"ckpt-2.{suffix}", (1e9, 1e9))
    said = tool("prune", tmp_path, "--keep-last", "1", "--yes", "--json").json
    reasons = {one["name"]: (one["keep"], one["reason"]) for one in said["plan"]["decisions"]}
    keep, reason = reasons["ckpt-2"]
    assert keep and "delete it by name (`git lfs pull` fetches ckpt-2." in reason
    assert not reasons["ckpt-1"][0]


def test_checkpoints_below_and_files_of_other_formats_are_named(tool: Tool, tmp_path: Path) -> None:
    save(tmp_path, 1)
    save(tmp_path / "best", 2)
    for name in ("model.keras", "a.weights.h5", "b.h5", "c.safetensors", "notes.txt"):
        (tmp_path / name).write_bytes(b"\0")
    for place, name in (
        ("saved", "saved_model.pb"),
        ("7", "_CHECKPOINT_METADATA"),
        ("step-500", "model.safetensors"),
        ("backup", "latest.weights.h5"),
        # Where this library exports to.
        ("exports", "ckpt-1.keras"),
    ):
        (tmp_path / place).mkdir()
        (tmp_path / place / name).write_bytes(b"\0")
    (tmp_path / "backup" / "training_metadata.json").write_text('{"epoch": 4, "batch": 0}')
    found = tool("ls", tmp_path, "--json").json
    notes = {one["name"]: one["message"] for one in found["diagnostics"]}
    listed = f"List them with `tfckpt-tui ls {tmp_path}/backup`."
    assert f"not listed: backup and best. {listed}" in notes["backup"]
    others = {one["name"]: one for one in found["other_files"]}
    for name, reader in (
        ("model.keras", "keras.models.load_model"),
        ("a.weights.h5", "model.load_weights"),
        ("b.h5", "keras.models.load_model or model.load_weights"),
        ("c.safetensors", "tfckpt-tui convert"),
        ("saved", "tf.saved_model.load"),
        ("7", "orbax.checkpoint"),
        ("step-500", "tfckpt-tui convert"),
    ):
        assert others.pop(name)["loaded_by"] == reader
    assert not others
    backup = tool("ls", tmp_path / "backup", "--json").json["other_files"]
    assert [(one["name"], one["epoch"]) for one in backup] == [("latest.weights.h5", 4)]
    assert "1 checkpoint, current ckpt-1; 7 files of other formats" in tool("status", tmp_path).data


@pytest.mark.parametrize(
    "text", [b'{"a":' * 9000, b'{"epoch": ' + b"9" * 5000 + b"}", b"\xff", b"[]"]
)
def test_a_damaged_note_of_keras_tells_no_epoch(tool: Tool, tmp_path: Path, text: bytes) -> None:
    (tmp_path / "latest.weights.h5").write_bytes(b"\0")
    (tmp_path / "training_metadata.json").write_bytes(text)
    found = tool("ls", tmp_path, "--json")
    assert found.code == 0
    assert [one["epoch"] for one in found.json["other_files"]] == [None]
    assert tool("status", tmp_path).code == 0


@pytest.mark.parametrize("member", ["model.weights.h5", "config.json", "a.npy"])
def test_an_archive_that_unpacks_to_far_more_is_refused_unread(
    tool: Tool, tmp_path: Path, member: str
) -> None:
    with ZipFile(tmp_path / "model.keras", "w", ZIP_DEFLATED) as archive:
        archive.writestr("metadata.json", "{}")
        with archive.open(member, "w") as file:
            for _ in range(80):
                file.write(bytes(1 << 20))
    said = tool("verify", tmp_path, "model.keras")
    assert said.code == 1
    assert "and would unpack to 83.9 MB" in said.data
    for words in (["inspect"], ["convert", "-o", tmp_path / "c"]):
        assert tool(words[0], tmp_path, "model.keras", *words[1:]).code != 0


def test_a_directory_of_keras_is_a_history(tool: Tool, tmp_path: Path) -> None:
    for age, name in enumerate(("w-03-0.11.weights.h5", "w-02-0.25.weights.h5", "best\x1b.keras")):
        (tmp_path / name).write_bytes(bytes(1000))
        os.utime(tmp_path / name, (time.time() - 3600 * age,) * 2)
    rows = [line.split() for line in tool("ls", tmp_path).data.splitlines()]
    assert [(row[0], row[3:6]) for row in rows[-3:-1]] == [
        ("w-03-0.11.weights.h5", ["epoch", "3", "1.00"]),
        ("w-02-0.25.weights.h5", ["epoch", "2", "1.00"]),
    ]
    assert rows[-1][0] == "best\u241b.keras" and rows[-1][-2:] == ["2h", "keras.models.load_model"]


@pytest.mark.parametrize(
    ("name", "position"),
    [
        ("05.keras", (5, None)),
        ("weights.05-0.23.hdf5", (5, None)),
        ("cp-0010.weights.h5", (10, None)),
        ("epoch=7-val_loss=0.10.keras", (7, None)),
        ("model_step_1000.h5", (None, 1000)),
        ("e3-step12.weights.h5", (3, 12)),
        ("resnet50-v2.keras", (None, None)),
        ("lr1e-5.keras", (None, None)),
        ("model-00001-of-00003.safetensors", (None, None)),
        ("run-3-epoch-12.keras", (12, None)),
    ],
)
def test_epoch_and_step_in_a_name(name: str, position: tuple[int | None, int | None]) -> None:
    assert position_in_name(name) == position


@pytest.mark.parametrize("kind", ["plain", "managed"])
def test_runs_finds_checkpoints_below_a_directory_with_checkpoints(
    tmp_path: Path, kind: str
) -> None:
    root = tmp_path / "run"
    save(root, 1)
    save(root / "best", 2)
    if kind == "managed":
        (root / "checkpoint").write_text('model_checkpoint_path: "ckpt-1"\n')
    (root / ".hidden").mkdir()
    save(root / ".hidden", 3)
    # It belongs to the run above; alone, it is one.
    for backup in (root / "backup", tmp_path / "saved"):
        backup.mkdir()
        (backup / "latest.weights.h5").write_bytes(bytes(1000))
    assert runs_below(tmp_path) == [root, tmp_path / "saved", root / "best"]
