"""The command `copy` to another directory of this machine."""

from __future__ import annotations

import os
import pty
import re
import resource
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
from checkpoint_directory import CheckpointDirectory, contents, latest_name, listed_names
from cut_off import CUT_OFF, DONE, killed_at
from json_reference import check
from lost_changes import Tree, recorded, what_may_be_left
from rundir_factory import RunFactory, two_branches, without_heartbeats

from bundle_writing import NUMBERS, Stored, array, write
from command_running import BINARY
from real_file_systems import fill, small_tmpfs
from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.bundle.state_file import StateFile, read_state_file, write_state_file
from tfckpt_trainer.catalog.commit.saves import begin_save
from tfckpt_trainer.catalog.retention.deleting import delete_for_good
from tfckpt_trainer.catalog.verification.verify_checkpoint import verify_checkpoint
from tfckpt_trainer.errors import RefusedError
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.documents import store
from tfckpt_tui.reports.new_files import CopyReport
from tfckpt_tui.services.checkpoints.look_up import look_up
from tfckpt_tui.services.control.request import FrontEnd
from tfckpt_tui.tools.copying import copy
from tfckpt_tui.tools.copying.address import HostPath, parse_destination
from tfckpt_tui.tools.copying.copy import CopyOutcome, copy_checkpoints
from tfckpt_tui.tools.copying.destination import CutCopyError
from tfckpt_tui.tools.copying.destination_state import with_copied
from waiting import MOST_SECONDS, attempts

LARGE = 3_000_000
"""Bytes of a file that a copy continues where it ended."""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return history(tmp_path / "run").root


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "backup" / "run"


def history(root: Path) -> CheckpointDirectory:
    """Two checkpoints of a run, and one that TensorFlow wrote."""
    made = CheckpointDirectory(root)
    made.run.create()
    made.tensorflow("plain")
    made.ours(100, workers=2, shards=2)
    made.ours(200, workers=2)
    return made


def write_large(root: Path) -> str:
    """Writes a checkpoint whose data file is continued; returns its name."""
    values = np.random.default_rng(0).integers(0, 256, LARGE, np.uint8)
    write(root / "large-1", {"values": array(values)})
    return "large-1"


def files_of(root: Path, *names: str) -> dict[str, bytes]:
    """The files of these checkpoints, with the workers' own ones and the records."""
    starts = [f"{place}{name}" for name in names for place in ("", ".tfckpt/records/")]
    starts = [f"{start}." for start in starts] + [f".tfckpt/workers/{name}/" for name in names]
    return {path: data for path, data in contents(root).items() if path.startswith(tuple(starts))}


def named_files(root: Path) -> set[str]:
    """What a directory has under the names of checkpoints."""
    return {path for path in contents(root) if not path.startswith(".tfckpt/")}


def leave_twice(place: Path, run: Path, name: str) -> Path:
    """Leaves what a cut copy leaves whose last command went on: all files in both places.

    Returns the directory of the second ones.
    """
    staging = place / copy._staging(RunDirectory(run), name)
    for path, data in files_of(place, name).items():
        second = staging / path.replace(f".tfckpt/workers/{name}/", "workers/").replace(
            ".tfckpt/records/", "records/"
        )
        second.parent.mkdir(parents=True, exist_ok=True)
        second.write_bytes(data)
    return staging


def copy_in_process(
    run: Path, place: Path, *names: str, on_progress: Callable[[str], object] = lambda phase: None
) -> CopyOutcome:
    """Copies checkpoints; each sign of progress calls `on_progress` with its phase."""
    source = RunDirectory(run)
    return copy_checkpoints(
        source,
        [look_up(source, name) for name in names],
        place,
        through=FrontEnd.COMMAND_LINE,
        phase=lambda phase: lambda done, total: on_progress(phase) and None,
        seconds=10.0,
    )


