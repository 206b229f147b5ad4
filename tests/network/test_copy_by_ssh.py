"""The command `copy` to another host: a real ssh server on loopback."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from checkpoint_directory import CheckpointDirectory, contents, latest_name, listed_names
from network_disks import short_directory

from bundle_writing import array, write
from real_file_systems import fill, small_tmpfs
from requirements import require
from ssh_server import SshServer, ssh_server
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.run import SupervisorState, SupervisorStatus
from tfckpt_trainer.rundir.storage.documents import store
from tfckpt_tui.services.checkpoints.look_up import look_up
from tfckpt_tui.services.control.request import FrontEnd
from tfckpt_tui.tools.copying.address import parse_destination
from tfckpt_tui.tools.copying.copy import copy_checkpoints
from tfckpt_tui.tools.copying.destination import CutCopyError
from tfckpt_tui.tools.copying.ssh_destination import SshDestination
from waiting import MOST_SECONDS, attempts, wait_until

pytestmark = pytest.mark.e2e

PROGRAMS = (
    "sh", "mkdir", "cat", "dd", "stat", "tail", "df", "sync", "mv", "rm", "rmdir", "touch", "find",
    "dirname", "rsync", "ls", "chmod", "id",
)  # fmt: skip
"""Programs of a host that has neither Python nor this package."""

LARGE = 12_000_000


@dataclass(frozen=True)
class Host:
    """A host named `far`.

    Attributes:
        programs: What its commands find; tests add and remove some.
    """

    programs: Path
    server: SshServer

    def remove(self, *programs: str) -> None:
        for program in programs:
            (self.programs / program).unlink(missing_ok=True)

    def replace(self, program: str, script: str) -> None:
        self.remove(program)
        (self.programs / program).write_text(f"#!/bin/sh\n{script}\n")
        (self.programs / program).chmod(0o755)

    def once(self, mark: Path, signal: str) -> str:
        """A command that signals all connections, and makes a directory so that it does once."""
        send = f"{shutil.which('pkill')} -{signal} -P {self.server.pid}"
        return f"mkdir {mark} 2>/dev/null && {send}"

    def reset(self) -> None:
        for program in os.listdir(self.programs):
            self.remove(program)
        self.remove("../.bashrc")
        for program in (*PROGRAMS, "flock"):
            found = shutil.which(program)
            if found is not None:
                (self.programs / program).symlink_to(found)


@pytest.fixture(scope="module")
def shared_host() -> Iterator[Host]:
    require("rsync")
    with short_directory() as place, pytest.MonkeyPatch.context() as patch:
        programs = place / "programs"
        programs.mkdir()
        # A shell that runs a command reads this file first.
        with ssh_server(place, PATH=str(programs), HOME=str(place)) as server:
            client = place / "client"
            client.mkdir()
            lines = ["Host far", "HostName 127.0.0.1", f"Port {server.port}", f"User {server.user}"]
            lines += [f"{key} {value}" for key, value in server.options.items()]
            (client / "config").write_text("\n".join(lines) + "\n")
            # ssh takes its configuration from the home of the user, whatever HOME is.
            ssh = shutil.which("ssh")
            (client / "ssh").write_text(f'#!/bin/sh\nexec {ssh} -F {client}/config "$@"\n')
            (client / "ssh").chmod(0o755)
            patch.setenv("PATH", f"{client}{os.pathsep}{os.environ['PATH']}")
            yield Host(programs, server)


@pytest.fixture
def host(shared_host: Host) -> Host:
    shared_host.reset()
    return shared_host


@pytest.fixture
def run(tmp_path: Path) -> Path:
    made = CheckpointDirectory(tmp_path / "run")
    made.run.create()
    made.ours(100, workers=2, shards=2)
    made.ours(200, workers=1)
    return made.root


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "far away"


def write_large(root: Path) -> str:
    values = np.random.default_rng(0).integers(0, 256, LARGE, np.uint8)
    write(root / "large-1", {"values": array(values)})
    return "large-1"


def copied(root: Path) -> dict[str, bytes]:
    """All files of a directory that belong to checkpoints."""
    left_out = ("checkpoint", ".tfckpt/journal.jsonl")
    return {path: data for path, data in contents(root).items() if path not in left_out}


def names(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()} - {".tfckpt"} if root.exists() else set()


@pytest.mark.parametrize("locks", [True, False])
def test_copies_arrive_as_they_are_and_a_second_copy_sends_nothing(tool, host, run, place, locks):
    if not locks:
        host.remove("flock")
    write_large(run)
    words = ("copy", run, "100", "200", "large-1", f"far:{place}", "--json")
    said = tool(*words)
    assert said.code == 0, said
    assert said.json["transport"] == "rsync"
    assert said.json["latest"] == "large-1"
    assert copied(place) == copied(run)
    assert os.stat(place / "ckpt-100.index").st_mtime == os.stat(run / "ckpt-100.index").st_mtime
    assert sorted(listed_names(place)) == ["ckpt-100", "ckpt-200", "large-1"]
    before = contents(place)
    again = tool(*words)
    assert [one["state"] for one in again.json["checkpoints"]] == ["present"] * 3
    assert contents(place) == before


def test_hostile_names_are_names(tool, host, tmp_path):
    directory = "-rf a'b\"$(touch x)`touch x`;\nline\\"
    checkpoints = ["-e", "it's $(touch x)", "new\nline", os.fsdecode(b"caf\xe9-1"), "n" * 235]
    made = CheckpointDirectory(tmp_path / "run")
    for name in checkpoints:
        made.tensorflow(name, listed=False)
    target = tmp_path / directory
    said = tool("copy", made.root, "--ssh", f"far:{target}", "--", *checkpoints)
    assert said.code == 0, said
    assert copied(target) == copied(made.root)
    assert set(os.listdir(tmp_path)) == {"run", directory}
    assert not Path("x").exists()


def test_another_checkpoint_is_refused_and_a_dry_run_changes_nothing(tool, host, run, place):
    assert tool("copy", run, "100", f"far:{place}", "--dry-run").code == 0
    assert not place.exists()
    place.mkdir()
    (place / "ckpt-100.data-00000-of-00009").write_bytes(b"another save")
    before = contents(place)
    said = tool("copy", run, "100", f"far:{place}")
    assert said.code == 4
    assert "has other files named ckpt-100" in said.words
    assert {path for path in contents(place) if not path.startswith(".tfckpt")} == set(before)


@pytest.mark.parametrize("link", [".tfckpt/workers/plain", ".tfckpt/workers", ".tfckpt"])
def test_no_link_in_the_run_is_followed_to_files_of_others(tool, host, run, place, tmp_path, link):
    CheckpointDirectory(run).tensorflow("plain")
    private = tmp_path / "private"
    for below in ("workers/plain", "plain", "."):
        (private / below).mkdir(parents=True, exist_ok=True)
        (private / below / "id_rsa").write_text("private")
    shutil.rmtree(run / link, ignore_errors=True)
    (run / link).symlink_to(private)
    said = tool("copy", run, "plain", f"far:{place}")
    assert said.code in {1, 4}
    assert f"{run / link}" in said.words
    assert not place.exists()


@pytest.mark.parametrize("link", [".tfckpt", ".tfckpt/workers", ".tfckpt/workers/ckpt-100"])
def test_nothing_is_written_through_a_link_on_the_host(tool, host, run, place, tmp_path, link):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (place / link).parent.mkdir(parents=True)
    (place / link).symlink_to(elsewhere)
    said = tool("copy", run, "ckpt-100", f"far:{place}")
    assert said.code != 0
    assert not list(elsewhere.iterdir())
    assert not (place / "ckpt-100.index").exists()


def test_a_directory_in_which_a_run_trains_is_refused(tool, host, run, place):
    made = RunDirectory(place)
    made.create()
    status = SupervisorStatus(
        pid=1,
        host="far",
        process_started_at=0.0,
        updated_at=0.0,
        interval_seconds=1.0,
        state=SupervisorState.RUNNING,
    )
    store(made.supervisor_status, status)
    said = tool("copy", run, "100", f"far:{place}")
    assert said.code == 4
    assert f"A run trains in far:{place}" in said.words
    made.supervisor_status.unlink()
    with subprocess.Popen(["flock", made.trainer_lock, "cat"], stdin=subprocess.PIPE) as holder:
        wait_until(lambda: made.trainer_lock.exists(), 10, "a lock")
        refused = tool("copy", run, "100", f"far:{place}")
        holder.communicate()
    assert "writes to" in refused.words
    assert names(place) == set()


def test_a_copy_goes_on_after_its_link_was_cut(tool, host, run, place):
    name = write_large(run)
    real, part = shutil.which("rsync"), f"{shlex.quote(str(place))}/.tfckpt/copying/*/*.data-*"
    cut = place.with_name("cut")
    # The first one that gets much data is cut off.
    host.replace(
        "rsync",
        f"""[ -e {cut} ] && exec {real} "$@"
