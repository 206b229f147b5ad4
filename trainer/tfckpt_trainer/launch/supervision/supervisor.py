"""The supervisor: starts the workers of a run, and restarts all of them when one dies.

It reports in `status/supervisor.json`, in the event log and in `logs/supervisor.log`.
"""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from types import FrameType

import msgspec

from tfckpt_trainer.errors import TfckptError, describe_error
from tfckpt_trainer.launch.options import LaunchOptions, program_name
from tfckpt_trainer.launch.processes.cluster import processes_in_words
from tfckpt_trainer.launch.processes.log_limit import LogLimit
from tfckpt_trainer.launch.processes.logs import last_lines
from tfckpt_trainer.launch.processes.workers import POLL_SECONDS
from tfckpt_trainer.launch.supervision.reporter import Reporter
from tfckpt_trainer.launch.supervision.restart_policy import (
    Attempt,
    Decision,
    EarlierAttempts,
    Limits,
    Next,
    decide,
)
from tfckpt_trainer.launch.supervision.starters import CannotStartError, Placement, WorkerStarter
from tfckpt_trainer.launch.supervision.stop import StopCommands
from tfckpt_trainer.launch.supervision.watch import Episodes, Watch
from tfckpt_trainer.machine.permissions import is_of_library
from tfckpt_trainer.rundir.full_disk import is_full
from tfckpt_trainer.rundir.log_times import LogTimesRecorder
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import SUPERVISOR, EventEntry, EventKind
from tfckpt_trainer.rundir.records.failure import WorkerLoss
from tfckpt_trainer.rundir.records.run import SupervisorState
from tfckpt_trainer.rundir.run_info import update_run_info
from tfckpt_trainer.rundir.stack_requests import ask_for_stacks
from tfckpt_trainer.rundir.storage.files import delete_file
from tfckpt_trainer.scripts.exit_statuses import signal_name
from tfckpt_trainer.words.counts import noun

PEERS_GRACE_SECONDS = 3.0
"""Grace period of the other workers after one was lost; they cannot save without it."""

OUR_PEERS_GRACE_SECONDS = 0.3
"""The same for workers of this library: their state is on disk already."""

ROOM_TRIES = 5
"""How often what lies in the place of directories is moved, if others put it there again."""

LAST_LINES = 20
"""How many lines of the log of a lost worker the event log keeps."""

STACK_SECONDS = 20.0
"""How long workers of a run that stands still have to say at which line they are."""

CULPRIT_SECONDS = 1.0
"""How long to wait for the worker that died first, after one reports that it lost another."""

_STATES = {
    Next.FINISH: SupervisorState.FINISHED,
    Next.STOP: SupervisorState.STOPPED,
    Next.FAIL: SupervisorState.FAILED,
}

_KINDS = {
    Next.FINISH: EventKind.FINISH,
    Next.STOP: EventKind.STOP,
    Next.FAIL: EventKind.FAILED,
}

_DISK_FULL = (
    "The disk of the run directory is full, so the workers cannot start. Free space, then launch "
    "the run again."
)

_ASKED: dict[int, str] = {
    signal.SIGINT: "The run was interrupted with ctrl+c.",
    signal.SIGTERM: "The supervisor was asked to stop (SIGTERM).",
}
"""What each signal asks for."""