def test_a_copy_is_listed_verified_and_restored_like_the_run(tool, run, place):
    said = tool("copy", run, "ckpt-100", "200", place)
    assert said.code == 0, said
    assert said.data.splitlines()[0].startswith("ckpt-100: 2.31 KB copied to ")
    assert said.data.endswith(", verified\n")
    assert files_of(place, "ckpt-100", "ckpt-200") == files_of(run, "ckpt-100", "ckpt-200")
    listed = {one["name"]: one for one in tool("ls", place, "--json").json["checkpoints"]}
    original = {one["name"]: one for one in tool("ls", run, "--json").json["checkpoints"]}
    del original["plain"]
    assert listed == original
    assert listed["ckpt-200"]["state"] == "verified"
    assert tool("verify", place).code == 0
    assert latest_name(place) == "ckpt-200"
    assert listed_names(place) == ["ckpt-100", "ckpt-200"]
    assert not (place / ".tfckpt" / "copying").exists()
    entry = read_entries(RunDirectory(run))[-1]
    assert entry.message == f"Copied ckpt-100, ckpt-200 to {place}."


def test_what_came_twice_because_a_command_went_on_is_deleted(tool, run, place):
    assert tool("copy", run, "100", "200", place).code == 0
    staging = leave_twice(place, run, "ckpt-200")
    (staging / "workers" / "mine.txt").write_text("mine")
    assert tool("copy", run, "100", "200", place).code == 0
    left = [path for path in staging.rglob("*") if path.is_file()]
    assert left == [staging / "workers" / "mine.txt"]
    left[0].unlink()
    leave_twice(place, run, "ckpt-200")
    assert tool("copy", run, "100", "200", place).code == 0
    assert not (place / ".tfckpt" / "copying").exists()
    assert files_of(place, "ckpt-100", "ckpt-200") == files_of(run, "ckpt-100", "ckpt-200")


def test_without_a_name_the_newest_is_copied(tool, run, place):
    said = tool("copy", run, place, "--json")
    check(CopyReport, said.json)
    assert [one["checkpoint"] for one in said.json["checkpoints"]] == ["ckpt-200"]


def test_a_checkpoint_without_a_record_is_copied_with_its_graph(tool, tmp_path, place):
    made = CheckpointDirectory(tmp_path / "plain run")
    made.tensorflow("model", shards=3)
    (made.root / "model.meta").write_bytes(b"\x0a\x04meta")
    before = contents(made.root)
    assert tool("copy", made.root, "model", place).code == 0
    assert {path: before[path] for path in named_files(made.root)} == {
        path: data for path, data in contents(place).items() if not path.startswith(".tfckpt/")
    } | {"checkpoint": before["checkpoint"]}
    assert latest_name(place) == "model"
    assert contents(made.root) == before


def test_what_others_put_beside_a_workers_state_is_not_copied(tool, run, place):
    own = run / ".tfckpt/workers/ckpt-100"
    for name in ("notes.txt", "worker-0.index.bak"):
        (own / name).write_bytes(b"mine")
    (run / "ckpt-100.meta").write_bytes(b"my notes")
    assert tool("copy", run, "100", place).code == 0
    assert not (place / "ckpt-100.meta").exists()
    copied = {path.name for path in (place / ".tfckpt/workers/ckpt-100").iterdir()}
    assert copied == {path.name for path in own.iterdir()} - {"notes.txt", "worker-0.index.bak"}


def test_a_file_of_others_in_the_place_of_the_state_file_is_not_replaced(tool, run, place):
    place.mkdir(parents=True)
    (place / "checkpoint").write_bytes(b"my notes")
    said = tool("copy", run, "100", place)
    assert (said.code, said.data) == (4, "")
    assert f"{place}/checkpoint is no state file of TensorFlow" in said.words
    assert contents(place) == {"checkpoint": b"my notes"}


def test_a_closed_place_for_records_leaves_nothing_under_a_name(tool, run, place):
    (place / ".tfckpt").mkdir(parents=True)
    (place / ".tfckpt/records").write_bytes(b"mine")
    said = tool("copy", run, "100", place)
    assert (said.code, named_files(place)) == (1, set())
    (place / ".tfckpt/records").unlink()
    assert tool("copy", run, "100", place).code == 0


