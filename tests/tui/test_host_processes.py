"""Processes that train without this library: real ones, which hold real files open."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from app_driving import opened, top, until, until_told
from json_reference import check
from msgspec.structs import replace
from rundir_factory import two_branches

from accounts import ALICE, acting_as
from bundle_writing import write_floats
from command_running import Tool
from requirements import needs
from tfckpt_trainer.errors import LaunchError, RefusedError
from tfckpt_trainer.rundir.heartbeats.process_table import runs_since
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.worker import Activity, Ending
from tfckpt_tui.formats.process_columns import HostProcess
from tfckpt_tui.reports.run_facts import StatusReport
from tfckpt_tui.reports.stacks import StacksReport
from tfckpt_tui.services.control.stop_process import stop_process
from tfckpt_tui.services.runs.job_list import LONG_ENDED_SECONDS, JobList
from tfckpt_tui.services.runs.process_watch import ProcessWatch, attached_processes
from tfckpt_tui.services.runs.reading import read_account
from tfckpt_tui.services.runs.training_directory import TrainingDirectory, find_training_directory
from waiting import wait_until

SCRIPT = Path(__file__).parent / "scripts" / "untracked_trainer.py"
Start = Callable[..., int]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts trainers in `tmp_path`, which print to `train.log`; returns the process ID."""
    started = []

    def begin(*words: str, held: tuple[str, ...] = (), command: tuple[str, ...] = ()) -> int:
        log = tmp_path / "train.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command or (sys.executable, str(SCRIPT), *words),
                cwd=tmp_path,
                stdout=output,
                start_new_session=True,
                env={**os.environ, "HELD": os.pathsep.join(held)},
            )
        started.append(process)
        wait_until(lambda: b"trains" in log.read_bytes(), 60, "the start of the trainer")
        return process.pid

    yield begin
    for process in started:
        # All of its group: a shell leaves its child.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory that this library did not train in, with a checkpoint."""
    directory = tmp_path / "my runs"
    directory.mkdir()
    write_floats(directory / "ckpt-100", [1.0])
    (directory / "checkpoint").write_text('model_checkpoint_path: "ckpt-100"\n')
    for path in directory.iterdir():
        # Before any process that runs now.
        os.utime(path, (1_000_000, 1_000_000))
    return directory


def first(pid: int) -> HostProcess:
    return attached_processes(pid, time.time())[0]


def found(pid: int) -> TrainingDirectory:
    return find_training_directory(pid, time.time())


EVENTS = "events.out.tfevents.1.host"


def test_a_launch_beside_another_trainer_is_refused(start: Start, root: Path, tool: Tool) -> None:
    command = ("launch", root, "--detach", "--", sys.executable, "-c", "pass")
    (root / "logs").mkdir()
    pid = start(held=(f"{root}/logs/{EVENTS}",))
    refused = tool(*command)
    assert refused.code == 1
    what = f"process {pid} (python) has logs/{EVENTS} open"
    assert f"Another program trains in {root}: {what}" in refused.words.replace("python3", "python")
    assert f"tfckpt-tui stop --pid {pid}" in refused.words
    assert not (root / ".tfckpt" / "launch.json").exists()
    assert "Another program trains" not in tool(*command[:2], "--force", *command[2:]).words


def test_a_launch_beside_a_log_that_is_written_goes_on(
    start: Start, root: Path, tool: Tool
) -> None:
    start(held=(f"{root}/train.log",))
    command = ("launch", root, "--detach", "--", sys.executable, "-c", "pass")
    assert "Another program trains" not in tool(*command).words


def test_who_trains_in_a_run_that_has_ended_is_shown(start: Start, root: Path, tool: Tool) -> None:
    made = two_branches(root.parent / "ended")
    for index in range(2):
        made.worker(index, activity=Activity.EXITED, ending=Ending.FINISHED)
    place = str(made.run.root)
    assert tool("status", place, "--json").json["run"]["state"] == "finished"
    (made.run.root / "logs").mkdir()
    pid = start(held=(f"{place}/logs/{EVENTS}", f"{place}/train.log"))
    words = f"process {pid} (untracked_trainer.py) runs here without tfckpt_trainer"
    told = tool("status", place)
    assert words in told.data
    assert "All workers finished" not in told.data
    (listed,) = tool("runs", place, "--json").json["runs"]
    assert listed["words"] == words