dd bs=65536 count=120 2>/dev/null | {real} "$@"
status=$?
[ "$(stat -c %s {part} 2>/dev/null || echo 0)" -gt 1000000 ] || exit $status
{host.once(cut, "KILL")}""",
    )
    said = tool("copy", run, name, f"far:{place}")
    assert said.code == 1, said
    assert "The connection to far was lost" in said.words
    assert f"continue with `tfckpt-tui copy {run} {name}" in said.words
    assert names(place) == set()
    (parts,) = (place / ".tfckpt" / "copying").iterdir()
    (parts / "mine.txt").write_text("mine")
    again = tool("copy", run, name, f"far:{place}", "--json")
    assert again.code == 0, again
    assert list(parts.iterdir()) == [parts / "mine.txt"]
    assert {path.stat().st_mode & 0o777 for path in place.glob(f"{name}.*")} == {0o644}
    assert 0 < again.json["checkpoints"][0]["sent_bytes"] < LARGE
    assert (
        copied(place).items()
        >= {path: data for path, data in copied(run).items() if path.startswith(name)}.items()
    )
    assert latest_name(place) == name
    # The command that was cut off may have gone on beside the second copy.
    for path in place.glob(f"{name}.*"):
        shutil.copy(path, parts)
    assert tool("copy", run, name, f"far:{place}").code == 0
    assert list(parts.iterdir()) == [parts / "mine.txt"]


def test_what_a_copy_writes_is_for_the_group_that_shares_the_directory(tool, host, run, place):
    require("root")
    (host.programs.parent / ".bashrc").write_text("umask 077\n")
    place.mkdir()
    os.chown(place, -1, 4242)
    place.chmod(0o2770)
    assert tool("copy", run, "100", f"far:{place}").code == 0
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in place.rglob("*")}
    rights = {path: 0o2770 if path.is_dir() else 0o640 for path in modes}
    assert modes == rights


def test_a_state_file_that_cannot_be_replaced_is_told_before_anything_is_sent(
    tool, host, run, place
):
    require("root")
    host.replace("id", "echo 1000")
    place.mkdir()
    (place / "checkpoint").touch()
    for path in (place, place / "checkpoint"):
        os.chown(path, 4242, -1)
    place.chmod(0o1777)
    refused = tool("copy", run, "100", f"far:{place}")
    assert refused.code == 4
    assert f"far:{place}/checkpoint cannot be replaced by this user" in refused.words
    assert list(place.iterdir()) == [place / "checkpoint"]


def test_a_link_that_answers_no_more_is_given_up(tool, host, run, place):
    name = write_large(run)
    rsync, stop = shutil.which("rsync"), host.once(place.with_name("cut"), "STOP")
    host.replace("rsync", f'dd bs=65536 count=20 2>/dev/null | {rsync} "$@"\n{stop}')
    try:
        said = tool("--timeout", "1", "copy", run, name, f"far:{place}")
    finally:
        host.server.cut_connections()
    assert said.code == 1
    assert "The connection to far was lost" in said.words
    assert names(place) == set()


@pytest.mark.parametrize("program", ["dd", "mv", "rsync"])
def test_whichever_command_is_cut_off_no_name_is_left_half_written(tool, host, run, place, program):
    count = host.programs.parent / "count"
    # `dd` begins each other command; `mv` is in the midst of one, whose shell is killed.
    end = f"{shutil.which('pkill')} -KILL -P {host.server.pid}" if program != "mv" else ""
    host.replace(
        program,
        f"""read -r left <{count}
