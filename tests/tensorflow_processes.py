"""Python programs in processes that begin with TensorFlow imported.

Importing TensorFlow takes seconds of CPU time, forking a process that has imported it takes
milliseconds. So one process imports it for all processes that run tests, and forks once for each
program. Nothing of TensorFlow may run before a fork: its threads do not survive one.

Temporary files of these programs are in a directory of that process, and go with it. TensorFlow
leaves some behind for each trainer that is killed.
"""

from __future__ import annotations

import atexit
import errno
import gc
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO

import msgspec

_LARGEST_MESSAGE = 1 << 18
_START_SECONDS = 500
"""Beside a heavy load the import of TensorFlow takes minutes."""
_MOST_CLIENTS = 64
_started: list[subprocess.Popen[bytes]] = []

started = 0
"""How many programs were started."""
running: set[TensorFlowProcess] = set()
"""Those of which nobody knows that they ended."""


class Order(msgspec.Struct):
    """A program to run: a script's path or a module's name, then its arguments."""

    words: list[str]
    environment: dict[str, str]
    is_module: bool = False
    ends_fully: bool = False


class TensorFlowProcess:
    """A program in a process of its own; it is used like `subprocess.Popen`."""

    def __init__(
        self,
        words: Sequence[object],
        environment: Mapping[str, str],
        output: IO[bytes],
        errors: IO[bytes] | None = None,
        *,
        is_module: bool = False,
        ends_fully: bool = False,
    ) -> None:
        """Starts it.

        Args:
            words: The path of a script, or the name of a module, and its arguments.
            environment: All of its environment.
            output: Where its standard output goes.
            errors: Where its standard error goes, or None for `output`.
            is_module: Whether `words` begins with a module.
            ends_fully: Whether the interpreter destroys all modules at its end. This takes as long
                as ten steps of training.
        """
        order = Order([str(word) for word in words], dict(environment), is_module, ends_fully)
        outputs = [file.fileno() for file in (output, errors or output)]
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            message = msgspec.json.encode(order)
            socket.send_fds(_server(), [message], [theirs.fileno(), *outputs])
        self._line.settimeout(_START_SECONDS)
        self.pid = int(self._line.recv(64))
        self.returncode: int | None = None
        global started
        started += 1
        running.add(self)

    def poll(self) -> int | None:
        """Returns the exit status, negative for a signal; None while the process lives."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end of the process and returns its exit status.

        Raises:
            subprocess.TimeoutExpired: It lives on.
        """
        if self.returncode is None:
            self._line.settimeout(timeout)
            try:
                self.returncode = int(self._line.recv(64))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired("a TensorFlow process", timeout or 0) from None
            self._line.close()
            running.discard(self)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless the process has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Sends SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.send_signal(signal.SIGKILL)


def run_with_tensorflow(
    *words: object, is_module: bool = False, timeout: float = 540, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end, as `subprocess.run` does."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = TensorFlowProcess(
            words, {**os.environ, **environment}, output, errors, is_module=is_module
        )
        try:
            status = process.wait(timeout)
        finally:
            process.kill()
        output.seek(0)
        errors.seek(0)
        texts = [file.read().decode(errors="replace") for file in (output, errors)]
    return subprocess.CompletedProcess([str(word) for word in words], status, *texts)


@cache
def _server() -> socket.socket:
    """Connects to the process that imports TensorFlow, one for all processes that run tests.

    The first of them starts it. It ends when the last of them has ended.
    """
    # The process that imports TensorFlow, which runs this file too, has no path to it.
    from leftovers import lasting

    with lasting():
        return _connected()


def _connected() -> socket.socket:
    from waiting import wait_until

    # The kernel forgets a name that begins with a zero byte with the process that listens.
    name = f"\0tfckpt-tests-{os.environ.get('PYTEST_XDIST_TESTRUNUID') or os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        try:
            listener.bind(name)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            listener.listen(_MOST_CLIENTS)
            _start(listener)
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # Another process may have the name, and not listen yet.
    wait_until(lambda: line.connect_ex(name) == 0, 10, "the process that imports TensorFlow")
    atexit.register(line.close)
    return line