def test_a_list_of_runs_names_who_trains_there_without_the_library(
    start: Start, root: Path, tool: Tool
) -> None:
    for name in ("idle", "my runs-2"):
        shutil.copytree(root, root.parent / name)
    clock = [0.0]
    listed = JobList(clock=lambda: clock[0])
    roots = [root, root.parent / "idle", root.parent / "my runs-2"]
    accounts = listed.read(roots, with_others=False)
    assert {account.words for account in accounts} == {"unattended"}
    (root / "eval").mkdir()
    pid = start(held=(f"{root}/eval/{EVENTS}",))
    words = f"process {pid} (untracked_trainer.py) runs here without tfckpt_trainer"
    told = {
        one["directory"]: one["words"] for one in tool("runs", root.parent, "--json").json["runs"]
    }
    assert told == {str(place): words if place == root else "unattended" for place in roots}
    assert words in tool("runs", root.parent).data
    second = start(held=(f"{root}/eval/{EVENTS}.2",))
    (mine,) = tool("runs", root, "--json").json["runs"]
    assert mine["words"] == (
        f"process {min(pid, second)} (untracked_trainer.py) and 1 more run here without "
        "tfckpt_trainer"
    )
    os.kill(second, signal.SIGKILL)
    # It is live: it comes first, and is read again each time.
    clock[0] += LONG_ENDED_SECONDS
    assert listed.read(roots, with_others=False)[0].words == words
    os.kill(pid, signal.SIGKILL)
    wait_until(
        lambda: listed.read(roots, with_others=False)[0].words == "unattended", 60, "its end there"
    )


@pytest.mark.parametrize(
    ("words", "held", "expected", "logdir"),
    [
        (["--model_dir", "my runs"], [], "my runs", None),
        (["--output-dir=my runs"], [], "my runs", None),
        (["-x", "--logdir", "logs"], [], "logs", None),
        ([], [f"my runs/{EVENTS}"], "my runs", None),
        ([], [f"my runs/eval/{EVENTS}", f"my runs/{EVENTS}"], "my runs", None),
        ([], ["my runs/ckpt-200_temp/part-00000-of-00001.index"], "my runs", None),
        # What is open is where it trains, whatever the arguments say.
        (["--output_dir", "logs"], ["my runs/ckpt-200.index"], "my runs", None),
        ([], [f"logs/train/{EVENTS}", f"logs/validation/{EVENTS}"], "logs", None),
        (["--train_dir", "my runs"], [f"logs/{EVENTS}"], "my runs", "logs"),
        (["--train_dir", "my runs", "--checkpoint_dir", "gone"], [], "my runs", None),
    ],
)
def test_the_directory_is_found(
    start: Start,
    root: Path,
    tmp_path: Path,
    words: list[str],
    held: list[str],
    expected: str,
    logdir: str | None,
) -> None:
    for path in ("logs", *held):
        place = tmp_path / path if path == "logs" else (tmp_path / path).parent
        place.mkdir(parents=True, exist_ok=True)
    pid = start(*words, held=tuple(held))
    assert found(pid) == (tmp_path / expected, tmp_path / logdir if logdir else None)


@pytest.mark.parametrize(
    ("events", "logdir"), [(f"logs/{EVENTS}", "logs"), (f"my runs/tb/train/{EVENTS}", None)]
)
def test_checkpoints_near_the_open_event_files_are_found_between_saves(
    start: Start, root: Path, tmp_path: Path, events: str, logdir: str | None
) -> None:
    (tmp_path / events).parent.mkdir(parents=True)
    pid = start(held=(events,))
    # Those of another program beside them are not of this process.
    (tmp_path / "other").mkdir()
    write_floats(tmp_path / "other" / "ckpt-7", [1.0])
    for path in (tmp_path / "other").iterdir():
        os.utime(path, (1_000_000, 1_000_000))
    for path in root.iterdir():
        os.utime(path)
    assert found(pid) == (root, tmp_path / logdir if logdir else None)


def test_a_command_needs_no_directory_of_a_process_that_names_it(
    start: Start, root: Path, tool: Tool
) -> None:
    pid = start("--model_dir", "my runs")
    said = tool("status", "--pid", pid).data
    assert f"run       {root}" in said
    assert f"process {pid} " in said
    assert "Name a directory, or a process by --pid." in tool("status").words


