"""`TrainingRun`: a training loop that saves, restores and takes commands."""

from __future__ import annotations

import atexit
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import tensorflow as tf

from tfckpt_trainer.bundle.checksum import require_extension
from tfckpt_trainer.catalog.directory.history import refuse_newer_release
from tfckpt_trainer.catalog.retention.policy import Policy, RetentionSettings
from tfckpt_trainer.cluster.slurm import refuse_several_tasks
from tfckpt_trainer.errors import ExitCode, UsageError
from tfckpt_trainer.guards import Guard
from tfckpt_trainer.rundir.full_disk import explain_disk_errors
from tfckpt_trainer.rundir.heartbeats.liveness import refuse_another_run, refuse_another_trainer
from tfckpt_trainer.rundir.heartbeats.process_ids import host_name
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.hyperparameter import Bounds
from tfckpt_trainer.rundir.records.run import SAVES_AT_END
from tfckpt_trainer.rundir.records.worker import Ending, Phase
from tfckpt_trainer.rundir.run_info import staying_in
from tfckpt_trainer.rundir.storage.documents import replace_newer_documents
from tfckpt_trainer.rundir.storage.object_storage import refuse_url
from tfckpt_trainer.scripts.exit_statuses import choose_statuses
from tfckpt_trainer.scripts.script_objects import objects_with
from tfckpt_trainer.training.check.session import check_order
from tfckpt_trainer.training.check.untracked_notes import note_untracked, remember_state
from tfckpt_trainer.training.checkpoint.saves.default_saves import BY_DEFAULT, ByDefault
from tfckpt_trainer.training.checkpoint.saves.save_options import SaveOptions
from tfckpt_trainer.training.checkpoint.saves_and_restores import SavesAndRestores
from tfckpt_trainer.training.draws.by_step import DrawsByStep
from tfckpt_trainer.training.keras_library import Variable, keras
from tfckpt_trainer.training.loop.between_calls import BetweenCalls
from tfckpt_trainer.training.loop.coordinator import INTERRUPTED
from tfckpt_trainer.training.loop.error_save import ErrorSave
from tfckpt_trainer.training.loop.export import export_request_path, run_export
from tfckpt_trainer.training.loop.run_exactness import RunExactness
from tfckpt_trainer.training.loop.run_options import (
    RunOptions,
    choose_save_times,
    guards_of,
)
from tfckpt_trainer.training.loop.run_ownership import RunOwnership
from tfckpt_trainer.training.loop.run_state import LiveRunState, PassedObjects, supports_seed
from tfckpt_trainer.training.loop.save_schedule import SaveWhen
from tfckpt_trainer.training.loop.shutdown import DATASET_ENDED, FinishedRun, Shutdown
from tfckpt_trainer.training.loop.step_builder import StepBuilder
from tfckpt_trainer.training.pipelines.iterators import keep_resources_at_exit
from tfckpt_trainer.training.process.import_environment import end_watch
from tfckpt_trainer.training.process.open_runs import (
    add_open_run,
    forget_left_run,
    keep_left_run,
    remove_open_run,
)
from tfckpt_trainer.training.process.signals_and_exit import (
    in_main_thread,
    is_restart,
    leave,
    on_interrupt,
    on_preemption_of_cluster,
    on_signal,
    sigterm_received,
    was_launched,
)
from tfckpt_trainer.training.steps.inputs import InputDataset
from tfckpt_trainer.training.steps.step_functions import ReplicaStep
from tfckpt_trainer.training.telemetry.step_metrics import Call
from tfckpt_trainer.training.telemetry.telemetry import Telemetry
from tfckpt_trainer.training.workers.worker_group import (
    WorkerGroup,
    strategy_name,
)

