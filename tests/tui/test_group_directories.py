"""Two users of one group and one run directory: what one leaves there, the other can undo."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import stat
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from checkpoint_directory import CheckpointDirectory
from msgspec.structs import replace
from rundir_factory import RunFactory, two_branches

from accounts import ALICE, BOB, GROUP, acting_as, share
from command_running import Tool
from requirements import needs
from tfckpt_trainer.bundle.state_file import StateFile, write_state_file
from tfckpt_trainer.catalog.directory.trash import list_trash
from tfckpt_trainer.catalog.retention.prune import settle_interrupted_prunes
from tfckpt_trainer.errors import ExitCode, NotWritableError, RefusedError, describe_error
from tfckpt_trainer.launch.preflight import check_directory
from tfckpt_trainer.machine.permissions import access_advice
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.trash import TrashManifest, TrashOrder, TrashPhase
from tfckpt_trainer.rundir.storage.documents import load, store
from tfckpt_trainer.rundir.storage.files import (
    PrivateDirectory,
    append_line,
    make_directory,
    open_lock,
    write_atomic,
)
from tfckpt_trainer.rundir.storage.locks import is_locked, take_lock
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader
from tfckpt_tui.services.checkpoints.look_up import list_checkpoints
from tfckpt_tui.services.control import prune
from tfckpt_tui.services.control.request import FrontEnd
from tfckpt_tui.services.runs.job_list import JobList

pytestmark = needs("root")

UMASKS = [0o002, 0o022, 0o077]


@pytest.fixture(scope="session")
def imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Imports what the tests need: modules may lie in a directory that only root can read."""
    act(two_branches(tmp_path_factory.mktemp("imports"), time.time() - 3600), "ckpt-100")


@pytest.fixture
def shared(open_place: Path, imported: None) -> Path:
    return share(open_place)


def act(made: RunFactory, name: str) -> None:
    """Prunes and undoes, pins and unpins."""
    done = prune.prune(made.run, [name], through=FrontEnd.COMMAND_LINE)
    prune.undo(made.run, done.trash, through=FrontEnd.COMMAND_LINE)
    for pinned in (True, False):
        prune.set_pins(made.run, [name], pinned=pinned, through=FrontEnd.COMMAND_LINE)


@pytest.mark.parametrize("of_bob", UMASKS, ids=oct)
@pytest.mark.parametrize("of_alice", UMASKS, ids=oct)
def test_what_a_colleague_did_can_be_read_and_undone(
    shared: Path, of_alice: int, of_bob: int
) -> None:
    with acting_as(ALICE, of_alice):
        made = two_branches(shared, time.time() - 3600)
        act(made, "ckpt-100")
    with acting_as(BOB, of_bob):
        act(made, "ckpt-200")
        done = prune.prune(made.run, ["ckpt-100"], through=FrontEnd.COMMAND_LINE)
    with acting_as(ALICE, of_alice):
        assert made.run.state_file.read_text()
        assert len(list_checkpoints(made.run)) == 5
        prune.undo(made.run, done.trash, through=FrontEnd.COMMAND_LINE)
        assert len(list_checkpoints(made.run)) == 6
        act(made, "ckpt-100")
        act(made, "ckpt-300")
        assert "ckpt-300" in read_entries(made.run)[-1].message
        assert not list_trash(made.run)


SCRIPT = """
cd "$(dirname "$TFCKPT_EXPORT")"
if [ ! -d ckpt-100 ]; then
    mkdir ckpt-100 && echo model > ckpt-100/saved_model.pb && phase=write
fi
echo '{"schema":1,"difference":0.0}' > report-${phase-check}.json
"""


def derive(tool: Tool, root: Path) -> None:
    """Makes a checkpoint in each way in which commands do, and exports one."""
    np.savez(root / "arrays.npz", v=np.ones(3))
    for words in (
        ("average", root, "ckpt-100", "ckpt-200"),
        ("edit", root, "ckpt-500", "--cast", "v", "float16", "--yes"),
        ("convert", root / "new", "ckpt-1", root / "arrays.npz"),
        ("export", root, "100", "--format", "saved-model", "--yes", "--", "sh", "-p", "-c", SCRIPT),
    ):
        done = tool(*words)
        assert done.code == 0, done


