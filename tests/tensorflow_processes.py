"""Python programs in processes that begin with TensorFlow imported, or with all commands.

Importing TensorFlow takes seconds of CPU time, forking a process that has imported it takes
milliseconds. So one process imports it for all processes that run tests, and forks once for each
program. Nothing of TensorFlow may run before a fork: its threads do not survive one. Another one
imports the modules of `tfckpt-tui` and of the supervisor, which take a quarter of a second.

Temporary files of these programs are in a directory of that process, and go with it. TensorFlow
leaves some behind for each trainer that is killed.

A command that the product starts is such a program too if it begins with `python_with_tensorflow`:

    tfckpt("check", "--", *python_with_tensorflow(), SCRIPT)
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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import CellType, CodeType, FunctionType
from typing import IO, Any

import msgspec

TENSORFLOW, TENSORFLOW_KERAS_2, COMMANDS = "tensorflow", "tensorflow-keras-2", "commands"
_LARGEST_MESSAGE = 1 << 18
_START_SECONDS = 500
"""Beside a heavy load the import of TensorFlow takes minutes."""
_MOST_CLIENTS = 64
_PASSED_ON = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip
_started: list[subprocess.Popen[bytes]] = []
_TEMPORARY = os.environ.get("TMPDIR", "/tmp")
"""Where temporary files are before a test says otherwise: the next ones need what one starts."""

started = 0
"""How many programs were started."""
running: set[ForkedProcess] = set()
"""Those of which nobody knows that they ended."""


class Order(msgspec.Struct):
    """A program to run: a script's path or a module's name, then its arguments."""

    words: list[str]
    environment: dict[str, str]
    is_module: bool = False
    ends_fully: bool = False
    directory: str = ""


class ForkedProcess:
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
        directory: str = "",
        server: socket.socket,
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
            directory: Where it runs, if not where the process runs that forks it.
            server: A connection to that process.
        """
        order = Order(
            [str(word) for word in words], dict(environment), is_module, ends_fully, directory
        )
        outputs = [file.fileno() for file in (output, errors or output)]
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            message = msgspec.json.encode(order)
            socket.send_fds(server, [message], [theirs.fileno(), *outputs])
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
                raise subprocess.TimeoutExpired("a forked process", timeout or 0) from None
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


class TensorFlowProcess(ForkedProcess):
    """A program that begins with TensorFlow imported."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Starts it; see `ForkedProcess`.

        With `TF_USE_LEGACY_KERAS=1` in its environment, its Keras is `tf_keras`.
        """
        is_legacy = arguments[1].get("TF_USE_LEGACY_KERAS") == "1"
        imports = TENSORFLOW_KERAS_2 if is_legacy else TENSORFLOW
        super().__init__(*arguments, server=_server(imports), **options)


class CommandProcess(ForkedProcess):
    """A module of `tfckpt-tui`, in the directory and environment of this process."""

    def __init__(self, *words: object) -> None:
        """Starts it; the first word is the name of the module."""
        self._texts = [os.fdopen(os.memfd_create(name), "rb") for name in ("output", "errors")]
        super().__init__(
            words,
            os.environ,
            *self._texts,
            is_module=True,
            directory=os.getcwd(),
            server=_server(COMMANDS),
        )

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Waits for its end; returns what it wrote to its standard output and standard error."""
        self.wait(timeout)
        output, errors = self._texts
        with output, errors:
            return _read(output), _read(errors)


def _read(file: IO[bytes], on_error: str = "strict") -> str:
    file.seek(0)
    return file.read().decode(errors=on_error)


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
        texts = _read(output, "replace"), _read(errors, "replace")
    return subprocess.CompletedProcess([str(word) for word in words], status, *texts)


def python_with_tensorflow(imports: str = TENSORFLOW) -> list[str]:
    """Returns the words of a command that runs a script or a module as `python` does, but sooner.

    Its process waits for that of the program, which ends with it, also if it is killed. It passes
    signals on, and exits with the same status. To the product it is a wrapper, such as a shell
    script: the heartbeats of a trainer name another process.
    """
    _server(imports)
    return [sys.executable, "-P", __file__, _name(imports)]


def _name(imports: str) -> str:
    """The name of a process that forks programs, one for all processes that run tests."""
    return f"{imports}-{os.environ.get('PYTEST_XDIST_TESTRUNUID') or os.getpid()}"


@cache
def _server(imports: str) -> socket.socket:
    """Connects to a process that forks programs, one for all processes that run tests.

    The first of them starts it. It ends when the last of them has ended.
    """
    # The process that forks, which runs this file too, has no path to these.
    from leftovers import lasting
    from requirements import require

    require("Linux")
    with lasting():
        return _connected(imports)


def _connected(imports: str) -> socket.socket:
    from waiting import wait_until

    # The kernel forgets a name that begins with a zero byte with the process that listens.
    name = f"\0{_name(imports)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        try:
            listener.bind(name)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            listener.listen(_MOST_CLIENTS)
            _start(listener, imports)
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # Another process may have the name, and not listen yet.
    wait_until(lambda: line.connect_ex(name) == 0, 10, f"the process that imports {imports}")
    atexit.register(line.close)
    return line


def _start(listener: socket.socket, imports: str) -> None:
    _started.append(
        subprocess.Popen(
            [sys.executable, "-P", __file__, str(listener.fileno()), imports],
            stdin=subprocess.DEVNULL,
            # TensorFlow reads this when it is imported, so a program's own value comes too late.
            env={
                **os.environ,
                "TMPDIR": _TEMPORARY,
                "TF_CPP_MIN_LOG_LEVEL": "2",
                # It is read once, when TensorFlow first looks for Keras.
                "TF_USE_LEGACY_KERAS": str(int(imports == TENSORFLOW_KERAS_2)),
            },
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
    deserted: set[int] = set()
    while lines:
        deserted &= running.keys()
        watched = {line: pid for pid, line in running.items() if pid not in deserted}
        for ready in select.select([listener, woken, *lines, *watched], [], [])[0]:
            if ready is listener:
                lines.append(listener.accept()[0])
                continue
            if ready is woken:
                woken.recv(4096)
                _report_ends(running)
                continue
            if ready in watched:
                # Who waited for it has ended, and nobody else would end it.
                if watched[ready] in running:
                    os.kill(watched[ready], signal.SIGKILL)
                    deserted.add(watched[ready])
                continue
            message, descriptors, _, _ = socket.recv_fds(ready, _LARGEST_MESSAGE, 3)
            if not message:
                lines.remove(ready)
                ready.close()
                continue
            if _fork(descriptors, running):
                for line in (listener, woken, wake, *lines):
                    line.close()
                return msgspec.json.decode(message, type=Order)
    return None


def _fork(descriptors: list[int], running: dict[int, socket.socket]) -> bool:
    """Forks a process with these outputs, and says where to report it; returns whether this is it.

    Args:
        descriptors: Where to report its process ID and its exit status; then its outputs.
        running: The processes that run, and where to report their exit status.
    """
    reply, *outputs = descriptors
    reporting = socket.socket(fileno=reply)
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for line in (reporting, *running.values()):
            line.close()
        for number, descriptor in enumerate(outputs, 1):
            os.dup2(descriptor, number)
            os.close(descriptor)
        return True
    running[pid] = reporting
    with suppress(OSError):
        reporting.send(str(pid).encode())
    # They may be files on a disk that a test unmounts.
    for descriptor in outputs:
        os.close(descriptor)
    return False


def _report_ends(running: dict[int, socket.socket]) -> None:
    """Sends the exit status of each program that has ended."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with running.pop(pid) as reporting, suppress(OSError):
            reporting.send(str(os.waitstatus_to_exitcode(status)).encode())


