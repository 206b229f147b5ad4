"""Gives hostile content to each file that a command reads, in a process with little memory.

    python tests/fuzz/scripts/hostile_files.py DIRECTORY CONTENT…

The files are not listed by hand: each command runs once on a healthy run, and the files that it
opens are noted. Prints a line for each command that ends otherwise than with an exit code and at
most one error, and last how many cases there were.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
import shutil
import signal
import stat
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import click

TESTS = Path(__file__).parents[2]
sys.path[:0] = [str(TESTS), str(TESTS / "tui"), str(TESTS / "catalog")]

from rundir_factory import RunFactory

from child_processes import limit_memory
from event_files import event, float_value
from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import CommandKind
from tfckpt_trainer.rundir.records.worker import Activity, Ending
from tfckpt_tui.cli.main import cli, run
from tfckpt_tui.monitor.log_pages import LogSearch, read_around
from tfckpt_tui.monitor.logs import LogTail
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader
from tfckpt_tui.reading.run_reader import open_run

MEMORY_BYTES = 400 << 20
"""What a command may take beyond what the process has before the first case."""

MOST_SECONDS = 60
"""A command that takes longer hangs, such as on a pipe."""

SECRET = "secret of another directory"

HOLE = 512 << 20
"""Bytes of a file that takes no room on the disk: more than a command may take."""

RUN, OUT, LOGS = "RUN", "OUT", "LOGS"

COMMANDS = {
    "status": [[RUN], [LOGS]],
    "ls": [[RUN]],
    "journal": [[RUN]],
    "report": [[RUN]],
    "metrics": [[RUN], [RUN, "--json"], [LOGS]],
    "runs": [[RUN]],
    "verify": [[RUN], [RUN, "weights.safetensors"]],
    "inspect": [[RUN, "ckpt-100"], [RUN, "weights.safetensors"]],
    "compare": [[RUN, "ckpt-100", "ckpt-200", "--norms"]],
    "bisect": [[RUN, "--finite"]],
    "copy": [[RUN, "ckpt-100", OUT]],
    "track": [[RUN, "values"]],
    "logs": [[RUN], [RUN, "--supervisor"]],
    "get": [[RUN]],
    "set": [[RUN, "learning_rate=1"]],
    "guards": [[RUN], [RUN, "--replay", "above loss 3: notify"]],
    "restore": [[RUN, "--name", "ckpt-100", "--next-start", "--yes"]],
    "trash": [[RUN]],
    "alert": [["test", RUN]],
}

NOT_TRIED = {
    "demo", "launch", "attach", "browse", "selftest", "check", "act", "stacks", "tensorboard",
    "config", "schema", "completion", "export", "extract", "convert", "average", "edit", "save",
    "pause", "resume", "stop", "profile", "prune", "undo", "pin", "unpin",
}  # fmt: skip
"""They start programs, open the app, or read what others of these read before they change it."""


def read_log(run: RunDirectory) -> None:
    """Reads a log as its page in the app does."""
    LogTail(run.worker_log(0)).read_new()
    read_around(run.worker_log(0), 0)
    LogSearch(run.worker_log(0), "step").run()


def claim(run: RunDirectory) -> None:
    """Reads commands as a trainer does."""
    queue = CommandQueue(run)
    list(queue.claims(time.time()))
    queue.clear_damaged(time.time(), at_once=True)


OTHERS: dict[str, Callable[[RunDirectory], object]] = {
    "the app": lambda run: SnapshotReader(run).read(time.time()),
    "a page with a log": read_log,
    "Python": lambda run: dict(open_run(run.root).metrics),
    "a trainer": claim,
}
"""Readers that are no command."""


def with_hole(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    os.truncate(path, HOLE)


CONTENTS: dict[str, Callable[[Path, bytes], object]] = {
    "depth": lambda path, data: path.write_bytes(b'{"a":' * 100_000),
    "lists": lambda path, data: path.write_bytes(b"[" * 1_000_000 + b"\n"),
    "digits": lambda path, data: path.write_bytes(b'{"schema":' + b"9" * 1_000_000 + b"}\n"),
    "lines": lambda path, data: path.write_bytes(b"\n" * (1 << 20)),
    "sparse": lambda path, data: with_hole(path, b""),
    "grown": with_hole,
    "link": lambda path, data: path.symlink_to(secret_beside(path)),
    "pipe": lambda path, data: os.mkfifo(path),
    "socket": lambda path, data: os.mknod(path, stat.S_IFSOCK | 0o644),
    "directory": lambda path, data: path.mkdir(),
}


def secret_beside(path: Path) -> Path:
    return next(p for p in path.parents if p.name == "place") / "secret"


def make_run(root: Path) -> None:
    """Makes a run with all that the commands read."""
    root.mkdir(parents=True)
    made = RunFactory(root).create().guarded()
    parent = made.checkpoint(100)
    made.checkpoint(200, parent=parent)
    made.series(100, 200, 0)
    # Nothing waits for an answer.
    made.worker(0, activity=Activity.EXITED, ending=Ending.FINISHED)
    made.run.worker_log(0).write_text("step 1\nstep 2\n")
    made.run.supervisor_log.write_text("started\n")
    made.run.pin("ckpt-100").touch()
    CommandQueue(made.run).submit(CommandKind.SAVE, requested_by="ann", lifetime=1e6)
    header = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    data = len(header).to_bytes(8, "little") + header + bytes(8)
    (root / "weights.safetensors").write_bytes(data)
    (root / "training_metadata.json").write_text('{"epoch": 3, "batch": 0}')
    (root / "logs").mkdir()
    (root / "logs" / "events.out.tfevents.1.host").write_bytes(event(1, float_value("loss", 0.5)))
    (root / "latest.weights.h5").write_bytes(b"\x89HDF\r\n\x1a\n")


class Cases:
    """A run that is made anew for each case, and the commands that are tried on it."""

    def __init__(self, place: Path) -> None:
        self._place, self._healthy = place, place / "healthy"
        self._root, self._out = place / "run", place / "out"
        (place / "secret").write_text(SECRET)
        make_run(self._healthy)
        self._opened: set[Path] | None = None
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[object, ...]) -> None:
        if self._opened is not None and event == "open" and isinstance(arguments[0], str | Path):
            path = Path(arguments[0])
            if path.is_relative_to(self._root) and path.is_file():
                self._opened.add(path)

    def renew(self) -> None:
        for directory in (self._root, self._out):
            shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(self._healthy, self._root)

    def readers(self) -> list[tuple[Path, list[str]]]:
        """Returns each file of the run with each command line that opens one of its kind."""
        found: dict[tuple[str, ...], tuple[Path, list[str]]] = {}
        commands = [[name, *form] for name, forms in COMMANDS.items() for form in forms]
        for words in (*commands, *([other] for other in OTHERS)):
            self.renew()
            self._opened = set()
            self.call(words)
            opened, self._opened = self._opened, None
            for path in sorted(opened & set(self._healthy_files())):
                found.setdefault((re.sub(r"\d+", "N", path.name), *words), (path, words))
        return list(found.values())

    def _healthy_files(self) -> list[Path]:
        files = (path for path in self._healthy.rglob("*") if path.is_file())
        return [self._root / path.relative_to(self._healthy) for path in files]

    def call(self, words: list[str]) -> tuple[int, str, str]:
        places = {RUN: str(self._root), OUT: str(self._out), LOGS: str(self._root / "logs")}
        data, told = io.StringIO(), io.StringIO()
        signal.alarm(MOST_SECONDS)
        try:
            with contextlib.redirect_stdout(data), contextlib.redirect_stderr(told):
                other = OTHERS.get(words[0])
                if other is None:
                    code = run([places.get(word, word) for word in words])
                else:
                    # What others get as an error, they show.
                    with contextlib.suppress(TfckptError, OSError):
                        other(RunDirectory(self._root))
                    code = 0
        finally:
            signal.alarm(0)
        return code, data.getvalue(), told.getvalue()

    def problem_of(self, words: list[str]) -> str:
        try:
            code, data, told = self.call(words)
        except BaseException as error:
            return "".join(traceback.format_exception(error)[-3:])
        if code not in range(5):
            return f"exit code {code}"
        if told.count("tfckpt-tui:") > 1 or "Traceback" in told:
            return told
        copies = [path for path in self._out.rglob("*") if path.is_file()]
        if SECRET in data + told or any(SECRET.encode() in p.read_bytes() for p in copies):
            return "told what is behind a link"
        return ""


def hang(signum: int, frame: object) -> None:
    raise TimeoutError(f"it took more than {MOST_SECONDS} s")


def main(place: Path, contents: list[str]) -> None:
    signal.signal(signal.SIGALRM, hang)
    names = set(cli.list_commands(click.Context(cli)))
    assert names == COMMANDS.keys() | NOT_TRIED, names ^ (COMMANDS.keys() | NOT_TRIED)
    cases = Cases(place)
    readers = cases.readers()
    limit_memory(MEMORY_BYTES)
    for either, (number, (path, words)) in itertools.product(contents, enumerate(readers)):
        # Of alternatives, one after the other: most files are opened by several commands.
        alternatives = either.split("|")
        content = alternatives[number % len(alternatives)]
        cases.renew()
        data = path.read_bytes()
        path.unlink()
        CONTENTS[content](path, data)
        problem = cases.problem_of(words)
        if problem:
            print(f"{content} in {path.name}: {' '.join(words)}: {problem}")
    print(f"{len(readers)} cases, {len({path.name for path, _ in readers})} files")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
