"""How exactly a run resumes: looked at before and after its first step, recorded and told."""

from __future__ import annotations

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.exactness import Exactness, merge_exactness
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.documents import load_if_exists
from tfckpt_trainer.training.checkpoint.state import TrainingState
from tfckpt_trainer.training.telemetry.telemetry import Telemetry
from tfckpt_trainer.training.workers.worker_group import WorkerGroup


class RunExactness:
    """What resuming brings back, on all workers, which call every method together."""

    def __init__(
        self,
        run: RunDirectory,
        group: WorkerGroup,
        telemetry: Telemetry,
        state: TrainingState,
        *,
        is_required: bool,
    ) -> None:
        """Prepares it.

        Args:
            run: The run directory.
            group: The workers.
            telemetry: Tells what prevents an exact resume.
            state: The state of the run.
            is_required: Whether to refuse a run that cannot resume exactly.

        Raises:
            UsageError: It cannot.
        """
        self._run = run
        self._group = group
        self._telemetry = telemetry
        self._state = state
        self._is_required = is_required
        self._before: Exactness | None = None
        self._refuse_missing(state.exactness)

    def look_at_start(self) -> tuple[Exactness, Exactness]:
        """Looks before the first step, at what the last start left in `run.json` too.

        Returns:
            What is missing now, and what to record: what the last start found, if that is more.
        """
        now = self._gathered()
        if self._group.is_chief:
            earlier = load_if_exists(self._run.run_file, RunInfo)
            self._before = earlier.exactness if earlier is not None else None
        is_newer = self._before is None or now.is_missing_state
        return now, now if self._before is None or is_newer else self._before

    def first_step_done(self) -> None:
        """Looks again, now that it is known what a step does.

        Raises:
            UsageError: The run cannot resume exactly, and has to.
        """
        exactness = self._gathered()
        self._refuse_missing(exactness)
        if self._group.is_chief:
            self._telemetry.note_exactness(exactness)
            self._record(exactness)

    def closed_without_step(self) -> None:
        """Leaves what the last start found: this one has looked at no step."""
        if self._before is not None:
            self._record(self._before)

    def _gathered(self) -> Exactness:
        return merge_exactness(self._group.all_gather(self._state.exactness))

    def _record(self, exactness: Exactness) -> None:
        self._telemetry.event_log.update_info(exactness=exactness)

    def _refuse_missing(self, exactness: Exactness) -> None:
        if self._is_required and exactness.is_missing_state:
            raise UsageError(
                "Resuming cannot be exact, which SaveOptions(require_exact=True) demands: "
                f"{'; '.join(exactness.reasons)}. {' '.join(exactness.remedies)} Or leave out "
                "require_exact to save what is possible."
            )