def test_a_second_copy_sends_nothing_and_changes_nothing(tool, run, place):
    tool("copy", run, "100", "200", place)
    before = contents(place)
    said = tool("copy", run, "100", "200", place, "--json")
    assert [(one["state"], one["sent_bytes"]) for one in said.json["checkpoints"]] == [
        ("present", 0),
        ("present", 0),
    ]
    assert contents(place) == before


def test_a_missing_part_of_a_copy_is_sent_again(tool, run, place):
    tool("copy", run, "100", place)
    (place / ".tfckpt/workers/ckpt-100/worker-1.index").unlink()
    said = tool("copy", run, "100", place, "--json")
    assert said.json["checkpoints"][0]["state"] == "copied"
    assert files_of(place, "ckpt-100") == files_of(run, "ckpt-100")


def test_a_dry_run_changes_nothing(tool, run, place):
    said = tool("copy", run, "100", place, "--dry-run")
    assert said.code == 0
    assert said.data == f"ckpt-100: 2.31 KB to copy to {place}\n"
    assert " free." in said.words
    assert not place.parent.exists()


def test_symbolic_links_are_copied_as_the_files_that_they_lead_to(tool, run, place):
    for path in run.glob("plain.*"):
        (run / path.name.replace("plain", "best")).symlink_to(path.name)
    assert tool("copy", run, "best", place).code == 0
    copies = {path.name: path for path in place.glob("best.*")}
    assert sorted(copies) == ["best.data-00000-of-00001", "best.index"]
    for name, path in copies.items():
        assert not path.is_symlink()
        assert path.read_bytes() == (run / name).read_bytes()


@pytest.mark.parametrize("link", [".tfckpt", ".tfckpt/workers", ".tfckpt/workers/plain"])
def test_no_link_in_the_run_is_followed_to_files_of_others(tool, run, place, tmp_path, link):
    private = tmp_path / "private"
    private.mkdir()
    if (run / link).exists():
        shutil.move(run / link, private / "kept")
    for below in ("workers/plain", "plain", "."):
        (private / "kept" / below).mkdir(parents=True, exist_ok=True)
        (private / "kept" / below / "id_rsa").write_text("private")
    (run / link).symlink_to(private / "kept")
    said = tool("copy", run, "plain", place)
    assert said.code in {1, 4}
    assert f"{run / link}" in said.words
    assert "a symbolic link; expected a directory. Remove the link." in said.words
    assert not place.exists()


@pytest.mark.parametrize("suffix", ["meta", "data-00000-of-00001", "index"])
def test_no_link_out_of_the_run_is_copied(tool, run, place, tmp_path, suffix):
    outside = tmp_path / "id_rsa"
    file = run / f"plain.{suffix}"
    outside.write_bytes(file.read_bytes() if file.exists() else b"private")
    file.unlink(missing_ok=True)
    file.symlink_to(f"../{outside.name}")
    assert tool("verify", run, "plain").code == 0
    said = tool("copy", run, "plain", place)
    assert said.code == 1
    assert f"{file}: it is a symbolic link that leads out of the directory" in said.words
    assert not place.exists()


@pytest.mark.parametrize(
    "link", [".tfckpt", ".tfckpt/workers", ".tfckpt/workers/ckpt-100", ".tfckpt/copying"]
)
@pytest.mark.parametrize("is_there", [True, False])
def test_nothing_is_written_through_a_link_at_a_destination(
    tool, run, place, tmp_path, link, is_there
):
    elsewhere = tmp_path / "elsewhere"
    if is_there:
        elsewhere.mkdir()
    (place / link).parent.mkdir(parents=True)
    (place / link).symlink_to(elsewhere)
    said = tool("copy", run, "ckpt-100", place)
    assert said.code != 0
    assert "Traceback" not in said.words
    assert not is_there or not list(elsewhere.iterdir())
    assert is_there or not elsewhere.exists()
    assert not (place / "ckpt-100.index").exists()


@pytest.mark.parametrize("name", ["trainer.lock", "records/ckpt-100.json"])
def test_no_link_at_a_destination_is_written_to(tool, run, place, tmp_path, name):
    mine = tmp_path / "mine"
    mine.write_text("mine")
    link = place / ".tfckpt" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(mine)
    said = tool("copy", run, "ckpt-100", place)
    assert said.code != 0
    assert mine.read_text() == "mine"