def test_a_directory_that_a_process_does_not_train_into_is_refused(
    start: Start, root: Path, tmp_path: Path, tool: Tool
) -> None:
    other = tmp_path / "other"
    shutil.copytree(root, other)
    pid = start(held=(f"{root}/ckpt-200.index",))
    for words in (["attach"], ["status"], ["stop", "--yes"]):
        said = tool(words[0], other, *words[1:], "--pid", pid)
        assert (said.code, said.data) == (2, "")
        assert f"({SCRIPT.name}) trains into {root}, not into {other}." in said.words
        assert f"`tfckpt-tui attach --pid {pid}`" in said.words
    assert runs_since(pid, first(pid).after_boot)
    assert f"process {pid} " in tool("status", root, "--pid", pid).data
    # Between two saves, only the user knows.
    silent = start()
    assert f"process {silent} " in tool("status", other, "--pid", silent).data


def test_none_and_several_directories_are_told_with_what_to_do(
    start: Start, root: Path, tmp_path: Path, tool: Tool
) -> None:
    none = start("--learning_rate", "0.1")
    said = tool("attach", "--pid", none)
    assert said.code == 2
    assert f"Name the directory that it trains into: `tfckpt-tui attach DIR --pid {none}`" in (
        said.words
    )
    (tmp_path / "b").mkdir()
    several = start("--train_dir", str(root), "--model_dir=b")
    listed = tool("attach", "--pid", several).words.splitlines()[1:]
    assert [shlex.split(line) for line in listed] == [
        ["tfckpt-tui", "attach", str(place), "--pid", str(several)]
        for place in (tmp_path / "b", root)
    ]


async def test_before_the_first_save_it_is_said_that_it_may_be_elsewhere(
    start: Start, tmp_path: Path, tool: Tool
) -> None:
    (tmp_path / "logs").mkdir()
    pid = start(held=(f"logs/{EVENTS}",))
    said = tool("status", "--pid", pid)
    assert f"run       {tmp_path}/logs" in said.data
    assert f"name that one: `tfckpt-tui attach DIR --pid {pid}`" in said.words
    async with opened(RunDirectory(tmp_path / "logs", None, pid), size=(80, 24)) as pilot:
        await until(pilot, lambda: f"attach DIR --pid {pid}`" in top(pilot.app), "the advice")


