"""Carries out on all workers what guards propose."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.catalog.scan.lineage import BranchStep, lineage_at
from tfckpt_trainer.catalog.verification.verify_checkpoint import verify_values
from tfckpt_trainer.errors import describe_error
from tfckpt_trainer.guards import Guard
from tfckpt_trainer.guards.actions import Situation
from tfckpt_trainer.rundir.command_queue import new_command
from tfckpt_trainer.rundir.records.command import (
    Command,
    CommandArguments,
    CommandState,
    PauseArguments,
    RestoreArguments,
    SaveArguments,
    SetArguments,
    SkipArguments,
)
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.worker import Activity
from tfckpt_trainer.training.commands.handler import CommandAnswer, Trainer
from tfckpt_trainer.training.guards.guards_in_force import Proposal
from tfckpt_trainer.words.counts import count

CarryOut = Callable[[Command], CommandAnswer | None]
"""Carries out a command on all workers; returns its answer, None if that comes later."""


class FiringPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What the chief decided that all workers do after a firing.

    Attributes:
        commands: In this order.
        told: What is done, as a clause.
        paused_because: Why the run pauses, if it does for another reason than the guard's action.
    """

    commands: list[Command]
    told: str
    paused_because: str = ""


class GuardFirings:
    """Acts when a guard fires on any worker. All workers call `carry_out` together."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._fired: Counter[str] | None = None

    def carry_out(self, proposed: Sequence[Sequence[Proposal]], carry_out: CarryOut) -> None:
        """Carries out what guards propose, each guard once.

        Args:
            proposed: For each worker its proposals.
            carry_out: Carries out a command.
        """
        trainer, left, acted = self._trainer, self._trainer.position.step, set[str]()
        waits = False
        for worker, proposals in enumerate(proposed):
            for proposal in proposals:
                rule = proposal.firing.rule
                if rule in acted or rule not in trainer.guards.rules:
                    continue
                acted.add(rule)
                if waits:
                    self._tell_of_nothing_done(proposal, worker, "the run waits for a person")
                elif trainer.position.step < left or trainer.loop.ending is not None:
                    self._tell_of_nothing_done(proposal, worker, "another guard acted just before")
                else:
                    waits = self._act(proposal, worker, carry_out)

    def _act(self, proposal: Proposal, worker: int, carry_out: CarryOut) -> bool:
        """Acts; returns whether the run pauses, because a person has to decide."""
        trainer, firing = self._trainer, proposal.firing
        name = _name(trainer.guards.rules[firing.rule])
        trainer.guards.fired(firing)
        trainer.saves.finish_all()
        decided = self._plan(proposal, worker) if trainer.group.is_chief else None
        plan = trainer.group.broadcast(decided, FiringPlan)
        assert plan is not None
        trainer.telemetry.note(
            EventKind.GUARD,
            f"{name}: {firing.evidence.what}. {plan.told}.",
            by=f"worker {worker}",
            step=firing.step,
            details={
                "rule": firing.rule,
                "worker": worker,
                "elements_read": proposal.elements_read,
                **msgspec.to_builtins(firing.evidence),
            },
        )
        why = plan.paused_because
        for command in plan.commands:
            answer = carry_out(command) or self._answer_when_saved(command)
            if answer is not None and answer.state in {CommandState.REFUSED, CommandState.FAILED}:
                why = f"{command.kind.value}: {answer.message}"
                carry_out(_command(PauseArguments(), name, worker))
                break
        if trainer.loop.paused:
            trainer.loop.pause_reason = f"{name}: {why or firing.evidence.what}"
        return bool(why)

    def _answer_when_saved(self, command: Command) -> CommandAnswer | None:
        """Waits for a save in the background: what follows may need it, such as a stop."""
        self._trainer.saves.finish_all()
        answered = self._trainer.loop.answered
        return answered[1] if answered is not None and answered[0] == command.id else None

    def _tell_of_nothing_done(self, proposal: Proposal, worker: int, why: str) -> None:
        """Notes a firing about steps that are trained again, or never, or after a pause."""
        firing = proposal.firing
        name = _name(self._trainer.guards.rules[firing.rule])
        self._trainer.telemetry.note(
            EventKind.NOTE,
            f"{name}: {firing.evidence.what}. Nothing was done: {why}.",
            by=f"worker {worker}",
            step=firing.step,
        )

    def _plan(self, proposal: Proposal, worker: int) -> FiringPlan:
        """Decides on the chief what all workers do."""
        firing = proposal.firing
        guard, fired = self._trainer.guards.rules[firing.rule], self._count(firing.rule)
        name = _name(guard)
        of_limit = f" ({fired} of {guard.at_most})" if guard.at_most is not None else ""
        told, why = f"Actions: {', '.join(map(str, guard.actions))}{of_limit}", ""
        if guard.at_most is not None and fired > guard.at_most:
            why = f"it fired {count(fired, 'time')}, and may {count(guard.at_most, 'time')}"
            told = f"The run pauses: {why}"
            return FiringPlan(
                commands=[_command(PauseArguments(), name, worker)],
                told=told,
                paused_because=why,
            )
        try:
            arguments = _with_save(guard.commands(self._situation(proposal)))
        except Exception as error:
            # An action may be the script's own.
            why = describe_error(error)
            told, arguments = (
                f"The run pauses, because a person has to decide: {why}",
                [PauseArguments()],
            )
        return FiringPlan(
            commands=[_command(each, name, worker) for each in arguments],
            told=told.rstrip("."),
            paused_because=why,
        )

    def _situation(self, proposal: Proposal) -> Situation:
        step = self._trainer.position.step
        values = self._trainer.hyperparameters.look(step)
        return Situation(
            step,
            proposal.firing.evidence,
            {value.name: value for value in values},
            self._trainer.reads_input,
            self._newest_good,
        )

    def _count(self, rule: str) -> int:
        """Counts a firing; returns how many there were, also before a restart."""
        if self._fired is None:
            earlier = self._trainer.guards.earlier
            self._fired = Counter(
                str(entry.details.get("rule")) for entry in earlier if entry.kind is EventKind.GUARD
            )
        self._fired[rule] += 1
        return self._fired[rule]

    def _newest_good(self, before: int) -> str | None:
        """Returns the newest checkpoint of this line of training that has only finite values.

        Those are read if no verification has looked for them, so it may take a while.
        """
        run, position = self._trainer.run, self._trainer.position
        checkpoints = {c.name: c for c in Catalog(run).scan(time.time())}
        here = BranchStep(position.branch, position.step)
        for name in lineage_at(tuple(checkpoints.values()), here).names:
            checkpoint = checkpoints[name]
            if checkpoint.stranger:
                continue
            if not checkpoint.restorable or "loss" in checkpoint.not_finite:
                continue
            if checkpoint.step is None or checkpoint.step >= before:
                continue
            tensors = checkpoint.not_finite_tensors
            if tensors is None:
                tensors = self._look_for_not_finite(name)
            if tensors == 0:
                return name
        return None

    def _look_for_not_finite(self, name: str) -> int | None:
        with self._trainer.telemetry.heartbeat.doing(Activity.RESTORING, name):
            verification = verify_values(self._trainer.run, name)
        if verification is None or verification.record.fault is not None:
            return None
        return len(verification.not_finite)


def _with_save(arguments: list[CommandArguments]) -> list[CommandArguments]:
    """Adds a save of what is changed after going back, so that no restart loses it."""
    kinds = [type(each) for each in arguments]
    if RestoreArguments not in kinds:
        return arguments
    changes = [i for i, kind in enumerate(kinds) if kind in {SetArguments, SkipArguments}]
    if not changes:
        return arguments
    end = max(changes) + 1
    return [*arguments[:end], SaveArguments(), *arguments[end:]]


def _name(guard: Guard) -> str:
    """Returns how events name a guard: by its condition."""
    return f"Guard {guard.condition}"


def _command(arguments: CommandArguments, name: str, worker: int) -> Command:
    """Returns a command that a guard sends."""
    return new_command(
        arguments.kind,
        msgspec.to_builtins(arguments),
        requested_by=f"{name}, worker {worker}"[:1000],
        at=time.time(),
    )