def _import_tensorflow() -> None:
    """Imports it, and does once what the first step of each trainer would do again."""
    from tensorflow.python.autograph.core import converter
    from tensorflow.python.autograph.impl import api

    import tfckpt_trainer.training  # noqa: F401  the import that takes seconds
    from tfckpt_trainer.training.keras import fit, steps
    from tfckpt_trainer.training.steps import step_functions
    from tfckpt_trainer.training.steps.step_functions import StepFunction

    # Otherwise each program would remove the files of the others at its end.
    register, atexit.register = atexit.register, lambda function: function
    for function, requested in (
        (StepFunction._distributed, True),
        (StepFunction._reduced, False),
        (StepFunction._on_replica, False),
        (_inner(step_functions.mean_over_replicas, "step"), True),
        (_inner(step_functions.mean_over_replicas, "on_replica"), False),
        (_inner(steps.replica_step, "on_replica"), False),
        (_inner(fit.build, "on_all_replicas"), True),
    ):
        options = converter.ConversionOptions(
            recursive=True, user_requested=requested, optional_features=None
        )
        api._convert_actual(function, converter.ProgramContext(options))
    atexit.register = register


def _inner(function: Callable[..., object], name: str) -> Callable[..., object]:
    """Returns a function that another one defines; AutoGraph knows functions by their code."""
    known = function.__code__.co_consts
    (code,) = (one for one in known if isinstance(one, CodeType) and one.co_name == name)
    cells = tuple(CellType(None) for _ in code.co_freevars)
    return FunctionType(code, function.__globals__, name, None, cells)


def _import_commands() -> None:
    import click

    import tfckpt_trainer.launch.local.local_supervisor  # noqa: F401
    from tfckpt_tui.cli.main import cli

    for name in cli.list_commands(click.Context(cli)):
        cli.get_command(click.Context(cli), name)


_IMPORTS = {
    TENSORFLOW: _import_tensorflow,
    TENSORFLOW_KERAS_2: _import_tensorflow,
    COMMANDS: _import_commands,
}


def _become(order: Order) -> None:
    """Runs a program in this process, as the interpreter does."""
    import runpy

    os.environ.clear()
    os.environ.update(order.environment)
    if order.directory:
        os.chdir(order.directory)
    time.tzset()
    # Python seeds its generator anew in a fork, NumPy does not.
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    sys.argv = order.words
    if order.is_module:
        # As if it were never imported: it runs by another name.
        sys.modules.pop(order.words[0], None)
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
    here = os.getpid()
    tempfile.tempdir = tempfile.mkdtemp(prefix="tfckpt-tests-")
    try:
        _IMPORTS[sys.argv[2]]()
        gc.collect()
        # What is there by now needs no further look, in any of the programs.
        gc.freeze()
        gc.enable()
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


def _wait_for_program(name: str, words: list[str]) -> None:
    """Has a program run by the process of that name, and ends as the program does."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    line.connect(f"\0{name}")
    is_module = words[0] == "-m"
    process = ForkedProcess(
        words[is_module:], os.environ, sys.stdout.buffer, sys.stderr.buffer,
        is_module=is_module, directory=os.getcwd(), server=line,
    )  # fmt: skip

    def pass_on(number: int, _frame: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)

    for number in _PASSED_ON:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
    status = process.wait()
    if status < 0:
        # SIGKILL has no handler to remove.
        with suppress(OSError):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    if sys.argv[1].isdigit():
        _main()
    else:
        _wait_for_program(sys.argv[1], sys.argv[2:])
