"""Makes step functions of the functions of a script."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.records.worker import Phase
from tfckpt_trainer.training.loop.between_calls import BetweenCalls
from tfckpt_trainer.training.loop.run_options import check_counts
from tfckpt_trainer.training.loop.run_state import LiveRunState
from tfckpt_trainer.training.state.passed import only_optimizer
from tfckpt_trainer.training.steps.parameter_server_step import (
    AsynchronousStep,
    ParameterServerStep,
)
from tfckpt_trainer.training.steps.step_functions import (
    ReplicaStep,
    StepFlags,
    StepFunction,
    StepHooks,
)
from tfckpt_trainer.training.telemetry.step_metrics import StepMetrics
from tfckpt_trainer.training.workers.worker_group import (
    WorkerGroup,
    strategy_name,
    uses_parameter_servers,
)


class StepBuilder:
    """Connects step functions with the run: their flags, metrics, graphs and progress."""

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        group: WorkerGroup,
        metrics: StepMetrics,
        state: LiveRunState,
        between: BetweenCalls,
        peers_watched: AbstractContextManager[Any],
    ) -> None:
        self._strategy = strategy
        self._group = group
        self._metrics = metrics
        self._state = state
        self._between = between
        self._peers_watched = peers_watched

    def build(
        self,
        replica_step: ReplicaStep,
        *,
        steps_per_call: int,
        run_eagerly: bool,
        of_type: Any = None,
    ) -> Callable[[Any], Mapping[str, float]]:
        """Returns a step of the whole run; see `TrainingRun.function` and `StepFunction`.

        Raises:
            UsageError: `steps_per_call` does not go with the strategy, the dataset, or another
                step function.
        """
        self._set_steps_per_call(steps_per_call)
        step = self._step(replica_step, run_eagerly=run_eagerly, of_type=of_type)
        metrics, progress = self._metrics, self._state.progress
        ran = progress.add_function()
        takes_list = self._between.length.most > 1

        def watched_step(batch: Any) -> Mapping[str, float]:
            if takes_list and isinstance(batch, list):
                progress.check_call(len(batch))
            metrics.enter(Phase.STEP)
            with self._peers_watched:
                result = step(batch)
            ran()
            metrics.enter(Phase.SCRIPT)
            return result

        return watched_step

    def _set_steps_per_call(self, steps: int) -> None:
        check_counts(steps_per_call=steps)
        length, dataset_end = self._between.length, self._between.dataset_end
        if max(steps, length.most) > 1 and self._state.progress.has_functions:
            raise UsageError(
                "With steps_per_call, a run has one step function: each call runs several steps of "
                "it. Do all the work of a step in one function, or leave steps_per_call out."
            )
        if steps == 1:
            return
        if uses_parameter_servers(self._strategy) and not self._group.is_asynchronous:
            name = strategy_name(self._strategy)
            raise UsageError(
                f"steps_per_call does not go with {name}, unless steps are asynchronous. Leave it "
                "out, or pass asynchronous=True to TrainingRun."
            )
        if dataset_end is not None:
            dataset_end.refuse_calls_of_several_steps()
        length.most = steps

    def _step(
        self, replica_step: ReplicaStep, *, run_eagerly: bool, of_type: Any
    ) -> StepFunction | ParameterServerStep | AsynchronousStep:
        coordinator, dataset_end = self._between.coordinator, self._between.dataset_end

        def flags() -> StepFlags:
            if dataset_end is None:
                return StepFlags(coordinator.needs_sync, may_end=False)
            return StepFlags(coordinator.needs_sync, dataset_end.flag, dataset_end.has_data)

        def on_result(steps: Sequence[Mapping[str, float]], flags: StepFlags) -> None:
            coordinator.call_computed(steps, flags.needs_sync)
            if dataset_end is not None:
                dataset_end.call_computed(flags.may_end)

        hooks = StepHooks(
            flags, on_result, self._state.traced.add_function(), self._metrics.shares.computed
        )
        if uses_parameter_servers(self._strategy):
            if run_eagerly:
                raise UsageError("With parameter servers, a step cannot run eagerly.")
            if self._group.is_asynchronous:
                takes_list = self._between.length.most > 1
                return AsynchronousStep(self._strategy, replica_step, hooks, takes_list=takes_list)
            optimizer = only_optimizer(self._state.passed.optimizer)
            return ParameterServerStep(self._strategy, optimizer, replica_step, hooks)
        leaves_out = dataset_end is not None and dataset_end.leaves_out
        if leaves_out and (run_eagerly or tf.config.functions_run_eagerly()):
            raise UsageError(
                'on_dataset_end="wait" needs a step that is traced, not one that runs eagerly. Use '
                'on_dataset_end="stop" to debug it.'
            )
        return StepFunction(
            self._strategy,
            replica_step,
            hooks,
            takes_list=self._between.length.most > 1,
            runs_ahead=self._group.size == 1,
            variables=self._state.variables if leaves_out else None,
            run_eagerly=run_eagerly,
            of_type=of_type,
        )
