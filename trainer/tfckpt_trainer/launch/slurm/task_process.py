"""Runs one worker as a task of a job step: `python -m …task_process RUN`.

It reports the process ID and the exit status of the worker on its standard output, which `srun`
passes to the supervisor. It reads orders on its standard input. The output of the worker goes to
its log.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from tfckpt_trainer.cluster.slurm import own_gpus
from tfckpt_trainer.cluster.tasks import tf_config
from tfckpt_trainer.errors import ExitCode, LaunchError, TfckptError, describe_error
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.processes.log_limit import LogLimit
from tfckpt_trainer.launch.processes.logs import open_run_log
from tfckpt_trainer.launch.processes.workers import RunningWorker, start_worker
from tfckpt_trainer.launch.slurm.batch_watch import RESTARTED
from tfckpt_trainer.launch.slurm.controller import read_job, requeue_job
from tfckpt_trainer.launch.slurm.earlier_start import read_later_start, start_of_job
from tfckpt_trainer.launch.slurm.job_step import ALIVE_SECONDS, silence_seconds
from tfckpt_trainer.launch.slurm.step_starter import PLACEMENT_VARIABLE, decode_placement
from tfckpt_trainer.rundir.event_log import note_event, read_entries
from tfckpt_trainer.rundir.heartbeats.health import heartbeat_age, living
from tfckpt_trainer.rundir.heartbeats.process_ids import host_name
from tfckpt_trainer.rundir.heartbeats.reading import read_supervisor
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import SUPERVISOR, EventKind
from tfckpt_trainer.rundir.records.run import SupervisorStatus
from tfckpt_trainer.rundir.storage.documents import load

LOOK_SECONDS = 0.1

LISTEN_SECONDS = 2.5 * ALIVE_SECONDS
"""How long a task that Slurm ended waits for a word of its supervisor."""

REQUEUE_STAGGER_SECONDS = 1.0
"""Time between the attempts of two tasks to requeue a job without a supervisor."""

NOTE_STAGGER_SECONDS = 0.5
"""Time between the attempts of two tasks to write that the supervisor is gone."""

RECENT_SECONDS = 60.0
"""How old that event may be, if it is about the same supervisor."""

RESTART_SECONDS = 10.0
"""How long after its death a killed supervisor may be announced to start again."""

_LOST = {"lost": "supervisor"}
"""Details of that event."""

_PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of prctl."""


def describe_lost_supervisor(
    index: int, supervisor: SupervisorStatus | None, silent_seconds: float | None, now: float
) -> str:
    """Returns what a task knows about a supervisor that it does not hear any more, as sentences.

    Args:
        index: Index of its worker.
        supervisor: The last heartbeat of the supervisor in the run directory; None without one.
        silent_seconds: For how long the task has heard nothing; None if the connection was closed.
        now: Seconds since the epoch.
    """
    who, place = f"Worker {index} on {host_name()}", ""
    seen = ""
    if supervisor is not None:
        place = f" on {supervisor.host}"
        age = heartbeat_age(supervisor.updated_at, now)
        seen = f", whose last heartbeat is {age:.0f} s old"
    end = f"Worker {index} is told to save and end."
    if silent_seconds is None:
        return (
            f"{who} lost its connection to the supervisor{place}{seen}: the supervisor was killed, "
            f"or one of the two nodes is down or cut off. {end}"
        )
    silence = f"{who} has heard nothing from the supervisor{place} for {silent_seconds:.0f} s"
    if living(supervisor, now) is not None:
        return f"{silence}, but the supervisor runs: the node of worker {index} is cut off. {end}"
    return f"{silence}{seen}: it was killed, or its node is down or cut off. {end}"


