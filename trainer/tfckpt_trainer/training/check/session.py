"""Runs one process of a check: trains, saves, restores in place, and records every step."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import tensorflow as tf

from tfckpt_trainer.errors import TfckptError, UsageError
from tfckpt_trainer.rundir.records.check import CHECK_VARIABLE, CheckedStep, CheckOrder, Pass
from tfckpt_trainer.rundir.storage.documents import encode
from tfckpt_trainer.rundir.storage.files import append_line
from tfckpt_trainer.rundir.storage.json_text import JsonError, decode_json
from tfckpt_trainer.training.check.causes import collect_facts
from tfckpt_trainer.training.check.digests import StateDigests, digest_of_batch, digits
from tfckpt_trainer.training.check.script_names import ScriptNames
from tfckpt_trainer.training.checkpoint.restores.restore_manager import RestoreManager
from tfckpt_trainer.training.checkpoint.saves.save_manager import SaveManager
from tfckpt_trainer.training.checkpoint.state import TrainingState
from tfckpt_trainer.training.telemetry.telemetry import Telemetry
from tfckpt_trainer.training.workers.worker_group import WorkerGroup
from tfckpt_trainer.words.counts import count


def check_order(run_directory: str | Path | None) -> CheckOrder | None:
    """Returns what to check, if this process was started by a check.

    Args:
        run_directory: What the script passed as the run directory.

    Raises:
        UsageError: The environment variable is not an order.
    """
    text = os.environ.get(CHECK_VARIABLE)
    if text is None:
        return None
    try:
        order = decode_json(text, CheckOrder)
    except JsonError as error:
        raise UsageError(
            f"{CHECK_VARIABLE} is set and not valid ({error}). Unset it: `unset {CHECK_VARIABLE}`."
        ) from None
    path = os.path.realpath(run_directory) if run_directory else ""
    return msgspec.structs.replace(order, run_directory=path)


class CheckSession:
    """Records the steps of this worker. All workers call every method together.

    Attributes:
        is_done: Whether all steps of this process are recorded.
    """

    def __init__(
        self,
        order: CheckOrder,
        group: WorkerGroup,
        state: TrainingState,
        telemetry: Telemetry,
        saves: SaveManager,
        restores: RestoreManager,
    ) -> None:
        self._trace = Path(order.trace(group.index))
        self._group = group
        self._topology = group.topology
        self._state = state
        self._telemetry = telemetry
        self._saves = saves
        self._restores = restores
        self._digests = StateDigests(state, is_chief=group.is_chief)
        self._run_directory = order.run_directory
        self._warm_up = order.warm_up
        self._last = order.warm_up + order.steps
        self._phase: Pass | None = None
        self._records_facts = False
        self._saved = ""
        self._batch = ""
        self.is_done = False

    def opened(self) -> None:
        """Records the state after a cold start from the checkpoint of the check."""
        if self._state.position.step:
            self._begin(Pass.COLD)

    def steps_left(self, step: int) -> int:
        """Returns how many more steps than `step` it has to act after."""
        if step < self._warm_up:
            return self._warm_up - step
        # The first step after a restore says most about what is missing.
        return 1 if step == self._warm_up else self._last - step

    def take_batch(self, batch: Any) -> None:
        """Records the input of the next call."""
        if self._phase is not None:
            self._batch = digest_of_batch(batch)

    def step_done(self) -> None:
        """Records a step; then saves, restores or ends the check if that is due.

        Raises:
            TfckptError: The checkpoint of the check cannot be saved or restored.
        """
        if self.is_done:
            # A loop that does not ask whether the run is over.
            raise SystemExit(0)
        self._group.join()
        step = self._state.position.step
        if self._phase is not None:
            self._record(self._phase, step)
        if self._phase is None and step >= self._warm_up:
            self._save()
        elif self._phase is not None and step >= self._last:
            self._end_pass()

    def data_ended(self) -> None:
        """Ends the present pass before its last step, because training reached its end.

        Raises:
            TfckptError: No step was recorded.
        """
        step = self._state.position.step
        if self._phase is None or step <= self._warm_up:
            raise self._failed(
                f"Training ended after {count(step, 'step')}. A check needs at least "
                f"{self._warm_up + 1}: {self._warm_up} before the save, and one to repeat. "
                "Give the script more steps or data."
            )
        self._last = step
        self._end_pass()

    def _save(self) -> None:
        outcome = self._saves.save_now("check")
        if outcome.name is None:
            raise self._failed(f"No checkpoint can be saved: {outcome.problem}")
        self._saved = outcome.name
        self._begin(Pass.FIRST)

    def _end_pass(self) -> None:
        if self._phase is not Pass.FIRST:
            self.is_done = True
            return
        outcome = self._restores.restore(self._restores.find(self._saved))
        if outcome.problems:
            raise self._failed(
                f"{self._saved} cannot be restored in place: {'; '.join(outcome.problems)}"
            )
        self._begin(Pass.IN_PLACE)

    def _failed(self, problem: str) -> TfckptError:
        step = self._state.position.step
        self._write(CheckedStep(phase=self._phase or Pass.FIRST, step=step, problem=problem))
        return TfckptError(problem)

    def _begin(self, phase: Pass) -> None:
        """Records the state before the first step of a pass."""
        self._phase, self._records_facts = phase, True
        names = ScriptNames()
        self._digests.find(names)
        self._write(
            CheckedStep(
                phase=phase,
                step=self._state.position.step,
                state=self._digests.digest(),
                values=self._values(names),
            )
        )

    def _values(self, names: ScriptNames) -> dict[str, str]:
        """Returns the numbers of the script, but for those that the last step reported."""
        reported = {str(value) for value in self._telemetry.metrics.newest.values()}
        return {name: text for name, text in names.values.items() if text not in reported}

    def _record(self, phase: Pass, step: int) -> None:
        facts, values = None, {}
        if self._records_facts:
            self._records_facts = False
            # The first step of a process creates what is created late, such as metrics.
            names = ScriptNames()
            self._digests.find(names)
            values = self._values(names)
            datasets = [] if self._batch else [name for name, _ in names.named((tf.data.Dataset,))]
            process_facts = collect_facts(
                self._topology,
                has_dataset=bool(self._batch),
                iterators=self._digests.iterators,
                inputs=self._state.worker.inputs.facts,
            )
            facts = msgspec.structs.replace(
                process_facts,
                datasets=sorted(datasets),
                run_directory=self._run_directory,
                exactness=self._state.exactness,
            )
        *earlier, metrics = map(digits, self._telemetry.metrics.newest_call or [{}])
        for number, reported in enumerate(earlier, start=step - len(earlier)):
            self._write(CheckedStep(phase=phase, step=number, metrics=reported))
        self._write(
            CheckedStep(
                phase=phase,
                step=step,
                metrics=metrics,
                batch=self._batch,
                state=self._digests.digest(),
                values=values,
                facts=facts,
            )
        )

    def _write(self, line: CheckedStep) -> None:
        append_line(self._trace, encode(line), durable=False)
