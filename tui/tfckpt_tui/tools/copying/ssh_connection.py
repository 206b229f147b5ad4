"""One connection to another host: scripts for its shell, and data for them.

A script travels as data, in front of the data that it reads. So no path is ever part of a command
line that the user's login shell on the host interprets, whichever shell that is.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from tfckpt_trainer.errors import RefusedError, TfckptError, UsageError
from tfckpt_trainer.rundir.storage.scratch_directory import scratch_directory
from tfckpt_tui.tools.copying.address import HostPath
from tfckpt_tui.tools.copying.destination import CutCopyError

BEGIN, END = b"tfckpt-begin\n", b"\ntfckpt-end\n"
"""Around the answer of a script; start-up files of a shell may print something before it."""

EXISTS = 17
"""Exit status of a script that would have replaced a file."""

INCOMPLETE = 18
"""Exit status of a script that did not find as many bytes as it should."""

_SSH_FAILED = 255
_END_SECONDS = 2.0
_LOST_SECONDS = 0.5
"""How long after a command the connection may end that ended it."""

_RSYNC_MISMATCH = {1, 2, 4, 12, 127}
"""Exit statuses of rsync if the two programs do not understand each other."""

_OF_A_FILE = re.compile(r'rsync: .*".*" (\(in .*\) )?failed: ')
_FULL = ("No space left on device", "Disk quota exceeded")

_PREAMBLE = f"""LC_ALL=C; export LC_ALL; unset CDPATH
begin() {{ printf '{BEGIN.decode().rstrip()}\\n'; }}
end() {{ printf '\\ntfckpt-end\\n'; }}
"""


class SshConnection:
    """A connection that several commands share, so that a password is asked once."""

    def __init__(self, target: HostPath, seconds: float) -> None:
        """Prepares the connection.

        Args:
            target: The host.
            seconds: How long the host may take to answer.
        """
        self._target = target
        self._seconds = seconds
        self._socket = ""
        self._opened = ExitStack()
        self._master: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None

    def open(self, script: str) -> bytes:
        """Connects, runs a first script, and returns its answer.

        Raises:
            TfckptError: The host cannot be reached, or the script failed.
        """
        # The path of a socket has at most 108 bytes, with what ssh adds.
        place = self._opened.enter_context(scratch_directory("tfckpt-", is_short=True))
        self._socket = f"{place}/s"
        self._errors = self._opened.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        # `cat` ends with the input, so the host ends the connection if this process is killed.
        text = _encoded(f"{script}\nexec cat >/dev/null\n")
        master = self._start(["-o", "ControlMaster=yes"], len(text), self._errors)
        self._opened.callback(_end, master, seconds=_END_SECONDS)
        self._master = master
        _write(master, [text])
        received = b""
        while not received.endswith(END):
            piece = _read_some(master)
            if not piece:
                status, message = master.wait(), _problem(self._errors)
                if status == _SSH_FAILED:
                    raise self._unreachable(message)
                raise self._failed(status, message) if message else self._silent()
            received += piece
        return self._answer(received)

    def close(self) -> None:
        """Ends the connection."""
        self._opened.close()

    def run(self, script: str, data: Iterable[bytes] = ()) -> bytes:
        """Runs a script, and returns its answer.

        Args:
            script: Commands for `sh`.
            data: The standard input of its commands.

        Raises:
            CutCopyError: The connection was lost, or the disk of the host is full.
            RefusedError: The script would have replaced a file.
            TfckptError: The script failed.
        """
        text = _encoded(script)
        with tempfile.TemporaryFile() as errors:
            process = self._start(["-o", "ControlMaster=no"], len(text), errors)
            try:
                _write(process, [text])
                _write(process, data)
                received = _read_all(process)
                self._check(process.wait(), _problem(errors))
            finally:
                _end(process)
        return self._answer(received)

    def rsync(self, source: Path, target: str, *options: str) -> Iterator[bytes]:
        """Passes what is in one directory to one on the host by rsync; yields what it prints.

        Args:
            source: The directory. Its links stand for the files that they lead to.
            target: The directory on the host.
            options: What to do with the files.

        Raises:
            CutCopyError: The connection was lost, or the disk of the host is full.
            TfckptError: rsync failed.
        """
        words = ["rsync", "--recursive", "--copy-links", "--protect-args", *options]
        words += ["--rsh", " ".join(self._ssh("-o", "ControlMaster=no"))]
        words += ["--", f"{source}/", f"{self._target.bracketed_host}:{target}/"]
        with tempfile.TemporaryFile() as errors:
            process = _popen(words, stdin=subprocess.DEVNULL, errors=errors)
            try:
                while piece := _read_some(process):
                    yield piece
                status, message = process.wait(), _problem(errors)
                if status in _RSYNC_MISMATCH and not (_is_full(message) or self._is_lost()):
                    raise self._no_common_rsync(message)
                self._check(status, message)
            finally:
                _end(process)

    def _is_lost(self) -> bool:
        assert self._master is not None
        try:
            self._master.wait(_LOST_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _ssh(self, *options: str) -> list[str]:
        alive = max(1, round(self._seconds / 3))
        words = ["ssh", "-T", "-o", f"ControlPath={self._socket}", "-o", "LogLevel=ERROR"]
        words += ["-o", f"ConnectTimeout={max(1, round(self._seconds))}"]
        words += ["-o", f"ServerAliveInterval={alive}", "-o", "ServerAliveCountMax=3"]
        words += ["-o", "ClearAllForwardings=yes", "-o", "RemoteCommand=none", *options]
        return words if self._target.port is None else [*words, "-p", str(self._target.port)]

    def _start(self, options: list[str], size: int, errors: IO[bytes]) -> subprocess.Popen[bytes]:
        # Read by `dd` byte by byte, so that the rest is left for the commands of the script.
        command = f"""exec sh -c 'eval "$(dd bs=1 count={size} 2>/dev/null)"'"""
        words = [*self._ssh(*options), "--", self._target.host, command]
        return _popen(words, stdin=subprocess.PIPE, errors=errors)

    def _check(self, status: int, message: str) -> None:
        if status == 0:
            return
        if status == _SSH_FAILED or self._is_lost():
            reason = _problem(self._errors) if self._errors is not None else ""
            reason = (reason or message).rstrip(".")
            raise CutCopyError(
                f"The connection to {self._target.host} was lost{f' ({reason})' if reason else ''}."
                " See whether the host can be reached"
            )
        raise self._failed(status, message)

    def _failed(self, status: int, message: str) -> TfckptError:
        host = self._target.host
        if _is_full(message):
            return CutCopyError(f"The disk of {self._target} is full. Make room there")
        if status == INCOMPLETE:
            return CutCopyError(
                f"{host} did not get all data. See whether the connection is stable"
            )
        if status == EXISTS:
            return RefusedError(f"On {host}, {message}. Move it away, or copy elsewhere.")
        return TfckptError(
            f"{host} answers: {message or f'exit status {status}'}. Check the path and its "
            f"permissions with `ssh {host}`."
        )

    def _no_common_rsync(self, message: str) -> TfckptError:
        host = self._target.host
        return TfckptError(
            f"rsync cannot send to {host}: {message.rstrip('.')}. Both machines need rsync 3.1 or "
            f"newer, and `ssh {host} true` has to print nothing: let its shell print only where "
            "it is interactive."
        )

    def _answer(self, received: bytes) -> bytes:
        """Returns what a script printed between its marks."""
        _, begun, rest = received.partition(BEGIN)
        answer, ended, _ = rest.rpartition(END)
        if not (begun and ended):
            raise self._silent()
        return answer

    def _silent(self) -> TfckptError:
        host = self._target.host
        return TfckptError(
            f"{host} ended a command without an answer. The account may not run commands there; "
            f"check it with `ssh {host} echo works`."
        )

    def _unreachable(self, message: str) -> TfckptError:
        host = self._target.host
        port = "" if self._target.port is None else f"-p {self._target.port} "
        return TfckptError(
            f"ssh cannot connect to {host}: {message.removeprefix('ssh: ').rstrip('.')}. "
            f"Try it with `ssh {port}{host}`."
        )


def _popen(words: list[str], *, stdin: int, errors: IO[bytes]) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        return subprocess.Popen(
            words, stdin=stdin, stdout=subprocess.PIPE, stderr=errors, env=environment
        )
    except FileNotFoundError:
        raise UsageError(
            f"This machine has no `{words[0]}`. Install it, such as with "
            "`apt-get install openssh-client`."
        ) from None


def _write(process: subprocess.Popen[bytes], data: Iterable[bytes]) -> None:
    """Writes to a process; if it has ended, its status tells why."""
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        for piece in data:
            process.stdin.write(piece)
        process.stdin.flush()


def _read_some(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return os.read(process.stdout.fileno(), 1 << 16)


def _read_all(process: subprocess.Popen[bytes]) -> bytes:
    """Closes the input of a process, and returns all that it prints."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError):
        process.stdin.close()
    return process.stdout.read()


def _end(process: subprocess.Popen[bytes], seconds: float = 0.0) -> None:
    """Ends a process; it may take some seconds after the end of its input."""
    with suppress(OSError):
        if process.stdin is not None:
            process.stdin.close()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _encoded(script: str) -> bytes:
    return os.fsencode(_PREAMBLE + script)


def _problem(errors: IO[bytes]) -> str:
    """Returns the last line of what a program printed, or one that says more.

    That is the one about a full disk, or the first file that rsync could not write.
    """
    errors.seek(0)
    lines = [line for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
    full = [line for line in lines if _is_full(line)]
    files = [line for line in lines if _OF_A_FILE.match(line)]
    return (full or files[:1] or lines or [""])[-1].strip()


def _is_full(message: str) -> bool:
    return any(words in message for words in _FULL)
