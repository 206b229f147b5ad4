"""Observes one start of all workers, and tells when a run begins to be degraded or to stall."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from tfckpt_trainer.launch.processes.cluster import says_port_taken
from tfckpt_trainer.launch.processes.logs import ERROR_LINES, last_lines
from tfckpt_trainer.launch.processes.workers import Worker
from tfckpt_trainer.launch.supervision.heartbeat_reader import HeartbeatReader
from tfckpt_trainer.launch.supervision.restart_policy import Attempt, Exit
from tfckpt_trainer.rundir.heartbeats.attention import INTERVAL_SECONDS
from tfckpt_trainer.rundir.heartbeats.health import (
    LOST_AFTER_INTERVALS,
    STALLED_AFTER_CALLS,
    heartbeat_age,
    is_of_start,
    lost_after,
    told_until,
)
from tfckpt_trainer.rundir.heartbeats.process_ids import host_name, process_namespace
from tfckpt_trainer.rundir.heartbeats.stragglers import likely_straggler, silent_worker
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.failure import OutOfMemory, ScriptFault
from tfckpt_trainer.rundir.records.worker import BEFORE_RUN, Activity, Phase, WorkerStatus
from tfckpt_trainer.scripts.script_errors import ScriptError, find_crash_line, find_script_error

DEGRADED_SECONDS = 10.0
"""A worker that does not react for so long again is an event: many do for a moment."""

STALLED_SECONDS = 60.0
"""Shortest time without a step that is an event, if no worker is to blame."""


class Episodes:
    """Looks at one start of all workers for what users should know before anything ends."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._silent_since: float | None = None
        self._told: EventKind | None = None

    def begun(self, attempt: Attempt) -> tuple[EventKind, str] | None:
        """Returns the kind of an episode that has just begun, and a sentence about it."""
        found = self._find(attempt)
        kind = found[0] if found is not None else None
        before, self._told = self._told, kind
        return found if kind is not before else None

    def _find(self, attempt: Attempt) -> tuple[EventKind, str] | None:
        if attempt.silent is None or attempt.exits:
            self._silent_since = None
        else:
            now = self._clock()
            self._silent_since = now if self._silent_since is None else self._silent_since
            if now - self._silent_since + attempt.silent_before < DEGRADED_SECONDS:
                return None
            index, why = attempt.silent
            return EventKind.DEGRADED, f"Worker {index} {why}."
        limit = max(STALLED_SECONDS, STALLED_AFTER_CALLS * attempt.call_seconds)
        if attempt.stands_for <= limit or attempt.in_script:
            return None
        index, why = attempt.suspect or (0, "")
        cause = f" Worker {index} {why}." if why else " No worker reports a cause."
        return EventKind.STALLED, f"No worker made a step in {attempt.stands_for:.0f} s.{cause}"


_KILLS = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
_SLURM_KILL = re.compile(r"^slurmstepd: .*(?:oom[-_]kill|Out Of Memory)")
_LONGEST_FILE = 1 << 16


class MemoryWatch:
    """Counts the processes that the kernel kills for lack of memory, from now on."""

    def __init__(self, proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> None:
        """Reads the counters.

        Args:
            proc: Where the process file system is mounted.
            groups: Where control groups are mounted.
        """
        self._proc = proc
        self._groups = groups
        self._before = self._in_group(), self._on_host()

    @property
    def limit(self) -> int:
        """The memory that a process can use, in bytes: that of the host or of the group."""
        limits = [int(psutil.virtual_memory().total)]
        for name in ("memory.max", "memory.limit_in_bytes"):
            with suppress(ValueError):
                limits += [int(text) for text in self._read_group(name)]
        return min(limits)

    def judge(self) -> OutOfMemory | None:
        """Returns what shows that a process was killed since this object was made."""
        in_group, on_host = self._before
        if self._in_group() > in_group:
            return OutOfMemory.COUNTED
        return OutOfMemory.ON_HOST if self._on_host() > on_host else None

    def _in_group(self) -> int:
        files = [*self._read_group("memory.events"), *self._read_group("memory.oom_control")]
        return sum(map(_kills, files))

    def _on_host(self) -> int:
        return _kills(_read(self._proc / "vmstat"))

    def _read_group(self, name: str) -> Iterator[str]:
        """Yields a file of the control group of this process, of versions 2 and 1."""
        for line in _read(self._proc / "self" / "cgroup").splitlines():
            _, _, after = line.partition(":")
            kinds, _, path = after.partition(":")
            if kinds and "memory" not in kinds.split(","):
                continue
            mount = self._groups / "memory" if kinds else self._groups
            # In a container, the path may be that of the host, which the container does not see.
            text = _read(mount / path.lstrip("/") / name) or _read(mount / name)
            if text:
                yield text


def names_memory_kill(log: str) -> bool:
    """Whether Slurm wrote into the log of a worker that the kernel killed a process of it."""
    return any(_SLURM_KILL.match(line) for line in log.splitlines())


def _kills(text: str) -> int:
    found = _KILLS.search(text)
    return int(found[1]) if found is not None else 0


def _read(path: Path) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_LONGEST_FILE)
    except OSError:
        return ""


