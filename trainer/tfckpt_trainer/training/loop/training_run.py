"""`TrainingRun`: a training loop that saves, restores and takes commands."""

from __future__ import annotations

import atexit
import os
import platform
import signal
import socket
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import keras
import tensorflow as tf

from tfckpt_trainer.catalog.retention.policy import Policy, RetentionSettings
from tfckpt_trainer.errors import ExitCode, UsageError, describe_error
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.liveness import find_other_trainer, refuse_another_trainer
from tfckpt_trainer.rundir.lost_workers import explain_lost_worker
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import JournalKind
from tfckpt_trainer.rundir.records.exactness import merge_exactness
from tfckpt_trainer.rundir.records.worker import Activity, Ending, Phase
from tfckpt_trainer.rundir.reserve import explain_disk_errors
from tfckpt_trainer.rundir.storage.object_storage import refuse_url
from tfckpt_trainer.training.check.digests import saved_state
from tfckpt_trainer.training.check.session import CheckSession, check_order
from tfckpt_trainer.training.check.untracked import describe_untracked, find_untracked
from tfckpt_trainer.training.checkpoint.automatic_prune import AutomaticPruner
from tfckpt_trainer.training.checkpoint.disk_space import DiskSpace
from tfckpt_trainer.training.checkpoint.restore_manager import RestoreManager
from tfckpt_trainer.training.checkpoint.restorer import Restorer
from tfckpt_trainer.training.checkpoint.save_manager import SaveManager
from tfckpt_trainer.training.checkpoint.save_options import SaveOptions
from tfckpt_trainer.training.checkpoint.saver import Saver
from tfckpt_trainer.training.checkpoint.state import (
    Position,
    SharedState,
    TrainingState,
    UserState,
    WorkerState,
)
from tfckpt_trainer.training.export import export_request_path, run_export
from tfckpt_trainer.training.iterators import keep_resources_at_exit
from tfckpt_trainer.training.loop.command_handler import CommandHandler
from tfckpt_trainer.training.loop.command_poller import CommandPoller
from tfckpt_trainer.training.loop.coordinator import Coordinator
from tfckpt_trainer.training.loop.dataset_end import DatasetEnd
from tfckpt_trainer.training.loop.inputs import InputDataset, Inputs
from tfckpt_trainer.training.loop.parameter_server_step import ParameterServerStep
from tfckpt_trainer.training.loop.run_ownership import RunOwnership
from tfckpt_trainer.training.loop.save_schedule import Improvement, SaveSchedule
from tfckpt_trainer.training.loop.step_functions import ReplicaStep, StepFlags, StepFunction
from tfckpt_trainer.training.pipelines.input_state import InputState
from tfckpt_trainer.training.process import (
    exit_on_lost_peer,
    leave,
    on_signal,
    on_uncaught_error,
    sigterm_received,
    was_launched,
)
from tfckpt_trainer.training.state.passed import only_optimizer
from tfckpt_trainer.training.telemetry.telemetry import Telemetry
from tfckpt_trainer.training.worker_group import (
    WorkerGroup,
    strategy_name,
    uses_parameter_servers,
)

LAST_WRITES_SECONDS = 5.0
"""How long the end of a run waits for the event log on a disk that does not answer."""

SHOWN_UNTRACKED = 5
"""How many objects that were not passed are described one by one."""

_states: list[weakref.ref[TrainingState]] = []
"""The states of all runs of this process."""


