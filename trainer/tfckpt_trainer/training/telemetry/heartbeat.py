"""The heartbeat of a worker: a thread that writes its status file, each second if that helps."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import psutil

from tfckpt_trainer.errors import describe_error
from tfckpt_trainer.rundir.heartbeats.attention import (
    FREQUENT,
    INTERVAL_SECONDS,
    MEMBER,
    MEMBER_LOOK_SECONDS,
    Attention,
    Pace,
)
from tfckpt_trainer.rundir.heartbeats.gathered import HeartbeatGatherer
from tfckpt_trainer.rundir.heartbeats.health import stands
from tfckpt_trainer.rundir.heartbeats.heartbeat_file import HeartbeatFile
from tfckpt_trainer.rundir.heartbeats.process_ids import host_name, process_namespace
from tfckpt_trainer.rundir.heartbeats.process_table import own_process
from tfckpt_trainer.rundir.heartbeats.stack_writer import leave_to_heartbeat, stack_writer
from tfckpt_trainer.rundir.heartbeats.status_files import directory_of
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import WorkerFacts
from tfckpt_trainer.rundir.records.worker import Activity, WorkerStatus
from tfckpt_trainer.training.telemetry.gpus import GpuReader
from tfckpt_trainer.training.telemetry.step_metrics import (
    StepMetrics,
    finite,
    mean,
    median,
    percentile_95,
)

TASKS = "/proc/self/task"
GROUPS = Path("/proc/self/cgroup")
GROUP_ROOT = Path("/sys/fs/cgroup")


class CpuStall:
    """Reads time on the run queue and time throttled by a cgroup limit, on Linux."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._stalled = stalled_seconds()

    def ratio(self) -> float | None:
        """Returns the share of the time since the last call that was stalled, from 0 to 1.

        The thread with the longest stall counts, because a step waits for its slowest thread.
        """
        now, stalled = time.monotonic(), stalled_seconds()
        before, self._stalled = self._stalled, stalled
        passed, self._at = now - self._at, now
        if stalled is None or before is None or passed <= 0:
            return None
        longest = max(
            (stalled[name] - before.get(name, stalled[name]) for name in stalled), default=0.0
        )
        return min(1.0, max(0.0, longest / passed))


def stalled_seconds() -> dict[str, float] | None:
    """Returns the total stall of each thread, and of the cgroup as `limit`; None if not on Linux.

    The fields of `schedstat` are nanoseconds on a core, nanoseconds on the run queue, and a count
    (Documentation/scheduler/sched-stats.rst of the kernel).
    """
    stalled: dict[str, float] = {}
    try:
        tasks = os.listdir(TASKS)
    except OSError:
        return None
    for task in tasks:
        # A thread may exit while it is read.
        with suppress(OSError, ValueError, IndexError):
            stalled[task] = int(_read(f"{TASKS}/{task}/schedstat").split()[1]) / 1e9
    with suppress(OSError, ValueError):
        stalled["limit"] = _throttled_seconds()
    return stalled