class TaskProcess:
    """One worker, and what is passed on to it."""

    def __init__(self, run: RunDirectory, options: LaunchOptions) -> None:
        self._run = run
        self._options = options
        self._index = int(os.environ["SLURM_PROCID"])
        self._start_of_job = start_of_job(os.environ)
        self._log_limit = LogLimit()
        self._signals: list[int] = []
        self._kill_at = float("inf")
        self._note_at = float("inf")
        self._reported_at = 0.0
        self._input = b""
        self._heard_at = time.monotonic()
        self._supervised = True
        self._told_by_slurm = False
        self._lost_at = 0.0
        self._silent_seconds: float | None = None

    def run(self) -> int:
        """Runs the worker to its end; returns its exit status as a shell does."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, self._on_signal)
        try:
            worker = self._start()
        except (OSError, TfckptError) as error:
            self._report(exit=ExitCode.PROBLEM, problem=describe_error(error))
            return ExitCode.PROBLEM
        self._report(
            pid=worker.pid,
            host=host_name(),
            started_at=worker.started_at,
            after_boot=worker.after_boot,
        )
        while worker.exit_code is None:
            self._look(worker)
        code = worker.exit_code
        worker.kill()
        self._report(exit=code)
        if self._told_by_slurm and self._supervised:
            self._listen()
        if not self._supervised:
            self._requeue()
        return code if code >= 0 else 128 - code

    def _start(self) -> RunningWorker:
        placement = decode_placement(os.environ[PLACEMENT_VARIABLE])
        environment = {
            "TF_CONFIG": tf_config(placement.cluster, placement.tasks[self._index]),
            "TFCKPT_WORKER_INDEX": str(self._index),
        }
        gpus = own_gpus(os.environ)
        if gpus is not None:
            environment["CUDA_VISIBLE_DEVICES"] = gpus
        command, attempt = self._options.command, int(os.environ.get("TFCKPT_ATTEMPT", "0"))
        with open_run_log(self._run, self._run.worker_log(self._index), attempt, command) as output:
            return start_worker(
                self._index,
                command,
                environment,
                Path(self._options.working_directory),
                output,
                # Slurm may kill this process alone.
                before_command=_die_with_parent,
            )

    def _look(self, worker: RunningWorker) -> None:
        """Waits for orders for a moment, passes on orders and signals, and gives a sign of life."""
        if time.monotonic() - self._reported_at > ALIVE_SECONDS:
            self._report(started_at=worker.started_at)
        self._log_limit.apply_if_due([self._run.worker_log(self._index)])
        if not self._supervised:
            time.sleep(LOOK_SECONDS)
        elif select.select([0], [], [], LOOK_SECONDS)[0]:
            self._read_orders()
        elif (silent := time.monotonic() - self._heard_at) > silence_seconds(self._options):
            self._lose_supervisor(silent)
        while self._signals:
            worker.signal(signal.Signals(self._signals.pop(0)))
        if time.monotonic() > self._kill_at:
            worker.kill()
        if time.monotonic() > self._note_at:
            self._note_lost_supervisor()

    def _read_orders(self) -> None:
        data = os.read(0, 4096)
        self._heard_at = time.monotonic()
        if not data:
            self._lose_supervisor()
        *words, self._input = (self._input + data).split(b"\n")
        for word in words:
            if word == b"TERM":
                self._signals.append(signal.SIGTERM)
            elif word == b"KILL":
                self._kill_at = 0.0

    def _lose_supervisor(self, silent_seconds: float | None = None) -> None:
        """Ends the worker, which must not train on without a supervisor.

        Without a save, if a later start of the job may train already.
        """
        self._supervised = False
        self._lost_at = time.time()
        self._silent_seconds = silent_seconds
        if read_later_start(self._run, self._start_of_job) is not None:
            self._kill_at = 0.0
            return
        self._signals.append(signal.SIGTERM)
        self._kill_at = time.monotonic() + self._options.grace_seconds
        self._note_at = time.monotonic() + self._index * NOTE_STAGGER_SECONDS

    def _listen(self) -> None:
        """Finds out whether the supervisor lives: Slurm may have killed its connection too."""
        deadline = time.monotonic() + LISTEN_SECONDS
        while time.monotonic() < deadline:
            if select.select([0], [], [], LOOK_SECONDS)[0]:
                if os.read(0, 4096):
                    return
                break
        self._supervised, self._lost_at = False, time.time()

    def _note_lost_supervisor(self) -> None:
        """Writes one event, whichever tasks are left."""
        self._note_at, now = float("inf"), time.time()
        try:
            told = [
                entry.at
                for entry in read_entries(self._run)
                if entry.details.items() >= _LOST.items()
            ]
        except OSError:
            return  # The disk is gone too.
        if not told or told[-1] < now - RECENT_SECONDS:
            words = describe_lost_supervisor(
                self._index, read_supervisor(self._run), self._silent_seconds, now
            )
            note_event(self._run, EventKind.NOTE, words, by=SUPERVISOR, details=_LOST)

    def _requeue(self) -> None:
        """Starts the job again if its supervisor is gone.

        Slurm does so too if the node is gone, but not if the job may go on with fewer nodes.
        """
        assert self._options.slurm is not None
        job = self._start_of_job.job
        # One task is enough.
        time.sleep(self._index * REQUEUE_STAGGER_SECONDS)
        if read_later_start(self._run, self._start_of_job) is not None or self._starts_again():
            return
        facts = read_job(job)
        is_over = facts.state != "RUNNING" and not facts.killed
        if is_over or facts.restarts > self._start_of_job.requeues:
            return
        if facts.restarts >= self._options.slurm.max_requeues:
            return
        try:
            requeue_job(job)
        except LaunchError as error:
            sys.stderr.write(f"The job could not be requeued. {error}\n")
            return
        words = f"The supervisor is gone. Job {job} waits in the queue again."
        note_event(self._run, EventKind.REQUEUE, words, by=SUPERVISOR, details={"job": job})

    def _starts_again(self) -> bool:
        """Whether the supervisor was killed alone, and is started again on its node."""
        if self._silent_seconds is not None:
            return False
        deadline = time.monotonic() + RESTART_SECONDS
        while not any(
            entry.details == RESTARTED and entry.at > self._lost_at - RECENT_SECONDS
            for entry in read_entries(self._run)
        ):
            if time.monotonic() > deadline:
                return False
            time.sleep(REQUEUE_STAGGER_SECONDS)
        return True

    def _report(self, **facts: Any) -> None:
        self._reported_at = time.monotonic()
        line = msgspec.json.encode({"index": self._index, **facts}) + b"\n"
        try:
            os.write(1, line)
        except OSError:
            return  # The supervisor is gone.

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._signals.append(number)
        self._told_by_slurm |= number == signal.SIGTERM


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def main(arguments: Sequence[str]) -> int:
    """Runs the worker of this task."""
    run = RunDirectory(Path(arguments[0]))
    try:
        options = load(run.launch_file, LaunchOptions)
    except (TfckptError, OSError) as error:
        sys.stderr.write(f"{describe_error(error)}\n")
        return ExitCode.PROBLEM
    return TaskProcess(run, options).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