_NO_SIGNALS = (
    "SIGTERM does not save: TrainingRun was created outside the main thread. Call "
    "run.request_stop(preempted=True) to save and leave."
)


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
        save_every_steps: int | ByDefault | None = BY_DEFAULT,
        save_every_seconds: float | ByDefault | None = BY_DEFAULT,
        save_on_improvement: str | None = None,
        save_when: Iterable[SaveWhen] = (),
        saving: SaveOptions | None = None,
        extra: Mapping[str, Any] | None = None,
        tensorboard: str | Path | None = None,
        retention: Policy | ByDefault | None = BY_DEFAULT,
        trash_hours: float | None = 1.0,
        make_room: bool = False,
        partial: bool = False,
        preempted_status: int | None = None,
        restart_status: int | None = None,
        metrics: Any = None,
        on_dataset_end: Literal["stop", "wait"] = "stop",
        random_seed: int | None = None,
        guards: Iterable[Guard | str] = (),
        asynchronous: bool = False,
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
            save_every_steps: Save every N steps. Without any of these four save options, the run
                saves every 10 minutes, and keeps the newest three of these checkpoints. With None,
                it does not.
            save_every_seconds: Save N seconds after the last save.
            save_on_improvement: Save when a metric has a new best value: `METRIC:min` or
                `METRIC:max`. The metric is reported by `function` or, equal on all workers, by
                `report`.
            save_when: Save triggers of your own, each a `SaveWhen`.
            saving: How checkpoints are written; by default in the foreground, by the chief.
            extra: Further objects to save, by name: trackable objects such as a
                `tf.random.Generator` or `tf.Variable`, Keras metrics, and objects with
                `state_dict()` and `load_state_dict()`.
            tensorboard: Directory of the event files; by default within the run directory.
            retention: Which checkpoints to keep. After each save, all others are moved to the
                trash. By default, and with None, all are kept that a save option or a command had
                saved.
            trash_hours: How long checkpoints that `retention` moved to the trash stay there
                before they are deleted. None keeps them forever. Checkpoints that a user pruned
                are never deleted automatically.
            make_room: Whether a save that does not fit on the disk may empty the trash, oldest
                first.
            partial: Whether to start from a checkpoint of which only parts match the model. These
                parts are restored. The rest keeps its initial values, and the event log lists it.
            preempted_status: Exit status after a preemption, once everything is saved; by default
                143, or the value of `TFCKPT_PREEMPTED_STATUS`. Many schedulers restart jobs that
                exit with a status other than 0.
            restart_status: Exit status after another worker was lost, so that all workers must be
                restarted; by default 75, or the value of `TFCKPT_RESTART_STATUS`.
            metrics: Keras metrics that are kept across steps: one, or a dictionary by name. Those
                of a compiled model are found automatically.
            on_dataset_end: What happens if the dataset of one worker ends before others. `stop`
                ends the run after the last step for which all workers have data. `wait` continues
                with the others until all datasets have ended; the step must be a `function` that
                updates the model by a Keras optimizer.
            random_seed: Makes random draws a function of this seed, the step, the replica and
                their order in the step, so that they are the same after a restore. It applies to
                `tf.random`, `tf.nn`, `tf.image` and `keras.random` without a generator, in the
                loop and in functions that are traced after this call. By default they draw as
                TensorFlow does, which no checkpoint can save.
            guards: Rules that act without a person, such as going back after a spike of the loss:
                each a `Guard` or its text. Those of `.tfckpt/config.toml` are added.
            asynchronous: With parameter servers, whether each step takes the batch of one replica
                and is computed and applied by whichever worker is free. It needs optimizers of
                Keras 2. By default the chief applies the sum of the gradients of all workers.
                Other strategies ignore it.

        Raises:
            UsageError: There is no run directory, or an option is invalid.
            MissingExtensionError: Checksums cannot be computed.
        """
        triggers = objects_with("reason(step, metrics)", save_when, "save_when=[…]")
        times = choose_save_times(
            save_every_steps,
            save_every_seconds,
            retention,
            has_triggers=save_on_improvement is not None or bool(triggers),
        )
        options = RunOptions(
            total_steps=total_steps,
            save_every_steps=times.every_steps,
            save_every_seconds=times.every_seconds,
            save_on_improvement=save_on_improvement,
            save_when=triggers,
            saving=saving or SaveOptions(),
            tensorboard=tensorboard,
            retention=RetentionSettings(times.policy, trash_hours, make_room),
            by_default=times.by_default,
            partial=partial,
            on_dataset_end=on_dataset_end,
            random_seed=random_seed,
            guards=guards_of(guards),
        )
        options.check()
        require_extension()
        forget_left_run()
        order = check_order(run_dir)
        if order is not None:
            options, run_dir = options.of_check(order), None
        self._options = options
        self._run = run = _created_run_directory(run_dir)
        self.directory = run.root
        self._tensorboard = Path(options.tensorboard) if options.tensorboard else run.tensorboard
        self._statuses = choose_statuses(preempted_status, restart_status)

        self._strategy = strategy or tf.distribute.get_strategy()
        self._group = group = WorkerGroup(self._strategy, asynchronous=asynchronous)
        refuse_several_tasks(os.environ, group.processes)
        self._telemetry = telemetry = Telemetry(
            run, group, tensorboard=self._tensorboard, total_steps=total_steps
        )
        self._ownership = RunOwnership(run, telemetry)
        passed = PassedObjects(model, optimizer, dataset, extra or {}, metrics)
        self._state = state = LiveRunState(passed, self._strategy, group, telemetry, options)
        self._position = state.saved.position
        self._exactness = RunExactness(
            run, group, telemetry, state.saved, is_required=options.saving.require_exact
        )
        checkpoints = SavesAndRestores(
            run, group, telemetry, state.saved, options.saving, options.retention
        )
        self._saves, self._restores = checkpoints.saves, checkpoints.restores
        self._between = between = BetweenCalls(run, group, telemetry, state, checkpoints, options)
        self._finished = FinishedRun(run, telemetry, checkpoints.restores)
        self._error_save = ErrorSave(
            group,
            telemetry,
            self._ownership,
            state.progress,
            between.save_after_error,
            lambda: self.may_repeat_step,
        )
        self._resources = ExitStack()
        self._resources.callback(remember_state, state.saved)
        self._resources.callback(self._close_inputs)
        self._resources.callback(self._ownership.release)
        self._resources.callback(telemetry.summaries.close)
        self._resources.callback(between.guards.close)
        self._shutdown = Shutdown(
            run, group, telemetry, between.poller, self._resources, self._statuses.restart
        )
        self._steps = StepBuilder(
            self._strategy, group, telemetry.metrics, state, between, self._shutdown.peers_watched
        )
        self._has_opened = False
        self._keeps_inputs = False
        self._interrupted = False
        self._draws: DrawsByStep | None = None
        self._export = export_request_path()
        if self._export is None:
            self._handle_signals_and_errors()
            if random_seed is not None:
                self._draw_by_step(random_seed)

    def _draw_by_step(self, seed: int) -> None:
        if not supports_seed(self._strategy):
            raise UsageError(
                f"random_seed does not support {strategy_name(self._strategy)}. Leave it out, and "
                "draw from a tf.random.Generator that is passed in extra={…}."
            )
        self._draws = DrawsByStep(seed, self._group.index)
        self._resources.callback(self._draws.close)

    def _handle_signals_and_errors(self) -> None:
        on_signal(signal.SIGTERM, self._on_termination)
        if sigterm_received():
            self._on_termination()
        on_signal(signal.SIGUSR1, self._on_save_signal)
        if not in_main_thread() and self._group.size > 1:
            on_preemption_of_cluster(partial(self.request_stop, preempted=True))
        self._shutdown.handle_uncaught_errors()

    @property
    def step(self) -> int:
        """Steps done. The present one is counted after the body of the loop."""
        return self._position.step

    @property
    def branch(self) -> int:
        """The present branch; going back to an older step starts a new one."""
        return self._position.branch

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
        return self._state.saved.user.shared

    @property
    def worker_state(self) -> dict[str, Any]:
        """Values of the script that are saved with a checkpoint, of this worker."""
        return self._state.saved.user.worker

    def before_save(self, act: Callable[[], None]) -> None:
        """Calls `act` on each worker before each save, such as to update `state`."""
        self._state.saved.user.before_save.append(act)

    def after_restore(self, act: Callable[[], None]) -> None:
        """Calls `act` on each worker after each restore, including the one at the start."""
        self._state.saved.user.after_restore.append(act)

    def tunable(
        self,
        name: str,
        get: Callable[[], float] | tf.Variable | Variable,
        set: Callable[[Any], object] | None = None,  # noqa: A002
        *,
        low: float | None = None,
        high: float | None = None,
    ) -> None:
        """Declares a hyperparameter that can be changed while the run trains.

        Those of Keras optimizers are found without it. Checkpoints record the value, and a restore
        brings it back. Call this on all workers with equal values, before the loop.

        Args:
            name: Its name.
            get: Returns the present value, an int or a float; or a variable that holds it.
            set: Takes a new value, between two steps. A function of Python is traced once, so a
                step does not see the change of a number of Python: use a variable there.
            low: The lowest value.
            high: The highest value.

        Raises:
            UsageError: The name is taken or invalid, or the present value is not allowed.
        """
        if self._has_opened:
            raise UsageError("Call run.tunable before the loop begins.")
        self._state.add_tunable(name, get, set, Bounds(low=low, high=high))

    @property
    def is_chief(self) -> bool:
        """Whether this is the worker that writes the shared state."""
        return self._group.is_chief

    def function(
        self, replica_step: ReplicaStep, *, steps_per_call: int = 1, run_eagerly: bool = False
    ) -> Callable[[Any], Mapping[str, float]]:
        """Turns a function of one replica into a training step of the whole run.

        Args:
            replica_step: Takes a batch on one replica, updates the variables, and returns its
                mean loss, a dictionary of scalars, or None to report nothing.
            steps_per_call: The most steps that one call runs. On one device they are one graph,
                which spares small models most of the time that Python takes for a step. On
                several, Python waits only for the last. With more than 1, iterating over the run
                yields a list of the inputs of so many steps, and of fewer where a save or the end
                of the data is due. Commands act after a call. With parameter servers, it needs
                `asynchronous`.
            run_eagerly: Whether to run it without a `tf.function`, to debug it.

        Returns:
            A function that takes the input of a call, as iterating over the run yields it. It
            runs on all replicas in one `tf.function`, and returns the means over all replicas,
            reduced in one collective, of its last step. The first look at one of them waits for
            the device.

        Raises:
            UsageError: `steps_per_call` does not go with the strategy, the dataset, or another
                step function.
        """
        if self._has_opened and steps_per_call != 1:
            raise UsageError("Call run.function with steps_per_call before the loop begins.")
        return self._steps.build(
            replica_step, steps_per_call=steps_per_call, run_eagerly=run_eagerly
        )

    def report(self, **metrics: Any) -> None:
        """Reports further metrics of this step: scalars that are equal on all workers.

        Args:
            **metrics: Values by name. A loop that does not use `function` reports its `loss`.

        Raises:
            UsageError: A value is no number, or one that a traced function has not computed yet.
        """
        self._telemetry.metrics.report(
            {name: _as_number(name, value) for name, value in metrics.items()}
        )

    def note(self, message: str) -> None:
        """Writes a line to the event log, on the chief only."""
        self._between.note(message)

    def stop(self) -> None:
        """Stops the run on all workers after this step, with a save."""
        self._between.stop()

    def request_save(self, trigger: str = "script") -> None:
        """Saves on all workers after this step, at the request of another.

        Any worker may call it, from any thread and from a signal handler.

        Args:
            trigger: Who or what asked for it, for the record of the checkpoint.
        """
        self._between.coordinator.request_save(trigger.strip() or "script")

    def request_stop(self, reason: str = "", *, preempted: bool = False) -> None:
        """Stops the run on all workers after this step, with a save, at the request of another.

        Any worker may call it, from any thread and from a signal handler. Signals only reach a
        run that is created in the main thread: elsewhere, call this instead.

        Args:
            reason: Who or what asked for it, for the event log.
            preempted: Whether to end as after SIGTERM: the loop raises `SystemExit` with
                `preempted_status`, so that the code after it does not run.
        """
        self._between.coordinator.request_stop(
            Ending.PREEMPTED if preempted else Ending.STOPPED, reason.strip()
        )

    def finish(self, reason: str = "") -> None:
        """Ends the run as finished after this step, with a save.

        All workers must call it in the same step, for example because of equal metrics. A
        finished run that is started again trains nothing, unless `total_steps` was raised.

        Args:
            reason: Who or what ended it, as a clause, for the event log.
        """
        self._between.finish(reason.strip() or "the script called run.finish()")

    def __iter__(self) -> Iterator[Any]:
        """Yields the input of each call, and handles saves and commands between calls.

        Raises:
            RefusedError: Another trainer uses this directory, or no checkpoint in it fits.
        """
        self.open()
        between, metrics = self._between, self._telemetry.metrics
        progress = self._state.progress
        try:
            while not self.is_over:
                if between.total_steps is not None and self.step >= between.total_steps:
                    self._end()
                    continue
                began = time.perf_counter()
                metrics.enter(Phase.INPUT)
                with self._shutdown.peers_watched:
                    read = between.next_input()
                metrics.enter(Phase.SCRIPT)
                if read is None:
                    self._end(DATASET_ENDED)
                    continue
                batches, waited = read
                steps = len(batches)
                batch = batches if between.length.most > 1 else batches[0]
                between.take_batch(batch)
                progress.begin_call(began, waited, steps)
                yield batch
                progress.end_call()
                self.step_done(time.perf_counter() - began, waited, steps=steps)
        except BaseException as error:
            has_begun = self._shutdown.save_after_error is not None
            may_save = has_begun and self._error_save.leave_loop(error)
            self._keeps_inputs = may_save and not self.is_over
            raise
        finally:
            self.close()

    def _end(self, reason: str = "", *, may_go_on: bool = True) -> None:
        with self._shutdown.peers_watched:
            self._between.end(reason, may_go_on=may_go_on)
        self._start_draws()

    def open(self, *, total_steps: int | None = None) -> None:
        """Restores the newest good checkpoint and starts taking commands.

        Loops that cannot iterate over the run call `open`, `step_done` and `close`; iterating
        calls all three.

        Args:
            total_steps: The steps of the loop, if `TrainingRun` was created without them. They
                decide whether a run that ended before them is finished.

        Raises:
            RefusedError: Another trainer uses this directory, or no checkpoint in it fits.
        """
        if self._export is not None:
            state = self._state
            run_export(
                self._export, self._run, state.saved.shared, state.passed.model, state.inputs
            )
            leave(0)
        if self._has_opened:
            raise UsageError(
                "This run was left and cannot go on. Create another TrainingRun, which restores "
                "the newest checkpoint."
            )
        self._has_opened = True
        self._telemetry.metrics.enter(Phase.RESTORE)
        restore_handler = on_interrupt(self._on_interrupt)
        self._resources.callback(restore_handler)
        try:
            self._resources.enter_context(staying_in(self._run))
            self._start(total_steps)
        except BaseException as error:
            # The next ctrl+c is not meant for a run that does not train.
            restore_handler()
            self._shutdown.start_failed(error)
            raise
        self._start_draws()

    def _start(self, total_steps: int | None) -> None:
        """Takes the run directory, restores, and says what resuming brings back."""
        opened = add_open_run(self.directory, self.request_stop, self._abandon)
        self._resources.callback(remove_open_run, opened)
        atexit.register(keep_resources_at_exit)
        with self._shutdown.peers_watched:
            with explain_disk_errors(self._run):
                if self._group.is_chief:
                    # The lock does not work on a file system that does not share locks.
                    refuse_another_trainer(self._run, 0)
                self._telemetry.heartbeat.start()
                missing, recorded = self._exactness.look_at_start()
                if self._group.is_chief:
                    self._ownership.acquire(**self._info(), exactness=recorded)
                    self._telemetry.note_exactness(missing)
                    self._tell_default_saves()
            between = self._between
            between.total_steps = between.total_steps or total_steps
            self._state.opened()
            between.guards.open()
            with explain_disk_errors(self._run):
                finish = self._restores.restore_newest(partial=self._options.partial)
            between.opened()
            reason = self._finished.opened(finish, between.total_steps)
            if reason:
                between.coordinator.finish_saved(reason)
            if between.check is not None:
                between.check.opened()
            elif self._group.is_chief:
                note_untracked(self.note)
            # It is starting until its first step is done: TensorFlow traces the step function.
            self._telemetry.metrics.enter(Phase.SCRIPT)
            if self._group.size == 1 and not in_main_thread():
                self.note(_NO_SIGNALS)
            if self._group.is_chief:
                between.poller.start()
            if between.check is None:
                self._shutdown.save_after_error = self._error_save.save_after

    def _start_draws(self) -> None:
        if self._draws is not None:
            self._draws.start_step(self.step)

    def _tell_default_saves(self) -> None:
        """Says when the run saves, if its script did not choose that, or turned it off."""
        options = self._options
        if options.by_default is not None:
            words = f"Saves {options.saves}. save_every_seconds=None turns that off."
            sys.stderr.write(f"{words}\n")
        elif options.saves == SAVES_AT_END and options.order is None:
            words = f"Saves {SAVES_AT_END}: a crash loses all steps."
        else:
            return
        self._telemetry.note(EventKind.NOTE, words)

    def _info(self) -> dict[str, Any]:
        """Returns the fields of `run.json` that describe this trainer."""
        return {
            "strategy": strategy_name(self._strategy),
            "worker_count": self._group.processes,
            "replica_count": self._group.replicas,
            "gpus": self._group.idle_devices(),
            "total_steps": self._between.total_steps,
            "epoch_steps": self._between.quick_check.epoch_steps,
            "retention": self._options.retention.recorded,
            "saves": self._options.saves,
            # A quick check is about the process that it ran in.
            "check": None,
            "tensorboard": str(_relative(self._tensorboard, self.directory)),
            "host": host_name(),
            "versions": {
                "python": platform.python_version(),
                "tensorflow": tf.__version__,
                "keras": keras.__version__,
            },
        }

    @property
    def may_repeat_step(self) -> bool:
        """Whether a quick check will repeat the present step, so that nothing of it is recorded."""
        return self._between.quick_check.is_first_pass

    def set_epoch_steps(self, steps: int) -> None:
        """Has a call end where an epoch does, because the script acts there.

        For the same reason, quick checks repeat no step that ends an epoch. Charts can count epochs
        then.

        Args:
            steps: Steps of an epoch.

        Raises:
            UsageError: There are none.
        """
        if steps < 1:
            raise UsageError(f"An epoch of {steps} steps is none; expected at least 1.")
        self._between.quick_check.epoch_steps = steps
        if self._has_opened and self._group.is_chief:
            self._telemetry.event_log.update_info(epoch_steps=steps)

    @property
    def is_over(self) -> bool:
        """Whether a command, a signal or the last step ended the run."""
        return self._between.coordinator.ending is not None

    def step_done(self, seconds: float, waited: float = 0.0, *, steps: int = 1) -> None:
        """Counts a step, and handles saves, commands and pauses that are due after it.

        Args:
            seconds: How long the step took.
            waited: How much of that it waited for its input.
            steps: How many steps it was, if a call ran several.
        """
        with self._shutdown.peers_watched:
            if not self._between.has_stepped:
                self._state.first_step_done()
                self._exactness.first_step_done()
            self._between.call_done(Call(steps, seconds, waited))
        self._start_draws()

    def close(self, *, finished: bool = False) -> None:
        """Finishes saves and releases the run directory. All workers call it together.

        Args:
            finished: Whether training reached its end; then its last step is saved.
        """
        if self._shutdown.is_done:
            return
        with suppress(tf.errors.OpError):
            # An error of the device is raised again by what uses the variables, such as a save.
            self._telemetry.metrics.settle()
        coordinator, is_check = self._between.coordinator, self._options.order is not None
        if finished and not self.is_over and not is_check:
            self._end(coordinator.requested_finish, may_go_on=False)
        ending = coordinator.ending
        if ending is None:
            self._abandon()
            return
        with self._shutdown.peers_watched:
            self._between.close()
            # A worker that leaves while others still wait in a collective would look dead.
            self._group.barrier()
        if not self._between.has_stepped:
            self._exactness.closed_without_step()
        detail = ""
        if ending is Ending.FINISHED:
            detail = self._finished.closed(
                coordinator.finish_reason,
                self._between.total_steps,
                has_trained=self._between.has_stepped,
            )
        self._shutdown.release(ending, detail)
        if ending is Ending.PREEMPTED or (ending is Ending.STOPPED and was_launched()):
            # The process is about to exit. Iterators of the script or of Keras would delay that
            # when the functions that created them return.
            keep_resources_at_exit()
        if self._interrupted and ending is Ending.PREEMPTED:
            # The code after the loop, and a script that handles it, expect this of ctrl+c.
            raise KeyboardInterrupt
        if ending is Ending.PREEMPTED:
            # The code after the loop is for the end of training, which this is not.
            raise SystemExit(self._statuses.preempted)
        if is_check:
            raise SystemExit(ExitCode.DONE)

    def _abandon(self) -> None:
        """Closes a run whose loop the script has left."""
        self._saves.wait_before_exit()
        self._shutdown.left_loop(may_save=self._keeps_inputs)
        if self._keeps_inputs:
            keep_left_run(self._forget)

    def _forget(self) -> None:
        """Frees what only a save after an error needs."""
        self._keeps_inputs = False
        self._shutdown.save_after_error = None
        self._close_inputs()

    def _close_inputs(self) -> None:
        if self._state.inputs is not None and not self._keeps_inputs:
            self._state.inputs.close()

    def _on_termination(self) -> None:
        self.request_stop(preempted=True)

    def _on_interrupt(self) -> None:
        self._interrupted = True
        self.request_stop(INTERRUPTED, preempted=True)

    def _on_save_signal(self) -> None:
        self.request_save("SIGUSR1")


def _created_run_directory(run_dir: str | Path | None) -> RunDirectory:
    end_watch()
    run_dir = run_dir or os.environ.get("TFCKPT_RUN_DIR")
    if not run_dir:
        raise UsageError(
            "No run directory: pass one to TrainingRun, or start the script with "
            "`tfckpt-tui launch RUN -- python SCRIPT`."
        )
    refuse_url(run_dir)
    # A symbolic link would give the run two names, for example in its manifests.
    run = RunDirectory(Path(os.path.realpath(run_dir)))
    refuse_another_run(run, os.environ)
    with explain_disk_errors(run):
        if not is_restart():
            refuse_newer_release(run)
        replace_newer_documents()
        run.create()
    return run


def _as_number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        kind = type(value).__name__
        raise UsageError(
            f"The metric {name} is not a number, but of type {kind}. Report numbers, outside of "
            "functions that TensorFlow traces."
        ) from error


def _relative(path: Path, directory: Path) -> Path:
    return path.relative_to(directory) if path.is_relative_to(directory) else path.absolute()
