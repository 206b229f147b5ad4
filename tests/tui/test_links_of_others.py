"""What others link to in a shared directory: no command reads or writes what is behind it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import h5py
import numpy as np
import pytest

from accounts import ALICE, BOB, GROUP, acting_as, share
from bundle_writing import write_floats
from command_running import Said, Tool
from requirements import needs
from tfckpt_trainer.bundle.exchange import array_file, convert
from tfckpt_trainer.bundle.exchange.array_file import Array
from tfckpt_trainer.bundle.exchange.safetensors import write_safetensors
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.launch import export
from tfckpt_trainer.rundir.storage import own_links
from tfckpt_trainer.tools.tensors import derived
from tfckpt_tui.cli import main as cli
from tfckpt_tui.services.runs.launch_form import LaunchForm
from tfckpt_tui.tools.copying import local_destination

pytestmark = needs("root")

SECRET = 1234.5678


class Place(NamedTuple):
    """A directory that two users share, and one of Alice alone.

    Attributes:
        run: It has checkpoints and files of other formats.
        private: It has the same files, with values that only Alice may read.
    """

    run: Path
    private: Path


def write_files(directory: Path, value: float) -> None:
    for step in (1, 2):
        write_floats(directory / f"ckpt-{step}", [value, value])
    values = np.full(2, value, np.float32)
    np.savez(directory / "file.npz", v=values)
    with h5py.File(directory / "file.weights.h5", "w") as file:
        file["layers/dense/vars/0"] = values
    array = Array("v", "float32", (2,), lambda: iter([values]))
    write_safetensors(directory / "file.safetensors", [array])


@pytest.fixture(scope="session")
def imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Imports what is needed, which may lie in a directory that only root can read."""
    for command in (*READS.values(), *OTHERS):
        run = tmp_path_factory.mktemp("run")
        write_files(run, 1.0)
        cli.run([str(word) for word in command(run, run / "file.weights.h5")])
    for command in COPIES.values():
        run = tmp_path_factory.mktemp("run")
        write_files(run, 1.0)
        (run / "dest").mkdir()
        cli.run([str(word) for word in command(run, run / "dest")])


@pytest.fixture
def place(open_place: Path, imported: None) -> Place:
    private = open_place.parent / "private"
    private.mkdir()
    write_files(private, SECRET)
    (private / "docs").mkdir()
    share(open_place)
    write_files(open_place, 1.0)
    for path in (private, *private.rglob("*"), *open_place.rglob("*")):
        shutil.chown(path, ALICE, GROUP)
    private.chmod(0o700)
    with acting_as(ALICE, 0o002):
        (open_place / "dest").mkdir()
    return Place(open_place, private)


def plant(place: Path, target: str | Path) -> None:
    """Puts a link of Bob in the place of what is there."""
    with acting_as(BOB):
        if os.path.lexists(place):
            place.rename(place.with_name(f"{place.name}.old"))
        place.symlink_to(target)


def as_alice(tool: Tool, *words: object) -> Said:
    with acting_as(ALICE, 0o002):
        return tool(*words)


def assert_refused(said: Said, link: Path, target: object) -> None:
    assert said.code == 4, said
    assert f"{link}: it is a symbolic link of user {BOB} to {target}; links of other" in said.words
    assert "Name the file or directory itself: `" in said.words


def assert_nothing_leaked(place: Place, before: set[Path]) -> None:
    secret = np.float32(SECRET).tobytes()
    new = {path for path in set(place.run.rglob("*")) - before if path.is_file()}
    assert [path for path in new if secret in path.read_bytes()] == []


def tree(directory: Path) -> set[Path]:
    return set(directory.rglob("*"))


Command = Callable[[Path, Path], tuple[object, ...]]
"""Gets the run and a file in it; returns the words of a command that reads the file."""

READS: dict[str, Command] = {
    "convert": lambda run, file: ("convert", run, "c-1", file),
    "convert-like": lambda run, file: ("convert", run, "c-1", file, "--like", run, "ckpt-1"),
    "extract": lambda run, file: ("extract", run, file.name, "-o", run / "e.npz"),
    "inspect": lambda run, file: ("inspect", run, file.name),
    "inspect-stats": lambda run, file: ("inspect", run, file.name, "--stats"),
    "compare": lambda run, file: ("compare", run, file.name, "file.safetensors"),
    "compare-norms": lambda run, file: ("compare", run, "ckpt-1", file.name, "--norms"),
}

OTHERS: list[Command] = [
    lambda run, file: ("average", run, "1", "2"),
    lambda run, file: ("edit", run, "2", "--cast", "v", "float16", "--yes"),
    lambda run, file: ("verify", run),
    lambda run, file: ("ls", run),
    lambda run, file: ("prune", run, "--keep-last", "1", "--yes"),
    lambda run, file: ("launch", run / "missing" / "x", "--detach", "--", "true"),
]


