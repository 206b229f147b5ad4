"""The supervisor: starts the workers of a run, and restarts all of them when one dies.

It runs detached from any terminal: `python -m tfckpt_trainer.launch.supervisor RUN`. It reports
in `status/supervisor.json`, in the journal and in `logs/supervisor.log`.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

import msgspec

from tfckpt_trainer.cluster.tasks import cluster_of, tf_config
from tfckpt_trainer.errors import ExitCode, LaunchError, TfckptError, describe_error
from tfckpt_trainer.launch.cluster import addresses, free_ports, processes_in_words
from tfckpt_trainer.launch.lock import take_lock
from tfckpt_trainer.launch.logs import last_lines
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.reporter import Reporter
from tfckpt_trainer.launch.restart_policy import (
    Attempt,
    Decision,
    History,
    Limits,
    Next,
    decide,
    signal_name,
)
from tfckpt_trainer.launch.standby import Standby, as_program
from tfckpt_trainer.launch.watch import Watch
from tfckpt_trainer.launch.workers import (
    POLL_SECONDS,
    RunningWorker,
    end_workers,
    start_worker,
)
from tfckpt_trainer.rundir.documents import load, load_if_exists, store
from tfckpt_trainer.rundir.log_times import LogTimesRecorder
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import JournalKind
from tfckpt_trainer.rundir.records.run import RunInfo, SupervisorState

PEERS_GRACE_SECONDS = 3.0
"""Grace period of the other workers after one was lost; they cannot save without it."""

OUR_PEERS_GRACE_SECONDS = 0.3
"""The same for workers of this library: their state is on disk already."""

CULPRIT_SECONDS = 1.0
"""How long to wait for the worker that died first, after one reports that it lost another."""

_STATES = {
    Next.FINISH: SupervisorState.FINISHED,
    Next.STOP: SupervisorState.STOPPED,
    Next.FAIL: SupervisorState.FAILED,
}

_KINDS = {
    Next.FINISH: JournalKind.FINISH,
    Next.STOP: JournalKind.STOP,
    Next.FAIL: JournalKind.FAILED,
}


class Supervisor:
    """Runs one command on several workers until it finishes, fails or is stopped."""

    def __init__(self, run: RunDirectory, options: LaunchOptions) -> None:
        self._run = run
        self._options = options
        self._limits = Limits(
            max_restarts=options.max_restarts,
            pause_seconds=options.pause_seconds,
            start_timeout=options.start_timeout,
            hang_seconds=options.hang_seconds,
            fixed_ports=bool(options.ports),
        )
        self._report = Reporter(run, options.max_restarts)
        self._log_clock = LogTimesRecorder()
        self._logs = [run.supervisor_log, *(run.worker_log(i) for i in range(len(options.tasks)))]
        self._workers: list[RunningWorker] = []
        program = as_program(options.command) if options.standby else None
        self._program = program if options.max_restarts else None
        self._standby: Standby | None = None
        self._asked_by: int | None = None
        self._asked_to_stop = threading.Event()

    def run(self) -> SupervisorState:
        """Supervises until the end; returns how it ended."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        try:
            self._supervise()
        except BaseException as error:
            # On any error: no process may stay behind, and the run must not look as if it ran.
            end_workers(self._workers, PEERS_GRACE_SECONDS)
            self._report.enter(
                SupervisorState.FAILED, f"The supervisor failed: {type(error).__name__}: {error}"
            )
            raise
        finally:
            if self._standby is not None:
                self._standby.end()
            self._log_clock.record(self._logs)
        return self._report.state

    def _supervise(self) -> None:
        history = History()
        while True:
            decision = self._attempt(history)
            if decision.next is not Next.RESTART:
                return
            history = decision.history
            self._report.attempt += 1
            self._report.restarts = history.restarts
            if not self._pause(decision):
                return

    def _attempt(self, history: History) -> Decision:
        """Starts all workers, watches them until a decision is due, and ends them."""
        self._report.enter(SupervisorState.STARTING)
        try:
            self._start_workers()
        except LaunchError:
            end_workers(self._workers, 0)
            # The standby process has failed; the next start does without it.
            return Decision(
                Next.RESTART,
                "The standby process failed; the workers are started without it.",
                history=history,
            )
        except OSError as error:
            end_workers(self._workers, 0)
            return self._end(Decision(Next.FAIL, f"The command cannot be run: {error}."))
        self._note_start()
        self._report.enter(SupervisorState.RUNNING)
        watch = Watch(self._run, self._workers)
        decision = self._watch(watch, history)
        told = any(ended.ending is not None for ended in watch.look().exits)
        if decision.lost is not None:
            self._note_lost(decision)
        ours = len(watch.look().heard) == len(self._workers)
        grace = OUR_PEERS_GRACE_SECONDS if ours else PEERS_GRACE_SECONDS
        grace = 0.0 if decision.next is Next.FINISH else grace
        end_workers(self._workers, grace, self._tick)
        return decision if decision.next is Next.RESTART else self._end(decision, told=told)

    def _start_workers(self) -> None:
        members = self._options.tasks
        places = addresses(self._options.ports or free_ports(len(members)))
        cluster = cluster_of(members, places)
        known = load_if_exists(self._run.run_file, RunInfo)
        if known is not None:
            store(self._run.run_file, msgspec.structs.replace(known, cluster=cluster))
        # An old heartbeat must not be taken for that of a starting worker.
        for path in self._run.status_directory.glob("worker-*.json"):
            path.unlink(missing_ok=True)
        self._workers = []
        self._report.workers = self._workers
        for index, task in enumerate(members):
            environment = self._environment(tf_config(cluster, task), index)
            self._workers.append(self._start_worker(index, environment))

    def _start_worker(self, index: int, environment: Mapping[str, str]) -> RunningWorker:
        """Starts one worker, from the standby process if it is ready."""
        standby = self._standby
        start = start_worker
        if standby is not None and standby.is_ready:
            start = standby.start_worker
        return start(
            index,
            self._options.command,
            environment,
            Path(self._options.working_directory),
            self._run.worker_log(index),
            self._report.attempt,
        )

    def _prepare(self, attempt: Attempt) -> None:
        """Starts a standby process for the next restart, once training is under way."""
        if self._program is None or self._standby is not None or not attempt.stepped:
            return
        environment = {
            **dict(self._options.environment),
            "TFCKPT_RUN_DIR": str(self._run.root),
            "PYTHONUNBUFFERED": "1",
        }
        try:
            self._standby = Standby(self._program, environment, self._run.standby_log)
        except OSError:
            # Without it a restart takes seconds longer; its log has the reason.
            self._program = None

    def _environment(self, place: str, index: int) -> dict[str, str]:
        return {
            **dict(self._options.environment),
            "TF_CONFIG": place,
            "TFCKPT_RUN_DIR": str(self._run.root),
            "TFCKPT_WORKER_INDEX": str(index),
            "TFCKPT_WORKER_COUNT": str(self._options.workers),
            "TFCKPT_ATTEMPT": str(self._report.attempt),
            "TFCKPT_PEER_SECONDS": str(self._options.peer_seconds),
            "PYTHONUNBUFFERED": "1",
        }

    def _watch(self, watch: Watch, history: History) -> Decision:
        victim_since: float | None = None
        hinted = False
        while True:
            attempt = watch.look()
            decision = decide(attempt, history, self._limits)
            if self._asked_to_stop.is_set() and decision.next is not Next.FINISH:
                return self._stop(attempt)
            if decision.next is not Next.WAIT:
                if not _only_victims(decision, attempt):
                    return decision
                victim_since = victim_since or time.monotonic()
                if time.monotonic() - victim_since > CULPRIT_SECONDS:
                    return decision
            if not hinted and not attempt.heard and attempt.seconds > self._limits.start_timeout:
                hinted = True
                self._report.enter(SupervisorState.RUNNING, self._silence())
            elif hinted and attempt.heard:
                hinted = False
                self._report.enter(SupervisorState.RUNNING)
            self._prepare(attempt)
            self._tick()
            self._asked_to_stop.wait(POLL_SECONDS)

    def _tick(self) -> None:
        """Does the periodic work during every wait."""
        self._report.beat_if_due()
        self._log_clock.record_if_due(self._logs)

    def _silence(self) -> str:
        return (
            f"No worker wrote a heartbeat in {self._limits.start_timeout:g} s: the script does "
            f"not use tfckpt_trainer, or it hangs; see {self._run.logs_directory}."
        )

    def _stop(self, attempt: Attempt) -> Decision:
        """Makes the workers save and exit, because the supervisor was asked to stop."""
        by = signal_name(self._asked_by or signal.SIGTERM)
        grace = self._options.grace_seconds
        if attempt.heard and not attempt.stepped:
            # Nothing to save, and a strategy that waits for its peers handles no signal.
            grace = min(grace, PEERS_GRACE_SECONDS)
        self._report.enter(
            SupervisorState.RUNNING, f"Stopping: the workers have {grace:g} s to save and end."
        )
        killed = end_workers(self._workers, grace, self._tick)
        reason = f"The supervisor was asked to stop ({by})."
        if killed:
            who = ", ".join(map(str, killed))
            reason += f" Killed because they did not end in {grace:g} s: workers {who}."
        return Decision(Next.STOP, reason)

    def _pause(self, decision: Decision) -> bool:
        """Waits before the next attempt; returns False if it was asked to stop."""
        seconds = decision.pause_seconds
        self._report.enter(SupervisorState.RESTARTING, decision.reason, time.time() + seconds)
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if self._asked_to_stop.wait(min(left, POLL_SECONDS)):
                break
            self._tick()
        if self._asked_to_stop.is_set():
            self._end(Decision(Next.STOP, "The supervisor was asked to stop."))
            return False
        return True

    def _note_start(self) -> None:
        report, options = self._report, self._options
        count = processes_in_words(options.tasks)
        if report.attempt == 0:
            words = f"Started {count}: {shlex.join(options.command)}"
            report.note(JournalKind.START, words)
        else:
            used = f"restart {report.restarts} of {options.max_restarts}"
            words = f"Started {count} again ({used if report.restarts else 'other ports'})."
            report.note(JournalKind.RESTART, words, {"attempt": report.attempt})

    def _note_lost(self, decision: Decision) -> None:
        index = decision.lost
        assert index is not None
        code = decision.culprit.code if decision.culprit else None
        self._report.note(
            JournalKind.WORKER_LOST,
            decision.reason,
            {
                "worker": index,
                "exit_code": code,
                "signal": signal_name(-code) if code is not None and code < 0 else None,
                "log": last_lines(self._run.worker_log(index)),
            },
        )

    def _end(self, decision: Decision, *, told: bool = False) -> Decision:
        """Reports the end; in the journal only if the workers have not done so."""
        if decision.next is Next.FAIL or not told:
            self._report.note(_KINDS[decision.next], decision.reason)
        self._report.enter(_STATES[decision.next], decision.reason)
        return decision

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._asked_by = number
        self._asked_to_stop.set()


def _only_victims(decision: Decision, attempt: Attempt) -> bool:
    """Whether the worker that died first may not be known yet."""
    culprit = decision.culprit
    return culprit is not None and culprit.is_victim and len(attempt.exits) < attempt.workers


def main(arguments: Sequence[str] | None = None) -> int:
    """Supervises the run that `launch.json` in the run directory describes."""
    parser = argparse.ArgumentParser(prog="python -m tfckpt_trainer.launch.supervisor")
    parser.add_argument("run", type=Path, help="the run directory")
    parser.add_argument("--lock", type=int, help="descriptor that holds the lock; runs detached")
    given = parser.parse_args(arguments)
    run = RunDirectory(Path(os.path.realpath(given.run)))
    if given.lock is not None and os.fork():
        # The launch waits for this process only: its child runs on by itself.
        os._exit(0)
    try:
        if given.lock is None and take_lock(run) is None:
            raise LaunchError(f"{run.root} already has a supervisor.")
        state = Supervisor(run, load(run.launch_file, LaunchOptions)).run()
    except (TfckptError, OSError) as error:
        sys.stderr.write(f"{describe_error(error)}\n")
        return ExitCode.PROBLEM
    return ExitCode.PROBLEM if state is SupervisorState.FAILED else ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main())
