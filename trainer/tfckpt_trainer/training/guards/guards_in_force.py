"""The guards that are in force, evaluated after each step on the values of this worker."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from functools import cached_property

import msgspec

from tfckpt_trainer.errors import UsageError, describe_error
from tfckpt_trainer.guards import Guard, StepReading
from tfckpt_trainer.guards.trial import why_useless
from tfckpt_trainer.guards.watch import Firing, GuardWatch, begun_conditions
from tfckpt_trainer.rundir.event_log import WHOLE_LOG, read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind
from tfckpt_trainer.rundir.records.run import GuardInForce, GuardSource
from tfckpt_trainer.rundir.run_config import read_run_config
from tfckpt_trainer.training.hyperparameters.hyperparameters import Hyperparameters
from tfckpt_trainer.training.telemetry.step_metrics import StepSummary, ignore_step
from tfckpt_trainer.training.telemetry.telemetry import Telemetry
from tfckpt_trainer.training.workers.worker_group import WorkerGroup


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """What a guard on one worker proposes to all.

    Attributes:
        elements_read: Elements that this worker had read from each dataset when it fired.
    """

    firing: Firing
    elements_read: dict[str, int] = {}


class RulesOfWorker(msgspec.Struct, frozen=True, kw_only=True):
    """The guards that the script of one worker gave."""

    rules: list[str]


class _Begun(msgspec.Struct, frozen=True, kw_only=True):
    """The steps since which the conditions of guards hold that fired before a start, by rule."""

    steps: dict[str, int]


class GuardsInForce:
    """The guards of the script and of the run's settings; the same on all workers.

    Attributes:
        rules: Those in force, by their text.
    """

    def __init__(
        self,
        run: RunDirectory,
        group: WorkerGroup,
        telemetry: Telemetry,
        script: Sequence[Guard],
        hyperparameters: Hyperparameters,
        elements_read: Callable[[], dict[str, int]] | None,
    ) -> None:
        """Takes the guards of the script; `open` takes those of the settings.

        Args:
            run: The run directory.
            group: The workers.
            telemetry: Reports each step to the guards.
            script: The guards that the script gave.
            hyperparameters: What guards may change.
            elements_read: Returns how many elements this worker has read from each dataset; None
                if the run has none.
        """
        self._run = run
        self._group = group
        self._telemetry = telemetry
        self._script = {str(guard): guard for guard in script}
        self._hyperparameters = hyperparameters
        self._elements_read = elements_read
        self._watches: dict[str, GuardWatch] = {}
        self._proposed: list[Proposal] = []
        self.rules: dict[str, Guard] = {}

    @property
    def has_proposals(self) -> bool:
        """Whether this worker proposes something at the next synchronization."""
        return bool(self._proposed)

    @property
    def recorded(self) -> list[GuardInForce]:
        """What `run.json` says of them."""
        return [
            GuardInForce(
                rule=rule, source=GuardSource.SCRIPT if rule in self._script else GuardSource.CONFIG
            )
            for rule in self.rules
        ]

    @cached_property
    def earlier(self) -> tuple[EventEntry, ...]:
        """The firings, starts and restores in the event log when it was first asked for.

        Only the chief asks, when no firing of this process is still to be noted.
        """
        kinds = {EventKind.GUARD, EventKind.START, EventKind.RESTORE}
        return tuple(
            entry for entry in read_entries(self._run, newest=WHOLE_LOG) if entry.kind in kinds
        )

    def open(self) -> None:
        """Begins to evaluate the guards. All workers call it together.

        Raises:
            UsageError: The script gave other guards on another worker, or one that cannot act.
        """
        mine = RulesOfWorker(rules=list(self._script))
        for index, others in enumerate(self._group.all_gather(mine)):
            if others != mine:
                raise UsageError(
                    f"guards=[…] is not equal on worker {self._group.index} and worker {index}: "
                    f"{mine.rules} and {others.rules}. Pass the same guards on all workers."
                )
        for rule, guard in self._script.items():
            problem = self._why_useless(guard)
            if problem:
                raise UsageError(f"The guard {rule!r} cannot act. {problem}")
        self.read_settings()
        self._telemetry.metrics.on_step = self.step_done

    def go_on(self, step: int) -> None:
        """Takes up what fired before a start from a checkpoint of `step`: it fires once.

        All workers call it together.
        """
        if not self.rules:
            return
        earlier = self.earlier if self._group.is_chief else ()
        agreed = self._group.broadcast(_Begun(steps=begun_conditions(earlier)), _Begun)
        assert agreed is not None
        for rule, began in agreed.steps.items():
            if rule in self._watches and began <= step:
                self._watches[rule].begun(rule, began)

    def close(self) -> None:
        """Evaluates no step any more. What reports the steps outlives the run."""
        self._telemetry.metrics.on_step = ignore_step

    def read_settings(self) -> list[str]:
        """Takes the guards of the run's settings, again or anew. All workers call it together.

        Returns:
            What is wrong with the settings, as sentences; guards without a problem are in force.
        """
        texts, problems = self._read() if self._group.is_chief else ([], [])
        agreed = self._group.broadcast(RulesOfWorker(rules=texts), RulesOfWorker)
        assert agreed is not None
        self.rules = {**{text: Guard.parse(text) for text in agreed.rules}, **self._script}
        kept = {rule: watch for rule, watch in self._watches.items() if rule in self.rules}
        self._watches = {
            rule: kept.get(rule) or GuardWatch([guard]) for rule, guard in self.rules.items()
        }
        for problem in problems:
            self._telemetry.note(EventKind.REFUSED, f"guards: {problem}")
        in_force = self.recorded
        self._telemetry.event_log.update_info(guards=in_force)
        return problems

    def step_done(self, facts: StepSummary) -> None:
        """Evaluates all guards after a step."""
        if not self._watches:
            return
        metrics = self._telemetry.metrics
        reading = StepReading(
            step=facts.step,
            at=facts.at,
            seconds=facts.seconds,
            metrics=facts.metrics,
            saved_at=metrics.saves.unsaved_since,
            disk_full_in=metrics.saves.disk_full_in,
        )
        for rule, watch in list(self._watches.items()):
            try:
                firings = watch.step_done(reading)
            except Exception as error:
                # A condition may be the script's own.
                traceback.print_exc()
                del self._watches[rule]
                self._telemetry.note(
                    EventKind.FAILED,
                    f"guard {rule}: it failed, and is off until the next start: "
                    f"{type(error).__name__}: {describe_error(error)}",
                )
                continue
            self._proposed += [
                Proposal(
                    firing=firing,
                    elements_read=self._elements_read() if self._elements_read else {},
                )
                for firing in firings
            ]

    def restored(self, step: int) -> None:
        """Forgets what was seen of later steps than `step`, because training went back."""
        self._proposed.clear()
        for watch in self._watches.values():
            watch.restored(step)

    def take_proposals(self) -> list[Proposal]:
        """Returns what this worker proposes, and forgets it."""
        taken, self._proposed = self._proposed, []
        return taken

    def fired(self, firing: Firing) -> None:
        """Notes that a guard fired on any worker; it does not fire here for the same reason."""
        self._proposed = [one for one in self._proposed if one.firing.rule != firing.rule]
        if firing.rule in self._watches:
            self._watches[firing.rule].fired(firing)

    def _read(self) -> tuple[list[str], list[str]]:
        """Returns the texts of the settings, and what is wrong with them."""
        texts: list[str] = []
        problems: list[str] = []
        try:
            given = read_run_config(self._run).guards
        except UsageError as error:
            return texts, [str(error)]
        for text in given:
            try:
                guard = Guard.parse(text)
            except UsageError as error:
                problems.append(str(error))
                continue
            problem = self._why_useless(guard)
            if problem:
                problems.append(f"The guard {str(guard)!r} is not in force. {problem}")
            else:
                texts.append(str(guard))
        return texts, problems

    def _why_useless(self, guard: Guard) -> str:
        """Returns why a guard could not act if it fired now; empty if it could."""
        reads_input = self._elements_read is not None
        return why_useless(guard, self._hyperparameters.seen, reads_input=reads_input)