class TrainingRun:
    """A training loop that can be watched, saved, restored and stopped from outside.

    ```python
    run = TrainingRun(run_dir, model=model, optimizer=optimizer, dataset=dataset,
                      strategy=strategy, save_every_steps=500)
    train_step = run.function(replica_step)
    for batch in run:
        train_step(batch)
    ```

    Create it on every worker, after the strategy and after `optimizer.build(...)`. No variable may
    be created later. Iterating restores the newest good checkpoint first. End the loop with
    `total_steps` or `stop()`, which all workers follow at the same step. A `break` ends the run at
    once, without a save.

    Attributes:
        step: Steps done.
        directory: The run directory.
        state: Values of the script that are saved and restored with each checkpoint. They must be
            equal on all workers and of types that JSON supports.
        worker_state: The same for values of this worker. If the number of workers changes, they
            start empty.
    """

    def __init__(
        self,
        run_dir: str | Path | None = None,
        *,
        model: Any,
        optimizer: Any = None,
        dataset: InputDataset | None = None,
        strategy: tf.distribute.Strategy | None = None,
        total_steps: int | None = None,
        save_every_steps: int | None = None,
        save_every_seconds: float | None = None,
        save_on_improvement: str | None = None,
        saving: SaveOptions | None = None,
        extra: Mapping[str, Any] | None = None,
        tensorboard: str | Path | None = None,
        retention: Policy | None = None,
        trash_hours: float | None = 1.0,
        make_room: bool = False,
        partial: bool = False,
        preempted_status: int = ExitCode.PREEMPTED,
        metrics: Any = None,
        on_dataset_end: Literal["stop", "wait"] = "stop",
    ) -> None:
        """Creates the run directory and prepares training.

        Args:
            run_dir: The checkpoint directory; by default the one that the launcher set.
            model: A Keras model or another trackable object, such as a `tf.Module`; several as a
                dictionary by name.
            optimizer: A built Keras optimizer, several as a dictionary by name, or None.
            dataset: Batches of one replica: this worker's `tf.data.Dataset`, or a function of
                `tf.distribute.InputContext` that returns it. A dictionary of these by name yields
                a dictionary of batches. Without a dataset, iterating yields the step.
            strategy: The strategy; by default the one whose scope is active.
            total_steps: The step after which training ends.
            save_every_steps: Save every N steps.
            save_every_seconds: Save N seconds after the last save.
            save_on_improvement: Save when a metric has a new best value: `METRIC:min` or
                `METRIC:max`. The metric is reported by `function` or, equal on all workers, by
                `report`.
            saving: How checkpoints are written; by default in the foreground, by the chief.
            extra: Further objects to save, by name: trackable objects such as a
                `tf.random.Generator` or `tf.Variable`, Keras metrics, and objects with
                `state_dict()` and `load_state_dict()`.
            tensorboard: Directory of the event files; by default within the run directory.
            retention: Which checkpoints to keep. After each save, all others are moved to the
                trash. By default all are kept.
            trash_hours: How long checkpoints that `retention` moved to the trash stay there
                before they are deleted. None keeps them forever. Checkpoints that a user pruned
                are never deleted automatically.
            make_room: Whether a save that does not fit on the disk may empty the trash, oldest
                first.
            partial: Whether to start from a checkpoint of which only parts fit the model. What
                fits is restored, the rest keeps its initial value, and the event log lists it.
            preempted_status: Exit status after SIGTERM, once everything is saved. Schedulers
                restart jobs that exit with a status other than 0.
            metrics: Keras metrics that are kept across steps: one, or a dictionary by name. Those
                of a compiled model are found by themselves.
            on_dataset_end: What happens if the dataset of one worker ends before others. `stop`
                ends the run after the last step for which all workers have data. `wait` goes on
                with the others until all datasets have ended; the step must be a `function` that
                updates the model by a Keras optimizer.

        Raises:
            UsageError: There is no run directory, or an option is invalid.
        """
        _check_counts(total_steps=total_steps, save_every_steps=save_every_steps)
        order = check_order()
        if order is not None:
            # A check saves by itself, in a directory of its own.
            run_dir = tensorboard = retention = None
            save_every_steps = save_every_seconds = save_on_improvement = None
        self._run = run = _created_run_directory(run_dir)
        self.directory = run.root
        self._total_steps = total_steps
        self._partial = partial
        self._preempted_status = preempted_status
        self._tensorboard = Path(tensorboard) if tensorboard else run.tensorboard
        self._retention = RetentionSettings(retention or Policy(), trash_hours, make_room)
        self._retention.check()
        if tensorboard is not None:
            refuse_url(tensorboard, "the directory of TensorBoard")
        options = saving or SaveOptions()
        options.check()
        if order is not None:
            options = replace(options, fallback_directory=None)

        # The workers and their state.
        self._strategy = strategy or tf.distribute.get_strategy()
        self._group = group = WorkerGroup(self._strategy)
        self._model = model
        self._optimizer = optimizer
        self._inputs = (
            Inputs(self._strategy, group, dataset, skips=options.skip_input)
            if dataset is not None
            else None
        )
        inputs = self._inputs.state if self._inputs else InputState()
        shared = SharedState(model, optimizer, extra or {}, metrics)
        self._state = state = TrainingState(
            shared=shared,
            worker=WorkerState(inputs, shared.user_objects),
            user=UserState(group.index),
            position=Position(),
        )
        inputs.add_tracked(state.shared.checkpoint)
        if options.require_exact:
            inputs.require_exact()

        # Metrics, heartbeat, event log.
        queue = CommandQueue(run)
        self._telemetry = telemetry = Telemetry(
            run, group, queue, tensorboard=self._tensorboard, total_steps=total_steps
        )
        self._ownership = RunOwnership(run, queue, telemetry.journal)
        telemetry.heartbeat.file.on_other_trainer = self._ownership.leave_to_other
        inputs.report = telemetry.heartbeat.describe

        # Saves and restores.
        pruner = AutomaticPruner(run, self._retention, telemetry.journal)
        disk = DiskSpace(run, state.shared, options, pruner.make_room)
        saver = Saver(run, group, state, options, disk, telemetry.journal)
        self._saves = saves = SaveManager(run, saver, state, telemetry, pruner, options)
        restorer = Restorer(run, group, state)
        self._restores = RestoreManager(run, group, state, telemetry, restorer, saves)

        # Work between steps.
        improvement = (
            Improvement(save_on_improvement, group, state.position)
            if save_on_improvement is not None
            else None
        )
        schedule = SaveSchedule(save_every_steps, save_every_seconds, improvement)
        telemetry.metrics.saves.set_intervals(save_every_steps, save_every_seconds)
        self._poller = CommandPoller(run, queue, telemetry)
        handler = CommandHandler(run, group, state.position, telemetry, saves, self._restores)
        self._coordinator = Coordinator(group, telemetry, saves, schedule, self._poller, handler)
        self._dataset_end = (
            DatasetEnd(group, self._inputs, telemetry, on_dataset_end) if self._inputs else None
        )
        if self._dataset_end is not None:
            self.after_restore(self._dataset_end.restored)

        self._check = (
            CheckSession(order, group, state, telemetry, saves, self._restores)
            if order is not None
            else None
        )
        self._export = export_request_path()
        if self._export is None:
            self._handle_signals_and_errors()

    def _handle_signals_and_errors(self) -> None:
        on_signal(signal.SIGTERM, self._on_termination)
        if sigterm_received():
            self._on_termination()
        on_signal(signal.SIGUSR1, self._on_save_signal)
        on_uncaught_error(
            self._end_failed, self._explain_loss, self._end_without_peer, alone=self._is_alone
        )

    @property
    def step(self) -> int:
        """Steps done."""
        return self._state.position.step

    @property
    def branch(self) -> int:
        """The present branch; going back to an older step starts a new one."""
        return self._state.position.branch

    @property
    def worker_count(self) -> int:
        """Number of workers that train together."""
        return self._group.size

    @property
    def replica_count(self) -> int:
        """Replicas whose gradients are added in a step; divide a loss by it for the mean."""
        return self._group.replicas

    @property
    def state(self) -> dict[str, Any]:
        """Values of the script that are saved with a checkpoint, equal on all workers."""
        return self._state.user.shared

    @property
    def worker_state(self) -> dict[str, Any]:
        """Values of the script that are saved with a checkpoint, of this worker."""
        return self._state.user.worker

    def before_save(self, act: Callable[[], None]) -> None:
        """Calls `act` on each worker before each save, such as to update `state`."""
        self._state.user.before_save.append(act)

    def after_restore(self, act: Callable[[], None]) -> None:
        """Calls `act` on each worker after each restore, including the one at the start."""
        self._state.user.after_restore.append(act)

    @property
    def is_chief(self) -> bool:
        """Whether this is the worker that writes the shared state."""
        return self._group.is_chief

    def function(self, replica_step: ReplicaStep) -> Callable[[Any], dict[str, float]]:
        """Turns a function of one replica into a training step of the whole run.

        Args:
            replica_step: Takes a batch on one replica, updates the variables, and returns its
                mean loss or a dictionary of scalars.

        Returns:
            A function that takes the input of a step, as iterating over the run yields it. It
            runs on all replicas in one `tf.function`, and returns the means over all replicas,
            reduced in one collective.
        """
        step = self._step_function(replica_step)
        metrics = self._telemetry.metrics

        def watched_step(batch: Any) -> dict[str, float]:
            metrics.enter(Phase.STEP)
            with self._peers_watched():
                result = step(batch)
            metrics.enter(Phase.SCRIPT)
            return result

        return watched_step

    def _step_function(self, replica_step: ReplicaStep) -> StepFunction | ParameterServerStep:
        coordinator, dataset_end = self._coordinator, self._dataset_end

        def flags() -> StepFlags:
            if dataset_end is None:
                return StepFlags(coordinator.needs_sync, may_end=False)
            return StepFlags(coordinator.needs_sync, dataset_end.flag, dataset_end.has_data)

        def on_result(metrics: dict[str, float], flags: StepFlags) -> None:
            coordinator.step_computed(metrics, flags.needs_sync)
            if dataset_end is not None:
                dataset_end.step_computed(flags.may_end)

        if not uses_parameter_servers(self._strategy):
            return StepFunction(
                self._strategy,
                replica_step,
                flags,
                on_result,
                variables=self._variables
                if dataset_end is not None and dataset_end.leaves_out
                else None,
            )
        optimizer = only_optimizer(self._optimizer)
        return ParameterServerStep(self._strategy, optimizer, replica_step, flags, on_result)

    def _variables(self) -> Iterator[Any]:
        """Yields all variables of the run."""
        yield from (one.thing for one in self._state.shared.find() if one.rule.is_variable)

    def report(self, **metrics: Any) -> None:
        """Reports further metrics of this step: scalars that are equal on all workers.

        Args:
            **metrics: Values by name. A loop that does not use `function` reports its `loss`.
        """
        values = {name: float(value) for name, value in metrics.items()}
        self._telemetry.metrics.fresh.update(values)

    def note(self, message: str) -> None:
        """Writes a line to the event log, on the chief only."""
        self._note(JournalKind.NOTE, message)

    def stop(self) -> None:
        """Stops the run on all workers after this step, with a save."""
        self._coordinator.stop_requested = Ending.STOPPED

    def finish(self) -> None:
        """Ends the run as finished after this step, with a save.

        All workers must call it in the same step, for example because of equal metrics.
        """
        self._coordinator.request_finish()

    def __iter__(self) -> Iterator[Any]:
        """Yields the input of each step, and handles saves and commands between steps.

        Raises:
            RefusedError: Another trainer uses this directory, or no checkpoint in it fits.
        """
        self.open()
        metrics = self._telemetry.metrics
        try:
            while not self.is_over:
                if self._total_steps is not None and self.step >= self._total_steps:
                    self._finish()
                    continue
                began = time.perf_counter()
                metrics.enter(Phase.INPUT)
                read = self._next_input()
                if read is None:
                    self._finish()
                    continue
                batch, waited = read
                metrics.enter(Phase.SCRIPT)
                if self._check is not None and self._inputs is not None:
                    self._check.take_batch(batch)
                yield batch
                self.step_done(time.perf_counter() - began, waited)
        finally:
            self.close()

    def _next_input(self) -> tuple[Any, float] | None:
        """Returns the input of the next step and the seconds it took; None after the last."""
        if self._dataset_end is None:
            return self.step, 0.0
        with self._peers_watched():
            return self._dataset_end.next()

    def open(self) -> None:
        """Restores the newest good checkpoint and starts taking commands.

        Loops that cannot iterate over the run call `open`, `step_done` and `close`; iterating
        calls all three.

        Raises:
            RefusedError: Another trainer uses this directory, or no checkpoint in it fits.
        """
        if self._export is not None:
            run_export(self._export, self._run, self._state.shared, self._model, self._inputs)
            leave(0)
        atexit.register(keep_resources_at_exit)
        with self._peers_watched():
            with explain_disk_errors(self._run):
                if self._group.is_chief:
                    # The lock does not work on a file system that does not share locks.
                    refuse_another_trainer(self._run, 0)
                self._telemetry.heartbeat.start()
                exactness = merge_exactness(
                    self._group.all_gather(self._state.worker.inputs.exactness)
                )
                if self._group.is_chief:
                    self._ownership.acquire(**self._info(), exactness=exactness)
                    self._telemetry.note_exactness(exactness)
            self._restores.restore_newest(partial=self._partial)
            if self._check is not None:
                self._check.opened()
            elif self._group.is_chief:
                self._warn_of_untracked()
            self._telemetry.metrics.activity = Activity.TRAINING
            if self._group.is_chief:
                self._poller.start()

    def _info(self) -> dict[str, Any]:
        """Returns the fields of `run.json` that describe this trainer."""
        return {
            "strategy": strategy_name(self._strategy),
            "worker_count": self._group.processes,
            "replica_count": self._group.replicas,
            "total_steps": self._total_steps,
            "retention": self._retention.recorded,
            "tensorboard": str(_relative(self._tensorboard, self.directory)),
            "host": socket.gethostname(),
            "versions": {
                "python": platform.python_version(),
                "tensorflow": tf.__version__,
                "keras": keras.__version__,
            },
        }

    @property
    def is_over(self) -> bool:
        """Whether a command, a signal or the last step ended the run."""
        return self._coordinator.ending is not None

    def step_done(self, seconds: float, waited: float = 0.0) -> None:
        """Counts a step, and handles saves, commands and pauses that are due after it.

        Args:
            seconds: How long the step took.
            waited: How much of that it waited for its input.
        """
        metrics = self._telemetry.metrics
        with self._peers_watched():
            self._state.position.step += 1
            if self._inputs and self._inputs.examples and metrics.examples_per_step is None:
                metrics.examples_per_step = self._inputs.examples * self._group.replicas
            self._coordinator.step_done(self.step, seconds, waited)
            if self._check is not None:
                self._check.step_done()
                self._end_check()

    def _finish(self) -> None:
        with self._peers_watched():
            if self._check is not None:
                self._check.data_ended()
                self._end_check()
            else:
                self._coordinator.finish()

    def _end_check(self) -> None:
        if self._check is not None and self._check.is_done:
            self._coordinator.ending = self._coordinator.ending or Ending.STOPPED

    def _warn_of_untracked(self) -> None:
        try:
            _states.append(weakref.ref(self._state))
            # State of an earlier run of this process is not missing in this one.
            states = [state for state in (known() for known in _states) if state is not None]
            found = find_untracked(thing for state in states for _, thing in saved_state(state))
        except Exception as error:
            # It calls properties of the script's objects; training does not depend on it.
            self.note(f"State that was not passed cannot be listed: {describe_error(error)}")
            return
        missing = [untracked for untracked in found if not untracked.by_keras]
        for untracked in missing[:SHOWN_UNTRACKED]:
            self.note(describe_untracked(untracked))
        if len(missing) > SHOWN_UNTRACKED:
            more = ", ".join(str(untracked) for untracked in missing[SHOWN_UNTRACKED:][:20])
            self.note(f"Not saved either, for the same reason: {more}.")

    def close(self, *, finished: bool = False) -> None:
        """Finishes saves and releases the run directory. All workers call it together.

        Args:
            finished: Whether training reached its end; then its last step is saved.
        """
        if finished and not self.is_over and self._check is None:
            self._finish()
        ending = self._coordinator.ending
        if ending is None:
            self._saves.wait_before_exit()
            self._end(
                Ending.STOPPED,
                "The script left the loop; its last steps were not saved.",
                beside_another=self._is_beside_another(),
            )
            return
        with self._peers_watched():
            self._saves.finish_all()
            # A worker that leaves while others still wait in a collective would look dead.
            self._group.barrier()
        if ending is Ending.FINISHED:
            self._note(JournalKind.FINISH, f"Finished after step {self.step}.")
        self._end(ending)
        if ending is Ending.PREEMPTED or (ending is Ending.STOPPED and was_launched()):
            # The process is about to exit. Iterators of the script or of Keras would delay that
            # when the functions that created them return.
            keep_resources_at_exit()
        if ending is Ending.PREEMPTED:
            # The code after the loop is for the end of training, which this is not.
            raise SystemExit(self._preempted_status)
        if self._check is not None:
            raise SystemExit(ExitCode.DONE)

    def _end(self, ending: Ending, detail: str = "", *, beside_another: bool = False) -> None:
        """Writes the last heartbeat, unless it would replace another trainer's, and cleans up."""
        metrics = self._telemetry.metrics
        metrics.activity = Activity.EXITED
        metrics.ending = ending
        metrics.detail = detail
        self._poller.stop()
        self._telemetry.journal.close(LAST_WRITES_SECONDS)
        if not beside_another:
            self._telemetry.heartbeat.stop()
        self._telemetry.summaries.close()
        self._ownership.release()
        if self._inputs is not None:
            self._inputs.close()

    def _end_failed(self, why: str) -> None:
        beside_another = self._is_beside_another()
        if not beside_another:
            self._note(JournalKind.FAILED, why)
        self._end(Ending.FAILED, why, beside_another=beside_another)

    def _explain_loss(self) -> str:
        since = self._telemetry.heartbeat.process_started_at
        return explain_lost_worker(self._run, self._group.index, since)

    def _end_without_peer(self, why: str) -> None:
        self._note(JournalKind.WORKER_LOST, why)
        self._end(Ending.PEER_LOST, why, beside_another=self._is_beside_another())

    def _is_beside_another(self) -> bool:
        """Whether another trainer uses this directory: its status file must not be replaced."""
        if self._telemetry.heartbeat.has_started:
            return False
        return find_other_trainer(self._run, self._group.index) is not None

    def _on_termination(self) -> None:
        self._coordinator.stop_requested = Ending.PREEMPTED

    def _on_save_signal(self) -> None:
        self._coordinator.save_requested = "SIGUSR1"

    def _note(self, kind: JournalKind, message: str) -> None:
        # At the step of this object: within a step, the metrics may be one step behind.
        self._telemetry.note(kind, message, step=self.step, branch=self.branch)

    @property
    def _is_alone(self) -> bool:
        return self._group.processes == 1

    def _peers_watched(self) -> AbstractContextManager[None]:
        return exit_on_lost_peer(self._is_alone, self._explain_loss, self._end_without_peer)


def _check_counts(**counts: int | None) -> None:
    for name, value in counts.items():
        if value is not None and value < 1:
            raise UsageError(f"{name} is {value}; it must be at least 1, or None.")


def _created_run_directory(run_dir: str | Path | None) -> RunDirectory:
    run_dir = run_dir or os.environ.get("TFCKPT_RUN_DIR")
    if not run_dir:
        raise UsageError(
            "No run directory: pass one to TrainingRun, or start the script with "
            "`tfckpt-tui launch RUN -- python SCRIPT`."
        )
    refuse_url(run_dir)
    # A symbolic link would give the run two names, for example in its manifests.
    run = RunDirectory(Path(os.path.realpath(run_dir)))
    with explain_disk_errors(run):
        run.create()
    return run


def _relative(path: Path, directory: Path) -> Path:
    return path.relative_to(directory) if path.is_relative_to(directory) else path.absolute()