echo $((left - 1)) >{count}
[ $left = 1 ] && {end or "kill -KILL $PPID"}
exec {shutil.which(program)} "$@\"""",
    )
    whole = copied(run)
    for call in attempts("a copy that is not cut off"):
        count.write_text(f"{call}\n")
        said = tool("copy", run, "100", "200", f"far:{place}")
        there = copied(place) if place.exists() else {}
        for name in ("ckpt-100", "ckpt-200"):
            if f"{name}.index" in there:
                files = {path: data for path, data in whole.items() if f"{name}." in path}
                assert there.items() >= files.items()
        if said.code == 0:
            break
        assert "tfckpt-tui" in said.words
    assert call > (2 if program == "rsync" else 5)
    assert copied(place) == whole
    assert listed_names(place) == ["ckpt-100", "ckpt-200"]


def test_a_state_file_that_arrives_in_part_is_not_used(tool, host, run, place):
    cat, index = shutil.which("cat"), shlex.quote(str(place / "ckpt-100.index"))
    # Only the state file is written after the index has its name. Its input ends early.
    host.replace("cat", f"[ -e {index} ] && exec dd bs=20 count=1 2>/dev/null\nexec {cat}")
    said = tool("copy", run, "100", f"far:{place}")
    assert said.code == 1
    assert "far did not get all data" in said.words
    assert not (place / "checkpoint").exists()
    host.reset()
    assert tool("copy", run, "100", f"far:{place}").code == 0
    assert latest_name(place) == "ckpt-100"