@pytest.mark.parametrize("umask", UMASKS, ids=oct)
def test_what_commands_write_follows_the_directory(
    tool: Tool, shared: Path, tmp_path: Path, umask: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The script of an export begins there, and Bob may not enter each directory with tests.
    monkeypatch.chdir(shared)
    # Imports what is needed.
    derive(tool, two_branches(tmp_path / "imports", time.time() - 3600).run.root)
    with acting_as(ALICE):
        made = two_branches(shared, time.time() - 3600)
        own = made.run.worker_state_directory("ckpt-500")
        own.mkdir()
        (own / "worker-0.json").write_text("{}")
    before = set(shared.rglob("*"))
    with acting_as(BOB, umask):
        derive(tool, shared)
    for path in set(shared.rglob("*")) - before:
        if path.name == "arrays.npz" or path.is_symlink() or "logs" in path.parts:
            continue
        mode = path.stat().st_mode
        wanted = 0o070 if path.is_dir() else 0o040
        assert mode & wanted == wanted, (path, oct(mode))
        # Who is not of the group gets what the umask leaves.
        assert not mode & 0o007 & umask, (path, oct(mode))
    with acting_as(ALICE, 0o077):
        assert tool("prune", shared, "average-200", "edited-500", "--yes", "--delete").code == 0
        assert (shared / "exports" / "ckpt-100" / "saved_model.pb").read_text() == "model\n"
    assert not list(made.run.worker_states_directory.glob("[ae]*"))


def private_record(made: CheckpointDirectory) -> Path:
    record = made.run.record("ckpt-2")
    record.chmod(0o600)
    return record


def private_states(made: CheckpointDirectory) -> Path:
    states = made.run.worker_state_directory("ckpt-2")
    states.chmod(0o700)
    return states


@pytest.mark.parametrize("private", [private_record, private_states])
def test_a_verification_goes_on_after_what_a_colleague_keeps_private(
    tool: Tool, shared: Path, private: Callable[[CheckpointDirectory], Path]
) -> None:
    made = CheckpointDirectory(shared)
    for step in (1, 2, 3):
        made.ours(step)
    tool("verify", shared, "3")
    shutil.rmtree(made.run.verifications_directory, ignore_errors=True)
    place = private(made)
    with acting_as(ALICE):
        said = tool("verify", shared)
        listed = {one["name"]: one for one in tool("ls", shared, "--json").json["checkpoints"]}
    assert said.code == 1
    assert "3 checkpoints: 2 sound, 1 unreadable." in said.data
    assert place.name in said.data
    assert "cannot be read: Permission denied" in said.data
    if place.is_dir():
        assert listed["ckpt-2"]["problem"].startswith(".tfckpt/workers/ckpt-2")


@pytest.mark.parametrize("mode", [0o2755, 0o3775], ids=oct)
def test_who_may_not_delete_what_is_in_the_trash_takes_no_undo_away(
    tool: Tool, shared: Path, mode: int
) -> None:
    with acting_as(ALICE, 0o022):
        made = two_branches(shared, time.time() - 3600)
        assert tool("prune", shared, "ckpt-100", "--yes").code == 0
    (place,) = made.run.trash.iterdir()
    place.chmod(mode)
    before = read_entries(made.run)
    with acting_as(BOB, 0o022):
        refused = tool("trash", shared, "empty", "--yes")
    assert refused.code == 1
    assert "Deleted" not in refused.data
    assert re.search(rf"{place}(/\S+)?: (Permission denied|Operation not permitted)", refused.words)
    assert read_entries(made.run) == before
    with acting_as(ALICE, 0o022):
        assert tool("undo", shared).data == "Brought back ckpt-100.\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("undo",), "Brought back: ckpt-100."),
        (("prune", "ckpt-200", "--yes"), "Brought back: ckpt-100. It had been interrupted."),
    ],
)
def test_an_interrupted_undo_is_told_by_the_command_that_finishes_it(
    tool: Tool, shared: Path, words: tuple[str, ...], told: str
) -> None:
    made = two_branches(shared, time.time() - 3600)
    assert tool("prune", shared, "ckpt-100", "--yes").code == 0
    (manifest,) = made.run.trash.glob("*/manifest.json")
    begun = replace(load(manifest, TrashManifest), phase=TrashPhase.UNDOING)
    store(manifest, begun)
    command, *others = words
    assert tool(command, shared, *others).code == 0
    assert told in [entry.message for entry in read_entries(made.run)]
    assert (shared / "ckpt-100.index").exists()


def test_a_checkpoint_of_which_a_part_may_not_be_deleted_stays_whole(
    tool: Tool, shared: Path
) -> None:
    made = CheckpointDirectory(shared)
    for step in (1, 2, 3):
        made.ours(step)
    for place in (made.run.control, *made.run.control.rglob("*")):
        os.chown(place, ALICE, GROUP)
    kept = made.run.worker_state_directory("ckpt-1")
    os.chown(kept, BOB, GROUP)
    kept.chmod(0o2755)
    words = ("prune", shared, "--keep-last", "1", "--yes", "--delete", "--beside-trainer")
    with acting_as(ALICE):
        said = tool(*words)
    assert said.code == 1
    assert f"{kept}: Permission denied" in said.words
    assert "Deleted 1 checkpoint for good" in said.data
    assert read_entries(made.run)[-1].message == "Deleted for good: ckpt-2."
    names = sorted(path.name for path in shared.rglob("ckpt-*.index"))
    assert names == ["ckpt-1.index", "ckpt-3.index"]
    assert tool("verify", shared, "1").code == 0


def test_files_that_others_moved_to_an_export_stay_private(shared: Path) -> None:
    places = {name: shared / name for name in ("private", "open", "link")}
    with acting_as(ALICE, 0o077):
        for name, mode in (("private", 0o2700), ("open", 0o2770)):
            places[name].mkdir()
            places[name].chmod(mode)
            (places[name] / "secret").touch()
        places["link"].symlink_to("private")
        for name in ("open", "link"):
            with pytest.raises((RefusedError, OSError)):
                PrivateDirectory(places[name])
        with closing(PrivateDirectory(places["private"])) as private:
            private.share_all(shared)
    modes = {path.parent.name: path.stat().st_mode & 0o777 for path in shared.rglob("secret")}
    assert modes == {"private": 0o640, "open": 0o600}


