"""Saves the last step if an error of the script ends the loop of a process that trains alone."""

from __future__ import annotations

import inspect
import opcode
import sys
import time
from collections.abc import Callable
from itertools import zip_longest
from types import CodeType, FrameType, TracebackType
from typing import NamedTuple

from tfckpt_trainer.errors import UsageError, describe_error
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.worker import Phase
from tfckpt_trainer.training.checkpoint.saves.save_protocol import SaveOutcome
from tfckpt_trainer.training.loop.run_ownership import RunOwnership
from tfckpt_trainer.training.telemetry.step_metrics import Call, not_finite
from tfckpt_trainer.training.telemetry.telemetry import Telemetry
from tfckpt_trainer.training.workers.worker_group import WorkerGroup

_DROPS_ITERATOR = opcode.opmap["POP_TOP"]
"""The instruction that ends a loop at `break` and `return`. It never raises."""


class Place(NamedTuple):
    """An instruction that a function was left at."""

    code: CodeType
    instruction: int


class LoopProgress:
    """How much of the present step the loop has done.

    Attributes:
        in_body: Whether the script has the input of a call, and has not asked for the next.
        steps: Steps of the present call.
        unfinished: A clause about the step that an error ended; empty before that.
    """

    def __init__(self) -> None:
        self.in_body = False
        self.steps = 1
        self.unfinished = ""
        self._began = 0.0
        self._waited = 0.0
        self._calls: list[int] = []
        self._most: list[int] = []

    def add_function(self) -> Callable[[], None]:
        """Adds a step function; returns what to call whenever it has run."""
        index = len(self._calls)
        self._calls.append(0)

        def ran() -> None:
            self._calls[index] += 1

        return ran

    @property
    def has_functions(self) -> bool:
        """Whether there is a step function."""
        return bool(self._calls)

    def check_call(self, steps: int) -> None:
        """Raises an error unless a step function gets the whole input of a call, and once.

        Args:
            steps: For how many steps it has input.

        Raises:
            UsageError: The loop would count other steps than those that are trained.
        """
        if not self.in_body:
            return
        if steps != self.steps:
            raise UsageError(
                f"The step function was called with a list of {steps}, and iterating over the run "
                f"yielded a list of {self.steps}. Pass the whole list: the run counts its steps."
            )
        if any(self._calls):
            raise UsageError(
                "The step function was called twice with the list of one call. Call it once: the "
                "run counts the steps of the list."
            )

    def begin_call(self, began: float, waited: float, steps: int) -> None:
        """Takes that the script has the input of a call.

        Args:
            began: When the call began, by `time.perf_counter`.
            waited: How long it waited for its input, in seconds.
            steps: How many steps it runs.
        """
        self.in_body, self._began, self._waited, self.steps = True, began, waited, steps
        self._calls[:] = [0] * len(self._calls)

    def end_call(self) -> None:
        """Notes that the script asked for the input of the next call."""
        self.in_body, self.steps = False, 1
        if self._calls != self._most:
            self._most = [max(pair) for pair in zip_longest(self._calls, self._most, fillvalue=0)]

    @property
    def call(self) -> Call:
        """The present call so far."""
        return Call(self.steps, time.perf_counter() - self._began, self._waited)

    @property
    def is_trained(self) -> bool:
        """Whether each step function ran as often as in any call that this process finished."""
        pairs = zip_longest(self._calls, self._most, fillvalue=0)
        return bool(self._most) and all(calls >= max(1, most) for calls, most in pairs)


