"""Commands and the app on a network disk that hangs: they end, and say which path does not answer.

A process that waits for such a disk cannot be killed. All commands run at the same time.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from network_disks import short_directory
from terminal import Terminal

from faulty_file_system import faulty_mounts
from requirements import needs
from tensorflow_processes import CommandProcess
from tfckpt_trainer.errors import ExitCode
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.cli.main import cli, guarded_paths
from tfckpt_tui.services.runs.recent_runs import remember_run
from waiting import LEAST_SECONDS, MOST_SECONDS, wait_until

pytestmark = pytest.mark.e2e

MODULE = "tfckpt_tui.cli.main"
TOOL = [sys.executable, "-m", MODULE]
WITHOUT_RUN = {
    "attach", "browse", "check", "completion", "config", "demo", "runs", "schema", "selftest",
}  # fmt: skip
BEFORE = {"alert": ["test"]}

MORE = {
    "average": ["ckpt-1"],
    "compare": ["ckpt-1", "ckpt-2"],
    "convert": ["ckpt-1", __file__],
    "edit": ["ckpt-1"],
    "extract": ["ckpt-1"],
    "set": ["learning_rate=1"],
    "track": ["loss"],
    "act": ["evaluate"],
    "inspect": ["ckpt-1"],
    "bisect": ["--", "true"],
    "export": ["ckpt-1"],
    "pin": ["ckpt-1"],
    "unpin": ["ckpt-1"],
    "prune": ["--keep-last", "1"],
    "restore": ["--step", "1"],
    "launch": ["--detach", "--", "true"],
}


@pytest.fixture(scope="module")
def mount():
    with short_directory() as place, faulty_mounts(place, "disk", cache_seconds=1.0) as (made,):
        RunDirectory(made.root / "run").create()
        yield made


@pytest.fixture
def hung(mount):
    mount.set_faults(hang=True)
    yield mount.root / "run"
    mount.clear()


def start(*words: object) -> CommandProcess:
    return CommandProcess(MODULE, *words)


def test_every_command_ends_and_names_the_path(hung):
    names = [name for name in cli.list_commands(None) if name not in WITHOUT_RUN]
    assert len(names) > 15
    started = {
        name: start("--timeout", "1", name, *BEFORE.get(name, []), str(hung), *MORE.get(name, []))
        for name in names
    }
    for name, process in started.items():
        _, words = process.communicate(timeout=MOST_SECONDS)
        assert process.returncode == ExitCode.PROBLEM, (name, words)
        assert f"{hung} has not answered for " in words, (name, words)


def test_json_tells_of_it_as_of_every_error(hung):
    process = start("--timeout=1", "status", hung, "--json")
    data, _ = process.communicate(timeout=MOST_SECONDS)
    assert json.loads(data)["error"]["name"] == "problem"


@pytest.fixture
def two_runs(hung, tmp_path, monkeypatch):
    """The recent runs: one whose disk hangs, and one on a local disk."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    local = RunDirectory(tmp_path / "local")
    local.create()
    remember_run(local.root)
    remember_run(hung)
    return hung, local.root


def test_a_hung_directory_of_the_recent_runs_holds_up_no_other(two_runs):
    hung, local = two_runs
    data, words = start("runs", "--json").communicate(timeout=MOST_SECONDS)
    found = {one["directory"]: one for one in json.loads(data)["runs"]}
    assert set(found) == {str(hung), str(local)}, words
    assert found[str(local)]["state"] == "unattended"
    assert found[str(hung)]["state"] == "unknown"
    assert found[str(hung)]["alerts"][0].startswith("no answer for ")


@needs("mounts")
def test_a_hung_directory_below_another_hides_no_other_run(hung, tmp_path):
    near, far = RunDirectory(tmp_path / "a"), tmp_path / "b"
    near.create()
    far.mkdir()
    (far / "link").symlink_to(hung)
    subprocess.run(["mount", "--bind", hung.parent, far], check=True)
    try:
        data, words = start("runs", tmp_path, "--json").communicate(timeout=MOST_SECONDS)
    finally:
        subprocess.run(["umount", "--lazy", far], check=True)
    assert [one["directory"] for one in json.loads(data)["runs"]] == [str(near.root)]
    assert "does not answer; runs may be missing." in words