@pytest.mark.parametrize("umask", UMASKS, ids=oct)
def test_a_trainer_reads_what_a_colleague_asks(shared: Path, umask: int) -> None:
    with acting_as(ALICE):
        queue = CommandQueue(two_branches(shared, time.time() - 3600).run)
    with acting_as(BOB, umask):
        asked = queue.submit(CommandKind.SAVE, requested_by="bob@here")
    with acting_as(ALICE):
        claimed = queue.claim(time.time())
    assert claimed is not None and claimed.id == asked.id


def test_new_files_follow_a_directory_that_a_group_shares(shared: Path) -> None:
    shared.chmod(0o2770)
    with acting_as(BOB, 0o077):
        make_directory(shared / "new" / "below")
        append_line(shared / "appended", b"")
        for name, is_private in (("replaced", False), ("private", True)):
            write_atomic(shared / name, b"", mode=0o600 if is_private else None)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in shared.rglob("*")}
    assert modes == {
        "new": 0o2770,
        "below": 0o2770,
        "appended": 0o660,
        "replaced": 0o640,
        "private": 0o600,
    }


@pytest.mark.parametrize(
    ("of_directory", "of_lock"), [(0o755, 0o600), (0o2775, 0o660), (0o2777, 0o666)], ids=oct
)
@pytest.mark.parametrize("umask", [0, 0o077], ids=oct)
def test_a_lock_can_be_held_only_by_who_may_write(
    shared: Path, of_directory: int, of_lock: int, umask: int
) -> None:
    shared.chmod(of_directory)
    with acting_as(ALICE, umask):
        os.close(open_lock(shared / "new.lock"))
        # As an earlier release made it.
        (shared / "old.lock").touch()
        (shared / "old.lock").chmod(of_lock | 0o644)
        os.close(open_lock(shared / "old.lock"))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in shared.glob("*.lock")}
    assert modes == {"new.lock": of_lock, "old.lock": of_lock}


def test_a_lock_that_a_colleague_can_replace_is_named_with_what_to_do(
    tool: Tool, shared: Path
) -> None:
    with acting_as(ALICE, 0o002):
        made = two_branches(shared, time.time() - 3600)
        made.run.control.chmod(0o3775)
    with acting_as(BOB, 0o002):
        os.close(open_lock(made.run.trash_lock))
    with acting_as(ALICE):
        refused = tool("pin", shared, "ckpt-100")
        assert refused.code == 4
        assert f"{made.run.trash_lock} belongs to " in refused.words
        assert f"`chmod -t {made.run.control}`" in refused.words
        made.run.control.chmod(0o2775)
        assert tool("pin", shared, "ckpt-100").code == 0


def test_a_copy_whose_state_file_cannot_be_replaced_copies_nothing(
    tool: Tool, shared: Path
) -> None:
    source = CheckpointDirectory(shared.with_name("source"))
    source.tensorflow("ckpt-2")
    made = CheckpointDirectory(shared)
    made.tensorflow("ckpt-1")
    for path in shared.iterdir():
        os.chown(path, ALICE, GROUP)
    shared.chmod(0o3775)
    before = set(shared.rglob("*"))
    with acting_as(BOB, 0o002):
        refused = tool("copy", source.root, "2", shared)
    assert refused.code == 4
    assert f"{made.run.state_file} cannot be replaced by this user" in refused.words
    assert set(shared.rglob("*")) == before


def test_all_locks_of_a_run_are_closed_to_others(shared: Path) -> None:
    with acting_as(ALICE, 0o022):
        made = two_branches(shared, time.time() - 3600)
        act(made, "ckpt-100")
        assert not is_locked(made.run.supervisor_lock)
        lock = take_lock(made.run.supervisor_lock)
        assert lock is not None
        os.close(lock)
    locks = {path.name: path.stat().st_mode & 0o007 for path in made.run.control.glob("*.lock")}
    assert locks == {"trainer.lock": 0, "trash.lock": 0, "supervisor.lock": 0}


def test_no_file_is_opened_to_a_group_that_does_not_share_the_directory(tmp_path: Path) -> None:
    for mode, gid in ((0o755, 0), (0o2755, GROUP), (0o775, GROUP)):
        place = tmp_path / f"{mode:o}-{gid}"
        place.mkdir()
        os.chown(place, 0, gid)
        place.chmod(mode)
        before = os.umask(0o077)
        try:
            write_atomic(place / "replaced", b"")
            append_line(place / "appended", b"")
        finally:
            os.umask(before)
        assert {stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()} == {0o600}


def test_a_sticky_directory_is_named_with_who_may_change_its_files(
    shared: Path, tool: Tool
) -> None:
    with acting_as(ALICE):
        two_branches(shared, time.time() - 3600)
    shared.chmod(0o3775)
    with acting_as(BOB):
        said = tool("prune", shared, "ckpt-100", "--yes")
    assert said.code != 0
    assert f"{shared} has the sticky bit: only user {ALICE} may" in said.words
    assert f"have user {ALICE} run `chmod -t " in said.words
    shared.chmod(0o2775)
    with acting_as(BOB):
        assert tool("prune", shared, "ckpt-100", "--yes").code == 0


