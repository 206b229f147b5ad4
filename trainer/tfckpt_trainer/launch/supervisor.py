"""The supervisor: starts the workers of a run, restarts all of them when one dies.

It runs detached from any terminal: `python -m tfckpt_trainer.launch.supervisor OPTIONS`.
It tells what it does in `status/supervisor.json` and in the journal.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from types import FrameType

import msgspec
import psutil
from filelock import FileLock, Timeout

from tfckpt_trainer.errors import LaunchError
from tfckpt_trainer.launch.cluster import addresses, free_ports, tf_config
from tfckpt_trainer.launch.logs import last_lines
from tfckpt_trainer.launch.options import LaunchOptions, decode_options
from tfckpt_trainer.launch.plan import Decision, Exit, Next, decide, pause_before
from tfckpt_trainer.launch.workers import (
    POLL_SECONDS,
    RunningWorker,
    end_workers,
    start_worker,
)
from tfckpt_trainer.rundir.documents import load_if_there, store
from tfckpt_trainer.rundir.health import read_workers
from tfckpt_trainer.rundir.journal import write_entry
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records import (
    Activity,
    JournalEntry,
    JournalKind,
    RunInfo,
    SupervisorState,
    SupervisorStatus,
    WorkerStatus,
)

HEARTBEAT_SECONDS = 1.0

PEERS_GRACE_SECONDS = 15.0
"""How long survivors have to notice a lost peer by themselves and say so."""

HEALTHY_SECONDS = 600.0
"""Training this long after a restart makes up for the restarts before."""


class Supervisor:
    """Runs one command on several workers until it finishes, fails or is stopped."""

    def __init__(self, options: LaunchOptions) -> None:
        self._options = options
        self._run = RunDirectory(Path(options.run_directory))
        self._workers: list[RunningWorker] = []
        self._state = SupervisorState.STARTING
        self._reason = ""
        self._attempt = 0
        self._restarts = 0
        self._next_start_at: float | None = None
        self._beat_at = 0.0
        self._asked_to_stop = threading.Event()
        self._process = psutil.Process()

    def run(self) -> SupervisorState:
        """Supervises until the end; returns how it ended."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        try:
            while True:
                decision = self._run_attempt()
                if decision.next is not Next.RESTART or not self._pause(decision.reason):
                    return self._state
        finally:
            end_workers(self._workers, 0)
            self._beat()

    def _run_attempt(self) -> Decision:
        """Starts all workers and watches them until something is to be decided."""
        self._enter(SupervisorState.STARTING, "")
        began = time.time()
        try:
            self._start_workers()
        except OSError as error:
            self._workers = []
            return self._end(Decision(Next.FAIL, f"The command cannot be run: {error}."))
        self._enter(SupervisorState.RUNNING, "")
        decision = self._watch(began)
        if decision.next is Next.RESTART:
            self._note_lost(decision)
            end_workers(self._workers, PEERS_GRACE_SECONDS)
            if time.time() - began > HEALTHY_SECONDS:
                self._restarts = 0
            return decision
        end_workers(self._workers, 0 if decision.next is Next.FINISH else PEERS_GRACE_SECONDS)
        return self._end(decision)

    def _start_workers(self) -> None:
        options = self._options
        ports = list(options.ports) or free_ports(options.workers)
        cluster = addresses(ports)
        known = load_if_there(self._run.run_file, RunInfo)
        if known is not None:
            store(self._run.run_file, msgspec.structs.replace(known, cluster={"worker": cluster}))
        for index in range(options.workers):
            self._run.worker_status(index).unlink(missing_ok=True)
        self._workers = []
        for index in range(options.workers):
            environment = {
                **dict(options.environment),
                "TF_CONFIG": tf_config(cluster, index),
                "TFCKPT_RUN_DIR": str(self._run.root),
                "TFCKPT_WORKER_INDEX": str(index),
                "TFCKPT_WORKER_COUNT": str(options.workers),
                "TFCKPT_ATTEMPT": str(self._attempt),
                "PYTHONUNBUFFERED": "1",
            }
            self._workers.append(
                start_worker(
                    index,
                    options.command,
                    environment,
                    Path(options.working_directory),
                    self._run.worker_log(index),
                    self._attempt,
                )
            )

    def _watch(self, began: float) -> Decision:
        order: list[int] = []
        while True:
            for worker in self._workers:
                if worker.process.poll() is not None and worker.index not in order:
                    order.append(worker.index)
            decision = decide(
                self._exits(order),
                len(self._workers),
                restarts_left=self._options.max_restarts - self._restarts,
                max_restarts=self._options.max_restarts,
            )
            if decision.next is not Next.WAIT:
                return decision
            if self._asked_to_stop.is_set():
                self._enter(SupervisorState.RUNNING, "Stopping: the workers save and end.")
                end_workers(self._workers, self._options.grace_seconds)
                return Decision(Next.STOP, "The supervisor was asked to stop.")
            missing = self._never_came_up(began)
            if missing:
                return missing
            if time.monotonic() - self._beat_at > HEARTBEAT_SECONDS:
                self._beat()
            self._asked_to_stop.wait(POLL_SECONDS)

    def _exits(self, order: list[int]) -> list[Exit]:
        if not order:
            return []
        said = {status.index: status for status in read_workers(self._run)}
        exits = []
        for index in order:
            status = said.get(index)
            code = self._workers[index].process.returncode
            ended = status is not None and status.activity is Activity.EXITED
            exits.append(
                Exit(
                    index=index,
                    code=code,
                    ending=status.ending if status and ended else None,
                    detail=self._detail(index, status if ended else None),
                    began=status is not None or self._attempt > 0,
                )
            )
        return exits

    def _detail(self, index: int, status: WorkerStatus | None) -> str:
        if status is not None and status.detail:
            return status.detail
        lines = last_lines(self._run.worker_log(index), 1)
        return lines[0] if lines else ""

    def _never_came_up(self, began: float) -> Decision | None:
        """A worker without a heartbeat, long after others have one: TensorFlow waits for ever."""
        if time.time() - began < self._options.start_timeout:
            return None
        alive = {status.index for status in read_workers(self._run)}
        silent = [w.index for w in self._workers if w.index not in alive]
        if not alive or not silent:
            return None
        reason = (
            f"Worker {silent[0]} gave no sign of life in {self._options.start_timeout:g} s; "
            f"see {self._run.worker_log(silent[0])}"
        )
        if self._restarts >= self._options.max_restarts:
            return Decision(Next.FAIL, f"{reason}.")
        return Decision(Next.RESTART, f"{reason}.")

    def _pause(self, reason: str) -> bool:
        """Waits before the next attempt; False if it was asked to stop meanwhile."""
        self._restarts += 1
        self._attempt += 1
        seconds = pause_before(self._restarts, self._options.pause_seconds)
        self._next_start_at = time.time() + seconds
        self._enter(SupervisorState.RESTARTING, reason)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self._asked_to_stop.wait(min(HEARTBEAT_SECONDS, seconds)):
                self._end(Decision(Next.STOP, "The supervisor was asked to stop."))
                return False
            self._beat()
        self._next_start_at = None
        self._note(
            JournalKind.RESTART,
            f"Restarted all {self._options.workers} workers "
            f"({self._restarts} of {self._options.max_restarts}): {reason}",
        )
        return True

    def _note_lost(self, decision: Decision) -> None:
        self._note(JournalKind.WORKER_LOST, decision.reason)

    def _end(self, decision: Decision) -> Decision:
        states = {
            Next.FINISH: (SupervisorState.FINISHED, JournalKind.FINISH),
            Next.STOP: (SupervisorState.STOPPED, JournalKind.STOP),
            Next.FAIL: (SupervisorState.FAILED, JournalKind.FAILED),
        }
        state, kind = states[decision.next]
        self._enter(state, decision.reason)
        if state is SupervisorState.FAILED:
            self._note(kind, decision.reason)
        return decision

    def _enter(self, state: SupervisorState, reason: str) -> None:
        self._state = state
        self._reason = reason
        print(f"{time.strftime('%H:%M:%S')} {state.value} {reason}", flush=True)  # noqa: T201
        self._beat()

    def _note(self, kind: JournalKind, message: str) -> None:
        write_entry(self._run, JournalEntry(at=time.time(), kind=kind, message=message))

    def _beat(self) -> None:
        self._beat_at = time.monotonic()
        store(
            self._run.supervisor_status,
            SupervisorStatus(
                pid=os.getpid(),
                host=socket.gethostname(),
                process_started_at=self._process.create_time(),
                updated_at=time.time(),
                interval_seconds=HEARTBEAT_SECONDS,
                state=self._state,
                attempt=self._attempt,
                max_restarts=self._options.max_restarts,
                reason=self._reason,
                next_start_at=self._next_start_at,
                workers=[worker.facts() for worker in self._workers],
            ),
            durable=False,
        )

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._asked_to_stop.set()


def main() -> int:
    """Runs the supervisor with the options given as one argument of JSON."""
    options = decode_options(sys.argv[1])
    run = RunDirectory(Path(options.run_directory))
    try:
        with FileLock(run.supervisor_lock, timeout=0):
            Supervisor(options).run()
    except Timeout:
        raise LaunchError(f"{run.root} has a supervisor already.") from None
    return 0


if __name__ == "__main__":
    sys.exit(main())
