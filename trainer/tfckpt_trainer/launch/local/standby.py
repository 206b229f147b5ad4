"""The supervisor's side of the standby process, which has imported TensorFlow and forks workers."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path
from typing import BinaryIO

from tfckpt_trainer.errors import LaunchError
from tfckpt_trainer.launch.processes.workers import RunningWorker

MODULE = "tfckpt_trainer.training.start.standby"
STANDBY = (sys.executable, "-P", "-m", MODULE)
"""The command of a standby process, without its socket."""

_UNDERSTOOD = {"-P", "-u"}
"""The options of the interpreter that a command may have before its script or module."""

ANSWER_SECONDS = 5.0
"""Time limit for the standby process to fork a worker."""


@dataclass(frozen=True)
class Program:
    """A command that the standby process can run: a script or a module of this Python.

    Attributes:
        module: The module; empty for a script.
        arguments: What becomes `sys.argv`.
        is_safe: Whether Python imports nothing from the current directory, as its option `-P` says.
    """

    module: str
    arguments: tuple[str, ...]
    is_safe: bool = False


def as_program(command: Sequence[str]) -> Program | None:
    """Returns the program of a command, or None if the standby process cannot run it.

    Of the interpreter's options only `-P` and `-u` are understood; logs are never buffered.
    """
    words = list(command)
    if len(words) < 2 or sys.platform != "linux":
        return None
    executable = shutil.which(words[0])
    if executable is None or os.path.abspath(executable) != os.path.abspath(sys.executable):
        same = executable is not None and _is_this_python(Path(executable))
        if not same:
            return None
    rest = list(dropwhile(_UNDERSTOOD.__contains__, words[1:]))
    is_safe = "-P" in words[1 : len(words) - len(rest)]
    if len(rest) >= 2 and rest[0] == "-m":
        return Program(rest[1], tuple(rest[1:]), is_safe)
    if rest and rest[0].endswith(".py"):
        return Program("", tuple(rest), is_safe)
    return None


class Standby:
    """A standby process; it is started during training and used when workers are restarted."""

    def __init__(self, program: Program, environment: Mapping[str, str], output: BinaryIO) -> None:
        """Starts the process.

        Args:
            program: What its workers run.
            environment: Variables that are added to those of this process.
            output: The open file that its output goes to.

        Raises:
            OSError: It cannot be started.
        """
        self._program = program
        self._ours, theirs = socket.socketpair()
        self._pending = b""
        self._ready = self._gone = False
        self._codes: dict[int, int] = {}
        self._started: list[int] = []
        with theirs:
            self._process = subprocess.Popen(
                [*STANDBY, str(theirs.fileno())],
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    @property
    def is_ready(self) -> bool:
        """Whether it has imported TensorFlow and runs."""
        self._listen(0)
        return self._ready and not self._gone

    def start_worker(
        self,
        index: int,
        environment: Mapping[str, str],
        working_directory: Path,
        output: BinaryIO,
    ) -> RunningWorker:
        """Forks one more worker.

        Args:
            index: Its number.
            environment: Variables that are added to those of this process.
            working_directory: Where the program runs.
            output: The open file that its output goes to. The worker opens no file by name:
                something else may lie there by then.

        Raises:
            LaunchError: The standby process does not answer.
        """
        order = {
            "module": self._program.module,
            "is_safe": self._program.is_safe,
            "arguments": self._program.arguments,
            "environment": {**os.environ, **environment},
            "directory": str(working_directory),
        }
        count_before = len(self._started)
        deadline = time.monotonic() + ANSWER_SECONDS
        data = json.dumps(order).encode() + b"\n"
        try:
            sent = socket.send_fds(self._ours, [data], [output.fileno()])
            self._ours.sendall(data[sent:])
        except OSError:
            self._gone = True
        while len(self._started) == count_before and not self._gone and time.monotonic() < deadline:
            self._listen(0.1)
        if len(self._started) == count_before:
            self._gone = True
            raise LaunchError("The standby process does not answer.")
        return RunningWorker(index, ForkedProcess(self, self._started[-1]))

    def code_of(self, pid: int, seconds: float = 0.0) -> int | None:
        """Returns the exit status of one of its workers; None while it runs."""
        if pid not in self._codes:
            self._listen(seconds)
        return self._codes.get(pid)

    @property
    def is_gone(self) -> bool:
        """Whether it can no longer report on its workers."""
        return self._gone

    def end(self) -> None:
        """Ends the process; its workers go on."""
        self._ours.close()
        self._gone = True
        self._process.kill()
        self._process.wait()

    def _listen(self, seconds: float) -> None:
        """Reads its messages, and waits at most `seconds` for the first."""
        while not self._gone and select.select([self._ours], [], [], seconds)[0]:
            data = self._ours.recv(1 << 16)
            if not data:
                self._gone = True
            *lines, self._pending = (self._pending + data).split(b"\n")
            for line in lines:
                self._take(json.loads(line))
            seconds = 0

    def _take(self, message: dict[str, int]) -> None:
        if "ready" in message:
            self._ready = True
        elif "started" in message:
            self._started.append(message["started"])
        else:
            self._codes[message["ended"]] = message["code"]


class ForkedProcess:
    """A worker that a standby process forked; its exit status comes from there."""

    LOST = -signal.SIGKILL
    """Exit status of a worker whose true status is unknown: most likely it died as its parent."""

    def __init__(self, standby: Standby, pid: int) -> None:
        self.pid = pid
        self._standby = standby

    def poll(self) -> int | None:
        """Returns the exit status, negative for a signal; None while it runs."""
        code = self._standby.code_of(self.pid)
        if code is None and self._standby.is_gone and not _lives(self.pid):
            return self.LOST
        return code

    def wait(self, timeout: float | None = None) -> int:
        """Waits until it has ended.

        Raises:
            subprocess.TimeoutExpired: It still runs.
        """
        deadline = time.monotonic() + (timeout if timeout is not None else float("inf"))
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("worker", timeout or 0)
            self._standby.code_of(self.pid, 0.02)
        return code


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _is_this_python(path: Path) -> bool:
    """Whether a name such as `python3` in a virtual environment is the running interpreter."""
    here = Path(sys.executable)
    return path.parent.resolve() == here.parent.resolve() and path.resolve() == here.resolve()