def test_what_a_stranger_adds_is_kept_by_rules_and_takes_no_place(shared: Path, tool: Tool) -> None:
    shared.chmod(0o3777)
    with acting_as(ALICE):
        two_branches(shared, time.time() - 3600)
        names = [one["name"] for one in tool("ls", shared, "--json").json["checkpoints"]]
    with acting_as(BOB):
        for number in (7, 8, 9):
            for path in shared.glob(f"{names[0]}.*"):
                shutil.copy(path, shared / path.name.replace(names[0], f"ckpt-{number}"))
            record = shared / ".tfckpt" / "records" / f"{names[0]}.json"
            forged = json.loads(record.read_bytes()) | {"name": f"ckpt-{number}", "sequence": 999}
            record.with_name(f"ckpt-{number}.json").write_text(json.dumps(forged))
    with acting_as(ALICE):
        said = tool("prune", shared, "--keep-last", "2", "--yes")
        left = {one["name"] for one in tool("ls", shared, "--json").json["checkpoints"]}
    assert said.code == 0, said
    assert f"it belongs to user {BOB}: delete it by name" in said.data
    assert left >= {*names[:2], "ckpt-7", "ckpt-8", "ckpt-9"}
    assert len(left) < len(names) + 3


@pytest.mark.parametrize("mode", [0o700, 0o744])
@pytest.mark.parametrize("place", ["", ".tfckpt", ".tfckpt/status", ".tfckpt/control/inbox"])
async def test_a_run_that_a_colleague_closed_hides_no_other(
    shared: Path, tool: Tool, place: str, mode: int
) -> None:
    with acting_as(ALICE):
        two_branches(shared / "mine", time.time() - 3600)
    with acting_as(BOB):
        two_branches(shared / "closed", time.time() - 3600)
        (shared / "closed" / place).chmod(mode)
    with acting_as(ALICE):
        said = tool("runs", shared, "--json")
        assert said.code == 0, said
        found = {Path(one["directory"]).name: one for one in said.json["runs"]}
        assert found["mine"]["state"] == "failed"
        if "control" not in place:
            assert found.get("closed", {"state": "unknown"})["state"] == "unknown"
        (account,) = JobList().read([shared / "closed"], with_others=False)
        for alert in account.alerts if "control" not in place else ():
            assert (
                alert.message == f"{shared / 'closed' / place} cannot be read: Permission denied."
            )
            assert f"user {BOB}" in str(alert.advice)


@pytest.mark.parametrize("place", ["", ".tfckpt", ".tfckpt/status"])
def test_a_page_of_a_run_says_that_it_was_closed_and_goes_on_when_it_is_open(
    shared: Path, place: str
) -> None:
    with acting_as(BOB):
        made = two_branches(shared / "run", time.time(), live=True)
    reader = SnapshotReader(made.run)

    def seen() -> tuple[str, list[str]]:
        snapshot = reader.read(time.time())
        return snapshot.state.value, [alert.title for alert in snapshot.alerts]

    with acting_as(ALICE):
        before = seen()
    assert before[0] == "training"
    mode = stat.S_IMODE((made.run.root / place).stat().st_mode)
    with acting_as(BOB):
        (made.run.root / place).chmod(0o700)
    with acting_as(ALICE):
        state, titles = seen()
    assert state != "training" and titles == ["the run directory cannot be read"]
    with acting_as(BOB):
        (made.run.root / place).chmod(mode)
    with acting_as(ALICE):
        assert seen() == before


def test_who_takes_a_configuration_over_shuts_nobody_out(shared: Path, tool: Tool) -> None:
    with acting_as(ALICE, 0o022):
        config = two_branches(shared, time.time() - 3600).run.config_file
        config.write_text('[[alerts.webhooks]]\nurl = "https://a.example"\n')
    with acting_as(BOB, 0o002):
        said = tool("guards", shared, "--add", "not_finite: notify")
        assert said.code != 0 and f"{config} belongs to user {ALICE}" in said.words
        (command,) = re.findall(r"`(install .+?)`", said.words)
        subprocess.run(command, shell=True, check=True)
        assert tool("guards", shared, "--add", "not_finite: notify").code == 0
    with acting_as(ALICE):
        assert "not_finite: notify" in tool("guards", shared).data
        with acting_as(BOB):
            config.chmod(0o600)
        said = tool("guards", shared)
    assert f"{config} cannot be read: Permission denied." in said.words
    assert f"user {BOB}" in said.words


def closed_file(path: Path) -> None:
    path.touch(mode=0o000)


def closed_directory(path: Path) -> None:
    path.mkdir(mode=0o000)


@pytest.mark.parametrize("make", [closed_file, closed_directory, Path.mkdir])
def test_what_a_colleague_puts_in_place_of_a_record_costs_no_checkpoint_and_no_prune(
    shared: Path, tool: Tool, make: Callable[[Path], None]
) -> None:
    with acting_as(ALICE, 0o002):
        made = two_branches(shared, time.time() - 3600)
        found = tool("ls", shared, "--json").json["checkpoints"]
    record = made.run.record(found[-1]["name"])
    with acting_as(BOB):
        record.unlink()
        make(record)
    with acting_as(ALICE):
        assert tool("ls", shared, "--json").json["checkpoints"] == found
        said = tool("prune", shared, found[-1]["name"], "--yes")
        assert said.code == 0, said
        assert tool("undo", shared).code == 0
        assert tool("ls", shared, "--json").json["checkpoints"] == found
    # What cannot be that record is of nobody here.
    assert record.is_dir() == (make is not closed_file)


@pytest.fixture
def plain(shared: Path) -> CheckpointDirectory:
    """Alice's checkpoints of another program, in a directory where anybody can add files."""
    shared.chmod(0o1777)
    with acting_as(ALICE, 0o022):
        made = CheckpointDirectory(shared)
        for step in (20, 40, 60, 80):
            made.tensorflow(f"ckpt-{step}", age=10_000 - step, listed=False)
    return made