@pytest.mark.parametrize("ending", [".weights.h5", ".safetensors"])
@pytest.mark.parametrize("command", READS)
def test_a_file_behind_a_link_of_another_user_is_not_read(
    tool: Tool, place: Place, command: str, ending: str
) -> None:
    link, target = place.run / f"fine{ending}", place.private / f"file{ending}"
    plant(link, target)
    before = tree(place.run)
    said = as_alice(tool, *READS[command](place.run, link))
    assert_refused(said, link, target)
    assert f"`{target}`" in said.words
    assert_nothing_leaked(place, before)


def test_a_template_behind_a_link_of_another_user_is_not_read(tool: Tool, place: Place) -> None:
    link, target = place.run / "fine.weights.h5", place.private / "file.weights.h5"
    plant(link, target)
    before = tree(place.run)
    new = place.run / "new.weights.h5"
    for source in ("1", "file.safetensors"):
        said = as_alice(tool, "extract", place.run, source, "--like", link, "-o", new)
        assert_refused(said, link, target)
    assert_nothing_leaked(place, before)


def test_a_check_skips_a_file_behind_a_link_of_another_user(tool: Tool, place: Place) -> None:
    link, target = place.run / "fine.safetensors", place.private / "file.safetensors"
    plant(link, target)
    said = as_alice(tool, "verify", place.run, link.name)
    assert f"symbolic link of user {BOB} to {target}" in said.words
    said = as_alice(tool, "verify", place.run, "--json")
    skipped = {one["name"] for one in said.json["skipped"]}
    assert link.name in skipped
    assert "file.safetensors" not in skipped


@pytest.mark.parametrize(
    ("link", "target", "file"),
    [
        ("fine.npz", "../private/file.npz", "fine.npz"),
        ("sub", "../private", "sub/file.npz"),
        ("sub", "..", "sub/private/file.npz"),
        ("step.npz", "../private/file.npz", "fine.npz"),
        ("sub", "../private", "dest/../sub/file.npz"),
    ],
)
def test_no_such_link_on_the_way_is_followed(
    tool: Tool, place: Place, link: str, target: str, file: str
) -> None:
    plant(place.run / link, target)
    if not (place.run / file).exists():
        plant(place.run / file, link)
    before = tree(place.run)
    said = as_alice(tool, "convert", place.run, "c-1", place.run / file)
    assert_refused(said, place.run / link, target)
    assert f"`{place.private / 'file.npz'}`" in said.words
    assert_nothing_leaked(place, before)