def test_who_is_no_process_and_no_directory(tool: Tool, root: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for words in (["attach"], ["attach", root], ["status", root], ["stop", root, "--yes"]):
        said = tool(*words, "--pid", ended.pid)
        assert (said.code, said.data) == (2, "")
        assert f"There is no process {ended.pid} on this host." in said.words
    assert "Name a directory, or a process by --pid." in tool("attach").words


@needs("root")
def test_a_process_of_another_user_is_refused_with_its_owner(start: Start, root: Path) -> None:
    mine = start("--model_dir", str(root))
    with acting_as(ALICE), pytest.raises(RefusedError, match=r"belongs to root .*sudo -u root"):
        found(mine)
    theirs = subprocess.Popen(["/bin/sleep", "600"], user=ALICE)
    try:
        with pytest.raises(LaunchError, match=f"belongs to .*{ALICE}"):
            stop_process(first(theirs.pid))
        assert theirs.poll() is None
    finally:
        theirs.kill()
        theirs.wait()


def test_status_tells_what_is_known_of_the_process(start: Start, root: Path, tool: Tool) -> None:
    assert tool("status", root, "--json").json["processes"] == []
    pid = start("--model_dir", str(root), "\x1b[31m", held=(f"{root}/{EVENTS}",))
    said = tool("status", root, "--json")
    check(StatusReport, said.json)
    (told,) = said.json["processes"]
    assert (told["pid"], told["script"]) == (pid, str(SCRIPT))
    assert told["command"][1:] == [str(SCRIPT), "--model_dir", str(root), "\x1b[31m"]
    assert told["files"] == [f"{root}/{EVENTS}"]
    assert (told["directory"], told["logs"]) == (str(root.parent), [f"{root.parent}/train.log"])
    assert told["memory_bytes"] > 1_000_000
    assert told["cpu_percent"] >= 0
    plain = tool("status", root).data
    assert f"state     process {pid} (untracked_trainer.py) runs here without" in plain
    assert f"log        {root.parent}/train.log" in plain
    assert "\x1b" not in plain


def test_between_saves_only_the_user_can_name_it(start: Start, root: Path, tool: Tool) -> None:
    pid = start("--model_dir", str(root))
    assert tool("status", root, "--json").json["processes"] == []
    named = tool("status", root, "--pid", pid, "--json").json["processes"]
    assert [one["pid"] for one in named] == [pid]


def test_of_a_shell_the_script_is_meant(start: Start, root: Path) -> None:
    line = shlex.join([sys.executable, "-u", str(SCRIPT), "--model_dir", str(root)])
    shell = start(command=("/bin/sh", "-c", f"{line}; true"))
    (python,) = attached_processes(shell, time.time())
    assert python.script == str(SCRIPT)
    assert python.pid != shell
    assert found(shell).root == root


def test_who_only_reads_and_what_this_library_trains_are_not_meant(
    start: Start, tmp_path: Path, root: Path
) -> None:
    with subprocess.Popen(
        ["/usr/bin/tail", "-f", str(root / "checkpoint")], stdout=subprocess.DEVNULL
    ) as reader:
        assert ProcessWatch(RunDirectory(root)).look(time.time()) == ()
        reader.kill()
    ours = two_branches(tmp_path / "ours", live=True).run
    start(held=(f"{ours.root}/{EVENTS}",))
    _, account = read_account(ours, time.time(), processes=ProcessWatch(ours))
    assert account.processes == ()
    past = two_branches(tmp_path / "past").run
    start(held=(f"{past.root}/train.log",))
    assert ProcessWatch(past).look(time.time()) == ()


@pytest.mark.parametrize("set_by", [0, -3600])
def test_a_process_that_was_seen_stays_until_it_ends(
    start: Start, root: Path, monkeypatch: pytest.MonkeyPatch, set_by: int
) -> None:
    pid = start(held=(f"{root}/{EVENTS}",))
    now = time.time()
    watch, attached = ProcessWatch(RunDirectory(root)), ProcessWatch(RunDirectory(root, None, pid))
    (seen,) = watch.look(now)
    # Somebody sets the clock of the machine.
    monkeypatch.setattr(time, "time", lambda time=time.time: time() + set_by)
    os.kill(pid, signal.SIGUSR1)
    log = root.parent / "train.log"
    wait_until(lambda: b"closed" in log.read_bytes(), 60, "the end of the save")
    assert ProcessWatch(RunDirectory(root)).look(now) == ()
    assert watch.look(now + 60)[0].files == ()
    assert [one.pid for one in attached.look(now)] == [pid]
    stop_process(seen)
    assert watch.look(now + 120) == attached.look(now + 120) == ()
    again = start(held=(f"{root}/{EVENTS}",))
    assert [one.pid for one in attached.look(now + 180)] == [again]


def test_a_stop_ends_that_process_and_no_later_one_with_its_number(
    start: Start, root: Path, tool: Tool
) -> None:
    pid = start("--model_dir", str(root), held=(f"{root}/{EVENTS}",))
    process = first(pid)
    with pytest.raises(RefusedError, match="has ended already; nothing was done"):
        stop_process(replace(process, after_boot=process.after_boot - 60))
    assert runs_since(pid, process.after_boot)
    advised = tool("stop", root).words
    assert f"End it without a save: `tfckpt-tui stop --pid {pid} " in advised
    unanswered = tool("stop", root, "--pid", pid)
    assert (unanswered.code, unanswered.data) == (4, "")
    assert "its steps since its newest checkpoint are lost" in unanswered.words
    assert runs_since(pid, process.after_boot)
    said = tool("stop", root, "--pid", pid, "--yes", "--json")
    assert said.json["message"] == f"Ended process {pid} (untracked_trainer.py)."
    assert not runs_since(pid, process.after_boot)


@pytest.mark.parametrize(
    "words", [["save"], ["restore", "--step", "100"], ["set", "learning_rate=1"], ["pause"]]
)
def test_what_needs_the_library_is_refused_with_the_lines(
    start: Start, root: Path, tool: Tool, words: list[str]
) -> None:
    start(held=(f"{root}/{EVENTS}",))
    said = tool(words[0], root, *words[1:])
    assert (said.code, said.data) == (3, "")
    assert "need two lines in the script" in said.words
    assert f'run = TrainingRun("{root}", model=model, optimizer=model.optimizer)' in said.words


def test_stacks_come_from_py_spy(
    start: Start, root: Path, tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = start(held=(f"{root}/{EVENTS}",))
    empty, programs = tmp_path / "empty", tmp_path / "programs"
    empty.mkdir()
    programs.mkdir()
    monkeypatch.setattr(sys, "executable", str(empty / "python"))
    monkeypatch.setenv("PATH", str(empty))
    assert "`pip install py-spy`" in tool("stacks", root).words
    spy = programs / "py-spy"
    spy.touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{programs}:/bin:/usr/bin")
    frames = (
        '{"name":"read","filename":"/lib/r.py","line":3},'
        f'{{"name":"<module>","filename":"{SCRIPT}","line":13}}'
    )
    answer = '[{"thread_name":"other","frames":[]},{"thread_name":"MainThread","frames":['
    answer += f"{frames}]}}]"
    spy.write_text(f"#!/bin/sh\ntest \"$*\" = 'dump --json --pid {pid}' && echo '{answer}'\n")
    said = tool("stacks", root, "--json")
    check(StacksReport, said.json)
    assert (said.json["workers"][0]["pid"], said.json["workers"][0]["worker"]) == (pid, None)
    plain = tool("stacks", root).data.splitlines()
    assert plain[0].startswith(f"Process {pid} on ")
    assert plain[0].endswith(f": {SCRIPT}:13")
    assert plain[1:] == [f"    {SCRIPT}:13 in <module>", "    /lib/r.py:3 in read"]
    spy.write_text("#!/bin/sh\necho 'Permission denied' >&2; exit 1\n")
    refused = tool("stacks", root)
    assert (refused.code, refused.data.count("Permission denied")) == (1, 1)
    spy.write_text("#!/bin/sh\necho '[{}]'\n")
    assert "The answer of py-spy cannot be read" in tool("stacks", root).data


async def test_the_app_shows_the_process_and_ends_it(start: Start, root: Path) -> None:
    pid = start("--model_dir", str(root), held=(f"{root}/{EVENTS}",))
    process = first(pid)
    async with opened(RunDirectory(root), size=(80, 24)) as pilot:
        app = pilot.app
        assert f"process {pid} (untracked_trainer.py) runs here without" in top(app)
        for key in "sz":
            await pilot.press(key)
            await until_told(pilot, "Press w to see and copy them.")
        await pilot.press("L")
        await until_told(pilot, "Press x to end it.")
        await pilot.press("l")
        await until(pilot, lambda: "log trains" in top(app), "what the process printed")
        await pilot.press("escape", "w")
        await until(pilot, lambda: "/train.log" in top(app), "the page")
        assert "for batch in run:" in top(app)
        await pilot.press("x")
        await until(pilot, lambda: "gets SIGTERM" in top(app), "the question")
        await pilot.press("n")
        assert runs_since(pid, process.after_boot)
        await pilot.press("x", "y")
        await until_told(pilot, f"Ended process {pid} (untracked_trainer.py).")
        await until(pilot, lambda: "no process of this user writes here now" in top(app), "its end")


async def test_where_its_output_is_not_kept_the_page_of_logs_has_the_command_that_keeps_it(
    start: Start, root: Path
) -> None:
    line = shlex.join([sys.executable, str(SCRIPT), "--lr", "0.1"])
    start(held=(f"{root}/{EVENTS}",), command=("/bin/sh", "-c", f"{line} | cat"))
    async with opened(RunDirectory(root)) as pilot:
        await until(pilot, lambda: "runs here without" in top(pilot.app), "the process")
        await pilot.press("l", "y")
        await until(pilot, lambda: pilot.app.clipboard, "the command")
        words = shlex.split(pilot.app.clipboard)
        assert words == ["tfckpt-tui", "launch", str(root), "--", *shlex.split(line)]
        await until(pilot, lambda: "> train.log" in top(pilot.app), "the other way")


async def test_pages_without_content_lead_to_the_lines_that_its_script_needs(
    start: Start, root: Path
) -> None:
    start(held=(f"{root}/{EVENTS}",))
    async with opened(RunDirectory(root)) as pilot:
        await until(pilot, lambda: "runs here without" in top(pilot.app), "the process")
        for key in ("J", "c"):
            await pilot.press(key)
            await until(pilot, lambda: "Press w to see the lines" in top(pilot.app), "the advice")
            await pilot.press("w")
            await until(
                pilot, lambda: "need two lines in the script" in top(pilot.app), "the lines"
            )
            await pilot.press("escape", "escape")


async def test_an_app_that_only_reads_ends_no_process(start: Start, root: Path) -> None:
    pid = start(held=(f"{root}/{EVENTS}",))
    async with opened(RunDirectory(root), read_only=True) as pilot:
        await pilot.press("x")
        await until_told(pilot, "opened to read only")
        await pilot.press("w", "x")
        await until_told(pilot, "opened to read only")
        assert first(pid).pid == pid
