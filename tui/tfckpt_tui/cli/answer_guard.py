"""Ends a command whose directory does not answer, such as on a network disk that hangs.

A process that waits for such a disk cannot be interrupted, or even killed. So on network disks the
command runs in a child process. This process waits for it, and never touches the disk.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from tfckpt_trainer.errors import ExitCode, TfckptError

PROBE_SECONDS = 1.0
"""Time between two questions to a directory that answers."""

GRACE_SECONDS = 2.0
"""How long a command that is interrupted may take to end."""

_EXIT, _APP = b"x", b"a"
_FIRST_PATH = 128
"""The first of the bytes by which the child reports a path; see `MOST_PATHS`."""

_LARGEST_READ = 1 << 16

_line: int | None = None
"""In the child process, where it reports to this one."""


class NoAnswerError(TfckptError):
    """A directory did not answer in time."""


def app_opened() -> None:
    """Tells the guard that the app shows by itself if its directory does not answer."""
    if _line is not None:
        os.write(_line, _APP)


def run_guarded(act: Callable[[], int], paths: Sequence[Path], seconds: float) -> int:
    """Runs `act` in a child process while `paths` answer, and returns its exit code.

    Args:
        act: The command.
        paths: The paths that have to answer.
        seconds: How long an answer may take.

    Raises:
        NoAnswerError: A path did not answer in time, or the command could not be interrupted.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    answers, line = os.pipe()
    output = _RelayedOutput()
    # Until this process can pass signals on, they wait.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(answers)
        output.redirect()
        _be_child(act, paths, line)
    os.close(line)
    output.opened()
    try:
        return _Guard(child, answers, output, paths, seconds).wait(before)
    finally:
        output.finish()
        output.close()
        os.close(answers)


def _be_child(act: Callable[[], int], paths: Sequence[Path], line: int) -> None:
    """Runs the command and ends this process."""
    global _line
    _line = line
    code = int(ExitCode.PROBLEM)
    try:
        for number, path in enumerate(paths):
            threading.Thread(target=_probe, args=(path, number, line), daemon=True).start()
        code = act()
        sys.stdout.flush()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else code
    except KeyboardInterrupt:
        code = int(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        code = int(ExitCode.DONE)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(OSError):
            sys.stderr.flush()
        # Before the end: a thread that waits for the disk would delay it.
        os.write(line, _EXIT + bytes([code & 0xFF]))
        os._exit(code & 0xFF)


def _probe(path: Path, number: int, line: int) -> None:
    """Reports each answer of the directory at `path`."""
    # Most commands are not on a network disk.
    from tfckpt_trainer.rundir.storage.server_facts import wait_for_server

    while True:
        # An error is an answer: the command reports it.
        with suppress(OSError):
            wait_for_server(path)
        with suppress(OSError):
            os.write(line, bytes([_FIRST_PATH + number]))
        time.sleep(PROBE_SECONDS)


class _Guard:
    """Waits for the child process, its answers and signals."""

    def __init__(
        self,
        child: int,
        answers: int,
        output: _RelayedOutput,
        paths: Sequence[Path],
        seconds: float,
    ) -> None:
        self._child = child
        self._output = output
        self._answers = answers
        self._paths = paths
        self._seconds = seconds
        now = time.monotonic()
        self._answered = [now] * len(paths)
        self._app_is_open = False
        self._signal: tuple[int, float] | None = None
        self._signals = 0

    def wait(self, mask: set[signal.Signals | int]) -> int:
        """Returns the exit code of the command. Raises the error of `run_guarded`.

        Args:
            mask: The signals to block meanwhile.
        """
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        handlers = {
            signal.SIGINT: self._pass_on,
            signal.SIGTERM: self._pass_on,
            signal.SIGCHLD: self._child_changed,
            signal.SIGCONT: self._continued,
        }
        before = {number: signal.signal(number, act) for number, act in handlers.items()}
        earlier = signal.set_wakeup_fd(wake)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        try:
            while True:
                code = self._look(woken)
                if code is not None:
                    return code
        finally:
            signal.set_wakeup_fd(earlier)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(woken)
            os.close(wake)

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        if self._app_is_open and number == signal.SIGINT:
            return
        self._signal = self._signal or (number, time.monotonic())
        self._signals += 1
        # A terminal sends SIGINT to both, and a process that gets it twice ends all the same.
        if number != signal.SIGINT:
            os.kill(self._child, number)

    def _child_changed(self, _number: int, _frame: FrameType | None) -> None:
        """Stops this process with the child, so that its shell goes on."""
        with suppress(ChildProcessError):
            if os.waitid(os.P_PID, self._child, os.WSTOPPED | os.WNOHANG) is not None:
                os.kill(os.getpid(), signal.SIGSTOP)

    def _continued(self, _number: int, _frame: FrameType | None) -> None:
        self._answered = [time.monotonic()] * len(self._paths)
        with suppress(ProcessLookupError, ChildProcessError):
            # A shell continues both. The app would begin again, and drop what was typed meanwhile.
            if os.waitid(os.P_PID, self._child, os.WCONTINUED | os.WNOHANG) is None:
                os.kill(self._child, signal.SIGCONT)

    def _look(self, woken: int) -> int | None:
        ready = select.poll()
        ready.register(self._answers, select.POLLIN)
        ready.register(woken, select.POLLIN)
        for source in self._output.sources:
            ready.register(source, select.POLLIN)
        for descriptor, _ in ready.poll(1000 * self._wait_seconds()):
            if descriptor in self._output.sources:
                self._output.pass_on(descriptor)
                continue
            data = os.read(descriptor, 4096)
            if descriptor == self._answers:
                code = self._read(data)
                if code is not None:
                    return code
        self._check()
        return None

    def _wait_seconds(self) -> float:
        now = time.monotonic()
        ends = [] if self._app_is_open else [at + self._seconds for at in self._answered]
        if self._signal is not None:
            ends += [max(now + PROBE_SECONDS, self._signal[1] + GRACE_SECONDS)]
        return max(0.0, min(ends) - now) + 0.01 if ends else 60.0

    def _read(self, data: bytes) -> int | None:
        if not data:
            _, status = os.waitpid(self._child, 0)
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        while data:
            kind, data = data[:1], data[1:]
            if kind == _EXIT:
                # A pipe keeps the two bytes together.
                return data[0]
            if kind == _APP:
                self._app_is_open = True
            else:
                self._answered[kind[0] - _FIRST_PATH] = time.monotonic()
        return None

    def _check(self) -> None:
        now = time.monotonic()
        limit = self._seconds if self._signal is None else GRACE_SECONDS
        silent = [
            (path, now - at)
            for path, at in zip(self._paths, self._answered, strict=True)
            if now - at >= limit
        ]
        if self._signal is None:
            if silent and not self._app_is_open:
                self._kill()
                raise NoAnswerError(_explanation(*silent[0]))
            return
        number, at = self._signal
        # A command may need its time to end. The second signal ends it anyway.
        if now - at >= GRACE_SECONDS and (silent or self._signals > 1):
            self._kill()
            error = NoAnswerError("Interrupted.")
            if silent:
                error = NoAnswerError(f"Interrupted. {_explanation(*silent[0])}")
            error.exit_code = _INTERRUPTIONS[number]
            raise error

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._child, signal.SIGKILL)