def test_a_checkpoint_may_have_more_files_than_a_process_usually_opens(tool, tmp_path, place):
    made = CheckpointDirectory(tmp_path / "run")
    made.tensorflow("ckpt-1", shards=300)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, before[1]))
    try:
        assert tool("copy", made.root, "1", place).code == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert files_of(place, "ckpt-1") == files_of(made.root, "ckpt-1")


def test_a_save_that_the_next_start_would_finish_is_in_the_way(tool, run, place):
    begin_save_in(place, "ckpt-100")
    said = tool("copy", run, "100", place)
    assert said.code == 4
    assert "has other files named ckpt-100" in said.words


def begin_save_in(place: Path, name: str) -> None:
    made = RunDirectory(place)
    made.create()
    begin_save(made, name)


@pytest.mark.parametrize("changed", ["index", "data", "shards", "link", "record"])
def test_another_checkpoint_of_the_name_is_never_replaced(tool, run, place, changed):
    tool("copy", run, "100", place)
    if changed == "shards":
        (place / "ckpt-100.data-00000-of-00003").write_bytes(b"another save")
    elif changed == "link":
        (place / "ckpt-100.index").unlink()
        (place / "ckpt-100.index").symlink_to(run / "ckpt-100.index")
    else:
        name = {"index": "ckpt-100.index", "data": "ckpt-100.data-00000-of-00002"}
        path = place / name.get(changed, ".tfckpt/records/ckpt-100.json")
        path.write_bytes(bytes(reversed(path.read_bytes())))
    before = contents(place)
    said = tool("copy", run, "100", place)
    assert said.code == 4
    assert f"{place} has other files named ckpt-100: another checkpoint" in said.words
    assert contents(place) == before


def test_a_damaged_checkpoint_is_not_copied(tool, run, place):
    data = run / "ckpt-100.data-00000-of-00002"
    data.write_bytes(bytes(reversed(data.read_bytes())))
    said = tool("copy", run, "100", place)
    assert said.code == 4
    assert f"tfckpt-tui verify {run} ckpt-100" in said.words
    assert not place.parent.exists()


def test_a_checkpoint_as_damaged_as_the_one_that_is_there_is_not_called_verified(tool, run, place):
    tool("copy", run, "100", place)
    for root in (run, place):
        data = root / "ckpt-100.data-00000-of-00002"
        data.write_bytes(bytes(reversed(data.read_bytes())))
    said = tool("copy", run, "100", place)
    assert said.code == 4
    assert "ckpt-100 is damaged and was not copied" in said.words


def write_again(run: Path, name: str) -> None:
    """As TensorFlow does: the data gets a new file, the index is rewritten in place."""
    write(run / "again", {"values": array(np.zeros(LARGE, np.uint8))})
    os.replace(run / "again.data-00000-of-00001", run / f"{name}.data-00000-of-00001")
    (run / f"{name}.index").write_bytes((run / "again.index").read_bytes())
    (run / "again.index").unlink()


def write_in_place(run: Path, name: str) -> None:
    with open(run / f"{name}.data-00000-of-00001", "r+b") as file:
        file.write(bytes(9))


@pytest.mark.parametrize("change", [write_again, write_in_place])
def test_a_checkpoint_that_changes_after_its_verification_is_not_copied(tool, run, place, change):
    seen = []

    def change_once(phase: str) -> None:
        if phase == "copying plain" and not seen:
            seen.append(phase)
            change(run, "plain")

    tool("copy", run, "100", place)
    before = contents(place)
    with pytest.raises(RefusedError, match="plain changed while it was read"):
        copy_in_process(run, place, "plain", on_progress=change_once)
    assert seen
    assert contents(place) == before
    assert "plain" not in tool("ls", place).data + tool("ls", place).words