def test_a_disk_that_runs_full_leaves_no_name_and_the_copy_goes_on(tool, host, run, tmp_path):
    name = write_large(run)
    with small_tmpfs(tmp_path / "disk", megabytes=16) as disk:
        target = disk / "run"

        def phase(label: str) -> Callable[[int, int], None]:
            if label == f"copying {name}":
                fill(disk, leave=5 << 20)
            return lambda done, total: None

        source = RunDirectory(run)
        with pytest.raises(CutCopyError, match="is full"):
            copy_checkpoints(
                source,
                [look_up(source, name)],
                parse_destination(f"far:{target}"),
                through=FrontEnd.COMMAND_LINE,
                phase=phase,
                seconds=10.0,
            )
        assert names(target) == set()
        (disk / "filler").unlink()
        again = tool("copy", run, name, f"far:{target}", "--json")
        assert 0 < again.json["checkpoints"][0]["sent_bytes"] < LARGE
        assert names(target) == {"checkpoint", *(path.name for path in run.glob(f"{name}.*"))}


def test_ctrl_c_ends_everything_and_says_how_to_go_on(host, run, place):
    name = write_large(run)
    rsync, sleep = shutil.which("rsync"), f"exec {shutil.which('sleep')} 30"
    host.replace("rsync", f'dd bs=65536 count=20 2>/dev/null | {rsync} "$@"\n{sleep}')
    words = [sys.executable, "-m", "tfckpt_tui.cli.main", "copy", run, name, f"far:{place}"]
    parts = place / ".tfckpt" / "copying"
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: [p for p in parts.rglob("*.data-*") if p.stat().st_size], 20, "a part")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=MOST_SECONDS)
    assert process.returncode == 130
    assert errors == (
        "tfckpt-tui: Interrupted. Continue with "
        f"`tfckpt-tui copy {run} {name} {shlex.quote(f'far:{place}')}`.\n"
    )
    wait_until(lambda: not connections(host), 20, "the end of the connections")
    assert names(place) == set()


def connections(host: Host) -> str:
    found = subprocess.run(["pgrep", "-P", str(host.server.pid)], capture_output=True, text=True)
    return found.stdout


def test_what_a_host_damages_gets_no_name(tool, host, run, place):
    rsync, index = shutil.which("rsync"), f"{shlex.quote(str(place))}/.tfckpt/copying/*/*.index"
    # One byte of a file that keeps its size.
    damage = 'printf x | dd of="$f" conv=notrunc 2>/dev/null'
    host.replace("rsync", f'for f in {index}; do [ -e "$f" ] && {damage}; done\nexec {rsync} "$@"')
    said = tool("copy", run, "100", f"far:{place}")
    assert said.code == 1
    assert "ckpt-100.index differs from the source" in said.words
    assert names(place) == set()