UNCAUGHT = 1
"""The exit status of a script that an error ended."""

_CRASHES = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
"""Signals at which `faulthandler` writes where the script is."""

LOOK_SECONDS = 1.0
"""Seconds between two reads of the heartbeats, while one may be new."""

_COLLECTIVE = frozenset({Activity.SAVING, Activity.RESTORING})
"""Activities that all workers begin after the same step."""


class Standstill:
    """Measures for how long all workers train without a step.

    One that saves or restores while another has not made its last step waits for that one. Time in
    which they do something else does not count, such as a pause.
    """

    def __init__(self, workers: int, began: float) -> None:
        """Begins.

        Args:
            workers: How many there are.
            began: When they were started, in seconds since the epoch.
        """
        self._workers = workers
        self._began = began
        self._trained_since: float | None = None

    def seconds(self, statuses: Collection[WorkerStatus], now: float) -> float:
        """Returns for how long; 0 if not all train, or one of them made no step yet.

        Args:
            statuses: The last heartbeats.
            now: Seconds since the epoch.
        """
        training = [status for status in statuses if status.activity is not Activity.SERVING]
        steps = [status.last_step_at for status in training if status.last_step_at is not None]
        behind = min((s.step for s in training if s.activity is Activity.TRAINING), default=None)
        trains = behind is not None and all(
            status.activity is Activity.TRAINING
            or (status.activity in _COLLECTIVE and status.step > behind)
            for status in training
        )
        is_whole = len(statuses) == self._workers and len(steps) == len(training)
        if not (trains and is_whole) or max(steps) < self._began:
            self._trained_since = None
            return 0.0
        if self._trained_since is None:
            # A step that is older was made before something else: a pause, or a wait for room.
            self._trained_since = now
        # Where heartbeats are rare, nobody knows of the steps since.
        until = min(told_until(status, now) for status in training)
        return max(0.0, until - max(*steps, self._trained_since))


def _seconds_lost(status: WorkerStatus) -> float:
    """Returns by how much later a silent worker is seen, if its heartbeats were rare."""
    is_rare = status.lost_after_seconds is not None
    if not is_rare or heartbeat_age(status.updated_at, time.time()) < lost_after(status):
        # A process that is stopped by a signal is seen at once.
        return 0.0
    return lost_after(status) - LOST_AFTER_INTERVALS * INTERVAL_SECONDS