def left_by_rules(plain: CheckpointDirectory, tool: Tool) -> set[str]:
    with acting_as(ALICE):
        said = tool("prune", plain.root, "--keep-last", "2", "--yes")
        assert said.code == 0, said
        return {one["name"] for one in tool("ls", plain.root, "--json").json["checkpoints"]}


@needs("root")
def test_copies_of_a_stranger_take_no_place_also_without_a_run(plain, tool):
    with acting_as(BOB, 0o022):
        for step in (200, 220):
            for path in plain.root.glob("ckpt-20.*"):
                shutil.copy(path, plain.root / path.name.replace("20", str(step)))
                os.utime(plain.root / path.name.replace("20", str(step)), (1e9, 1e9))
    assert left_by_rules(plain, tool) == {"ckpt-60", "ckpt-80", "ckpt-200", "ckpt-220"}


@needs("root")
def test_an_equally_old_copy_of_a_stranger_keeps_no_prune_from_its_order(plain, tool):
    with acting_as(BOB, 0o022):
        for path in plain.root.glob("ckpt-20.*"):
            other = plain.root / path.name.replace("ckpt-20", "evil-1")
            shutil.copy2(path, other)
            twin = (plain.root / "ckpt-60.index").stat()
            os.utime(other, ns=(twin.st_mtime_ns, twin.st_mtime_ns))
    assert left_by_rules(plain, tool) == {"ckpt-60", "ckpt-80", "evil-1"}


@needs("root")
@pytest.mark.parametrize("place", [".", "best"])
def test_a_link_of_a_stranger_keeps_no_checkpoint(plain, tool, place):
    with acting_as(BOB, 0o022):
        (plain.root / place).mkdir(exist_ok=True)
        for path in plain.root.glob("ckpt-[26]0.*"):
            (plain.root / place / f"l-{path.name}").symlink_to(path if place != "." else path.name)
    assert "ckpt-20" not in left_by_rules(plain, tool)
    with acting_as(ALICE):
        shown = tool("prune", plain.root, "--keep-last", "1", "--dry-run").words
        assert "run `rm" not in shown
        assert tool("prune", plain.root, "ckpt-60", "--yes").code == 0


def start_of_a_save(index: Path) -> None:
    part = index.with_name(f"{index.stem}_temp") / "part-00000-of-00001.index"
    part.parent.mkdir()
    shutil.copy(index, part)


def link_to_elsewhere(index: Path) -> None:
    index.with_name(f"{index.stem}.data-00001-of-00002").symlink_to("/etc/passwd")


def data_of_another_count(index: Path) -> None:
    index.with_name(f"{index.stem}.data-00001-of-00002").write_bytes(b"mine")


@needs("root")
@pytest.mark.parametrize("add", [start_of_a_save, link_to_elsewhere, data_of_another_count])
def test_what_a_stranger_puts_beside_a_checkpoint_changes_it_in_nothing(plain, tool, add):
    def seen() -> list[tuple[str, str]]:
        with acting_as(ALICE):
            rows = tool("ls", plain.root, "--json").json["checkpoints"]
        return [(row["name"], row["state"]) for row in rows]

    before, files = seen(), set(plain.root.iterdir())
    with acting_as(BOB, 0o022):
        for index in plain.root.glob("*.index"):
            add(index)
    added = set(plain.root.iterdir()) - files
    assert seen() == before
    left_by_rules(plain, tool)
    # What is left of the others are files of Bob, who may go on with a save.
    indexes = {path.stem for path in plain.root.glob("*.index")}
    assert indexes == {"ckpt-60", "ckpt-80"}
    with acting_as(ALICE):
        assert tool("undo", plain.root).code == 0
    assert seen() == before
    assert added < set(plain.root.iterdir())


@needs("root")
def test_no_checkpoint_of_a_stranger_is_restored(plain, tool):
    with acting_as(BOB, 0o022):
        for path in plain.root.glob("ckpt-20.*"):
            shutil.copy2(path, plain.root / path.name.replace("ckpt-20", "mine-7"))
    for words in ([], ["--set", "learning_rate=1"]):
        with acting_as(ALICE):
            said = tool("restore", plain.root, "--name", "mine-7", "--next-start", *words)
        assert said.code == ExitCode.REFUSED
        assert f"mine-7 belongs to user {BOB}" in said.words


@needs("root")
@pytest.mark.parametrize("make", [closed_file, os.mkfifo, Path.mkdir])
def test_metrics_that_cannot_be_read_are_not_called_missing(shared, tool, make):
    with acting_as(ALICE, 0o002):
        series = two_branches(shared, time.time() - 3600).run.series
    with acting_as(BOB):
        series.unlink()
        make(series)
    with acting_as(ALICE):
        said = tool("metrics", shared)
    assert said.code != 0 and str(series) in said.words and "has no such" not in said.words


@needs("root")
def test_a_list_of_a_stranger_orders_nothing(plain, tool):
    with acting_as(BOB, 0o022):
        names = [f"ckpt-{step}" for step in (80, 60, 40, 20)]
        write_state_file(plain.run.state_file, StateFile("ckpt-20", tuple(names)))
        os.utime(plain.run.state_file, (1e9, 1e9))
    with acting_as(ALICE):
        assert "belongs to another user" in tool("ls", plain.root).words
    assert left_by_rules(plain, tool) == {"ckpt-60", "ckpt-80"}