def _start(listener: socket.socket) -> None:
    _started.append(
        subprocess.Popen(
            [sys.executable, "-P", __file__, str(listener.fileno())],
            stdin=subprocess.DEVNULL,
            # TensorFlow reads this when it is imported, so a program's own value comes too late.
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
            pass_fds=[listener.fileno()],
        )
    )


def _serve(listener: socket.socket) -> Order | None:
    """Forks for each order; returns the order in the process that runs it."""
    woken, wake = socket.socketpair()
    wake.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    lines = [listener.accept()[0]]
    running: dict[int, socket.socket] = {}
    while lines:
        for ready in select.select([listener, woken, *lines], [], [])[0]:
            if ready is listener:
                lines.append(listener.accept()[0])
                continue
            if ready is woken:
                woken.recv(4096)
                _report_ends(running)
                continue
            message, descriptors, _, _ = socket.recv_fds(ready, _LARGEST_MESSAGE, 3)
            if not message:
                lines.remove(ready)
                ready.close()
                continue
            reply, *outputs = descriptors
            reporting = socket.socket(fileno=reply)
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for line in (listener, woken, wake, reporting, *lines, *running.values()):
                    line.close()
                for number, descriptor in enumerate(outputs, 1):
                    os.dup2(descriptor, number)
                    os.close(descriptor)
                return msgspec.json.decode(message, type=Order)
            running[pid] = reporting
            try:
                reporting.send(str(pid).encode())
            except OSError:
                # Who asked for it waits no longer, and would not end it.
                os.kill(pid, signal.SIGKILL)
            # They may be files on a disk that a test unmounts.
            for descriptor in outputs:
                os.close(descriptor)
    return None


def _report_ends(running: dict[int, socket.socket]) -> None:
    """Sends the exit status of each program that has ended."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with running.pop(pid) as reporting, suppress(OSError):
            reporting.send(str(os.waitstatus_to_exitcode(status)).encode())


def _prepare() -> None:
    """Does once what the first step of each trainer would do again."""
    from tensorflow.python.autograph.core import converter
    from tensorflow.python.autograph.impl import api

    from tfckpt_trainer.training.steps.step_functions import StepFunction

    # Otherwise each program would remove the files of the others at its end.
    register, atexit.register = atexit.register, lambda function: function
    methods = (StepFunction._distributed, StepFunction._reduced, StepFunction._on_replica)
    for requested, method in zip((True, False, False), methods, strict=True):
        options = converter.ConversionOptions(
            recursive=True, user_requested=requested, optional_features=None
        )
        api._convert_actual(method, converter.ProgramContext(options))
    atexit.register = register
    gc.collect()
    # What is there by now needs no further look, in any of the programs.
    gc.freeze()
    gc.enable()


def _become(order: Order) -> None:
    """Runs a program in this process, as the interpreter does."""
    import runpy

    import numpy as np

    os.environ.clear()
    os.environ.update(order.environment)
    time.tzset()
    # Python seeds its generator anew in a fork, NumPy does not.
    np.random.seed()
    sys.argv = order.words
    if order.is_module:
        sys.path.insert(0, os.getcwd())
        runpy.run_module(order.words[0], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(order.words[0]).parent))
        runpy.run_path(order.words[0], run_name="__main__")


def _become_and_leave(order: Order) -> None:
    """Runs a program in this process, and ends it as the interpreter does, but for its modules."""
    status = 0
    try:
        _become(order)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if not isinstance(end.code, int | None):
            print(end.code, file=sys.stderr)
    except Exception:
        sys.excepthook(*sys.exc_info())
        status = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status & 0xFF)


def _main() -> None:
    # Looking for garbage takes a fifth of the import, and finds none.
    gc.disable()
    import tfckpt_trainer.training  # noqa: F401  the import that takes seconds

    here = os.getpid()
    tempfile.tempdir = tempfile.mkdtemp(prefix="tfckpt-tests-")
    try:
        _prepare()
        order = _serve(socket.socket(fileno=int(sys.argv[1])))
    finally:
        if os.getpid() == here:
            shutil.rmtree(tempfile.tempdir, ignore_errors=True)
    if order is None:
        return
    if order.ends_fully:
        _become(order)
    else:
        _become_and_leave(order)


if __name__ == "__main__":
    _main()