class _RelayedOutput:
    """The standard output and error of a child process, unless they are a terminal.

    A child process that cannot be killed would keep a pipe open, and its reader would wait for it.
    Create it before the fork. Then call `redirect` in the child process, and `opened` in this one.

    Attributes:
        sources: What to read in this process, and where to write it.
    """

    def __init__(self) -> None:
        self.sources: dict[int, int] = {}
        self._redirected: list[tuple[int, int]] = []
        targets = [stream for stream in (sys.stdout, sys.stderr) if stream is not None]
        for number in (stream.fileno() for stream in targets if not stream.isatty()):
            same = next((n for _, n in self._redirected if _is_same(n, number)), None)
            if same is not None:
                line = next(line for line, n in self._redirected if n == same)
            else:
                source, line = os.pipe()
                self.sources[source] = number
            self._redirected.append((line, number))

    def redirect(self) -> None:
        """Has this process, the child, write to the other one."""
        for source in self.sources:
            os.close(source)
        for line, number in self._redirected:
            os.dup2(line, number)
        self._close_lines()

    def opened(self) -> None:
        """Prepares this process for reading."""
        self._close_lines()

    def pass_on(self, source: int) -> bool:
        """Writes what is there to read; returns False at the end of the output."""
        data = os.read(source, _LARGEST_READ)
        try:
            while data:
                data = data[os.write(self.sources[source], data) :]
                if not data:
                    return True
        except BrokenPipeError:
            pass
        # The child process learns from it that nobody reads.
        os.close(source)
        del self.sources[source]
        return False

    def finish(self) -> None:
        """Passes on what was written so far, without waiting for more."""
        for source in list(self.sources):
            os.set_blocking(source, False)
            with suppress(BlockingIOError):
                while self.pass_on(source):
                    pass

    def close(self) -> None:
        """Stops reading."""
        for source in self.sources:
            os.close(source)
        self.sources.clear()

    def _close_lines(self) -> None:
        for line in {line for line, _ in self._redirected}:
            os.close(line)


def _is_same(first: int, second: int) -> bool:
    return os.path.samestat(os.fstat(first), os.fstat(second))


def _explanation(path: Path, waited: float) -> str:
    return (
        f"{path} has not answered for {waited:.0f} s. Its file system hangs, or its server cannot "
        f"be reached. See where it is mounted with `findmnt --list`, and "
        "try again later. To wait longer, pass `--timeout SECONDS` before the command."
    )


_INTERRUPTIONS = {
    int(signal.SIGINT): ExitCode.INTERRUPTED,
    int(signal.SIGTERM): ExitCode.PREEMPTED,
}
