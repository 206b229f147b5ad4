"""`TrainingRun`: makes a training loop steerable, resumable and visible."""

from __future__ import annotations

import atexit
import os
import platform
import signal
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import msgspec
import tensorflow as tf
from filelock import FileLock, Timeout

from tfckpt_trainer.catalog.retention.policy import Policy, RetentionSettings
from tfckpt_trainer.errors import RefusedError, UsageError, in_words
from tfckpt_trainer.rundir.command_queue import CommandBox
from tfckpt_trainer.rundir.documents import load_if_there, store
from tfckpt_trainer.rundir.liveness import other_trainer_lives, refuse_another_trainer
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import JournalKind
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.records.worker import Activity, Ending, Phase
from tfckpt_trainer.rundir.reserve import keep_reserve
from tfckpt_trainer.training.checkpoint.automatic_prune import AutomaticPruner
from tfckpt_trainer.training.checkpoint.restore_manager import RestoreManager
from tfckpt_trainer.training.checkpoint.restorer import Restorer
from tfckpt_trainer.training.checkpoint.save_manager import SaveManager
from tfckpt_trainer.training.checkpoint.save_options import SaveOptions
from tfckpt_trainer.training.checkpoint.saver import Saver
from tfckpt_trainer.training.checkpoint.state import SharedState, WorkerState
from tfckpt_trainer.training.checkpoint.user_state import UserState
from tfckpt_trainer.training.export import carry_out, export_asked
from tfckpt_trainer.training.loop.command_handler import CommandHandler
from tfckpt_trainer.training.loop.command_poller import CommandPoller
from tfckpt_trainer.training.loop.coordination import Coordination
from tfckpt_trainer.training.loop.improvement import Improvement
from tfckpt_trainer.training.loop.inputs import DatasetFunction, Inputs
from tfckpt_trainer.training.loop.iterators import keep_resources
from tfckpt_trainer.training.loop.parameter_server_step import ParameterServerStep
from tfckpt_trainer.training.loop.position import Position
from tfckpt_trainer.training.loop.schedule import Schedule
from tfckpt_trainer.training.loop.step_functions import ReplicaStep, StepFunction
from tfckpt_trainer.training.loop.worker_group import (
    WorkerGroup,
    strategy_name,
    uses_parameter_servers,
)
from tfckpt_trainer.training.process import (
    PREEMPTED,
    leave,
    on_signal,
    on_uncaught_error,
    peers_watched,
    was_launched,
    was_terminated,
)
from tfckpt_trainer.training.starting import disk_errors_explained
from tfckpt_trainer.training.telemetry.heartbeat import Heartbeat
from tfckpt_trainer.training.telemetry.journal_writer import JournalWriter
from tfckpt_trainer.training.telemetry.step_metrics import StepMetrics
from tfckpt_trainer.training.telemetry.summaries import Curves

LOCK_SECONDS = 30.0
"""How long a start waits for whoever prunes, or for an earlier trainer to be gone."""


