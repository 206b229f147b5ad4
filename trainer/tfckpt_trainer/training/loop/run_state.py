"""All state of a run: what its checkpoints hold, and what its steps have that they do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.records.command import LONGEST_NAME
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.exactness import StepFacts, merge_steps
from tfckpt_trainer.rundir.records.hyperparameter import Bounds, HyperparametersOfWorker
from tfckpt_trainer.training.check.digests import saved_state
from tfckpt_trainer.training.check.traced_steps import TracedSteps
from tfckpt_trainer.training.check.untracked_notes import remember_state
from tfckpt_trainer.training.checkpoint.state import (
    Position,
    SavedWorkerState,
    SharedState,
    TrainingState,
    UserState,
)
from tfckpt_trainer.training.hyperparameters.sources import (
    HyperparameterSource,
    OwnSource,
    VariableSource,
    sources_of,
)
from tfckpt_trainer.training.keras_library import build_optimizer, is_legacy, keras
from tfckpt_trainer.training.loop.error_save import LoopProgress
from tfckpt_trainer.training.loop.run_options import RunOptions
from tfckpt_trainer.training.pipelines.input_state import InputState
from tfckpt_trainer.training.state.passed import check_asynchronous
from tfckpt_trainer.training.state.variables import bytes_by_device, is_variable, raw_variable
from tfckpt_trainer.training.steps.inputs import InputDataset, Inputs
from tfckpt_trainer.training.telemetry.telemetry import Telemetry
from tfckpt_trainer.training.workers.loss_scaling import check_finite_on_all_replicas
from tfckpt_trainer.training.workers.worker_group import WorkerGroup, uses_parameter_servers

_WITHOUT_SEED = (tf.distribute.ParameterServerStrategy, tf.distribute.TPUStrategy)
"""Strategies whose replicas are not known when a step is traced."""


def supports_seed(strategy: tf.distribute.Strategy) -> bool:
    """Whether random draws on the replicas can be a function of a seed."""
    return not isinstance(strategy, _WITHOUT_SEED)


@dataclass(frozen=True)
class PassedObjects:
    """The objects that a script passed to `TrainingRun`, which documents them."""

    model: Any
    optimizer: Any
    dataset: InputDataset | None
    extra: Mapping[str, Any]
    metrics: Any

    def optimizers(self) -> Iterator[tuple[str, Any]]:
        """Yields path and object of what may be an optimizer: passed, or held by a model."""
        yield from _by_name("optimizer", self.optimizer)
        for path, model in _by_name("model", self.model):
            of_model = vars(model).items() if isinstance(model, tf.Module | keras.Model) else ()
            yield from ((f"{path}/{name}", thing) for name, thing in of_model)
        yield from self.extra.items()


def _by_name(name: str, passed: Any) -> list[tuple[str, Any]]:
    """Returns path and object of what was passed as one object or several by name."""
    if isinstance(passed, Mapping):
        return [(f"{name}/{key}", thing) for key, thing in passed.items()]
    return [(name, passed)]


class LiveRunState:
    """What a run saves and restores.

    Attributes:
        passed: The objects that it belongs to.
        inputs: The input pipelines; None without a dataset.
        saved: What a checkpoint holds.
        traced: Looks into the graphs of the steps, for state that no checkpoint holds.
        progress: How much of the present step is done.
    """

    def __init__(
        self,
        passed: PassedObjects,
        strategy: tf.distribute.Strategy,
        group: WorkerGroup,
        telemetry: Telemetry,
        options: RunOptions,
    ) -> None:
        self._on_servers = on_servers = uses_parameter_servers(strategy)
        if is_legacy(passed.optimizer) and isinstance(passed.model, keras.Model):
            build_optimizer(passed.optimizer, passed.model.trainable_variables)
        if group.is_asynchronous:
            check_asynchronous(passed.optimizers())
        if group.replicas > 1 and not on_servers:
            check_finite_on_all_replicas(passed.optimizer)
        self.passed = passed
        self._group = group
        self._telemetry = telemetry
        self._declared: set[str] = set()
        self.inputs = (
            Inputs(strategy, group, passed.dataset, skips=options.saving.skip_input)
            if passed.dataset is not None
            else None
        )
        inputs = self.inputs.state if self.inputs is not None else InputState()
        shared = SharedState(passed.model, passed.optimizer, passed.extra, passed.metrics)
        self.progress = LoopProgress()
        self.traced = TracedSteps(
            lambda: saved_state(self.saved),
            lambda: (one.table for one in self.saved.adapted(shared.find()) if one.table),
            shares_variables=group.computing > 1 and on_servers,
            is_asynchronous=group.is_asynchronous,
            can_seed=options.random_seed is None and supports_seed(strategy),
        )
        self.saved = TrainingState(
            shared=shared,
            worker=SavedWorkerState(inputs, shared.user_objects),
            user=UserState(group.index),
            position=Position(),
            step_facts=self._step_facts,
        )
        for source in sources_of(passed.optimizers(), strategy):
            self.saved.user.hyperparameters.add(source)
        if group.is_chief:
            telemetry.metrics.hyperparameters = self.saved.user.hyperparameters.told
        inputs.add_tracked(shared.checkpoint)
        inputs.report = telemetry.heartbeat.describe
        remember_state(self.saved)

    def add_tunable(self, name: str, get: Any, set: Any, bounds: Bounds) -> None:  # noqa: A002
        """Adds a hyperparameter; see `TrainingRun.tunable`.

        Raises:
            UsageError: It is not as described there.
        """
        if not name or name != name.strip() or "=" in name or len(name) > LONGEST_NAME:
            raise UsageError(f"{name!r} cannot be the name of a hyperparameter.")
        if bounds.low is not None and bounds.high is not None and bounds.low > bounds.high:
            raise UsageError(f"The bounds of {name} are {bounds.low} and {bounds.high}.")
        source: HyperparameterSource
        if is_variable(get) and set is None:
            raw = raw_variable(get)
            is_saved = any(raw_variable(variable) is raw for variable in self.variables())
            source = VariableSource(name, get, bounds, in_checkpoint=is_saved)
        elif callable(get) and callable(set):
            source = OwnSource(name, get, set, bounds)
        else:
            raise UsageError(
                f"run.tunable({name!r}) takes a variable, or two functions: one that returns the "
                "value, and one that takes a new one."
            )
        self.saved.user.hyperparameters.add(source)
        self._declared.add(name)

    def variables(self) -> Iterator[Any]:
        """Yields all variables."""
        yield from (one.thing for one in self.saved.shared.find() if one.rule.is_variable)

    def opened(self) -> None:
        """Takes note of what exists before the first step. All workers call it together.

        Raises:
            UsageError: A hyperparameter that the script declared is not equal on all workers.
        """
        self._agree_on_hyperparameters()
        self.saved.shared.late_variables.opened(self.saved.shared.find())
        self.traced.opened()

    def first_step_done(self) -> None:
        """Looks at what the first step created, and into what it was compiled to.

        Raises:
            UsageError: It created variables that no checkpoint holds.
        """
        self.saved.shared.late_variables.check(self.saved.shared.find())
        self.traced.first_step_done()
        if self._on_servers:
            self._telemetry.metrics.shares.hold(bytes_by_device(self.variables()))

    def _agree_on_hyperparameters(self) -> None:
        """Leaves out those of optimizers that are not equal on all workers."""
        left_out: set[str] = set()
        hyperparameters = self.saved.user.hyperparameters
        mine = HyperparametersOfWorker(values=list(hyperparameters.seen.values()))
        for index, others in enumerate(self._group.all_gather(mine)):
            for name in hyperparameters.differing(others.values):
                if name in self._declared:
                    raise UsageError(
                        f"The hyperparameter {name} is not equal on worker {self._group.index} and "
                        f"worker {index}. Declare the same names, values and bounds on all workers."
                    )
                hyperparameters.leave_out(name)
                left_out.add(name)
        if left_out:
            names = ", ".join(sorted(left_out))
            self._telemetry.note(
                EventKind.NOTE, f"Not equal on all workers, so `set` cannot change them: {names}."
            )

    def _step_facts(self) -> StepFacts:
        facts, unfinished = self.traced.facts(), self.progress.unfinished
        return merge_steps([facts, StepFacts(unseen=[unfinished])]) if unfinished else facts