def test_a_damaged_copy_is_not_taken_for_one_that_is_there(tool, host, run, place):
    assert tool("copy", run, "100", f"far:{place}").code == 0
    for suffix in ("index", "data-00000-of-00002"):
        path = place / f"ckpt-100.{suffix}"
        whole = path.read_bytes()
        path.write_bytes(b"x" + whole[1:])
        said = tool("copy", run, "100", f"far:{place}", "--dry-run")
        assert said.code == 4
        assert "has other files named ckpt-100" in said.words
        path.write_bytes(whole)
    assert tool("copy", run, "100", f"far:{place}").code == 0


@pytest.mark.parametrize("is_sent", [False, True])
def test_a_checkpoint_that_changes_while_it_is_copied_is_refused(
    tool, host, run, place, is_sent, monkeypatch
):
    send = SshDestination.send

    def change_and_send(self, files, on_sent):
        if is_sent:
            send(self, files, on_sent)
        data = run / "ckpt-100.data-00000-of-00002"
        data.write_bytes(bytes(reversed(data.read_bytes())))
        if not is_sent:
            send(self, files, on_sent)

    monkeypatch.setattr(SshDestination, "send", change_and_send)
    said = tool("copy", run, "100", f"far:{place}")
    assert said.code == 4
    assert "ckpt-100 changed while it was read. Copy it again later." in said.words
    assert names(place) == set()


def test_a_damaged_checkpoint_creates_nothing_on_the_host(tool, host, run, place):
    data = run / "ckpt-100.data-00000-of-00002"
    data.write_bytes(bytes(reversed(data.read_bytes())))
    assert tool("copy", run, "100", f"far:{place}").code == 4
    assert not place.exists()


@pytest.mark.parametrize("machine", ["far", "This machine"])
def test_a_machine_without_rsync_is_refused_before_anything_is_sent(
    tool, host, run, place, machine, monkeypatch
):
    if machine == "far":
        host.remove("rsync")
    else:
        monkeypatch.setenv("PATH", os.environ["PATH"].partition(os.pathsep)[0])
    said = tool("copy", run, "100", f"far:{place}")
    assert said.code == 1
    assert f"{machine} has no `rsync`" in said.words
    assert "apt-get install rsync" in said.words
    assert not place.exists()


@pytest.mark.parametrize("cause", ["a login shell that prints", "an rsync that lacks an option"])
def test_two_machines_that_do_not_understand_each_other_are_explained(
    tool, host, run, place, cause
):
    if cause == "a login shell that prints":
        (host.programs.parent / ".bashrc").write_text("echo Welcome to far\n")
    else:
        host.replace("rsync", "echo 'rsync: -s: unknown option' >&2\nexit 1")
    said = tool("copy", run, "100", f"far:{place}")
    assert said.code == 1
    assert "rsync cannot send to far: " in said.words
    assert "rsync 3.1 or newer" in said.words
    assert "`ssh far true` has to print nothing" in said.words
    assert names(place) == set()


def test_an_account_that_may_not_run_commands_is_explained(tool, host, run, place):
    host.replace("sh", "echo This account is not available.")
    said = tool("copy", run, "100", f"far:{place}")
    assert said.code == 1
    assert "check it with `ssh far echo works`" in said.words


@pytest.mark.parametrize(
    ("destination", "problem"),
    [
        ("nohost.invalid:x", "ssh cannot connect to nohost.invalid: "),
        ("ssh://127.0.0.1:1/x", "Connection refused. Try it with `ssh -p 1 127.0.0.1`."),
        ("far:/dev/null/x", "far answers: mkdir: "),
    ],
)
def test_a_host_that_cannot_be_used_is_explained(tool, host, run, destination, problem):
    said = tool("copy", run, "100", destination)
    assert said.code == 1
    assert problem in said.words
    assert len(said.words.splitlines()) == 1
