"""Stops a run whose trainer does not answer: by its supervisor, or from outside."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import msgspec

from tfckpt_trainer.errors import LaunchError, TfckptError, describe_error
from tfckpt_trainer.launch.processes.named_processes import not_permitted, require_named_by_its_user
from tfckpt_trainer.launch.processes.orphans import (
    OrphanProcess,
    living_supervisor,
    orphan_processes,
)
from tfckpt_trainer.launch.processes.workers import KILL_SECONDS, POLL_SECONDS, signal_group
from tfckpt_trainer.rundir.command_queue import CommandQueue, advance
from tfckpt_trainer.rundir.event_log import note_event, read_entries
from tfckpt_trainer.rundir.heartbeats.health import is_live
from tfckpt_trainer.rundir.heartbeats.process_ids import is_pid_valid_here
from tfckpt_trainer.rundir.heartbeats.reading import read_worker, trainer_answers
from tfckpt_trainer.rundir.heartbeats.status_files import store_status
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import Command, CommandKind, CommandState
from tfckpt_trainer.rundir.records.event import SUPERVISOR, EventKind
from tfckpt_trainer.rundir.records.run import SupervisorState, SupervisorStatus
from tfckpt_trainer.rundir.records.worker import BEFORE_RUN
from tfckpt_trainer.rundir.storage.documents import load, try_read
from tfckpt_trainer.rundir.storage.locks import is_locked
from tfckpt_trainer.words.advice import Advice, command_or_key

LOOK_SECONDS = 1.0
"""Seconds between two looks at the command queue."""

IDLE_LOOK_SECONDS = 300.0
"""The same on a network disk while all workers train and nobody asked for anything."""

_STARTS = {EventKind.SUBMIT, EventKind.START, EventKind.RESTART}

UNANSWERED_SECONDS = 5.0
"""How long the trainer may have a command to stop while a worker does not react."""


def _ignore(_: str) -> None:
    return


def wait_for_end(
    run: RunDirectory, timeout: float, while_waiting: Callable[[Sequence[str]], None]
) -> None:
    """Waits until no process of a stopped run is left, so that a new launch is accepted.

    Args:
        run: The run directory.
        timeout: Seconds to wait.
        while_waiting: Called repeatedly with descriptions of the remaining processes.

    Raises:
        LaunchError: A process still runs.
    """
    deadline = time.monotonic() + timeout
    while alive := living_processes(run):
        if time.monotonic() > deadline:
            logs = command_or_key("logs", "logs", run.root)
            stop = command_or_key("force-stop", "stop", "--force", run.root)
            raise LaunchError(
                f"After {timeout:g} s these processes still run: {', '.join(alive)}. Until they "
                f"end, a new launch in {run.root} is refused.",
                Advice.of(
                    "Read their logs with {logs}, or end them with {stop}.", logs=logs, stop=stop
                ),
            )
        while_waiting(alive)
        time.sleep(POLL_SECONDS)


def living_processes(run: RunDirectory) -> list[str]:
    """Returns the descriptions of the processes of a run that live and prevent a new launch."""
    now = time.time()
    alive = []
    if is_locked(run.supervisor_lock):
        supervisor = living_supervisor(run, now)
        alive.append(f"supervisor (process {supervisor.pid})" if supervisor else "supervisor")
    return [*alive, *map(str, orphan_processes(run, now))]


def stop_supervisor(
    run: RunDirectory,
    timeout: float,
    by: str = "",
    on_warning: Callable[[str], None] = _ignore,
) -> bool:
    """Ends the supervisor and the workers of a run.

    The supervisor is asked first: it makes its workers save and exit. Processes that still run
    after `timeout` are killed, as are workers without a supervisor that do not exit.

    Args:
        run: The run directory.
        timeout: Seconds that supervisor and workers have to save and exit.
        by: Who asks, for the event log.
        on_warning: Called if the end cannot be written to the disk.

    Returns:
        Whether any process ran.

    Raises:
        LaunchError: It runs on another machine, belongs to another user, or cannot be killed; or
            another user could have named it.
    """
    deadline = time.monotonic() + timeout
    supervisor = living_supervisor(run, time.time())
    workers = orphan_processes(run, time.time())
    if supervisor is None and not workers:
        return False
    is_forced = False
    if supervisor is not None:
        _check_here(run, supervisor, workers)
        _signal(supervisor.pid, signal.SIGTERM)
        if not _wait(lambda: not is_live(supervisor, time.time()), deadline):
            _signal(supervisor.pid, signal.SIGKILL)
            is_forced = True
        # It may have started others meanwhile.
        workers = orphan_processes(run, time.time())
    is_forced |= _end(run, workers, deadline)
    if supervisor is None or is_forced:
        how = "without their supervisor" if supervisor is None else "by force"
        named = f": {', '.join(map(str, workers))}" if workers else ""
        _tell(run, f"Stopped from outside, {how}{named}.", by, on_warning)
    return True


def _check_here(
    run: RunDirectory, supervisor: SupervisorStatus, workers: Sequence[OrphanProcess]
) -> None:
    if not is_pid_valid_here(supervisor):
        raise LaunchError(
            f"The supervisor runs on {supervisor.host} (process {supervisor.pid}); stop it there."
        )
    require_named_by_its_user(run, supervisor.pid, run.supervisor_status, SupervisorStatus)
    _check_workers_here(run, workers)


def _check_workers_here(run: RunDirectory, workers: Sequence[OrphanProcess]) -> None:
    elsewhere = [str(worker) for worker in workers if not worker.is_here]
    if elsewhere:
        raise LaunchError(
            f"Processes of another machine cannot be ended from here: {', '.join(elsewhere)}; "
            "end them there."
        )
    for worker in workers:
        require_named_by_its_user(run, worker.pid, worker.named_in, worker.kind)


def _end(run: RunDirectory, workers: Sequence[OrphanProcess], deadline: float) -> bool:
    """Asks workers to exit and kills those that do not; returns whether any was killed."""
    _check_workers_here(run, workers)
    for worker in workers:
        _signal(worker.pid, signal.SIGTERM)
    ended = _wait(lambda: not any(worker.lives for worker in workers), deadline)
    for worker in workers:
        # Also after a normal exit: processes that it started in its group may still run.
        if worker.keeps_its_number:
            _signal(worker.pid, signal.SIGKILL)
    _wait(lambda: not any(worker.lives for worker in workers), time.monotonic() + KILL_SECONDS)
    stuck = [str(worker) for worker in workers if worker.lives]
    if stuck:
        raise LaunchError(
            f"These processes were killed but still run: {', '.join(stuck)}. Check them with "
            f"`ps -fp {','.join(str(worker.pid) for worker in workers if worker.lives)}`."
        )
    return not ended


def _signal(pid: int, number: signal.Signals) -> None:
    """Signals a process, and all of its group if it leads one."""
    try:
        if os.getpgid(pid) == pid:
            signal_group(pid, number)
        else:
            os.kill(pid, number)
    except ProcessLookupError:
        # The leader has exited; its id stays reserved while its group has members.
        signal_group(pid, number)
    except PermissionError:
        raise not_permitted(f"Process {pid}", pid) from None


def _wait(condition: Callable[[], bool], deadline: float) -> bool:
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _tell(run: RunDirectory, message: str, by: str, on_warning: Callable[[str], None]) -> None:
    """Records the end, because no process is left to do so."""
    if warning := note_event(run, EventKind.STOP, message, by=by):
        on_warning(warning)
    # What another user put there would become this user's word by being written again.
    status = try_read(
        partial(load, run.supervisor_status, SupervisorStatus, written_by=os.geteuid())
    )
    if status is not None:
        ended = msgspec.structs.replace(
            status, state=SupervisorState.STOPPED, reason=message, next_start_at=None
        )
        try:
            store_status(run.supervisor_status, ended, durable=True)
        except OSError as error:
            on_warning(f"The status of the run could not be written: {describe_error(error)}.")


def accepted_stop(run: RunDirectory) -> str:
    """Returns who has stopped the run since its last start; empty if nobody did.

    The event log has each stop that was carried out.

    Raises:
        OSError: The run directory cannot be read.
    """
    working = _stops(CommandQueue(run))
    return working[-1].requested_by if working else _stop_in_event_log(run)


def _stop_in_event_log(run: RunDirectory) -> str:
    for entry in reversed(read_entries(run)):
        # A submission that Slurm did not answer is noted in `details` alone.
        if entry.kind in _STARTS or "submit" in entry.details:
            break
        if entry.kind is EventKind.STOP and entry.by not in {"", SUPERVISOR}:
            return entry.by
    return ""


def _stops(queue: CommandQueue) -> list[Command]:
    """Returns the commands to stop that were claimed and are not finished, oldest first."""
    return [command for command in queue.working() if command.kind is CommandKind.STOP]


class StopCommands:
    """Sees that a command to stop ends the run, whatever the trainer does.

    While the trainer takes no commands, such as during a start, it claims the command. A command
    that the trainer claimed is left to it, until the supervisor takes it over.
    """

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._queue = CommandQueue(run)
        self._looked_at = float("-inf")
        self._claimed_since: dict[str, float] = {}
        self._requester = ""

    @property
    def requester(self) -> str:
        """Who asked for a stop that this supervisor knows of; empty if nobody did."""
        return self._requester

    def drop_earlier(self) -> None:
        """Answers what an earlier launch left, so that it does not end this one."""
        with suppress(OSError, TfckptError):
            for command in _stops(self._queue):
                words = "The run was launched again before it was carried out."
                self._queue.finish(advance(command, CommandState.FAILED, words))

    def look(self, *, hangs: bool, may_wait: bool = False) -> bool:
        """Looks at the command queue from time to time; returns whether to end the workers now.

        Args:
            hangs: Whether a worker does not react. Only that keeps the others from acting on a
                command: a step, or a validation after it, may take longer than any limit.
            may_wait: Whether all workers train and nobody asked for anything.
        """
        if self._requester:
            return True
        pause = IDLE_LOOK_SECONDS if may_wait and not self._claimed_since else LOOK_SECONDS
        if time.monotonic() - self._looked_at < pause:
            return False
        self._looked_at = time.monotonic()
        # A disk that fails must not end training.
        with suppress(OSError, TfckptError):
            if not self._trainer_takes_commands():
                self._claim()
            if self._is_unanswered() and hangs:
                return self.take_over()
        return bool(self._requester)

    def take_over(self) -> bool:
        """Takes over what the trainer claimed and did not finish.

        Returns:
            Whether a stop was accepted, also if the trainer has carried it out.
        """
        with suppress(OSError, TfckptError):
            for command in _stops(self._queue):
                self._take(command)
            self._requester = accepted_stop(self._run) or self._requester
        return bool(self._requester)

    def finish(self, message: str) -> None:
        """Answers all commands to stop, now that the run has ended.

        The event log gets those that are not in it, because Slurm may start the run again.
        """
        with suppress(OSError, TfckptError):
            self._claim()
            self._requester = accepted_stop(self._run) or self._requester
            working = _stops(self._queue)
            if working and not _stop_in_event_log(self._run):
                words = "The run was stopped."
                note_event(self._run, EventKind.STOP, words, by=self._requester)
            for command in working:
                self._queue.finish(advance(command, CommandState.DONE, message))

    def _trainer_takes_commands(self) -> bool:
        """Whether the trainer claims commands now, or once it has restored a checkpoint."""
        chief = read_worker(self._run, 0)
        begins = chief is not None and chief.phase in BEFORE_RUN
        return not begins and trainer_answers(self._run, time.time())

    def _claim(self) -> None:
        command = self._queue.claim(time.time(), CommandKind.STOP)
        if command is not None and not command.state.is_final:
            self._take(command)

    def _take(self, command: Command) -> None:
        self._requester = command.requested_by
        message = "The trainer does not react. The supervisor ends the workers."
        self._queue.update(advance(command, CommandState.WORKING, message))

    def _is_unanswered(self) -> bool:
        now = time.monotonic()
        waiting = [stop.id for stop in _stops(self._queue) if stop.state is CommandState.SEEN]
        self._claimed_since = {name: self._claimed_since.get(name, now) for name in waiting}
        return any(now - since > UNANSWERED_SECONDS for since in self._claimed_since.values())