def test_a_file_that_comes_meanwhile_is_not_replaced_and_nothing_gets_its_name(run, place):
    name = write_large(run)

    def put_index(phase: str) -> None:
        if phase == f"copying {name}":
            (place / f"{name}.index").write_bytes(b"of somebody else")

    with pytest.raises(RefusedError, match=rf"{name}\.index exists; it was not replaced"):
        copy_in_process(run, place, name, on_progress=put_index)
    assert named_files(place) == {f"{name}.index"}
    assert (place / f"{name}.index").read_bytes() == b"of somebody else"


def test_a_directory_in_which_a_run_trains_is_refused(tool, run, tmp_path):
    made = RunFactory(tmp_path / "live").create()
    with subprocess.Popen(["sleep", "60"]) as trainer:
        started_at = psutil.Process(trainer.pid).create_time()
        host = socket.gethostname()
        made.worker(0, host=host, pid=trainer.pid, process_started_at=started_at)
        said = tool("copy", run, "100", made.run.root)
        trainer.kill()
    assert said.code == 4
    assert f"A run trains in {made.run.root}: worker 0 on {host} is alive." in said.words
    assert named_files(made.run.root) == set()


def test_a_directory_of_another_run_is_refused(tool, run, tmp_path):
    other = without_heartbeats(two_branches(tmp_path / "other"))
    said = tool("copy", run, "100", other.run.root)
    assert said.code == 4
    assert "belongs to another run" in said.words
    store(RunDirectory(run).run_file, RunInfo(id="language-model", created_at=0.0))
    assert "has other files named ckpt-100" in tool("copy", run, "100", other.run.root).words


def plain(root: Path, name: str, **tensors: list[float]) -> None:
    """Writes a checkpoint as a plain TensorFlow manager does."""
    root.mkdir(exist_ok=True)
    write(root / name, {key: array(values) for key, values in tensors.items()})
    (root / "checkpoint").write_text(
        f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "{name}"\n'
    )


def test_a_directory_with_another_model_is_refused(tool, tmp_path):
    plain(tmp_path / "a", "ckpt-5", kernel=[1.0, 2.0], bias=[1.0])
    plain(tmp_path / "b", "ckpt-3", kernel=[1.0, 2.0, 3.0], bias=[1.0])
    said = tool("copy", tmp_path / "a", "ckpt-5", tmp_path / "b")
    assert said.code == 4
    assert "has checkpoints of another model: ckpt-3 there does not have kernel" in said.words
    assert latest_name(tmp_path / "b") == "ckpt-3"
    assert sorted(path.name for path in (tmp_path / "b").glob("*.index")) == ["ckpt-3.index"]


def test_a_directory_with_the_same_model_is_not_refused_for_new_variables(tool, tmp_path):
    plain(tmp_path / "a", "ckpt-5", kernel=[1.0, 2.0], slot=[1.0])
    plain(tmp_path / "b", "ckpt-3", kernel=[1.0, 2.0])
    assert tool("copy", tmp_path / "a", "ckpt-5", tmp_path / "b").code == 0
    assert latest_name(tmp_path / "b") == "ckpt-5"