class Supervisor:
    """Runs one command on several workers until it finishes, fails or is stopped."""

    def __init__(
        self,
        run: RunDirectory,
        options: LaunchOptions,
        starter: WorkerStarter,
        on_event: Callable[[EventEntry], None] = lambda entry: None,
        *,
        may_move: bool = False,
    ) -> None:
        """Creates a supervisor.

        Args:
            run: The run directory.
            options: The options of the launch.
            starter: Starts and ends the workers.
            on_event: Called with each of its events.
            may_move: Whether the run may go on on other machines. Then it stops, and does not fail,
                if its workers die again and again by no fault of the script.
        """
        self._run = run
        self._options = options
        self._starter = starter
        self._limits = Limits(
            max_restarts=options.max_restarts,
            pause_seconds=options.pause_seconds,
            start_timeout=options.start_timeout,
            hang_seconds=options.hang_seconds,
            fixed_ports=bool(options.ports),
        )
        self._report = Reporter(run, options.max_restarts, on_event)
        self._log_clock = LogTimesRecorder()
        self._logs = [run.supervisor_log]
        self._log_limit = LogLimit()
        self._trained = False
        self._may_move = may_move
        self._died = ""
        # Set by signal handlers, which must take no lock: the code that they interrupt may hold it.
        self._asked = ""
        self._stop_commands = StopCommands(run)

    @property
    def report(self) -> Reporter:
        """Its heartbeat, events and log."""
        return self._report

    @property
    def trained(self) -> bool:
        """Whether any worker has made a step."""
        return self._trained

    @property
    def died(self) -> str:
        """Why it stopped, if workers died again and again by no fault of the script; else empty."""
        return self._died

    @property
    def asked_to_stop(self) -> str:
        """Why it was asked to stop; empty if it was not."""
        return self._asked

    @property
    def stopped_by(self) -> str:
        """Who sent the command to stop that was accepted; empty if nobody did."""
        return self._stop_commands.requester

    def stop(self, reason: str) -> None:
        """Makes the workers save and exit soon; signal handlers may call it."""
        self._asked = reason

    def run(self) -> SupervisorState:
        """Supervises until the end; returns how it ended."""
        for number in _ASKED:
            signal.signal(number, self._on_signal)
        self._stop_commands.drop_earlier()
        try:
            self._supervise()
        except BaseException as error:
            # On any error: no process may stay behind, and the run must not look as if it ran.
            self._starter.end(PEERS_GRACE_SECONDS, self._tick)
            words = f"The supervisor failed: {type(error).__name__}: {error}"
            self._report.note(EventKind.FAILED, words)
            self._report.enter(SupervisorState.FAILED, words)
            raise
        finally:
            self._stop_commands.finish(f"The run has ended. {self._report.reason}")
            self._starter.close()
            self._log_clock.record(self._logs)
        return self._report.state

    def _supervise(self) -> None:
        history = EarlierAttempts()
        why_again = ""
        while True:
            decision = self._attempt(history, why_again)
            why_again = decision.reason
            if decision.next is not Next.RESTART:
                return
            history = decision.history
            self._report.attempt += 1
            self._report.restarts = history.restarts
            if not self._pause(decision):
                return

    def _attempt(self, history: EarlierAttempts, why_again: str) -> Decision:
        """Starts all workers, watches them until a decision is due, and ends them.

        Args:
            history: The starts before.
            why_again: Why the workers of the start before ended; empty for the first start.
        """
        self._report.enter(SupervisorState.STARTING)
        began = time.time()
        try:
            placement = self._start_workers()
        except CannotStartError as error:
            self._starter.end(0, self._tick)
            decision = Decision(error.next, str(error), history=history)
            return decision if error.next is Next.RESTART else self._end(decision)
        except (OSError, TfckptError) as error:
            self._starter.end(0, self._tick)
            return self._end(Decision(Next.FAIL, f"{why_again} {why_no_start(error)}".lstrip()))
        self._note_start(placement)
        self._report.enter(SupervisorState.RUNNING)
        watch = Watch(self._run, self._starter.workers, began, placement.replaceable)
        decision = self._watch(watch, history)
        last = watch.look()
        self._trained |= last.stepped
        told = any(ended.ending is not None for ended in last.exits)
        if decision.hangs:
            # Who is stopped would not answer.
            silent = {last.silent[0]} if last.silent is not None else set()
            _, at = self._script_lines(last.heard - silent, self._sleep)
            decision = replace(decision, reason=" ".join([decision.reason, *at]))
        if decision.lost is not None:
            self._note_lost(decision, last)
        if decision.next is Next.FAIL and decision.is_outside and self._may_move:
            self._died = decision.reason
            decision = replace(decision, next=Next.STOP)
        ours = len(last.heard) == len(self._starter.workers)
        grace = OUR_PEERS_GRACE_SECONDS if ours else PEERS_GRACE_SECONDS
        grace = 0.0 if decision.next is Next.FINISH else grace
        self._starter.end(grace, self._tick)
        if decision.next is Next.RESTART and self._stop_commands.take_over():
            # Whatever ended the workers, the stop was accepted before.
            decision = Decision(Next.STOP, f"{decision.reason} {self._why_stopped}")
        told = told and not self.stopped_by
        return decision if decision.next is Next.RESTART else self._end(decision, told=told)

    def _start_workers(self) -> Placement:
        placement = self._starter.place()
        members = placement.tasks
        self._make_room()
        update_run_info(self._run, cluster=placement.cluster, worker_count=len(members))
        # An old heartbeat must not be taken for that of a starting worker.
        for path in self._run.status_directory.glob("worker-*.json"):
            # One of another user does not count.
            with suppress(OSError):
                delete_file(path)
        self._logs = [self._run.supervisor_log, *map(self._run.worker_log, range(len(members)))]
        environment = {
            **self._environment,
            "TFCKPT_WORKER_COUNT": str(sum(task.job == "worker" for task in members)),
            "TFCKPT_ATTEMPT": str(self._report.attempt),
            "TFCKPT_PEER_SECONDS": str(self._options.peer_seconds),
        }
        self._starter.start(placement, environment, self._report.attempt)
        self._report.workers = self._starter.workers
        self._report.gpus = placement.gpus.remark
        return placement

    def _make_room(self) -> None:
        """Creates the directories, whatever was put there since the launch.

        Raises:
            RefusedError: Links in the place of directories cannot be moved.
            OSError: Directories cannot be created.
        """
        for tries_left in reversed(range(ROOM_TRIES)):
            for told in self._run.move_others_aside(closed=self._report.attempt > 0):
                self._report.note(EventKind.NOTE, told)
            try:
                self._run.create()
                return
            except (OSError, TfckptError):
                if not tries_left:
                    raise

    @property
    def _environment(self) -> dict[str, str]:
        return {
            # After a crash in native code, the log then says where the script was.
            "PYTHONFAULTHANDLER": "1",
            **dict(self._options.environment),
            "TFCKPT_RUN_DIR": str(self._run.root),
            "PYTHONUNBUFFERED": "1",
        }

    def _watch(self, watch: Watch, history: EarlierAttempts) -> Decision:
        victim_since: float | None = None
        episodes = Episodes()
        hinted = has_opened = False
        while True:
            attempt, decision = self._decide(watch, history)
            self._look_for_stop(attempt)
            if self._asked and decision.next is not Next.FINISH:
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
            begun = episodes.begun(attempt)
            if begun is not None:
                # Workers that hang do not answer at once, and the supervisor has to go on.
                threading.Thread(
                    target=self._note_episode, args=(*begun, attempt.heard), daemon=True
                ).start()
            if attempt.opened and not has_opened:
                has_opened = True
                self._report.note_start_seconds(attempt.seconds)
            if attempt.stepped:
                self._trained = True
                self._starter.prepare_restart(self._environment)
            self._tick()
            time.sleep(POLL_SECONDS)

    def _decide(self, watch: Watch, history: EarlierAttempts) -> tuple[Attempt, Decision]:
        """Looks at the workers and decides; replaces those without which the others train on."""
        attempt = watch.look()
        decision = decide(attempt, history, self._limits)
        while decision.next is Next.REPLACE:
            if self._replace(decision, attempt):
                attempt = watch.replaced(decision.lost)
            else:
                attempt = replace(attempt, replaceable=frozenset())
            decision = decide(attempt, history, self._limits)
        return attempt, decision

    def _replace(self, decision: Decision, attempt: Attempt) -> bool:
        """Starts a worker again beside the others; returns whether it could."""
        index = decision.lost
        assert index is not None
        if self._asked or not self._starter.replace(index):
            return False
        self._note_lost(decision, attempt)
        words = f"Started worker {index} again, beside the others."
        self._report.note(EventKind.RESTART, words, {"worker": index})
        return True

    def _note_episode(self, kind: EventKind, message: str, workers: Collection[int]) -> None:
        """Notes what has begun, with the line of the script at which each worker is."""
        places, at = self._script_lines(workers)
        details = {"stacks": {str(index): place for index, place in places.items()}}
        self._report.note(kind, " ".join([message, *at]), details if places else None)

    def _script_lines(
        self, workers: Collection[int], sleep: Callable[[float], None] = time.sleep
    ) -> tuple[dict[int, str], list[str]]:
        """Returns the line of the script at which each worker is that answers, and sentences."""
        places: dict[int, str] = {}
        with suppress(OSError, TfckptError):
            answers = ask_for_stacks(self._run, workers, STACK_SECONDS, sleep=sleep)
            places = {index: stacks.script_line for index, stacks in sorted(answers.items())}
        return places, [
            f"Worker {index} is at {place}." for index, place in places.items() if place
        ]

    def _sleep(self, seconds: float) -> None:
        self._tick()
        time.sleep(seconds)

    def _look_for_stop(self, attempt: Attempt | None = None) -> None:
        """Asks itself to stop if a command to stop has come that the trainer cannot carry out."""
        silent = attempt.silent if attempt is not None else None
        trains = attempt is not None and attempt.stepped and not attempt.exits and silent is None
        may_wait = trains and not self._report.attention.is_given
        if self._stop_commands.look(hangs=silent is not None, may_wait=may_wait):
            cause = f" Worker {silent[0]} did not react." if silent is not None else ""
            self.stop(f"{self._why_stopped}{cause}")

    @property
    def _why_stopped(self) -> str:
        return f"The run was stopped by {self.stopped_by}."

    def _tick(self) -> None:
        """Does the periodic work during every wait."""
        self._report.beat_if_due()
        self._log_clock.record_if_due(self._logs, is_looked_at=self._report.attention.is_given)
        self._log_limit.apply_if_due([self._run.supervisor_log, *self._starter.logs])

    def _silence(self) -> str:
        return (
            f"No worker wrote a heartbeat in {self._limits.start_timeout:g} s: the script does "
            f"not use tfckpt_trainer, or it hangs; see {self._run.logs_directory}."
        )

    def _stop(self, attempt: Attempt) -> Decision:
        """Makes the workers save and exit, because the supervisor was asked to stop."""
        grace = self._options.grace_seconds
        if attempt.heard and not attempt.stepped:
            # Nothing to save, and a strategy that waits for its peers handles no signal.
            grace = min(grace, PEERS_GRACE_SECONDS)
        self._report.enter(
            SupervisorState.RUNNING, f"Stopping: the workers have {grace:g} s to save and end."
        )
        killed = self._starter.end(grace, self._tick)
        reason = self._asked
        if killed:
            was = noun(len(killed), "was", "were")
            who = f"{noun(len(killed), 'Worker')} {', '.join(map(str, killed))}"
            reason += f" {who} did not end in {grace:g} s, and {was} killed."
            if attempt.stepped:
                reason += " Steps since the newest checkpoint may be lost."
        return Decision(Next.STOP, reason)

    def _pause(self, decision: Decision) -> bool:
        """Waits before the next attempt; returns False if it was asked to stop."""
        seconds = decision.pause_seconds
        self._report.enter(SupervisorState.RESTARTING, decision.reason, time.time() + seconds)
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, POLL_SECONDS))
            if self._asked:
                break
            self._look_for_stop()
            self._tick()
        if self._asked:
            self._end(Decision(Next.STOP, self._asked))
            return False
        return True

    def _note_start(self, placement: Placement) -> None:
        report, options = self._report, self._options
        count = processes_in_words(placement.tasks)
        if report.attempt == 0:
            words = f"Started {count}: {program_name(options.command)}. {report.gpus}".rstrip()
            report.note(EventKind.START, words)
        else:
            used = f"restart {report.restarts} of {options.max_restarts}"
            words = f"Started {count} again ({used if report.restarts else 'other ports'})."
            report.note(EventKind.RESTART, words, {"attempt": report.attempt})

    def _note_lost(self, decision: Decision, last: Attempt) -> None:
        index, culprit = decision.lost, decision.culprit
        assert index is not None
        loss = WorkerLoss(
            worker=index,
            step=last.step,
            log=last_lines(self._run.worker_log(index), LAST_LINES, noise=False),
            disk_free_bytes=self._disk_free(),
            verdict=decision.verdict,
        )
        if culprit is not None and culprit.index == index:
            loss = msgspec.structs.replace(
                loss,
                exit_code=culprit.code,
                signal=signal_name(-culprit.code) if culprit.code < 0 else None,
                fault=culprit.fault,
                step=last.step if culprit.step is None else culprit.step,
                memory_bytes=culprit.memory_bytes,
                memory_limit_bytes=culprit.memory_limit_bytes,
                out_of_memory=culprit.out_of_memory,
            )
        self._report.note(
            EventKind.WORKER_LOST,
            decision.reason,
            msgspec.to_builtins(loss),
        )

    def _disk_free(self) -> int | None:
        try:
            return shutil.disk_usage(self._run.root).free
        except OSError:
            return None

    def _end(self, decision: Decision, *, told: bool = False) -> Decision:
        """Reports the end; in the event log only if the workers have not done so."""
        if decision.next is Next.FAIL or not told:
            # The reason is in the entry of the lost worker.
            lost = decision.lost if decision.next is Next.FAIL else None
            words = decision.reason if lost is None else f"The run ended: worker {lost} failed."
            by = self.stopped_by if decision.next is Next.STOP else ""
            self._report.note(_KINDS[decision.next], words, by=by or SUPERVISOR)
        self._report.enter(_STATES[decision.next], decision.reason)
        return decision

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        # Nothing more: signals that come faster than this ends would nest until Python fails.
        self._asked = _ASKED[number]


def _only_victims(decision: Decision, attempt: Attempt) -> bool:
    """Whether the worker that died first may not be known yet."""
    culprit = decision.culprit
    return culprit is not None and culprit.is_victim and len(attempt.exits) < attempt.workers


def why_no_start(error: OSError | TfckptError) -> str:
    """Says why no worker was started: a closed directory is not an error of the command."""
    if is_full(error):
        return _DISK_FULL
    is_of_command = isinstance(error, OSError) and not is_of_library(error)
    what = "The command cannot be run" if is_of_command else "The workers cannot start"
    return f"{what}: {describe_error(error).rstrip('.')}."