@needs("root")
@pytest.mark.parametrize("mode", [0o700, 0o777])
def test_a_directory_of_the_library_that_a_stranger_made_is_refused(plain, tool, mode):
    with acting_as(BOB, 0o000):
        plain.run.control.mkdir(mode=mode)
    for words in (["prune", plain.root, "--keep-last", "2"], ["pin", plain.root, "ckpt-80"]):
        with acting_as(ALICE):
            said = tool(*words, *(["--yes"] if words[0] == "prune" else []))
        assert said.code != 0
        if mode == 0o777:
            assert f"{plain.run.control} belongs to user {BOB}, who can put anything" in said.words
    with acting_as(ALICE):
        told = tool("ls", plain.root)
    if mode == 0o700:
        assert f"`mv {plain.run.control} {plain.run.control}.of-others`" in told.words
    with acting_as(ALICE), pytest.raises(RefusedError) as refused:
        check_directory(plain.run)
    (command,) = re.findall(r"`(mv .+?)`", str(refused.value))
    with acting_as(ALICE):
        subprocess.run(command, shell=True, check=True)
    assert left_by_rules(plain, tool) == {"ckpt-60", "ckpt-80"}


@needs("root")
def test_who_cannot_move_the_directory_of_a_stranger_is_told_who_can(shared):
    os.chown(shared, 0, 0)
    shared.chmod(0o1777)
    run = RunDirectory(shared)
    with acting_as(BOB, 0o000):
        run.control.mkdir()
    words = r"use another directory, or have root.* move it away: `mv "
    with acting_as(ALICE), pytest.raises(RefusedError, match=words):
        run.refuse_strangers()
    with pytest.raises(RefusedError, match=r"If it is not, move it away: `mv "):
        run.refuse_strangers()


def test_an_undo_is_done_once_where_only_the_owner_may_replace_the_state_file(
    shared: Path, tool: Tool
) -> None:
    with acting_as(ALICE):
        made = two_branches(shared, time.time() - 3600)
        assert tool("prune", shared, "ckpt-100", "--yes").code == 0
    shared.chmod(0o3775)
    with acting_as(BOB):
        done, again = tool("undo", shared), tool("undo", shared)
    assert (done.code, again.code) == (0, 2)
    assert "TensorFlow's state file does not list ckpt-100 again: " in done.words
    assert f"{shared} has the sticky bit: only user {ALICE} may" in done.words
    told = [entry for entry in read_entries(made.run) if entry.kind is EventKind.UNDO]
    assert len(told) == 1
    assert (shared / "ckpt-100.index").exists()


def test_a_refusal_names_the_file_its_owner_and_the_command(shared: Path) -> None:
    with acting_as(ALICE):
        made = two_branches(shared, time.time() - 3600)
        act(made, "ckpt-100")
        made.run.trash_lock.chmod(0o644)
    with acting_as(BOB), pytest.raises(NotWritableError) as told:
        act(made, "ckpt-100")
    lock = made.run.trash_lock
    assert f"its owner, user {ALICE}. To share {lock}, user {ALICE} runs" in str(told.value)
    with acting_as(ALICE):
        subprocess.run(str(told.value).split("`")[1], shell=True, check=True)
    with acting_as(BOB):
        act(made, "ckpt-100")


