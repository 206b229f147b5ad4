"""A directory full of files of other programs: no command counts, moves or deletes any of them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from zipfile import ZipFile

import pytest

from accounts import BOB, GROUP
from bundle_writing import write_floats
from command_running import Tool
from requirements import needs
from tfckpt_trainer.launch.preflight import check_directory
from tfckpt_trainer.rundir.paths import RunDirectory

OTHERS = {
    "notes_temp/diary.txt": b"mine",
    "train.data-00000-of-00001": b"rows",
    "faiss.index": b"IxF2" + b"\1" * 200,
    "documents.index": b"",
    "._ckpt-2.index": bytes.fromhex("00051607") + b"Mac OS X",
    "._ckpt-2.data-00000-of-00001": bytes.fromhex("00051607") + b"Mac OS X",
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Three checkpoints, whose files of others all changed a day ago."""
    for step in (1, 2, 3):
        write_floats(tmp_path / f"ckpt-{step}", (float(step),))
    for name, content in OTHERS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    day_ago = time.time() - 86_400
    for path in (*tmp_path.rglob("*"), tmp_path):
        os.utime(path, (day_ago, day_ago))
    return tmp_path


def others_of(place: Path) -> dict[str, bytes]:
    return {name: (place / name).read_bytes() for name in OTHERS if (place / name).exists()}


@pytest.mark.parametrize("words", [[], ["--delete"]])
def test_a_prune_by_rules_takes_checkpoints_alone(tool: Tool, place: Path, words: list[str]):
    said = tool("prune", place, "--keep-last", "1", "--yes", "--json", *words)
    assert said.code == 0
    planned = {row["name"]: row["keep"] for row in said.json["plan"]["decisions"]}
    assert planned == {"ckpt-3": True, "ckpt-2": False, "ckpt-1": False}
    assert others_of(place) == OTHERS


def test_the_list_names_them_in_one_line_and_advises_no_prune(tool: Tool, place: Path):
    said = tool("ls", place, "--json")
    assert [one["name"] for one in said.json["checkpoints"]] == ["ckpt-3", "ckpt-2", "ckpt-1"]
    assert [one["kind"] for one in said.json["diagnostics"]][-1:] == ["stray"]
    shown = tool("ls", place)
    (line,) = [line for line in shown.words.splitlines() if "are not checkpoints" in line]
    assert line.startswith("note: notes_temp, ")
    assert "rune" not in shown.words


def test_verify_reads_checkpoints_alone(tool: Tool, place: Path):
    said = tool("verify", place)
    assert said.code == 0
    assert said.data.splitlines()[-1] == "3 checkpoints: 3 sound."


@pytest.mark.parametrize("command", ["prune", "verify", "inspect"])
@pytest.mark.parametrize("name", ["faiss", "train", "notes"])
def test_they_are_refused_by_name(tool: Tool, place: Path, command: str, name: str):
    said = tool(command, place, name)
    assert said.code != 0
    assert "not a checkpoint" in said.words or "no checkpoint" in said.words
    assert others_of(place) == OTHERS


@pytest.mark.parametrize("words", [["--yes"], ["--dry-run"]])
def test_what_is_only_likely_to_be_one_is_not_deleted_for_good(
    tool: Tool, place: Path, words: list[str]
):
    (place / "ckpt-1.index").write_bytes(b"\xff" * 500)
    os.utime(place / "ckpt-1.index", (1e9, 1e9))
    said = tool("prune", place, "ckpt-1", "--delete", *words)
    assert said.code != 0
    assert "neither its content nor a record shows that it is a checkpoint" in said.words
    assert f"`tfckpt-tui prune {place} ckpt-1`" in said.words
    assert (place / "ckpt-1.data-00000-of-00001").exists()
    assert tool("prune", place, "ckpt-1", "--yes").code == 0
    assert tool("undo", place).code == 0


def test_no_run_begins_among_them(tool: Tool, place: Path):
    for path in place.glob("ckpt-*"):
        path.unlink()
    said = tool("launch", "--detach", place, "--", "true")
    assert said.code != 0
    assert "is not empty and has no checkpoints" in said.words


@pytest.mark.parametrize("file", ["best.keras", "w.weights.h5", "backup/latest.weights.h5"])
def test_a_run_begins_where_files_of_keras_are(tool: Tool, tmp_path: Path, file: str):
    """`fit` goes on with them."""
    (tmp_path / file).parent.mkdir(exist_ok=True)
    is_archive = file.endswith(".keras")
    content = b"PK\3\4" + bytes(26) + b"config.json" if is_archive else b"\x89HDF\r\n\x1a\n"
    (tmp_path / file).write_bytes(content)
    assert tool("launch", "--detach", tmp_path, "--", "true").code == 0


def test_a_run_begins_where_a_backup_of_keras_2_is(tool: Tool, tmp_path: Path):
    chief = tmp_path / "backup" / "chief"
    chief.mkdir(parents=True)
    write_floats(chief / "ckpt-3", [1.0])
    (chief / "checkpoint").write_text('model_checkpoint_path: "ckpt-3"\n')
    assert tool("launch", "--detach", tmp_path, "--", "true").code == 0


NAMES = ["a.h5", "b.weights.h5", "c.hdf5", "d.keras", "e.safetensors"]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_with_the_name_of_a_format_and_other_content_is_none(
    tool: Tool, place: Path, name: str
):
    (place / name).write_bytes(b"SQLite format 3\0" + b"\1" * 5000)
    listing = tool("ls", place)
    assert "ckpt-1" in listing.data and name not in listing.data
    assert name in listing.words and "not checkpoints" in listing.words
    assert "corrupt" not in tool("verify", place).data
    assert tool("prune", place, name, "--yes").code != 0
    assert (place / name).exists()


def test_an_archive_of_another_program_is_none_of_keras(tool: Tool, place: Path):
    with ZipFile(place / "deck.keras", "w") as archive:
        archive.writestr("slides/1.xml", "")
    listing = tool("ls", place)
    assert "deck.keras" in listing.words and "deck.keras" not in listing.data
    with ZipFile(place / "model.keras", "w") as archive:
        archive.writestr("metadata.json", "{}")
    assert "model.keras" in tool("ls", place).data


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("begin", [b"", b"\0" * 100])
def test_a_file_to_whose_beginning_its_program_may_still_come_is_listed(
    tool: Tool, place: Path, name: str, begin: bytes
):
    (place / name).write_bytes(begin)
    assert name in tool("ls", place).data


def test_a_file_of_keras_with_a_block_of_its_user_is_one(tool: Tool, place: Path):
    h5py = pytest.importorskip("h5py")
    h5py.File(place / "a.h5", "w", userblock_size=512).close()
    with open(place / "a.h5", "r+b") as file:
        file.write(b"mine")
    assert "a.h5" in tool("ls", place).data


@needs("root")
def test_whose_file_keeps_a_run_from_beginning(tool: Tool, tmp_path: Path):
    theirs = tmp_path / "notes.txt"
    theirs.touch()
    os.chown(theirs, BOB, GROUP)
    said = tool("launch", "--detach", tmp_path, "--", "true")
    assert f"(it has notes.txt, of user {BOB})" in said.words
    # In such a directory, nobody but Bob can remove it.
    tmp_path.chmod(0o1777)
    check_directory(RunDirectory(tmp_path))
