"""Starts, finds and stops the TensorBoard of a run."""

from __future__ import annotations

import importlib.util
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.launch.processes.cluster import LOOPBACK, free_ports
from tfckpt_trainer.launch.processes.logs import last_lines, open_log
from tfckpt_trainer.launch.processes.named_processes import not_permitted, require_named_by_its_user
from tfckpt_trainer.rundir.heartbeats.process_ids import host_name
from tfckpt_trainer.rundir.heartbeats.process_table import (
    process_user,
    runs_since,
    seconds_after_boot,
)
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.documents import Document, load, load_if_exists, store
from tfckpt_trainer.rundir.storage.files import delete_file
from tfckpt_trainer.rundir.storage.locks import locked
from tfckpt_trainer.rundir.storage.owners import user_name
from tfckpt_trainer.words.advice import Advice, command_or_key
from tfckpt_tui.services.runs.reading import event_directory

START_SECONDS = 120.0
"""How long a start waits for another one."""

IDLE_SECONDS = 60.0
"""A start is given up if it took no processor time for so long.

TensorBoard imports TensorFlow, which may take minutes beside training or on a network disk.
"""

STOP_SECONDS = 5.0
POLL_SECONDS = 0.1
USUAL_PORT = 6006
LOG_LINES = 8

PKG_RESOURCES = "No module named 'pkg_resources'"
"""TensorBoard up to 2.20 imports it; setuptools has it only before release 82."""

_MODULE = "tensorboard.main"
_KEEPER = "tfckpt_tui.services.processes.tensorboard_keeper"


class TensorBoardProcess(Document, frozen=True, kw_only=True):
    """`tensorboard.json`: the TensorBoard that was started for this run.

    Attributes:
        after_boot: How many seconds after the machine it was started; no clock changes that. A
            record without it is of an earlier version, and names no process.
        run: Device and inode of the run directory: a copy of it has the record too.
    """

    pid: int
    port: int
    directory: str
    host: str = LOOPBACK
    with_run: bool = False
    after_boot: float = 0.0
    run: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class TensorBoard:
    """A TensorBoard that answers.

    Attributes:
        started: Whether this call started it.
        host: The address it listens on; loopback by default.
        with_run: Whether it ends when the run does.
        user: Who started it, if that is another user; otherwise empty.
    """

    port: int
    pid: int
    directory: str
    started: bool
    host: str = LOOPBACK
    with_run: bool = False
    user: str = ""

    @property
    def url(self) -> str:
        """The address for a browser on this machine."""
        return f"http://{_reached_at(self.host)}:{self.port}/"

    def url_of(self, branch: int) -> str:
        """Returns the address of the curves of one branch; TensorBoard has no address of a step."""
        return f"{self.url}?runFilter=branch-{branch}%24#timeseries"

    @property
    def forward_line(self) -> str:
        """The command that forwards its port to the user's own machine over SSH."""
        port = self.port
        return f"ssh -N -L {port}:{LOOPBACK}:{port} {host_name()}"


def is_remote() -> bool:
    """Whether the user is connected over SSH."""
    return "SSH_CONNECTION" in os.environ


def running(run: RunDirectory) -> TensorBoard | None:
    """Returns the TensorBoard of `run` if it runs and answers."""
    process = _started_for(run)
    if process is None or not _answers(process.host, process.port):
        return None
    return TensorBoard(
        process.port,
        process.pid,
        process.directory,
        started=False,
        host=process.host,
        with_run=process.with_run,
        user=_other_user(process.pid),
    )


def _other_user(pid: int) -> str:
    """Returns the name of the user as whom a process acts; empty for this one."""
    user = process_user(pid)
    return "" if user is None or user == os.geteuid() else user_name(user)


def start(
    run: RunDirectory,
    port: int | None = None,
    host: str | None = None,
    *,
    with_run: bool = False,
) -> TensorBoard:
    """Starts TensorBoard for `run`, or returns the one that already runs.

    Args:
        run: The run directory.
        port: The port; by default 6006, or a free one if that is taken.
        host: The address to listen on; loopback by default.
        with_run: Whether it ends when the run does.

    Raises:
        TfckptError: It is not installed, the port is taken, or it did not start.
    """
    adopted = _adopt(run, port, host)
    if adopted is not None:
        return adopted
    if importlib.util.find_spec("tensorboard") is None:
        raise TfckptError("TensorBoard is not installed; run `pip install tensorboard`.")
    run.create()
    with locked(run.control / "tensorboard.lock", START_SECONDS, "start of TensorBoard"):
        # Somebody may have started one meanwhile.
        return _adopt(run, port, host) or _start(run, port, host, with_run=with_run)


def _adopt(run: RunDirectory, port: int | None, host: str | None) -> TensorBoard | None:
    adopted = running(run)
    if adopted is None:
        return None
    if port not in (None, adopted.port) or host not in (None, adopted.host):
        end = command_or_key("tensorboard", "tensorboard", "--stop", run.root)
        raise TfckptError(
            f"TensorBoard already runs on {adopted.url} for this run.",
            Advice.of("Stop it first with {end}.", end=end),
        )
    return adopted