@pytest.mark.parametrize(
    "words",
    [
        ["ls"],
        ["inspect", "ckpt-1"],
        ["verify", "ckpt-1"],
        ["compare", "ckpt-1", "ckpt-2"],
        ["average", "ckpt-1", "ckpt-2"],
        ["edit", "ckpt-1", "--drop", "a"],
        ["extract", "ckpt-1", "a", "--to", "npz"],
    ],
    ids=lambda words: words[0],
)
def test_every_command_names_who_may_open_a_closed_checkpoint(
    tool: Tool, shared: Path, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = CheckpointDirectory(shared)
    for step in (1, 2):
        made.ours(step)
    # Imports what the command needs.
    command, *others = words
    tool(command, shared, *others, "--help")
    tool("ls", shared)
    index = shared / "ckpt-1.index"
    os.chown(index, ALICE, GROUP)
    index.chmod(0o600)
    with acting_as(BOB):
        said = tool(command, shared, *others)
    told = said.data + said.words
    assert f"Run this as its owner, user {ALICE}" in told, told
    assert f"user {ALICE} runs `chmod g+r" in told, told


@pytest.mark.parametrize(
    ("of_root", "of_control"), [(0o775, 0o755), (0o755, 0o755), (0o2775, 0o2775)], ids=oct
)
def test_one_command_lets_a_colleague_into_a_run_of_a_private_group(
    shared: Path, of_root: int, of_control: int
) -> None:
    with acting_as(ALICE, 0o022):
        made = two_branches(shared, time.time() - 3600)
        act(made, "ckpt-100")
    private = 54399
    for place in (made.run.control, *made.run.control.rglob("*")):
        os.chown(place, ALICE, private)
        place.chmod(of_control if place.is_dir() else 0o644)
    shared.chmod(of_root)
    made.run.launch_file.write_text("{}")
    os.chown(made.run.launch_file, ALICE, private)
    made.run.launch_file.chmod(0o600)

    def pin() -> None:
        prune.set_pins(made.run, ["ckpt-200"], pinned=True, through=FrontEnd.COMMAND_LINE)

    with acting_as(BOB), pytest.raises(NotWritableError) as told:
        pin()
    assert str(told.value).startswith(f"{made.run.control}/")
    command = str(told.value).split("`")[1]
    subprocess.run(command, shell=True, check=True, user=ALICE, extra_groups=[GROUP])
    with acting_as(BOB):
        pin()
    assert stat.S_IMODE(made.run.launch_file.stat().st_mode) == 0o600
    assert (made.run.pins_directory / "ckpt-200").stat().st_uid == BOB


def test_a_refusal_names_what_is_closed_and_not_the_run_directory(shared: Path) -> None:
    with acting_as(ALICE):
        made = two_branches(shared, time.time() - 3600)
    control = made.run.control
    for place in (control, *control.rglob("*")):
        os.chown(place, BOB, GROUP)
        place.chmod(0o755 if place.is_dir() else 0o644)
    with acting_as(ALICE), pytest.raises(NotWritableError) as told:
        act(made, "ckpt-100")
    assert str(told.value).startswith(f"{control}")
    assert f"its owner, user {BOB}" in str(told.value)
    assert f"{made.run.root} cannot" not in str(told.value)


@pytest.mark.parametrize(("groups", "command"), [((GROUP,), f"chgrp {GROUP} "), ((1,), "")])
def test_the_group_is_one_of_both(
    shared: Path, monkeypatch: pytest.MonkeyPatch, groups: tuple[int, ...], command: str
) -> None:
    alice = SimpleNamespace(pw_name="alice", pw_gid=groups[0])
    monkeypatch.setattr(pwd, "getpwuid", lambda user: alice)
    monkeypatch.setattr(pwd, "getpwnam", lambda name: alice)
    monkeypatch.setattr(os, "getgrouplist", lambda name, group: [group])
    lock = shared / ".tfckpt" / "trash.lock"
    lock.parent.mkdir()
    lock.touch()
    for place in (lock.parent, lock):
        os.chown(place, ALICE, 54399)
    with acting_as(BOB):
        told = str(access_advice(lock))
    assert "its owner, alice." in told
    assert (command in told) if command else ("`" not in told)


def test_a_closed_run_directory_is_opened_by_the_command_of_a_prune(shared: Path) -> None:
    with acting_as(ALICE, 0o002):
        made = two_branches(shared, time.time() - 3600)
        act(made, "ckpt-100")
    shared.chmod(0o2755)

    def prune_one() -> None:
        prune.prune(made.run, ["ckpt-100"], through=FrontEnd.COMMAND_LINE)

    with acting_as(BOB):
        with pytest.raises(PermissionError) as refused:
            prune_one()
        told = describe_error(refused.value)
    assert f"To share {shared}, user {ALICE} runs `chmod g+rwxs {shared}`" in told
    command = told.split("`")[1]
    subprocess.run(command, shell=True, check=True, user=ALICE, extra_groups=[GROUP])
    with acting_as(BOB):
        prune_one()


def forged(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text('{"schema": 99}')


def put_by_bob(shared: Path, place: str, put: Callable[[Path], object]) -> Path:
    """Has Bob put something below `.tfckpt` of a run of Alice; returns its path."""
    with acting_as(ALICE):
        made = two_branches(shared, time.time() - 3600)
    path = made.run.control / place
    with acting_as(BOB):
        path.unlink(missing_ok=True)
        put(path)
    return path


DOCUMENTS = [
    "head.json",
    "job.json",
    "launch.json",
    "records/ckpt-100.json",
    "run.json",
    "saving/ckpt-900.json",
    "status/worker-0.json",
    "trash/20261201T000000-aaaaaa/manifest.json",
    "trash/20261201T000000-a;touch b/manifest.json",
]


@pytest.mark.parametrize("place", DOCUMENTS)
def test_a_forged_document_of_a_newer_release_is_moved_away_by_the_command_of_the_refusal(
    shared: Path, tool: Tool, place: str
) -> None:
    """It kept everybody from changing the run, and an upgrade could not help."""
    path = put_by_bob(shared, place, forged)
    with acting_as(ALICE):
        refused = tool("prune", shared, "ckpt-100", "ckpt-200", "--yes")
        assert refused.code == ExitCode.REFUSED
        assert f"{path} belongs to user {BOB}. If nobody used a newer release" in refused.words
        commands = re.findall(r"`(mv .*?)`", refused.words)
        assert len(commands) == 1
        subprocess.run(["sh", "-c", commands[0]], check=True, cwd=shared)
        assert tool("prune", shared, "ckpt-200", "--yes").code == ExitCode.DONE
        assert tool("undo", shared).code == ExitCode.DONE
    assert not list(shared.rglob("touch*"))
    assert not (shared / "b").exists()


def test_a_home_that_may_not_be_entered_is_none(
    shared: Path, tool: Tool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Containers and `sudo` leave HOME at that of root: every command failed."""
    home = tmp_path / "home-of-root"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    with acting_as(ALICE):
        two_branches(shared, time.time() - 3600)
        for words in (
            ("ls", shared),
            ("config",),
            ("pin", shared, "ckpt-300"),
            ("prune", shared, "ckpt-200", "--yes"),
            ("undo", shared),
        ):
            said = tool(*words)
            assert said.code == ExitCode.DONE, said
    assert not list(home.iterdir())


@pytest.mark.parametrize("place", ["head.json", "run.json", "trash.json", "trainer.lock"])
def test_what_a_stranger_closes_is_moved_away_by_the_command_of_the_refusal(
    shared: Path, tool: Tool, place: str
) -> None:
    """Its owner alone could open it."""
    put_by_bob(shared, place, closed_file)
    with acting_as(ALICE):
        refused = tool("prune", shared, "ckpt-200", "--yes")
        assert refused.code == ExitCode.PROBLEM
        (command,) = re.findall(r"no part in this run, move it away: `(mv .*?)`", refused.words)
        subprocess.run(["sh", "-c", command], check=True, cwd=shared)
        assert tool("prune", shared, "ckpt-200", "--yes").code == ExitCode.DONE


@pytest.mark.parametrize("name", ["20261201T000000-aaaaab", "20261201T000000-a;touch b"])
def test_what_cannot_be_used_in_the_trash_is_deleted_by_the_command_and_nothing_else(
    shared: Path, tool: Tool, name: str
) -> None:
    """`rm -r B/my run/…` deleted `B/my`, and the name of a directory was a command."""
    beside = shared / "my"
    with acting_as(ALICE):
        made = two_branches(shared / "my run", time.time() - 3600)
        beside.mkdir()
        left = made.run.trash / name
        left.mkdir()
        (left / "manifest.json").write_text("{")
        said = tool("trash", made.run.root)
        (command,) = re.findall(r"`(rm -r .*?)`", said.words)
        subprocess.run(["sh", "-c", command], check=True, cwd=shared)
        assert tool("trash", made.run.root).code == ExitCode.DONE
    assert beside.is_dir()
    assert not left.exists()
    assert not list(shared.glob("b"))


def test_a_job_id_is_one_word_of_a_command(shared: Path, tool: Tool) -> None:
    with acting_as(ALICE):
        made = two_branches(shared, time.time() - 3600)
    with acting_as(BOB):
        made.run.job_file.write_text(
            json.dumps({"scheduler": "slurm", "id": "1;touch b", "submitted_at": 1.0, "script": ""})
        )
    with acting_as(ALICE):
        for command in ("status", "stop", "prune", "trash"):
            said = tool(command, shared, *(("ckpt-100", "--yes") if command == "prune" else ()))
            assert "touch b" not in "".join(re.findall(r"`.*?`", said.words + said.data))


def put_in_trash(made: RunFactory, phase: TrashPhase, **changes: object) -> Path:
    """Puts a directory into the trash that another user alone may change; returns it."""
    with acting_as(ALICE):
        done = prune.prune(made.run, ["ckpt-100"], through=FrontEnd.COMMAND_LINE)
        own = made.run.trash / done.trash
        forged = replace(
            load(own / "manifest.json", TrashManifest),
            id="20301130T200000-0000aa", phase=phase, **changes,
        )  # fmt: skip
        prune.undo(made.run, done.trash, through=FrontEnd.COMMAND_LINE)
    place = made.run.trash / forged.id
    with acting_as(BOB):
        place.mkdir()
        store(place / "manifest.json", forged)
        for name in forged.checkpoints[0].files:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(b"")
        for directory in (place, *filter(Path.is_dir, place.rglob("*"))):
            directory.chmod(0o755)
    return place


@pytest.mark.parametrize("phase", TrashPhase)
def test_what_a_colleague_closed_in_the_trash_keeps_nobody_from_pruning(
    tool: Tool, shared: Path, phase: TrashPhase
) -> None:
    made = two_branches(shared, time.time() - 3600)
    shutil.chown(made.run.control, ALICE, GROUP)
    for place in made.run.control.rglob("*"):
        shutil.chown(place, ALICE, GROUP)
    with acting_as(ALICE):
        own = prune.prune(made.run, ["ckpt-300"], through=FrontEnd.COMMAND_LINE).trash
    place = put_in_trash(made, phase, sequence=1 << 39)
    with acting_as(ALICE):
        refused = tool("undo", shared)
        assert f"tfckpt-tui undo {shared} --trash {own}" in refused.words
        warnings: list[str] = []
        assert settle_interrupted_prunes(made.run, warnings.append) == []
        assert bool(warnings) == (phase is not TrashPhase.TRASHED)
        assert all(f"{place}/" in warning for warning in warnings)
        pruned = tool("prune", shared, "ckpt-200", "--yes")
        assert pruned.code == 0, pruned.words
        assert tool("undo", shared).data == "Brought back ckpt-200.\n"
        assert tool("undo", shared, "--trash", own).data == "Brought back ckpt-300.\n"
        shown = tool("trash", shared, "--json").json["trash"]
    (by,) = (one["by"] for one in shown)
    assert by.endswith(f" (file of user {BOB})")


@pytest.mark.parametrize("sequence", [1 << 61, (1 << 61) + 1, 1 << 62, (1 << 62) + 1, 1 << 63])
def test_the_order_of_prunes_cannot_be_exhausted(tool: Tool, shared: Path, sequence: int) -> None:
    made = two_branches(shared, time.time() - 3600)
    put_in_trash(made, TrashPhase.TRASHED, sequence=sequence)
    store(made.run.trash_order, TrashOrder(sequence=sequence))
    for name in ("ckpt-200", "ckpt-300"):
        assert tool("prune", shared, name, "--yes").code == 0
    for name in ("ckpt-300", "ckpt-200"):
        (newest, *_) = [one for one in list_trash(made.run) if one.names == [name]]
        assert tool("undo", shared, "--trash", newest.id).data == f"Brought back {name}.\n"