def test_two_copies_to_one_directory_wait_for_each_other(run, place):
    refused = []

    def copy_again(phase: str) -> None:
        if phase.startswith("copying"):
            with pytest.raises(RefusedError, match="another copy writes to"):
                copy_in_process(run, place, "ckpt-200")
            refused.append(phase)

    copy_in_process(run, place, write_large(run), on_progress=copy_again)
    assert refused


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "Name the destination"),
        (["ckpt-100"], "ckpt-100 is a checkpoint; name a directory"),
        (["100", "200"], "200 is a checkpoint"),
        (["100", "{run}"], "is the run directory itself"),
        (["100", "{run}/checkpoint"], "is a file; name a directory"),
        (["100", "gs://bucket/run"], "cannot be the destination of a copy"),
        (["100", "--ssh", "/backup"], "write it as host:path"),
        (["100", ":/tmp/x"], "its host is missing"),
        (["100", "--ssh", ":/tmp/x"], "its host is missing"),
        (["100", ""], "The destination is empty"),
        (["100", "-oProxyCommand=true:x"], "No such option"),
    ],
)
def test_a_wrong_destination_is_explained(tool, run, words, problem, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    said = tool("copy", run, *(word.format(run=run) for word in words))
    assert said.code == 2
    assert problem in said.words
    assert os.listdir(tmp_path) == ["run"]


def test_hostile_names_are_copied(tool, tmp_path, place):
    names = ["-rf", "a b'c\"$(x)", "line\nbreak-7", os.fsdecode(b"caf\xe9-1"), "n" * 235]
    made = CheckpointDirectory(tmp_path / "run")
    for name in names:
        made.tensorflow(name, listed=False)
    target = place / "it's a\n-place"
    assert tool("copy", made.root, "--", *names, target).code == 0
    assert files_of(target, *names) == files_of(made.root, *names)


@pytest.mark.parametrize(
    ("phase", "is_copied"), [("copying large-1", True), ("verifying large-1", False)]
)
def test_a_checkpoint_that_is_pruned_meanwhile(run, place, phase, is_copied):
    write_large(run)
    original = files_of(run, "ckpt-100")

    def prune(seen: str) -> None:
        if seen == phase and (run / "ckpt-100.index").exists():
            delete_for_good(RunDirectory(run), ("ckpt-100",), now=0.0, update_state_file=True)

    if is_copied:
        copy_in_process(run, place, "large-1", "ckpt-100", on_progress=prune)
    else:
        with pytest.raises(RefusedError, match="was pruned before it could be copied"):
            copy_in_process(run, place, "large-1", "ckpt-100", on_progress=prune)
    assert not (run / "ckpt-100.index").exists()
    assert place.exists() == is_copied
    assert not is_copied or files_of(place, "ckpt-100") == original


def test_a_disk_that_is_too_small_is_refused_before_anything_is_sent(tool, run, tmp_path):
    with small_tmpfs(tmp_path / "disk", megabytes=2) as disk:
        said = tool("copy", run, write_large(run), disk / "run")
        assert said.code == 4
        assert "the copy needs 3.00 MB" in said.words
        assert os.listdir(disk) == []


def test_a_disk_that_runs_full_leaves_no_name_and_the_copy_goes_on(tool, run, tmp_path):
    name = write_large(run)
    with small_tmpfs(tmp_path / "disk", megabytes=4) as disk:
        target = disk / "run"

        def run_full(phase: str) -> None:
            if phase == f"verifying {name}":
                fill(disk, leave=1 << 20)

        with pytest.raises(CutCopyError, match="is full"):
            copy_in_process(run, target, name, on_progress=run_full)
        assert named_files(target) == set()
        (disk / "filler").unlink()
        said = tool("copy", run, name, target, "--json")
        assert 0 < said.json["checkpoints"][0]["sent_bytes"] < LARGE
        assert files_of(target, name) == files_of(run, name)


class OnTerminal:
    """The real `tfckpt-tui copy`, with a terminal for its messages."""

    def __init__(self, *words: object) -> None:
        self._fd, theirs = pty.openpty()
        self._process = subprocess.Popen(
            [BINARY, "copy", *map(str, words)], stdout=subprocess.PIPE, stderr=theirs
        )
        os.close(theirs)
        self.said = ""

    def read_until(self, pattern: str) -> None:
        while not re.search(pattern, self.said):
            more = self._read()
            assert more, self.said
            self.said += more

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def end(self) -> int:
        while more := self._read():
            self.said += more
        self._process.communicate(timeout=MOST_SECONDS)
        os.close(self._fd)
        return self._process.returncode

    def _read(self) -> str:
        try:
            return os.read(self._fd, 1 << 16).decode()
        except OSError:
            return ""


@pytest.mark.e2e
def test_each_phase_is_shown_on_a_terminal(run, place):
    copying = OnTerminal(run, write_large(run), place)
    assert copying.end() == 0
    shown = [line for line in re.split(r"[\r\n]|\x1b\[K", copying.said) if line]
    labels = list(dict.fromkeys(re.sub(r"( …|: \d.*)$", "", line) for line in shown))
    assert labels == [
        "verifying large-1", "copying large-1", f"verifying large-1 in {place}"[:78],
    ]  # fmt: skip
    assert copying.said.endswith("\x1b[K"), "The line is cleared at the end."


@pytest.mark.e2e
def test_progress_is_shown_and_ctrl_c_names_the_command_that_goes_on(run, place):
    """The checkpoint is on a sparse file, and takes long enough."""
    size = 1 << 31
    zeros, checksum = bytes(1 << 24), 0
    for _ in range(size // len(zeros)):
        checksum = crc32c(zeros, checksum)
    stored = Stored(NUMBERS["float32"], (size // 4,), [], crc=checksum, size=size)
    write(run / "huge-1", {"w": stored})
    os.truncate(run / "huge-1.data-00000-of-00001", size)
    copying = OnTerminal(run, "huge-1", place)
    copying.read_until(r"verifying huge-1: [\d.]+ [MG]B of 2\.15 GB, [\d.]+ [MG]B/s, .+ left")
    copying.read_until("copying huge-1")
    copying.interrupt()
    assert copying.end() == 130
    command = f"tfckpt-tui copy {run} huge-1 {place}"
    assert copying.said.endswith(f"\x1b[Ktfckpt-tui: Interrupted. Continue with `{command}`.\r\n")
    assert named_files(place) == set()
    shutil.rmtree(place)


def test_what_a_killed_copy_left_is_listed_until_the_copy_goes_on(tool, run, place):
    name = write_large(run)
    with pytest.raises(KeyboardInterrupt):
        copy_in_process(run, place, name, on_progress=interrupt_at(f"copying {name}"))

    def notes():
        found = tool("ls", place, "--json").json["diagnostics"]
        return [one for one in found if one["kind"] == "copy-cut-off"]

    assert notes() == [], "it may be under way"
    (parts,) = (place / ".tfckpt" / "copying").iterdir()
    for path in (*parts.rglob("*"), parts):
        os.utime(path, (1e9, 1e9))
    (note,) = notes()
    assert f"A copy of {name} to this directory was cut off." in note["message"]
    assert f"`rm -r {parts}`" in note["message"]
    assert note["bytes"] == sum(path.stat().st_size for path in parts.rglob("*.*"))
    mine = parts / "mine.txt"
    mine.write_text("mine")
    assert tool("copy", run, name, place).code == 0
    assert list(parts.iterdir()) == [mine]
    mine.unlink()
    parts.rmdir()
    assert notes() == []


def test_a_part_that_does_not_match_is_sent_again(tool, run, place):
    name = write_large(run)
    with pytest.raises(KeyboardInterrupt):
        copy_in_process(run, place, name, on_progress=interrupt_at(f"copying {name}"))
    (part,) = (place / ".tfckpt" / "copying").rglob("*.data-*")
    part.write_bytes(bytes(2_000_000))
    assert tool("copy", run, name, place).code == 0
    assert files_of(place, name) == files_of(run, name)


def interrupt_at(wanted: str) -> Callable[[str], None]:
    def interrupt(phase: str) -> None:
        if phase == wanted:
            raise KeyboardInterrupt

    return interrupt


@pytest.mark.faults
def test_killed_at_any_change_a_copy_leaves_checkpoints_whole_or_unnamed(tmp_path):
    # The directory `run` of a destination is where changes are counted.
    made = CheckpointDirectory(tmp_path / "source")
    made.tensorflow("plain")
    made.ours(100)
    source = made.root
    for call in attempts("a copy that is not killed"):
        target = tmp_path / str(call) / "run" / "copy"
        code = killed_at(call, lambda t=target: copy_in_process(source, t, "ckpt-100", "plain"))
        if code == DONE:
            break
        assert code == CUT_OFF
        judge(source, target)
        copy_in_process(source, target, "ckpt-100", "plain")
        assert files_of(target, "ckpt-100", "plain") == files_of(source, "ckpt-100", "plain")
        assert sorted(listed_names(target)) == ["ckpt-100", "plain"]
        assert not [path for path in contents(target) if "copying" in path or ".tmp" in path]
        shutil.rmtree(tmp_path / str(call))
    assert call > 30


@pytest.mark.faults
def test_whatever_a_power_loss_takes_a_copy_leaves_checkpoints_whole_or_unnamed(tmp_path):
    source = history(tmp_path / "source").root
    target = tmp_path / "first"
    target.mkdir()
    first = Tree.of(target)
    with recorded(target) as changes:
        copy_in_process(source, target, "ckpt-100")
    judged: set[object] = set()
    for number, (story, tree) in enumerate(what_may_be_left(first, changes)):
        if tree.identity in judged:
            continue
        judged.add(tree.identity)
        left = tmp_path / str(number)
        tree.write(left)
        try:
            judge(source, left)
        except AssertionError as error:
            raise AssertionError(f"{story}: {error}") from error
        shutil.rmtree(left)
    assert len(judged) > 20


def judge(source: Path, target: Path) -> None:
    """Checks that each name of a checkpoint stands for all its files."""
    there = contents(target) if target.exists() else {}
    for name in ("ckpt-100", "plain"):
        if f"{name}.index" in there:
            assert files_of(target, name) == files_of(source, name)
    if "checkpoint" in there:
        assert all(f"{name}.index" in there for name in listed_names(target))


def test_the_state_file_names_the_checkpoint_that_was_saved_last(tmp_path):
    path = tmp_path / "checkpoint"
    state = None
    for name, at in (("b", 20.0), ("c", 30.0), ("a", 10.0), ("c", 30.0)):
        state = with_copied(state, name, at)
        write_state_file(path, state)
    assert read_state_file(path) == StateFile("c", ("a", "b", "c"), (10.0, 20.0, 30.0))


def test_a_state_file_without_times_keeps_its_checkpoints():
    state = with_copied(StateFile("/old/place/b", ("a", "/old/place/b")), "c", 5.0)
    assert state == StateFile("c", ("a", "/old/place/b", "c"), (0.0, 0.0, 5.0))


def test_a_copy_becomes_a_run_that_goes_on(tool, run, place):
    tool("copy", run, "100", place)
    made = RunFactory(place).create()
    made.checkpoint(300, parent="ckpt-100")
    found = verify_checkpoint(RunDirectory(place), "ckpt-100")
    assert found is not None
    assert found.ok
    assert tool("copy", run, "200", place).code == 4


@pytest.mark.parametrize(
    ("text", "host", "path", "port"),
    [
        ("backup:runs/a", "backup", "runs/a", None),
        ("ada@backup.example.org:/data/run 1", "ada@backup.example.org", "/data/run 1", None),
        ("backup:~/runs", "backup", "runs", None),
        ("backup:-x", "backup", "-x", None),
        ("[fe80::1%eth0]:/data", "fe80::1%eth0", "/data", None),
        ("ada@[::1]:data", "ada@::1", "data", None),
        ("ssh://ada@backup:2222/data/a%20b", "ada@backup", "/data/a b", 2222),
        ("ssh://[::1]:22/data", "::1", "/data", 22),
        ("ssh://backup/~/runs", "backup", "runs", None),
    ],
)
def test_a_directory_of_another_host_is_recognized(text, host, path, port):
    assert parse_destination(text) == HostPath(host, path, port)


@pytest.mark.parametrize("text", ["/data/a:b", "./a:b", "./:/tmp/x", "data", "../x"])
def test_a_directory_of_this_machine_is_recognized(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert parse_destination(text) == Path(text).absolute()


@pytest.mark.parametrize(
    "text",
    [
        "-oProxyCommand=touch x:/data",
        "a;touch x:/data",
        "$(touch x):/data",
        "a b:/data",
        "ada@-x:/data",
        "host\n:/data",
        "host:",
        "host:~ada/x",
        "ssh://host:0/x",
        "ssh://host:99999/x",
        "ssh://host",
        "ssh://-host/x",
        "s3://bucket/x",
        "~nobody-has-this-name/x",
        "",
    ],
)
def test_what_names_no_host_is_refused(text):
    from tfckpt_trainer.errors import UsageError

    with pytest.raises(UsageError):
        parse_destination(text)
