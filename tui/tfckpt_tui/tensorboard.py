"""TensorBoard beside a run: started detached on loopback, or adopted where it runs already."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.launch.cluster import LOOPBACK, free_ports
from tfckpt_trainer.launch.logs import last_lines, open_log
from tfckpt_trainer.rundir.documents import Document, load_if_there, store
from tfckpt_trainer.rundir.health import process_lives
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records import RunInfo

START_SECONDS = 30.0
USUAL_PORT = 6006


class TensorBoardProcess(Document, frozen=True, kw_only=True):
    """`tensorboard.json`: the TensorBoard that was started for this run."""

    pid: int
    process_started_at: float
    port: int
    directory: str


@dataclass(frozen=True)
class TensorBoard:
    """A TensorBoard that answers.

    Attributes:
        started: Whether it was started just now.
    """

    port: int
    pid: int
    directory: str
    started: bool

    @property
    def url(self) -> str:
        """Where a browser on this machine finds it."""
        return f"http://{LOOPBACK}:{self.port}/"

    @property
    def forward_line(self) -> str:
        """What to type on one's own machine to reach it over SSH."""
        port = self.port
        return f"ssh -N -L {port}:{LOOPBACK}:{port} {socket.gethostname()}"


def is_remote() -> bool:
    """Whether the person sits at another machine."""
    return "SSH_CONNECTION" in os.environ


def event_directory(run: RunDirectory) -> Path:
    """Returns where the event files of `run` are."""
    info = load_if_there(run.run_file, RunInfo)
    return run.root / info.tensorboard if info is not None else run.tensorboard


def running(run: RunDirectory) -> TensorBoard | None:
    """Returns the TensorBoard of `run`, if it lives and answers."""
    known = load_if_there(_file(run), TensorBoardProcess)
    if known is None or not process_lives(known.pid, known.process_started_at):
        return None
    if not _answers(known.port):
        return None
    return TensorBoard(known.port, known.pid, known.directory, started=False)


def start(run: RunDirectory, port: int | None = None) -> TensorBoard:
    """Starts TensorBoard for `run`, or adopts the one that runs.

    Args:
        run: The run directory.
        port: Which port; by default the usual one, or another if that is taken.

    Raises:
        TfckptError: It is not installed, or it did not come up.
    """
    adopted = running(run)
    if adopted is not None:
        return adopted
    if importlib.util.find_spec("tensorboard") is None:
        raise TfckptError("TensorBoard is not installed; run `pip install tensorboard`.")
    chosen = port or (USUAL_PORT if _is_free(USUAL_PORT) else free_ports(1)[0])
    directory = event_directory(run)
    run.create()
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(directory)]
    command += ["--host", LOOPBACK, "--port", str(chosen), "--reload_interval", "5"]
    log = run.logs_directory / "tensorboard.log"
    with open_log(log, 0, command) as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _await(process, chosen, log)
    started_at = psutil.Process(process.pid).create_time()
    store(
        _file(run),
        TensorBoardProcess(
            pid=process.pid,
            process_started_at=started_at,
            port=chosen,
            directory=str(directory),
        ),
    )
    return TensorBoard(chosen, process.pid, str(directory), started=True)


def stop(run: RunDirectory) -> bool:
    """Ends the TensorBoard of `run`; returns whether there was one."""
    known = load_if_there(_file(run), TensorBoardProcess)
    _file(run).unlink(missing_ok=True)
    if known is None or not process_lives(known.pid, known.process_started_at):
        return False
    os.killpg(known.pid, signal.SIGTERM)
    return True


def _await(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _answers(port):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            said = "\n".join(f"  {line}" for line in last_lines(log))
            raise TfckptError(f"TensorBoard did not come up on port {port}:\n{said}")
        time.sleep(0.1)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((LOOPBACK, port)) == 0


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def _file(run: RunDirectory) -> Path:
    return run.control / "tensorboard.json"