class ErrorSave:
    """Saves after an error that ends the loop and the script, where the last step is complete.

    While an error leaves a loop, Python closes its generator, and cannot tell it whether the
    script catches the error. So the run is released then, and the input kept until the error
    reaches the end of the script.
    """

    def __init__(
        self,
        group: WorkerGroup,
        telemetry: Telemetry,
        ownership: RunOwnership,
        progress: LoopProgress,
        save: Callable[[Call], SaveOutcome],
        is_repeating: Callable[[], bool],
    ) -> None:
        """Prepares it.

        Args:
            group: The workers.
            telemetry: Knows the last step and its metrics.
            ownership: Holds the lock of the run directory.
            progress: How much of the present step is done.
            save: Counts the steps of the present call, and saves the last.
            is_repeating: Whether a quick check trains steps that do not count.
        """
        self._group = group
        self._telemetry = telemetry
        self._ownership = ownership
        self._progress = progress
        self._save = save
        self._is_repeating = is_repeating
        self._places: frozenset[Place] | None = None

    def leave_loop(self, error: BaseException) -> bool:
        """Takes what was raised in the generator of the loop, which calls this.

        Returns:
            Whether an error may leave the loop. At a `break` or a `return`, none does.
        """
        if isinstance(error, GeneratorExit):
            # This method was called by the generator, and that by the loop.
            places = _places_from(sys._getframe(2))
            if not places or places[-1].code.co_code[places[-1].instruction] == _DROPS_ITERATOR:
                return False
        else:
            places = _places_of(error.__traceback__)[:1]
        self._places = frozenset(places)
        return True

    def save_after(self, error: BaseException) -> None:
        """Saves after an error that no one caught, or says why not."""
        step = self._telemetry.metrics.step + self._progress.steps
        if self._places is not None and self._places.isdisjoint(_places_of(error.__traceback__)):
            # The script caught what left the loop; this error came later.
            return
        try:
            problem = self._refusal(step)
            if not problem:
                ended = f"step {step:,} ended with an error after its step function"
                self._progress.unfinished = ended
                problem = self._save_owned()
        except KeyboardInterrupt:
            problem = "it was interrupted with ctrl+c."
        except Exception as failure:
            problem = f"{type(failure).__name__}: {describe_error(failure)}"
        told = f"Saved step {step:,} after the error. The rest of the loop did not run in it."
        if problem:
            told = f"Not saved after the error: {problem}"
        sys.stderr.write(f"{told}\n")
        self._telemetry.note(EventKind.NOTE, told)

    def _save_owned(self) -> str:
        """Saves with the lock of the run directory; returns why it did not, or nothing."""
        if not self._ownership.acquire_again():
            return "another trainer has started in this directory."
        try:
            outcome = self._save(self._progress.call)
        finally:
            self._ownership.release()
        return outcome.problem if outcome.name is None else ""

    def _refusal(self, step: int) -> str:
        """Returns why the state is not that after `step`; empty if it is."""
        metrics, progress = self._telemetry.metrics, self._progress
        steps = f"step {step:,}"
        if progress.in_body and progress.steps > 1:
            steps = f"steps {metrics.step + 1:,} to {step:,}"
        broken = not_finite({**metrics.reported, **metrics.fresh})
        if self._group.processes > 1:
            return f"the other workers are within {steps}, so they cannot save."
        if self._places is None:
            return f"the loop does not iterate over the run, so step {step:,} may be incomplete."
        if not progress.in_body:
            if metrics.phase is Phase.INPUT:
                return f"the input of step {step:,} could not be read, and its position is unknown."
            return f"the error came in the work of the run after step {step - 1:,}."
        if metrics.phase is Phase.STEP:
            return f"it came within {steps}, which may have changed some of the variables."
        if not progress.has_functions:
            return f"the loop uses no step function of the run, so {steps} may be incomplete."
        if not progress.is_trained:
            return (
                f"the step functions of {steps} did not all run. A restore would skip what they "
                "did not do."
            )
        if self._is_repeating():
            return f"step {step:,} is one that a quick check repeats."
        if broken:
            return f"metrics of step {step:,} are not finite: {_listed(broken)}."
        return ""


def _listed(values: dict[str, str]) -> str:
    return ", ".join(f"{name} is {value}" for name, value in values.items())


def _places_from(frame: FrameType | None) -> list[Place]:
    """Returns where a loop is: in generators around the run, such as tqdm's, and around them."""
    places = []
    while frame is not None:
        places.append(Place(frame.f_code, frame.f_lasti))
        if not frame.f_code.co_flags & inspect.CO_GENERATOR:
            return places
        frame = frame.f_back
    return places


def _places_of(trace: TracebackType | None) -> list[Place]:
    """Returns the instructions through which an error went, outermost first."""
    places = []
    while trace is not None:
        places.append(Place(trace.tb_frame.f_code, trace.tb_lasti))
        trace = trace.tb_next
    return places
