"""`tfckpt-tui` as a process: quick, quiet when cut off, and never without a terminal an app."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import types
from pathlib import Path

import click
import pytest
from answering_trainer import AnsweringTrainer, done
from rundir_factory import RunFactory, two_branches, without_heartbeats
from terminal import Terminal

from command_running import BINARY, Tool, complete_in_bash, run_binary
from requirements import needs
from tfckpt_trainer.errors import ExitCode
from tfckpt_tui.__main__ import main as start
from tfckpt_tui.cli.main import cli
from tfckpt_tui.services.runs.recent_runs import remember_run
from waiting import MOST_SECONDS, wait_until

pytestmark = pytest.mark.e2e

WORKER = Path(__file__).parents[1] / "launch" / "scripts" / "worker.py"

HEAVY = {"textual", "rich", "tensorflow", "keras", "numpy", "tensorboard", "watchdog", "asyncio"}
"""What costs time or has no place in a command for scripts."""

_SELDOM = {
    "click.shell_completion",
    "csv",
    "dataclasses",
    "email",
    "getpass",
    "heapq",
    "http",
    "importlib.metadata",
    "importlib.util",
    "psutil",
    "random",
    "shutil",
    "socket",
    "string",
    "tfckpt_trainer.bundle.structure",
    "tfckpt_trainer.catalog.scan.foreign_writers",
    "tfckpt_tui.cli.answer_guard",
    "tfckpt_tui.formats.markdown",
    "tfckpt_tui.services.metrics",
    "tomlkit",
    "wcwidth",
}
"""What costs a frequent command more than it does."""

UNNEEDED = {
    "status": {
        *_SELDOM,
        "json",
        "subprocess",
        "tfckpt_trainer.catalog.scan.diagnostics",
        "tfckpt_trainer.launch.schedulers",
        "tfckpt_tui.formats.checkpoint_columns",
        "tfckpt_tui.services.control",
        "tfckpt_tui.services.exactness.check",
    },
    "ls": {
        *_SELDOM,
        "json",
        "subprocess",
        "tfckpt_trainer.catalog.scan.lineage",
        "tfckpt_trainer.launch",
        "tfckpt_trainer.rundir.event_log",
        "tfckpt_trainer.rundir.heartbeats",
        "tfckpt_trainer.rundir.records.command",
        "tfckpt_tui.services.batch",
        "tfckpt_tui.services.runs.account",
    },
    "save": {
        *_SELDOM,
        "google_crc32c",
        "hashlib",
        "json",
        "subprocess",
        "tfckpt_trainer.bundle",
        "tfckpt_trainer.catalog",
        "tfckpt_trainer.launch",
        "tfckpt_trainer.rundir.event_log",
        "tfckpt_trainer.rundir.heartbeats.shared_steps",
        "tfckpt_tui.services.runs.account",
        "tfckpt_tui.services.runs.guards",
    },
}
"""Modules that are not imported by commands that scripts run often."""


COMMANDS = (
    "--version",
    "--help",
    "completion bash",
    "launch --help",
    "ls RUN --json",
    "status RUN --json",
    "journal RUN --json",
    "logs RUN --json",
    "prune RUN --keep-last 1 --yes --timeout 0.2 --json",
    "undo RUN --timeout 0.2 --json",
    "trash RUN --json",
    "pin RUN ckpt-300 --json",
    "unpin RUN ckpt-300 --json",
    "save RUN --no-wait --json",
    "restore RUN --step 300 --no-wait --json",
    "pause RUN --no-wait --json",
    "resume RUN --no-wait --json",
    "stop RUN --no-wait --json",
    "tensorboard RUN --status --json",
    "attach RUN",
)


def test_commands_import_nothing_heavy(tmp_path: Path) -> None:
    """All in one process: what one of them imported would still be there after the last."""
    run = two_branches(tmp_path).run
    said = [words.replace("RUN", str(run.root)).split() for words in COMMANDS]
    for words, loaded in zip(COMMANDS, modules_after(*said), strict=True):
        assert not HEAVY & loaded, words


@pytest.mark.parametrize("command", UNNEEDED)
def test_a_frequent_command_imports_what_it_needs(tmp_path: Path, command: str) -> None:
    run = two_branches(tmp_path, live=True).run
    with AnsweringTrainer(run, done("Saved ckpt-450.", name="ckpt-450")) as trainer:
        (loaded,) = modules_after([command, str(run.root)])
    assert not UNNEEDED[command] & loaded
    assert bool(trainer.taken) == (command == "save")


def modules_after(*commands: list[str]) -> list[set[str]]:
    """Returns the names of all modules that a process has imported after each of its commands."""
    program = (
        "import sys; from tfckpt_tui.cli.main import run\n"
        f"for words in {commands}:\n"
        "    run(words); sys.stdout.flush(); print('modules', *sys.modules, file=sys.stderr)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=MOST_SECONDS,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    lines = ended.stderr.splitlines()
    return [set(line.split()) for line in lines if line.startswith("modules ")]


def test_version_and_help_name_the_program() -> None:
    assert run_binary("--version").data.startswith("tfckpt-tui, version ")
    helped = run_binary("--help")
    assert helped.code == 0
    assert "tensorboard" in helped.data
    assert run_binary().data == helped.data


def test_a_word_that_is_neither_command_nor_directory(tool: Tool) -> None:
    said = tool("sav")
    assert said.code == 2
    assert "'sav' is neither a command nor a directory. Did you mean save? See" in said.words
    assert "'lst' is neither a command nor a directory. Did you mean ls? See" in tool("lst").words
    assert "'qqq' is neither a command nor a directory. See" in tool("qqq").words
    assert "nothing/here does not exist" in tool("nothing/here").words


EMPTY_PATHS = [
    (["export", "RUN", "--to", ""], "--to"),
    (["extract", "RUN", "300", "--to", "npz", "-o", ""], "--output"),
    (["convert", "RUN", "new", ""], "FILE"),
    (["convert", "RUN", "new", "w.npz", "--like", "", "300"], "RUN"),
    (["prune", "RUN", "--config", ""], "--config"),
    (["demo", "--dir", ""], "--dir"),
    (["runs", ""], "DIRECTORY"),
    (["browse", ""], "DIRECTORY"),
    ([""], "RUN"),
]
"""Empty words on the command line, and what they stand for."""


def test_an_empty_run_is_not_the_current_directory(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(two_branches(tmp_path).run.root)
    for name in cli.list_commands(click.Context(cli)):
        command = cli.get_command(click.Context(cli), name)
        if command is None or all(one.metavar != "RUN" for one in command.params):
            continue
        before = ["test"] if name == "alert" else []
        after = ["--to", "npz"] if name == "extract" else []
        said = tool(name, *before, "", "300", "400", *after)
        assert (name, said.code, said.data) == (name, 2, "")
        assert said.words.startswith("tfckpt-tui: RUN is empty. "), name


@pytest.mark.parametrize(("words", "meaning"), EMPTY_PATHS)
def test_an_empty_path_is_refused(
    tool: Tool, tmp_path: Path, words: list[str], meaning: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = two_branches(tmp_path / "run").run.root
    monkeypatch.chdir(tmp_path)
    said = tool(*(root if word == "RUN" else word for word in words))
    assert (said.code, said.data) == (2, "")
    assert said.words.startswith(f"tfckpt-tui: {meaning} is empty. ")


def test_a_directory_alone_opens_the_app_on_it(tmp_path: Path) -> None:
    two_branches(tmp_path)
    alone, attached = run_binary(tmp_path), run_binary("attach", tmp_path)
    assert alone == attached
    assert alone.code == 2
    assert "The app needs a terminal" in alone.words
    assert "status" in alone.words


def test_a_dumb_terminal_is_sent_to_plain_text(tmp_path: Path) -> None:
    two_branches(tmp_path)
    master, slave = pty.openpty()
    try:
        ended = subprocess.run(
            [BINARY, "attach", tmp_path],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            timeout=MOST_SECONDS,
            env={**os.environ, "TERM": "dumb"},
        )
        shown = os.read(master, 4096).decode()
    finally:
        os.close(master)
        os.close(slave)
    assert ended.returncode == 2
    assert "tfckpt-tui status RUN --watch" in " ".join(shown.split())
    assert "\x1b" not in shown


@pytest.mark.parametrize("words", [["launch", "RUN", "--", "true"], ["demo", "--dir", "RUN"]])
def test_without_a_terminal_nothing_is_started_for_an_app(
    tool: Tool, tmp_path: Path, words: list[str]
) -> None:
    root = tmp_path / "run"
    said = tool(*[root if word == "RUN" else word for word in words])
    assert said.code == 2
    assert "--detach" in said.words
    assert not root.exists()


def run_without_reader(*words: str | Path) -> None:
    """Runs the real binary after the reader of its output left; it succeeds in silence."""
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [BINARY, *words], stdout=writer, stderr=subprocess.PIPE, timeout=MOST_SECONDS
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_reader_that_has_enough_is_no_problem(tmp_path: Path) -> None:
    made = RunFactory(tmp_path).create()
    for step in range(3):
        made.checkpoint(step)
    run_without_reader("ls", tmp_path)


@pytest.mark.parametrize(
    ("closed", "printed"),
    [(">&-", False), ("2>&-", True), ("<&-", True), ("<&- >&- 2>&-", False)],
)
def test_closed_streams_are_no_problem(tmp_path: Path, closed: str, printed: bool) -> None:
    """A job of cron may have none."""
    RunFactory(tmp_path / "run").create().checkpoint(1)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    ended = subprocess.run(
        ["sh", "-c", f'exec "$0" ls "$1" --json {closed}', BINARY, tmp_path / "run"],
        capture_output=True,
        text=True,
        timeout=MOST_SECONDS,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert bool(ended.stdout) is printed
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


@pytest.mark.matrix
def test_the_package_can_be_run_as_a_module() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tfckpt_tui", "--version"],
        capture_output=True,
        text=True,
        timeout=MOST_SECONDS,
        check=True,
    )
    assert ended.stdout.startswith("tfckpt-tui, version ")


def test_a_prune_whose_plan_nobody_reads_prunes(tmp_path: Path) -> None:
    made = RunFactory(tmp_path).create()
    for step in range(200):
        made.checkpoint(step)
    run_without_reader("prune", tmp_path, "--keep-last", "3", "--yes")
    assert len(list(tmp_path.glob("*.index"))) == 3


def test_a_reader_that_leaves_a_watch_ends_it(tmp_path: Path) -> None:
    two_branches(tmp_path)
    watch = subprocess.Popen(
        [BINARY, "status", tmp_path, "--watch", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert watch.stdout is not None
    assert watch.stderr is not None
    first = json.loads(watch.stdout.readline())
    assert first["run"]["id"] == "language-model"
    watch.stdout.close()
    words = watch.stderr.read()
    assert (watch.wait(MOST_SECONDS), words) == (0, b"")


def test_ctrl_c_ends_a_command_quietly(tmp_path: Path) -> None:
    made = two_branches(tmp_path)
    log = made.run.worker_log(0)
    log.write_text("one\n")
    follow = subprocess.Popen(
        [BINARY, "logs", tmp_path, "--follow"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert follow.stdout is not None
    assert follow.stdout.readline() == b"one\n"
    with open(log, "a") as more:
        more.write("two\n")
    assert follow.stdout.readline() == b"two\n"
    follow.send_signal(signal.SIGINT)
    _, words = follow.communicate(timeout=MOST_SECONDS)
    assert (follow.returncode, words.strip()) == (130, b"")


def test_progress_is_shown_on_a_terminal_only(tmp_path: Path) -> None:
    run = two_branches(tmp_path, live=True).run
    with AnsweringTrainer(run, done("Saved ckpt-b1-438.")):
        assert run_binary("save", run.root).words == ""
        master, slave = pty.openpty()
        try:
            ended = subprocess.run(
                [BINARY, "save", run.root],
                stdout=subprocess.PIPE,
                stderr=slave,
                timeout=MOST_SECONDS,
            )
            shown = os.read(master, 65536).decode()
        finally:
            os.close(master)
            os.close(slave)
    assert ended.stdout == b"Saved ckpt-b1-438.\n"
    assert "save: done 2/2 Saved ckpt-b1-438." in shown
    assert shown.endswith("\x1b[K")


@pytest.mark.parametrize(
    ("shell", "mark"),
    [("bash", "complete -o"), ("zsh", "compdef"), ("fish", "complete --no-files")],
)
def test_completion_scripts(tool: Tool, shell: str, mark: str) -> None:
    said = tool("completion", shell)
    assert said.code == 0
    assert mark in said.data
    assert "_TFCKPT_TUI_COMPLETE" in said.data


@needs("bash")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("tfckpt-tui st", {"stacks", "status", "stop"}),
        ("tfckpt-tui prune RUN --keep-b", {"--keep-best"}),
        ("tfckpt-tui completion z", {"zsh"}),
    ],
)
def test_bash_completes_with_the_script(typed: str, offered: set[str]) -> None:
    assert set(complete_in_bash(typed.split())) == offered


@needs("zsh")
def test_zsh_completes_with_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("run-of-mine", "other", "a/exp", "b/exp"):
        (tmp_path / name).mkdir(parents=True)
    for recent in ("a/exp", "b/exp"):
        remember_run(tmp_path / recent)
    load = f"autoload -Uz compinit; compinit -u -D; eval \"$({BINARY} completion zsh)\"; PS1='> '\n"
    (tmp_path / ".zshrc").write_text(load)
    place = {"ZDOTDIR": str(tmp_path), "PATH": f"{Path(BINARY).parent}:{os.environ['PATH']}"}
    with Terminal(["sh", "-c", f"cd {tmp_path}; exec zsh -i"], environment=place) as terminal:
        terminal.wait_for("> ")
        for typed, shown in (
            ("tfckpt-tui veri", "tfckpt-tui verify "),
            ("ru", "tfckpt-tui verify run-of-mine"),
            (" --fi", "verify run-of-mine.* --finite"),
        ):
            terminal.press(*typed, "tab")
            terminal.wait_for(shown)
        # Two recent runs are called so, and begin alike: their beginning must not replace the word.
        terminal.press("\x15", *"tfckpt-tui ls ex", "tab")
        terminal.wait_for(rf"> tfckpt-tui ls {tmp_path}/b/exp ")


def test_completion_knows_the_commands() -> None:
    said = run_binary(
        _TFCKPT_TUI_COMPLETE="bash_complete", COMP_WORDS="tfckpt-tui st", COMP_CWORD="1"
    )
    assert said.data.split() == ["plain,status", "plain,stacks", "plain,stop"]


def test_launch_without_the_app_and_stop_by_force(tool: Tool, tmp_path: Path) -> None:
    root = tmp_path / "run"
    sleep = [sys.executable, "-c", "import time; time.sleep(300)"]
    try:
        said = run_binary("launch", root, "--detach", "--json", "--", *sleep)
        assert said.code == 0
        assert said.json["directory"] == str(root)
        supervisor = said.json["supervisor_pid"]
        os.kill(supervisor, 0)
        second = tool("launch", root, "--detach", "--", *sleep)
        assert (second.code, f"process {supervisor}" in second.words) == (1, True)
        # Whoever was sent here by the second launch must not be sent back to `launch`.
        asked = tool("save", root)
        assert asked.code == 3
        assert f"supervisor (process {supervisor}), worker 0 (process " in asked.words
        assert f"tfckpt-tui stop --force {root}" in asked.words
    finally:
        stopped = tool("stop", root, "--force", "--timeout", "1", "--json")
    assert (stopped.code, stopped.json["stopped"]) == (0, True)
    wait_until(lambda: not Path(f"/proc/{supervisor}").exists(), 10, "the end of the supervisor")


def test_after_a_stop_the_run_can_be_launched_again(tool: Tool, tmp_path: Path) -> None:
    root = tmp_path / "run"
    lingering = [sys.executable, str(WORKER), "step", "serve-a-stop", "sleep=2"]
    launched = ["launch", root, "--detach", "--no-standby", "--", *lingering]
    try:
        assert run_binary(*launched).code == 0
        # For two seconds more its process does what the script does after training.
        stopped = tool("stop", root)
        assert (stopped.code, stopped.data) == (0, "Stopped after step 1.\n")
        again = run_binary(*launched)
        assert again.code == 0, again.words
        assert tool("stop", root).code == 0
    finally:
        tool("stop", root, "--force", "--timeout", "1")


def test_a_stop_names_what_outlives_it(tool: Tool, tmp_path: Path) -> None:
    root = tmp_path / "run"
    endless = [sys.executable, str(WORKER), "step", "ready", "serve-a-stop", "sleep=300"]
    try:
        assert run_binary("launch", root, "--detach", "--no-standby", "--", *endless).code == 0
        wait_until((root / "ready-0").exists, 60, "a worker that serves")
        stopped = tool("stop", root, "--timeout", "4")
        assert stopped.code == 1
        assert (
            "Stopped after step 1. After 5 s these processes still run: supervisor ("
            in stopped.words
        )
        assert f"tfckpt-tui stop --force {root}" in stopped.words
    finally:
        assert tool("stop", root, "--force", "--timeout", "1").code == 0
    assert run_binary("launch", root, "--detach", "--", "true").code == 0


def test_a_question_that_is_left_says_that_nothing_was_done(tmp_path: Path) -> None:
    made = without_heartbeats(two_branches(tmp_path))
    master, slave = pty.openpty()
    command = [BINARY, "prune", made.run.root, "--keep-last", "1"]
    with subprocess.Popen(
        command, stdin=slave, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        asked = b""
        while not asked.rstrip().endswith(b"[y/N]:"):
            more = process.stderr.read1()
            assert more, asked
            asked += more
        # Ctrl+D is kept by the terminal; Ctrl+C could come before the command reads.
        os.write(master, b"\x04")
        said = process.stderr.read()
    os.close(master)
    os.close(slave)
    assert process.returncode == 130
    assert said.decode().strip() == "tfckpt-tui: Interrupted; nothing was done."


class Interrupted(types.ModuleType):
    """A module whose import takes as long as it takes a user to press ctrl+c."""

    def __getattr__(self, name: str) -> object:
        raise KeyboardInterrupt


def test_an_interrupt_while_the_command_line_is_imported_shows_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "tfckpt_tui.cli.main"
    monkeypatch.setitem(sys.modules, name, Interrupted(name))
    with pytest.raises(SystemExit) as ended:
        start()
    assert ended.value.code == ExitCode.INTERRUPTED