def _read(path: str) -> bytes:
    """Returns a short file. TensorFlow has hundreds of threads, and each is read every second."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 1000)
    finally:
        os.close(file)


def _throttled_seconds() -> float:
    """Returns the time for which the cgroup (version 2) was throttled.

    Raises:
        OSError: There is no such cgroup.
        ValueError: The cgroup has no CPU statistics.
    """
    for line in GROUPS.read_text().splitlines():
        number, _, path = line.split(":", 2)
        if number == "0":
            counts = (GROUP_ROOT / path.lstrip("/") / "cpu.stat").read_text().split()
            return int(counts[counts.index("throttled_usec") + 1]) / 1e6
    raise ValueError("no cgroup of version 2")


WRITE_SECONDS = 5.0
"""How long a loop or its end waits for a heartbeat. A disk that hangs must not stop training."""

ROUNDING_SECONDS = 0.5
"""So much earlier a heartbeat is due: the thread wakes each second."""

SHORT_SECONDS = 1.0
"""Longest usual time between steps with which those of the chief tell that a worker lives."""

IDLE_STEPS_SECONDS = 120.0
"""Interval at which the reports of steps are written while nobody looks, as TensorFlow does."""

DISK_FULL = "The disk is full: nothing is saved. Free disk space."
"""Detail of a heartbeat that is written in place because the disk is full."""


class Heartbeat:
    """Writes the status file of one worker until it is stopped.

    Disk errors do not end training. On a full disk, the last heartbeat is overwritten in place
    and `detail` says so. A heartbeat that cannot be written is skipped, and the next one says so.

    Attributes:
        file: The status file.
    """

    def __init__(
        self,
        run: RunDirectory,
        index: int,
        metrics: StepMetrics,
        *,
        total_steps: int | None,
        attention: Attention,
        every_second: Callable[[bool], str],
        on_unwritten: Callable[[str], None] = lambda problem: None,
        job: str = "worker",
        gatherer: HeartbeatGatherer | None = None,
        is_member: bool = False,
    ) -> None:
        self.file = HeartbeatFile(run.worker_status(index), WorkerStatus)
        self._run_directory = run
        self._index = index
        self._metrics = metrics
        self._total_steps = total_steps
        self._attention = attention
        self._every_second = every_second
        self._on_unwritten = on_unwritten
        self._job = job
        self._gatherer = gatherer
        self._is_member = is_member
        self._process = psutil.Process()
        self._cpu: float | None = None
        self._cpu_at = 0.0
        self._gpus = GpuReader()
        self._stacks = stack_writer(run, index)
        self._cpu_stall = CpuStall()
        self._unwritten = ""
        self._told = ""
        self._due_at = self._steps_due_at = 0.0
        self._pace_told = FREQUENT
        self._stopping = threading.Event()
        self._beat_now = threading.Event()
        self._awaited: deque[threading.Event] = deque()
        self._writing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="tfckpt-heartbeat", daemon=True)

    @property
    def has_started(self) -> bool:
        """Whether the thread was started."""
        return self._thread.ident is not None

    @property
    def process_started_at(self) -> float:
        """When this process was started, by the present clock."""
        return own_process().process_started_at

    def start(self) -> None:
        """Writes the first heartbeat and starts the thread."""
        self._measure_cpu()
        self.beat()
        leave_to_heartbeat()
        self._thread.start()

    def stop(self) -> None:
        """Stops the thread and writes the last heartbeat, unless the disk does not answer."""
        self._stopping.set()
        self._beat_now.set()
        if self._thread.is_alive():
            self._thread.join(timeout=WRITE_SECONDS)
        if not self._thread.is_alive():
            self.beat()
            self.file.close()

    def nudge(self) -> None:
        """Requests a heartbeat now, because the activity of this worker changed."""
        self._beat_now.set()

    def show(self) -> None:
        """Has the thread write the status file before anyone is told of what it will show."""
        if self._thread.is_alive():
            written = threading.Event()
            self._awaited.append(written)
            self.nudge()
            written.wait(WRITE_SECONDS)

    def tell_position(self) -> None:
        """Writes the status file before anyone is told that this worker went to another step."""
        if self.has_started:
            self.beat()

    @contextmanager
    def doing(self, activity: Activity, detail: str) -> Iterator[None]:
        """Reports `activity` while the block runs."""
        metrics = self._metrics
        before = metrics.activity, metrics.detail
        metrics.activity, metrics.detail = activity, detail
        self.nudge()
        try:
            yield
        finally:
            metrics.activity, metrics.detail = before
            self.nudge()

    def describe(self, detail: str) -> None:
        """Reports the progress of the present activity, as a sentence."""
        self._metrics.detail = detail
        self.nudge()

    def beat(self, *, writes_steps: bool = True) -> None:
        """Writes the status file now, and what the steps reported."""
        with self._writing:
            awaited = [self._awaited.popleft() for _ in range(len(self._awaited))]
            trouble = self._do_chores(writes_steps=writes_steps) or self._unwritten
            now = time.monotonic()
            self._pace_told = self._pace
            self._due_at = now + self._pace_told.interval_seconds - ROUNDING_SECONDS
            self._steps_due_at = now + IDLE_STEPS_SECONDS if writes_steps else self._steps_due_at
            self._told = trouble
            status = self._status(trouble)
            # A detail of the activity, such as the checkpoint being saved, takes precedence.
            full = msgspec.structs.replace(status, detail=self._metrics.detail or DISK_FULL)
            try:
                self.file.write(status, if_full=full)
                self._unwritten = ""
            except OSError as error:
                problem = describe_error(error)
                is_new = not self._unwritten
                self._unwritten = f"an earlier heartbeat could not be written: {problem}"
                if is_new:
                    self._on_unwritten(problem)
            for written in awaited:
                written.set()

    def _do_chores(self, *, writes_steps: bool) -> str:
        """Runs the tasks that the loop leaves to the heartbeat; returns a problem or nothing."""
        try:
            self._attention.ask(MEMBER_LOOK_SECONDS if self._pace is MEMBER else 0.0)
            self._stacks.write_if_asked(is_looked_at=self._attention.is_given)
            if self._gatherer is not None and self._attention.is_given:
                self._gatherer.gather(os.getpid(), self.process_started_at)
            return self._every_second(writes_steps)
        except Exception as error:
            # Any error is reported in the heartbeat, and the tasks run again with the next one.
            return f"{type(error).__name__}: {describe_error(error)}"

    def facts(self) -> WorkerFacts:
        """Returns the state of this worker for the record of a checkpoint."""
        metrics = self._metrics
        return WorkerFacts(
            index=self._index,
            host=host_name(),
            step_seconds=median(metrics.step_seconds),
            input_wait_seconds=median(metrics.input_seconds),
            memory_bytes=self._process.memory_info().rss,
            metrics=finite(metrics.reported),
            not_finite=list(metrics.not_finite.current),
        )

    def _measure_cpu(self) -> float | None:
        """Returns CPU use, measured over at least half an interval to limit noise."""
        now = time.monotonic()
        if now - self._cpu_at >= INTERVAL_SECONDS / 2:
            used = self._process.cpu_percent()
            # The first call only starts the measurement.
            self._cpu = used if self._cpu_at else None
            self._cpu_at = now
        return self._cpu

    def _run(self) -> None:
        while not self._stopping.is_set():
            is_asked = self._beat_now.wait(INTERVAL_SECONDS)
            self._beat_now.clear()
            with self._writing:
                is_due = (
                    is_asked
                    or time.monotonic() >= self._due_at
                    or self._do_chores(writes_steps=False) != self._told
                    or self._pace.interval_seconds < self._pace_told.interval_seconds
                )
            if is_due:
                are_due = time.monotonic() >= self._steps_due_at
                self.beat(writes_steps=is_asked or are_due or self._attention.is_given)

    @property
    def _pace(self) -> Pace:
        """How often heartbeats are due: each second if somebody looks, or the steps do not go on.

        While a member of many workers makes short steps, those of the chief tell that it lives.
        """
        metrics = self._metrics
        usual = median(metrics.step_seconds)
        call_seconds = usual and usual * metrics.steps_per_call
        if stands(metrics.activity, metrics.last_step_at, call_seconds, time.time()):
            return FREQUENT
        is_short = call_seconds is not None and call_seconds <= SHORT_SECONDS
        makes_steps = metrics.activity is Activity.TRAINING and metrics.last_step_at is not None
        if self._is_member and is_short and makes_steps and not self._attention.is_given:
            return MEMBER
        return self._attention.pace

    def _status(self, trouble: str) -> WorkerStatus:
        metrics = self._metrics
        reported = finite(metrics.reported)
        return WorkerStatus(
            index=self._index,
            host=host_name(),
            **own_process()._asdict(),
            namespace=process_namespace(),
            directory=directory_of(self._run_directory),
            updated_at=time.time(),
            **self._pace_told._asdict(),
            activity=metrics.activity,
            job=self._job,
            step=metrics.step,
            branch=metrics.branch,
            total_steps=self._total_steps,
            step_seconds=median(metrics.step_seconds),
            step_seconds_p95=percentile_95(metrics.step_seconds),
            step_seconds_mean=mean(metrics.step_seconds),
            steps_per_call=metrics.steps_per_call,
            input_wait_seconds=median(metrics.input_seconds),
            loss=reported.get("loss"),
            metrics=reported,
            examples_per_second=metrics.examples_per_second,
            cpu_percent=self._measure_cpu(),
            memory_bytes=self._process.memory_info().rss,
            gpus=self._gpus.read(),
            ending=metrics.ending,
            detail=metrics.detail or trouble or metrics.background,
            fault=metrics.fault,
            last_step_at=metrics.last_step_at,
            phase=metrics.phase,
            phase_since=metrics.phase_since,
            cpu_stall_ratio=self._cpu_stall.ratio(),
            not_finite=list(metrics.not_finite.current),
            saves=metrics.saves.status(metrics.step),
            hyperparameters=metrics.hyperparameters(),
            shares=metrics.shares.read(),
            write_problem=metrics.write_problem,
        )