def test_a_relative_path_is_one_too(
    tool: Tool, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(place.run / "fine.npz", "../private/file.npz")
    monkeypatch.chdir(place.run)
    assert_refused(
        as_alice(tool, "convert", ".", "c-1", "fine.npz"),
        place.run / "fine.npz",
        "../private/file.npz",
    )


@pytest.mark.parametrize("owner", [ALICE, 0])
@pytest.mark.parametrize("target", ["../private/file.npz", "{private}/file.npz"])
def test_links_of_the_user_and_of_root_are_followed(
    tool: Tool, place: Place, owner: int, target: str
) -> None:
    link = place.run / "fine.npz"
    link.symlink_to(target.format(private=place.private))
    os.chown(link, owner, GROUP, follow_symlinks=False)
    assert as_alice(tool, "convert", place.run, "c-1", link).code == 0


def test_links_of_others_within_their_directory_are_followed(tool: Tool, place: Place) -> None:
    plant(place.run / "fine.npz", "file.npz")
    plant(place.run / "sub", "dest")
    said = as_alice(tool, "convert", place.run / "sub", "c-1", place.run / "fine.npz")
    assert said.code == 0, said
    assert (place.run / "dest" / "c-1.index").exists()


@pytest.mark.parametrize("target", ["../private/file.safetensors", "{private}/file.safetensors"])
def test_the_list_says_that_a_file_is_a_link_of_another_user(
    tool: Tool, place: Place, target: str
) -> None:
    plant(place.run / "fine.safetensors", target.format(private=place.private))
    plant(place.run / "same.safetensors", "file.safetensors")
    lines = as_alice(tool, "ls", place.run).data.splitlines()
    shown = {line.split()[0]: line for line in lines if line}
    said = "not followed: a link of another user"
    assert said in shown["fine.safetensors"]
    assert said not in shown["same.safetensors"] + shown["file.safetensors"]
    loaded = {one["name"]: one["loaded_by"] for one in listed(tool, place)["other_files"]}
    assert loaded["fine.safetensors"] == ""
    assert loaded["same.safetensors"] == "tfckpt-tui convert"


def test_a_loop_of_links_ends(tool: Tool, place: Place) -> None:
    plant(place.run / "a.npz", "b.npz")
    plant(place.run / "b.npz", "a.npz")
    said = as_alice(tool, "convert", place.run, "c-1", place.run / "a.npz")
    assert said.code == 2, said


@pytest.mark.parametrize("command", ["inspect", "average", "edit", "convert-like", "extract"])
def test_a_checkpoint_behind_links_of_another_user_is_not_read(
    tool: Tool, place: Place, command: str
) -> None:
    for end in ("index", "data-00000-of-00001"):
        plant(place.run / f"ckpt-2.{end}", f"../private/ckpt-2.{end}")
    before, run = tree(place.run), place.run
    words: dict[str, tuple[object, ...]] = {
        "inspect": ("inspect", run, "ckpt-2", "--stats"),
        "average": ("average", run, "1", "2", "--name", "a-2"),
        "edit": ("edit", run, "2", "--cast", "v", "float16", "--yes"),
        "convert-like": ("convert", run, "c-1", run / "file.npz", "--like", run, "ckpt-2"),
        "extract": ("extract", run, "2", "-o", run / "e.npz"),
    }
    said = as_alice(tool, *words[command])
    assert said.code != 0, said
    assert "1234" not in said.data
    assert_nothing_leaked(place, before)
    assert "link-outside" in [one["kind"] for one in listed(tool, place)["diagnostics"]]


def listed(tool: Tool, place: Place) -> dict[str, object]:
    return as_alice(tool, "ls", place.run, "--json").json


COPIES: dict[str, Command] = {
    "copy": lambda run, dest: ("copy", run, "1", dest),
    "copy-below": lambda run, dest: ("copy", run, "1", dest / "new"),
    "extract-npz": lambda run, dest: ("extract", run, "1", "-o", dest / "e.npz"),
    "extract-npy": lambda run, dest: ("extract", run, "1", "--to", "npy", "-o", dest / "n"),
    "extract-safetensors": lambda run, dest: ("extract", run, "1", "-o", dest / "e.safetensors"),
    "convert": lambda run, dest: ("convert", dest, "c-1", run / "file.npz"),
    "convert-below": lambda run, dest: ("convert", dest / "new", "c-1", run / "file.npz"),
    "report": lambda run, dest: ("report", run, "-o", dest / "r.md"),
    "export": lambda run, dest: (
        *("export", run, "1", "--format", "saved-model", "--yes", "--to", dest / "m"),
        *("--", "sh", "-p", "-c", SCRIPT),
    ),
}
"""Commands that write below a directory."""

SCRIPT = """
cd "$(dirname "$TFCKPT_EXPORT")"
if [ ! -d m ]; then mkdir m && echo model > m/saved_model.pb && phase=write; fi
echo '{"schema":1,"difference":0.0}' > report-${phase-check}.json
"""


@pytest.mark.parametrize("command", COPIES)
def test_nothing_is_written_behind_a_link_of_another_user(
    tool: Tool, place: Place, command: str
) -> None:
    link, target = place.run / "dest", place.private / "docs"
    plant(link, target)
    before = tree(place.run.parent)
    assert_refused(as_alice(tool, *COPIES[command](place.run, link)), link, target)
    assert tree(place.run.parent) - before <= tree(place.run.parent / "cache")


def test_no_run_is_launched_behind_a_link_of_another_user(tool: Tool, place: Place) -> None:
    plant(place.run / "dest", place.private / "docs")
    said = as_alice(tool, "launch", place.run / "dest", "--detach", "--", "true")
    assert_refused(said, place.run / "dest", place.private / "docs")
    form = LaunchForm(directory=str(place.run / "dest"), command="true")
    with acting_as(ALICE), pytest.raises(UsageError, match="symbolic link of user"):
        form.options()
    assert list((place.private / "docs").iterdir()) == []


def test_no_run_is_opened_behind_a_link_of_another_user(tool: Tool, place: Place) -> None:
    plant(place.run / "dest", place.private)
    for words in (["ls"], ["prune", "--keep-last", "1", "--yes"], ["verify"], ["runs"]):
        said = as_alice(tool, words[0], place.run / "dest", *words[1:])
        assert_refused(said, place.run / "dest", place.private)


HOOKS = {
    "copy": (local_destination, "settle_interrupted_prunes"),
    "copy lock": (local_destination, "take_lock"),
    "extract-npz": (array_file, "temporary_path"),
    "extract-safetensors": (array_file, "temporary_path"),
    "convert": (derived, "make_marked"),
    "export": (export, "_size"),
}
"""A function that each command calls after it looked at the destination."""


def swapped(
    place: Place, target: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str
) -> None:
    """Has a link of Bob come to the place of a directory just before a function is called."""
    act = getattr(module, name)

    def swap(*given: object) -> object:
        with acting_as(0):
            if not (place.run / "dest").is_symlink():
                (place.run / "dest").rename(place.run / "moved")
                (place.run / "dest").symlink_to(target)
                os.chown(place.run / "dest", BOB, GROUP, follow_symlinks=False)
        return act(*given)

    monkeypatch.setattr(module, name, swap)


@pytest.mark.parametrize("command", HOOKS)
def test_a_link_that_comes_to_the_destination_meanwhile_is_not_followed(
    tool: Tool, place: Place, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    # Below the run, the command that opened it follows no link anyway.
    elsewhere = Place(share(place.run.parent / "elsewhere"), place.private)
    with acting_as(ALICE, 0o002):
        (elsewhere.run / "dest").mkdir()
    swapped(elsewhere, place.private / "docs", monkeypatch, *HOOKS[command])
    # The script of an export begins in a directory that Alice can enter.
    monkeypatch.chdir(place.run)
    as_alice(tool, *COPIES[command.partition(" ")[0]](place.run, elsewhere.run / "dest"))
    assert (elsewhere.run / "dest").is_symlink()
    assert list((place.private / "docs").iterdir()) == []


@pytest.mark.parametrize("words", [("average", "1", "2"), ("edit", "2", "--cast", "v", "float16")])
def test_a_link_that_comes_to_the_run_meanwhile_is_not_followed(
    tool: Tool, place: Place, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    run = place.run / "dest"
    with acting_as(ALICE, 0o002):
        for step in (1, 2):
            write_floats(run / f"ckpt-{step}", [1.0, 1.0])
    # It has checkpoints of the same names.
    swapped(place, place.private, monkeypatch, derived, "make_marked")
    before = tree(place.private)
    asked = ("--yes",) if words[0] == "edit" else ()
    said = as_alice(tool, words[0], run, *words[1:], *asked)
    assert "symbolic link" in said.words
    assert run.is_symlink()
    assert tree(place.private) == before


def test_a_link_that_comes_to_a_file_meanwhile_is_not_followed(
    tool: Tool, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, before = place.run / "file.npz", tree(place.run)
    act = convert.is_keras_archive

    def swap(path: Path) -> bool:
        found = act(path)
        os.seteuid(0)
        file.unlink()
        file.symlink_to(place.private / "file.npz")
        os.chown(file, BOB, GROUP, follow_symlinks=False)
        os.seteuid(ALICE)
        return found

    monkeypatch.setattr(convert, "is_keras_archive", swap)
    said = as_alice(tool, "convert", place.run, "c-1", file)
    assert_refused(said, file, place.private / "file.npz")
    assert_nothing_leaked(place, before)


def test_the_link_that_is_checked_is_the_one_that_is_followed(
    tool: Tool, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one comes to its name between the two."""
    (place.run / "mine.npz").symlink_to("dest/own.npz")
    os.chown(place.run / "mine.npz", ALICE, GROUP, follow_symlinks=False)
    shutil.copy(place.run / "file.npz", place.run / "dest" / "own.npz")
    act = os.readlink

    def swap(*given: object, **more: int) -> str:
        with acting_as(0):
            (place.run / "mine.npz").unlink()
            (place.run / "mine.npz").symlink_to(place.private / "file.npz")
        return act(*given, **more)

    with acting_as(ALICE):
        monkeypatch.setattr(own_links.os, "readlink", swap)
        with own_links.open_named_file(place.run / "mine.npz") as file:
            monkeypatch.undo()
            data = file.read()
    assert data == (place.run / "file.npz").read_bytes()


def test_what_a_link_says_is_cleaned(tool: Tool, place: Place) -> None:
    plant(place.run / "fine.npz", place.private / "\x1b[31mx")
    said = as_alice(tool, "convert", place.run, "c-1", place.run / "fine.npz")
    assert "\x1b" not in said.words


@pytest.mark.parametrize(
    "words",
    [
        ("extract", "ckpt-1", "-o", "{run}/e.npz"),
        ("extract", "file.npz", "-o", "{run}/e.safetensors"),
        ("copy", "ckpt-1", "{run}/copied"),
        ("report", "--output", "{run}/r.md"),
        ("inspect", "ckpt-1", "--stats"),
        ("verify",),
        ("compare", "ckpt-1", "ckpt-2", "--norms"),
    ],
    ids=" ".join,
)
def test_no_run_is_read_behind_a_link_that_comes_to_its_name(
    tool: Tool, place: Place, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    dest = place.run / "dest"
    with acting_as(ALICE, 0o002):
        write_files(dest, 1.0)
        (dest / "only-here").write_text("")
    before = tree(place.run)
    # Right after the run was opened.
    swapped(place, place.private, monkeypatch, cli, "without_links")
    command, *others = (word.format(run=place.run) for word in words)
    said = as_alice(tool, command, dest, *others)
    assert dest.is_symlink()
    assert str(SECRET) not in said.data
    assert_nothing_leaked(place, before)