class TrainingRun:
    """A training loop that can be watched, saved and taken back from outside.

    ```python
    run = TrainingRun(run_dir, model=model, optimizer=optimizer, dataset=dataset,
                      strategy=strategy, save_every_steps=500)
    train_step = run.function(replica_step)
    for batch in run:
        train_step(batch)
    ```

    Create it on every worker, after the strategy, with `optimizer.build(...)` done: no variable
    may be created later. Iterating restores the newest good checkpoint first. Leave the loop
    through `total_steps` or `stop()`, which all workers follow together; a `break` ends the
    run at once and saves nothing.

    Attributes:
        step: Steps done.
        directory: The run directory.
        state: Values of the script's own, of kinds that JSON has and equal on all workers: saved
            with each checkpoint and brought back with it.
        worker_state: The same for values that each worker has for itself. With another number
            of workers they start empty.
    """

    def __init__(
        self,
        run_dir: str | Path | None = None,
        *,
        model: Any,
        optimizer: Any = None,
        dataset: tf.data.Dataset | DatasetFunction | None = None,
        strategy: tf.distribute.Strategy | None = None,
        total_steps: int | None = None,
        save_every_steps: int | None = None,
        save_every_seconds: float | None = None,
        save_on_improvement: str | None = None,
        saving: SaveOptions | None = None,
        extra: Mapping[str, Any] | None = None,
        worker_objects: Mapping[str, Any] | None = None,
        tensorboard: str | Path | None = None,
        retention: Policy | None = None,
        trash_hours: float | None = 1.0,
        make_room: bool = False,
        partial: bool = False,
        preempted_status: int = PREEMPTED,
    ) -> None:
        """Takes the parts of a training loop.

        Args:
            run_dir: The checkpoint directory; by default the one that the launcher gave.
            model: A Keras model, or any trackable object.
            optimizer: A built Keras optimizer, or None.
            dataset: Batches of one replica: this worker's own `tf.data.Dataset`, or a function
                of `tf.distribute.InputContext` that returns it. Without one, iterating yields
                the number of the step.
            strategy: By default the one whose scope is active.
            total_steps: The step after which training ends.
            save_every_steps: Save after every so many steps.
            save_every_seconds: Save when so many seconds have passed since the last save.
            save_on_improvement: Save when a metric is better than ever: `METRIC:min` or
                `METRIC:max`. The metric is reported by `function` or, equal on all workers, by
                `report`.
            saving: How checkpoints are written; by default in the foreground, by the chief.
            extra: More trackable objects that are equal on all workers, by name.
            worker_objects: More trackable objects that each worker has for itself, by name, such
                as a `tf.random.Generator` made outside the strategy's scope.
            tensorboard: Directory of the event files; by default within the run directory.
            retention: Which checkpoints to keep; what no rule keeps goes to the trash after each
                save. By default all are kept.
            trash_hours: How long what `retention` moved to the trash stays there, until it is
                deleted for good; None is for ever. What a person pruned is never deleted so.
            make_room: Whether a save that would not fit may empty the trash, the oldest first.
            partial: Whether to start from a checkpoint that does not fit the model in all its
                parts: what fits is restored, the rest is as the script made it, and the journal
                says what.
            preempted_status: With which status the process leaves after SIGTERM, once all is
                saved. Schedulers start again what ends with another one than 0.

        Raises:
            UsageError: No run directory was given, or an option makes no sense.
        """
        run_dir = run_dir or os.environ.get("TFCKPT_RUN_DIR")
        if not run_dir:
            raise UsageError(
                "No run directory: pass one to TrainingRun, or start the script with "
                "`tfckpt-tui launch RUN -- python SCRIPT`."
            )
        for name, value in [("total_steps", total_steps), ("save_every_steps", save_every_steps)]:
            if value is not None and value < 1:
                raise UsageError(f"{name} is {value}; it must be at least 1, or None.")
        # Through a symbolic link the run would have two names, in its manifests and for others.
        self.directory = Path(os.path.realpath(run_dir))
        self._run = RunDirectory(self.directory)
        with disk_errors_explained(self._run):
            self._run.create()
        self._strategy = strategy or tf.distribute.get_strategy()
        self._group = WorkerGroup(self._strategy)
        self._total_steps = total_steps
        self._metrics = StepMetrics()
        self._inputs = Inputs(self._strategy, self._group, dataset) if dataset else None
        self._tensorboard = Path(tensorboard) if tensorboard else self._run.tensorboard
        self._lock = FileLock(self._run.trainer_lock)
        self._retention = RetentionSettings(retention or Policy(), trash_hours, make_room)
        self._retention.check()
        self._partial = partial
        self._preempted_status = preempted_status
        self._attention = False
        self._exchanged = False
        self._options = saving or SaveOptions()
        self._options.check()
        self._position = Position()
        self._user_state = UserState(self._group.index)
        schedule = Schedule(
            save_every_steps,
            Improvement(save_on_improvement, self._group, self._position)
            if save_on_improvement is not None
            else None,
            self._options.when_full == "pause",
        )
        self._assemble(
            model, optimizer, extra or {}, worker_objects or {}, schedule, save_every_seconds
        )
        self._export = export_asked()
        if self._export is None:
            on_signal(signal.SIGTERM, self._on_termination)
            if was_terminated():
                self._on_termination()
            on_signal(signal.SIGUSR1, self._on_save_signal)
            on_uncaught_error(self._die, self._lose_peer, alone=self._group.processes == 1)

    def _assemble(
        self,
        model: Any,
        optimizer: Any,
        extra: Mapping[str, Any],
        worker_objects: Mapping[str, Any],
        schedule: Schedule,
        save_every_seconds: float | None,
    ) -> None:
        run, group, metrics = self._run, self._group, self._metrics
        world = {
            "workers": group.size,
            "replicas": group.replicas,
            "strategy": strategy_name(self._strategy),
        }
        self._model = model
        self._optimizer = optimizer
        self._shared = shared = SharedState(model, optimizer, extra)
        own = WorkerState(model, self._inputs.iterator if self._inputs else None, worker_objects)
        box = CommandBox(run)
        self._box = box
        self._journal = JournalWriter(run, box, is_chief=group.is_chief)
        self._curves = Curves(run, self._tensorboard, group.index, metrics)
        self._heartbeat = Heartbeat(
            run,
            group.index,
            metrics,
            total_steps=self._total_steps,
            every_beat=self._every_beat,
            job="chief" if uses_parameter_servers(self._strategy) else "worker",
        )
        self._poller = CommandPoller(box, save_every_seconds, self._note_of_box)
        janitor = AutomaticPruner(run, self._retention, self._journal)
        saver = Saver(run, group, shared, own, world, janitor.make_room, self._options)
        self._saves = SaveManager(
            run,
            saver,
            self._position,
            self._options,
            self._journal,
            metrics,
            self._heartbeat,
            self._curves,
            janitor,
            self._user_state,
        )
        self._restores = RestoreManager(
            run,
            group,
            shared,
            self._saves,
            Restorer(run, group, shared, own, world),
            self._position,
            self._journal,
            metrics,
            self._heartbeat,
            self._curves,
            self._user_state,
            partial=self._partial,
        )
        self._coordination = Coordination(
            group,
            self._restores,
            self._saves,
            CommandHandler(run, group, self._restores, self._saves, self._journal),
            self._journal,
            self._poller,
            metrics,
            self._heartbeat,
            schedule,
        )

    @property
    def step(self) -> int:
        """Steps done."""
        return self._position.step

    @property
    def branch(self) -> int:
        """The branch on which the run is; a return to an older step starts a new one."""
        return self._position.branch

    @property
    def worker_count(self) -> int:
        """How many workers train together."""
        return self._group.size

    @property
    def replica_count(self) -> int:
        """Replicas whose gradients are added up in a step: by it a loss is divided for a mean."""
        return self._group.replicas

    @property
    def state(self) -> dict[str, Any]:
        """Values of the script's own, equal on all workers, that go with a checkpoint."""
        return self._user_state.shared

    @property
    def worker_state(self) -> dict[str, Any]:
        """Values of the script's own, of this worker alone, that go with a checkpoint."""
        return self._user_state.own

    def before_save(self, act: Callable[[], None]) -> None:
        """Has `act` called on each worker before a save, to bring `state` up to date."""
        self._user_state.before_save.append(act)

    def after_restore(self, act: Callable[[], None]) -> None:
        """Has `act` called on each worker after a restore, also the one at the start."""
        self._user_state.after_restore.append(act)

    @property
    def is_chief(self) -> bool:
        """Whether this is the worker that writes what is shared."""
        return self._group.is_chief

    def function(self, replica_step: ReplicaStep) -> Callable[[Any], dict[str, float]]:
        """Makes a function of one replica into a training step of the whole run.

        Args:
            replica_step: Takes a batch on one replica, updates the variables, and returns its
                mean loss or a dictionary of scalars.

        Returns:
            A function of what iterating yields. It runs on all replicas in one `tf.function`
            and returns the means over all of them, reduced in one collective.
        """
        step = self._step_function(replica_step)

        def watched_step(batch: Any) -> dict[str, float]:
            self._metrics.enter(Phase.STEP)
            with self._peers_watched():
                result = step(batch)
            self._metrics.enter(Phase.SCRIPT)
            return result

        return watched_step

    def _step_function(self, replica_step: ReplicaStep) -> StepFunction | ParameterServerStep:
        def wants_attention() -> bool:
            return self._coordination.wants_attention

        if not uses_parameter_servers(self._strategy):
            return StepFunction(self._strategy, replica_step, wants_attention, self._on_step_result)
        return ParameterServerStep(
            self._strategy, self._optimizer, replica_step, wants_attention, self._on_step_result
        )

    def report(self, **metrics: Any) -> None:
        """Shows more metrics with this step: scalars that are equal on all workers.

        Args:
            **metrics: By name. A loop that does not use `function` reports its `loss` here.
        """
        self._metrics.fresh.update({name: float(value) for name, value in metrics.items()})

    def note(self, message: str) -> None:
        """Writes a line into the journal, as the chief; elsewhere it does nothing."""
        self._journal.note(JournalKind.NOTE, message, step=self.step, branch=self.branch)

    def stop(self) -> None:
        """Ends the run on all workers after the present step, with a save."""
        self._coordination.stop_requested = Ending.STOPPED

    def finish(self) -> None:
        """Ends the run as one that reached its end, after the present step, with a save.

        All workers call it in the same step, as they do where equal metrics decide it.
        """
        self._coordination.stop_requested = Ending.FINISHED
        self._attention = self._exchanged = True

    def __iter__(self) -> Iterator[Any]:
        """Yields the input of one step after the other, and serves commands between them.

        Raises:
            RefusedError: Another trainer has this directory, or no checkpoint in it fits.
        """
        self.open()
        try:
            while not self.is_over:
                if self._total_steps is not None and self.step >= self._total_steps:
                    self._finish()
                    break
                began = time.perf_counter()
                self._metrics.enter(Phase.INPUT)
                try:
                    batch, waited = self._inputs.next() if self._inputs else (self.step, 0.0)
                except StopIteration:
                    self._finish()
                    break
                self._exchanged = False
                self._metrics.enter(Phase.SCRIPT)
                yield batch
                self.step_done(time.perf_counter() - began, waited)
        finally:
            self.close()

    def open(self) -> None:
        """Restores the newest good checkpoint, and listens to commands from then on.

        With `step_done` and `close` it is for loops that cannot iterate over the run; iterating
        calls all three.

        Raises:
            RefusedError: Another trainer has this directory, or no checkpoint in it fits.
        """
        if self._export is not None:
            carry_out(self._export, self._run, self._shared, self._model, self._inputs)
            leave(0)
        atexit.register(keep_resources)
        with self._peers_watched():
            with disk_errors_explained(self._run):
                if self._group.is_chief:
                    # The lock does not tell where a file system does not share locks.
                    refuse_another_trainer(self._run, 0)
                self._heartbeat.start()
                if self._group.is_chief:
                    self._take_over()
                    keep_reserve(self._run)
            self._restores.begin()
            self._metrics.activity = Activity.TRAINING
            if self._group.is_chief:
                self._poller.start()

    def _take_over(self) -> None:
        try:
            self._lock.acquire(timeout=LOCK_SECONDS)
        except Timeout:
            raise RefusedError(
                f"Another trainer works in {self.directory} (it holds "
                f"{self._run.trainer_lock}); stop it with `tfckpt-tui stop {self.directory}`, "
                "or train in another directory."
            ) from None
        for command in self._box.abandon_active("The trainer ended before it was finished."):
            self._journal.note(
                JournalKind.FAILED,
                f"{command.kind.value}: the trainer ended before it was finished.",
                by=command.requested_by,
            )
        for cleared in self._box.clear_damaged(time.monotonic(), at_once=True):
            self._note_of_box(cleared)
        known = load_if_there(self._run.run_file, RunInfo) or RunInfo(
            id=uuid.uuid4().hex[:12], created_at=time.time()
        )
        store(
            self._run.run_file,
            msgspec.structs.replace(
                known,
                strategy=strategy_name(self._strategy),
                worker_count=self._group.processes,
                replica_count=self._group.replicas,
                total_steps=self._total_steps,
                retention=self._retention.recorded,
                tensorboard=str(_within(self._tensorboard, self.directory)),
                host=socket.gethostname(),
                versions={
                    "python": platform.python_version(),
                    "tensorflow": tf.__version__,
                    "keras": keras.__version__,
                },
            ),
        )

    def _note_of_box(self, message: str) -> None:
        self._journal.note(JournalKind.NOTE, message)

    @property
    def is_over(self) -> bool:
        """Whether a command, a signal or the last step ended the run."""
        return self._coordination.ending is not None

    def step_done(self, seconds: float, waited: float = 0.0) -> None:
        """Counts a step, and does what is due after it: saves, commands, pauses.

        Args:
            seconds: How long the step took.
            waited: How much of that it waited for its input.
        """
        with self._peers_watched():
            self._complete_step(seconds, waited)

    def _complete_step(self, seconds: float, waited: float) -> None:
        self._position.step += 1
        if self._inputs and self._inputs.examples and self._metrics.examples_per_step is None:
            self._metrics.examples_per_step = self._inputs.examples * self._group.replicas
        if not self._exchanged:
            self._attention = self._group.any(self._coordination.wants_attention)
        self._metrics.step_done(self.step, seconds, waited)
        self._coordination.after_step(self._attention, seconds)

    def _on_step_result(self, metrics: dict[str, float], attention: bool) -> None:
        self._metrics.fresh.update(metrics)
        self._metrics.reduced = frozenset(metrics)
        self._attention = attention
        self._exchanged = True

    def _finish(self) -> None:
        with self._peers_watched():
            self._coordination.finish()

    def close(self, *, finished: bool = False) -> None:
        """Ends what `open` began; all workers call it together.

        Args:
            finished: Whether training reached its end; then its last step is saved.
        """
        if finished and not self.is_over:
            self._finish()
        ending = self._coordination.ending
        if ending is None:
            self._saves.leave()
            self._end(Ending.STOPPED, "The script left the loop; nothing was saved then.")
            return
        with self._peers_watched():
            self._saves.finish_open()
            # The last meeting: a worker that leaves while others still reduce looks dead.
            self._group.gather({})
        if ending is Ending.FINISHED:
            self._journal.note(
                JournalKind.FINISH,
                f"Finished after step {self.step}.",
                step=self.step,
                branch=self.branch,
            )
        self._end(ending, "")
        if ending is Ending.PREEMPTED or (ending is Ending.STOPPED and was_launched()):
            # The process is about to end. Iterators that the script or Keras made would hold it
            # up when the functions return in which they were made.
            keep_resources()
        if ending is Ending.PREEMPTED:
            # What follows the loop belongs to the end of training, which this is not.
            raise SystemExit(self._preempted_status)

    def _end(self, ending: Ending, detail: str) -> None:
        self._metrics.activity = Activity.EXITED
        self._metrics.ending = ending
        self._metrics.detail = detail
        self._poller.stop()
        if not self._is_beside_another:
            self._heartbeat.stop()
        self._curves.close()
        self._lock.release()
        if self._inputs is not None:
            self._inputs.close()

    def _every_beat(self) -> str:
        """Does what the loop leaves to the heartbeat; returns what troubles it."""
        self._curves.draw_new_steps()
        self._curves.flush()
        try:
            self._journal.retry()
        except OSError as error:
            return f"what happened cannot be written down: {in_words(error)}"
        return self._curves.trouble or self._poller.trouble or self._journal.trouble

    def _on_termination(self) -> None:
        self._coordination.stop_requested = Ending.PREEMPTED

    def _on_save_signal(self) -> None:
        self._coordination.save_requested = "SIGUSR1"

    @property
    def _is_beside_another(self) -> bool:
        """Whether this one was refused beside another trainer: it tells nothing in its place."""
        started = self._heartbeat.has_started
        return not started and other_trainer_lives(self._run, self._group.index) is not None

    def _die(self, why: str) -> None:
        if not self._is_beside_another:
            self._journal.note(JournalKind.FAILED, why, step=self.step, branch=self.branch)
        self._end(Ending.FAILED, why)

    def _lose_peer(self, why: str) -> None:
        self._journal.note(JournalKind.WORKER_LOST, why, step=self.step, branch=self.branch)
        self._end(Ending.PEER_LOST, why)

    def _peers_watched(self) -> Any:
        return peers_watched(self._group.processes == 1, self._lose_peer)


def _within(path: Path, directory: Path) -> Path:
    return path.relative_to(directory) if path.is_relative_to(directory) else path.absolute()