def test_the_list_of_the_app_shows_the_other_runs_at_once(two_runs, mount):
    with Terminal(TOOL) as terminal:
        terminal.wait_for("unattended")
        terminal.wait_for("unknown")
        terminal.wait_for("no answer for")
        mount.clear()
        terminal.wait_until_gone("unknown")
        mount.set_faults(hang=True)
        terminal.wait_for("unknown")
        terminal.press("q")
        assert terminal.process.wait(timeout=60) == ExitCode.DONE


def test_a_shell_that_completes_a_name_is_answered_with_nothing(hung, monkeypatch):
    monkeypatch.setenv("_TFCKPT_TUI_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", f"tfckpt-tui inspect {hung} ck")
    monkeypatch.setenv("COMP_CWORD", "3")
    process = start()
    assert process.communicate(timeout=MOST_SECONDS) == ("", "")
    assert process.returncode == ExitCode.PROBLEM


def test_the_job_of_a_scheduler_is_not_ended_by_a_disk_that_hangs(hung, monkeypatch):
    monkeypatch.chdir("/")
    assert guarded_paths(["launch", str(hung), "--detach"]) == [hung]
    assert guarded_paths(["launch", str(hung), "--foreground"]) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_on_a_hung_disk_can_be_interrupted(hung, number):
    process = start("--timeout", "600", "status", hung)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    (child,) = wait_until(lambda: children.read_text().split(), 20, "a child process")
    waits_in = Path(f"/proc/{child}/wchan")
    wait_until(lambda: "wait_answer" in waits_in.read_text(), 20, "a wait for the disk")
    process.send_signal(number)
    _, words = process.communicate(timeout=MOST_SECONDS)
    assert process.returncode == 128 + number
    assert "Interrupted. " in words


def test_on_a_disk_that_answers_all_is_as_on_any_other(mount):
    root = mount.root / "run"
    data, words = start("status", root, "--json").communicate(timeout=MOST_SECONDS)
    assert (json.loads(data)["run"]["state"], words) == ("unattended", "")
    refused = start("prune", root, "--keep-last", "no")
    assert "no" in refused.communicate(timeout=MOST_SECONDS)[1]
    assert refused.returncode == ExitCode.USAGE
    # The reader of the output goes away.
    piped = subprocess.run(
        f"{' '.join(TOOL)} --help | true; {' '.join(TOOL)} status {root} | head -1",
        shell=True,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=root,
    )
    assert piped.stdout.startswith("run ")
    assert piped.stderr == ""


TAKES_TERMINAL = b"\x1b[?1049h"


def open_app(root: Path) -> Terminal:
    return Terminal([*TOOL, str(root)])


def test_the_app_goes_on_while_the_disk_hangs_and_can_be_left(mount):
    root = mount.root / "run"
    with open_app(root) as terminal:
        terminal.wait_for("unattended")
        mount.set_faults(hang=True)
        try:
            terminal.wait_for("the disk has not answered for")
            terminal.press("?")
            terminal.wait_for("esc close")
            terminal.press("escape")
            terminal.wait_until_gone("esc close")
            terminal.press("q")
            assert terminal.process.wait(timeout=60) == ExitCode.DONE
        finally:
            mount.clear()


def test_the_app_can_be_suspended(mount):
    with open_app(mount.root / "run") as terminal:
        terminal.wait_for("unattended")
        terminal.press("\x1a")
        pid = terminal.process.pid
        stopped = wait_until(
            lambda: os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT | os.WNOHANG), 20, "a stop"
        )
        assert stopped.si_pid == pid
        drawn = len(terminal.raw)
        # A shell continues both: the app, and the process that waits for it, which may be late.
        (app,) = psutil.Process(pid).children()
        os.kill(app.pid, signal.SIGCONT)
        wait_until(lambda: b"unattended" in terminal.raw[drawn:], LEAST_SECONDS, "a new frame")
        os.kill(pid, signal.SIGCONT)
        terminal.press("q")
        assert terminal.process.wait(timeout=60) == ExitCode.DONE
        # It took the terminal once: what is typed between two times is lost.
        assert terminal.raw[drawn:].count(TAKES_TERMINAL) == 1