def _served_directory(run: RunDirectory) -> Path:
    """Returns the directory of event files; one elsewhere only if this user named it.

    TensorBoard serves it to all users of this machine.
    """
    directory = event_directory(run)
    if directory.is_relative_to(run.root) and ".." not in directory.parts:
        return directory
    return run.root / load(run.run_file, RunInfo, written_by=os.geteuid()).tensorboard


def _start(run: RunDirectory, port: int | None, host: str | None, *, with_run: bool) -> TensorBoard:
    place = host or LOOPBACK
    chosen = _free_port(place, port)
    directory = _served_directory(run)
    # -P: modules in the working directory must not shadow those of TensorBoard.
    command = [sys.executable, "-P", "-m", _MODULE, "--logdir", str(directory)]
    command += ["--host", place, "--port", str(chosen), "--reload_interval", "5"]
    if with_run:
        command = [sys.executable, "-P", "-m", _KEEPER, str(run.root), *command]
    log = run.logs_directory / "tensorboard.log"
    with open_log(log, 0, command) as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    started = TensorBoardProcess(
        pid=process.pid,
        port=chosen,
        directory=str(directory),
        host=place,
        with_run=with_run,
        after_boot=seconds_after_boot(process.pid),
        run=run.identity(),
    )
    try:
        # Written before it answers, so that an interrupted start can be stopped.
        store(_file(run), started)
    except BaseException:
        _kill(process)
        raise
    _await(process, place, chosen, log)
    return TensorBoard(
        chosen, process.pid, str(directory), started=True, host=place, with_run=with_run
    )


def _free_port(place: str, port: int | None) -> int:
    if port is None:
        return USUAL_PORT if _is_free(place, USUAL_PORT) else free_ports(1)[0]
    if not _is_free(place, port):
        omit = Advice.of("Choose another one, or omit --port.", "Choose another one.")
        raise TfckptError(f"Port {port} is taken.", omit)
    return port


def stop(run: RunDirectory) -> bool:
    """Stops the TensorBoard of `run`; returns whether it ran.

    Raises:
        TfckptError: It does not end, belongs to another user, or another user could have named it.
    """
    process = _started_for(run)
    if process is None:
        delete_file(_file(run))
        return False
    require_named_by_its_user(run, process.pid, _file(run), TensorBoardProcess)
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        except PermissionError:
            what = f"TensorBoard (process {process.pid})"
            raise not_permitted(what, process.pid) from None
        deadline = time.monotonic() + STOP_SECONDS
        while time.monotonic() < deadline:
            if not runs_since(process.pid, process.after_boot):
                delete_file(_file(run))
                return True
            time.sleep(POLL_SECONDS)
    raise TfckptError(
        f"TensorBoard (process {process.pid}) does not end. Check it: `ps -fp {process.pid}`."
    )


def _started_for(run: RunDirectory) -> TensorBoardProcess | None:
    """Returns the TensorBoard that was started for this run, if it runs."""
    process = load_if_exists(_file(run), TensorBoardProcess)
    is_own = process is not None and process.run == run.identity() and _is_tensorboard(process)
    return process if is_own else None


def _is_tensorboard(process: TensorBoardProcess) -> bool:
    """Whether a recorded process runs and is TensorBoard, so that it may be signaled."""
    if not runs_since(process.pid, process.after_boot):
        return False
    try:
        return (
            _MODULE in psutil.Process(process.pid).cmdline()
            and os.getpgid(process.pid) == process.pid
        )
    except (psutil.Error, ProcessLookupError):
        return False


def _await(process: subprocess.Popen[bytes], host: str, port: int, log: Path) -> None:
    taken, deadline = 0.0, time.monotonic() + IDLE_SECONDS
    while process.poll() is None:
        if _answers(host, port):
            return
        if time.monotonic() >= deadline:
            # Not at each look: it goes over all processes of the machine.
            before, taken = taken, _processor_seconds(process.pid)
            if taken <= before:
                break
            deadline = time.monotonic() + IDLE_SECONDS
        time.sleep(POLL_SECONDS)
    _kill(process)
    ending = last_lines(log, LOG_LINES)
    if any(PKG_RESOURCES in line for line in ending):
        raise TfckptError(
            "TensorBoard did not start: this release imports pkg_resources, which setuptools has "
            "only before release 82. Run "
            f"`{shlex.quote(sys.executable)} -m pip install 'setuptools<82'`."
        )
    lines = "\n".join(f"  {line}" for line in ending)
    raise TfckptError(f"TensorBoard did not start on port {port}. The end of {log}:\n{lines}")


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _processor_seconds(pid: int) -> float:
    """Returns the processor time of a process and its children; 0 once it is gone."""
    try:
        one = psutil.Process(pid)
        times = [process.cpu_times() for process in (one, *one.children(recursive=True))]
    except psutil.Error:
        return 0.0
    return sum(each.user + each.system for each in times)


def _reached_at(host: str) -> str:
    """Returns the address for this machine, even if TensorBoard listens on all addresses."""
    return LOOPBACK if host in {"0.0.0.0", "::"} else host  # noqa: S104


def _answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((_reached_at(host), port), timeout=0.5):
            return True
    except OSError:
        return False


def _is_free(host: str, port: int) -> bool:
    try:
        with socket.create_server((host, port)):
            return True
    except OSError:
        return False


def _file(run: RunDirectory) -> Path:
    return run.control / "tensorboard.json"