class Watch:
    """Observes the workers from their start on."""

    def __init__(
        self,
        run: RunDirectory,
        workers: Sequence[Worker],
        began: float,
        replaceable: frozenset[int] = frozenset(),
    ) -> None:
        """Looks at them for the first time.

        Args:
            run: The run directory.
            workers: The workers.
            began: A time before they were started, in seconds since the epoch.
            replaceable: As `Attempt.replaceable`.
        """
        self._replaceable = replaceable
        self._replaced_at: list[float] = []
        self._run = run
        self._workers = workers
        self._began = began
        self._standstill = Standstill(len(workers), self._began)
        self._began_clock = time.monotonic()
        self._looked_at = float("-inf")
        self._exits: dict[int, Exit] = {}
        self._heard: set[int] = set()
        self._opened: set[int] = set()
        self._stepped = False
        self._saved = False
        self._memory = MemoryWatch()
        self._save: tuple[float | None, float] = self._saved_at(), 0.0
        self._heartbeats = HeartbeatReader(run, len(workers))
        self._attempt = self._gather()

    def look(self) -> Attempt:
        """Returns the current state; cheap if no worker has ended and the last one is fresh."""
        ended = any(
            worker.exit_code is not None and worker.index not in self._exits
            for worker in self._workers
        )
        is_due = time.monotonic() - self._looked_at >= LOOK_SECONDS
        if ended or (is_due and self._heartbeats.is_due(time.time())):
            self._attempt = self._gather()
        return self._attempt

    def replaced(self, index: int | None) -> Attempt:
        """Forgets how a worker ended that was started again; returns the current state."""
        self._exits = {other: ended for other, ended in self._exits.items() if other != index}
        self._replaced_at.append(time.time())
        self._memory = MemoryWatch()
        self._attempt = self._gather()
        return self._attempt

    def _gather(self) -> Attempt:
        self._looked_at = time.monotonic()
        saved_at = self._saved_at()
        # Before the heartbeats: the last one of a process that has ended must not be missed.
        codes = {worker.index: worker.exit_code for worker in self._workers}
        has_ended = any(code is not None for code in codes.values())
        statuses = self._heartbeats.read(time.time(), everything=has_ended)
        # A process that only imported the library may belong to a script that does not use it.
        self._heard.update(i for i, status in statuses.items() if status.phase is not Phase.PREPARE)
        self._opened |= {i for i, status in statuses.items() if status.phase not in BEFORE_RUN}
        self._stepped |= any(
            (status.last_step_at or 0) >= self._began for status in statuses.values()
        )
        self._saved |= self._has_saved(statuses.values(), saved_at)
        for worker in self._workers:
            code = codes[worker.index]
            if code is not None and worker.index not in self._exits:
                # End the processes that it started in its group.
                worker.kill()
                self._exits[worker.index] = self._exit(worker, code, statuses.get(worker.index))
        silent = silent_worker(list(statuses.values()), time.time())
        return Attempt(
            workers=len(self._workers),
            seconds=time.monotonic() - self._began_clock,
            exits=tuple(self._exits.values()),
            heard=frozenset(self._heard),
            opened=len(self._opened) == len(self._workers),
            stepped=self._stepped,
            step=max((s.step for s in statuses.values() if s.last_step_at), default=None),
            saved=self._saved,
            stands_for=self._stands_for(statuses.values(), saved_at),
            suspect=likely_straggler(list(statuses.values()), time.time()),
            silent=silent,
            silent_before=_seconds_lost(statuses[silent[0]]) if silent is not None else 0.0,
            call_seconds=max((s.call_seconds or 0.0 for s in statuses.values()), default=0.0),
            in_script={(s.activity, s.phase) for s in statuses.values()}
            == {(Activity.TRAINING, Phase.SCRIPT)},
            replaceable=self._replaceable,
            replaced=sum(at > (saved_at or 0) for at in self._replaced_at),
        )

    def _exit(self, worker: Worker, code: int, status: WorkerStatus | None) -> Exit:
        lines = last_lines(self._run.worker_log(worker.index), ERROR_LINES)
        started = worker.facts()
        is_here = not started.host
        host = started.host or host_name()
        namespace = process_namespace() if is_here else ""
        is_own = status is not None and is_of_start(status, started, host, namespace)
        own = status if is_own else None
        final = own if own is not None and own.activity is Activity.EXITED else None
        if worker.is_silent:
            # Cut off from the others, it may have been told to stop.
            final = None
        # A traceback may be one that the script handled before it ended otherwise.
        printed = find_script_error(lines) if code == UNCAUGHT else None
        fault = final.fault if final is not None else None
        if fault is None and printed is not None and (final is None or not final.detail):
            fault = ScriptFault.of(printed)
        if -code in _CRASHES:
            crashed = find_crash_line(lines)
            what = signal.strsignal(-code) or "Crash"
            fault = ScriptFault.of(ScriptError(crashed, what)) if crashed is not None else None
        cause = final.detail if final is not None else str(printed or "")
        return Exit(
            index=worker.index,
            code=code,
            ending=final.ending if final is not None else None,
            detail=cause or (f"last printed {lines[-1]!r}" if lines else ""),
            port_taken=says_port_taken("\n".join(lines)),
            silent=worker.is_silent,
            fault=fault,
            step=own.step if own is not None and own.has_position else None,
            memory_bytes=own.memory_bytes if own is not None else None,
            memory_limit_bytes=self._memory.limit if is_here else None,
            out_of_memory=self._out_of_memory(code, "\n".join(lines), is_here=is_here),
        )

    def _out_of_memory(self, code: int, log: str, *, is_here: bool) -> OutOfMemory | None:
        if names_memory_kill(log):
            return OutOfMemory.LOGGED
        return self._memory.judge() if is_here and code == -signal.SIGKILL else None

    def _stands_for(self, statuses: Collection[WorkerStatus], saved_at: float | None) -> float:
        """Returns for how long no worker made a step; one that saves may be unable to say so."""
        now = time.time()
        if saved_at != self._save[0]:
            self._save = saved_at, now
        return min(self._standstill.seconds(statuses, now), now - self._save[1])

    def _has_saved(self, statuses: Collection[WorkerStatus], listed_at: float | None) -> bool:
        """Whether the workers have saved a checkpoint since they were started.

        Args:
            statuses: Their heartbeats, which tell it if they have any: a prune, and a restore of
                an older checkpoint, also change the state file.
            listed_at: When that was changed.
        """
        times = [s.saves.saved_at for s in statuses if s.saves is not None]
        return any(at is not None and at > self._began for at in times or [listed_at])

    def _saved_at(self) -> float | None:
        """Returns when a checkpoint was last committed, by the time of the state file."""
        try:
            return self._run.state_file.stat().st_mtime
        except OSError:
            return None
