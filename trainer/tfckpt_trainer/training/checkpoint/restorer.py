"""Goes to a checkpoint in place, on all workers or on none, and proves that it arrived."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tfckpt_trainer.bundle.index import index_path
from tfckpt_trainer.bundle.verify import verify
from tfckpt_trainer.errors import BundleError, DamagedFileError
from tfckpt_trainer.rundir.documents import load_if_there
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.training.checkpoint.proof import wrong_values
from tfckpt_trainer.training.checkpoint.save_protocol import LOCAL_FAILURES, describe_failure
from tfckpt_trainer.training.checkpoint.state import Match, RandomState, SharedState, WorkerState
from tfckpt_trainer.training.loop.worker_group import WorkerGroup

SHOWN_PROBLEMS = 5
"""How many of one worker's reasons are told; a wrong model has hundreds."""


class TornRestoreError(Exception):
    """Workers are in different states: the only safe way is to start them again."""


@dataclass(frozen=True)
class RestoreOutcome:
    """What became of a restore: the same on all workers.

    Attributes:
        problems: Why it was refused, by worker; empty if it was carried out.
        damaged: Whether files are at fault, and not the model: an older checkpoint may do.
        notes: What could not be brought back and why that was accepted.
        variables: How many variables were matched and proven equal on every worker.
        seconds: How long all of it took.
        record: What was recorded of the checkpoint when it was saved, if anything.
        own: Whether each worker has its own state back.
        left_out: What a partial restore did not bring back, and why.
    """

    problems: tuple[str, ...] = ()
    damaged: bool = False
    notes: tuple[str, ...] = ()
    variables: int = 0
    seconds: float = 0.0
    record: CheckpointRecord | None = None
    own: bool = False
    left_out: tuple[str, ...] = ()


@dataclass
class _Check:
    """What one worker found before anything was touched."""

    problems: list[str] = field(default_factory=list)
    damaged: bool = False
    notes: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    use_own: bool = False


@dataclass
class _Prepared:
    """What one worker needs to carry out what it checked.

    Attributes:
        matches: Variables of the shared state, with their tensors.
        own_matches: The same of the worker's own state.
        random: What was saved of its random generators, if its own state is used.
    """

    matches: tuple[Match, ...] = ()
    own_matches: tuple[Match, ...] = ()
    random: RandomState | None = None


class Restorer:
    """Restores checkpoints of one run; every method is called by all workers together."""

    def __init__(
        self,
        run: RunDirectory,
        group: WorkerGroup,
        shared: SharedState,
        own: WorkerState,
        world: dict[str, Any],
    ) -> None:
        self._run = run
        self._group = group
        self._shared = shared
        self._own = own
        self._world = world

    def restore(self, name: str, *, partial: bool = False) -> RestoreOutcome:
        """Brings all workers to checkpoint `name`, or leaves all of them as they are.

        First every worker verifies the files it would read and compares them with its live
        objects. If one objects, nothing is touched. Then all read, and each compares the
        checksum of every variable in memory, on every replica, with the one in the index.

        Args:
            name: The checkpoint.
            partial: Whether to bring back what fits where something does not, and to leave the
                rest as it is. Damage is refused all the same.

        Raises:
            TornRestoreError: Some worker could not finish what it had agreed to.
            tf.errors.OpError: A peer is gone.
        """
        check, prepared = self._check(name, partial=partial)
        checks = self._group.gather(asdict(check))
        problems = [problem for said in checks for problem in said["problems"]]
        if problems:
            damaged = any(said["damaged"] for said in checks)
            return RestoreOutcome(problems=tuple(problems), damaged=damaged)
        notes = tuple(note for said in checks for note in said["notes"])
        # Own state is all or nothing too: half of the workers at their position would repeat
        # some examples and skip others.
        use_own = all(said["use_own"] for said in checks)
        left_out = checks[0]["left_out"]
        failure = self._carry_out(name, prepared, use_own, bool(left_out))
        failures = [s["failure"] for s in self._group.gather({"failure": failure}) if s["failure"]]
        if failures:
            raise TornRestoreError(f"restoring {name} went wrong: {'; '.join(failures)}")
        return RestoreOutcome(
            notes=notes,
            variables=len(prepared.matches),
            record=self._record(name),
            own=use_own,
            left_out=tuple(left_out),
        )

    def _check(self, name: str, *, partial: bool) -> tuple[_Check, _Prepared]:
        check, prepared = _Check(), _Prepared()
        who = f"worker {self._group.index}"
        try:
            damage = _damage(self._run.root / name)
            check.damaged = bool(damage)
            problems = damage or self._misfits(name, check, prepared, partial=partial)
            check.problems += _first(problems, who)
            if not problems:
                self._check_own(name, check, prepared, partial=partial)
        except LOCAL_FAILURES as error:
            check.damaged = True
            check.problems.append(f"{who}: {describe_failure(error)}")
        return check, prepared

    def _misfits(
        self, name: str, check: _Check, prepared: _Prepared, *, partial: bool
    ) -> list[str]:
        """Returns what does not fit, unless it may be left out."""
        comparison = self._shared.compare(self._run.root / name)
        prepared.matches = comparison.matched
        if not comparison.problems or not partial:
            return comparison.problems
        if not comparison.matched:
            return [f"nothing in {name} fits this model", *comparison.problems]
        check.left_out += comparison.problems
        return []

    def _check_own(self, name: str, check: _Check, prepared: _Prepared, *, partial: bool) -> None:
        record = self._record(name)
        who = f"worker {self._group.index}"
        same_world = record is not None and all(
            record.world.get(key) == self._world[key] for key in ("workers", "replicas")
        )
        if not same_world:
            check.notes.append(
                f"{who}: input position and random state start anew, because {name} "
                + ("has none." if record is None else "is of other numbers of workers or replicas.")
            )
            return
        prefix = self._own_prefix(name)
        if not index_path(prefix).exists():
            check.damaged = True
            check.problems.append(
                f"{who}: its own state {prefix.name} of {name} is missing in {prefix.parent}"
            )
            return
        damage = _damage(prefix)
        check.damaged = bool(damage)
        comparison = None if damage else self._own.compare(prefix)
        problems = damage if comparison is None else comparison.problems
        check.use_own = not problems
        if partial and problems and not damage:
            check.notes.append(
                f"{who}: input position and random state start anew, because those of {name} do "
                f"not fit: {problems[0]}."
            )
            return
        check.problems += _first(problems, who)
        if comparison is not None and not problems:
            prepared.own_matches = comparison.matched
            prepared.random = self._own.random_state(prefix)

    def _carry_out(self, name: str, prepared: _Prepared, use_own: bool, partial: bool) -> str:
        """Restores what was checked, and proves it; returns what went wrong."""
        prefix, own_prefix = self._run.root / name, self._own_prefix(name)
        try:
            if partial:
                self._shared.read_only(prefix, prepared.matches)
            else:
                self._shared.read(prefix)
            if use_own and prepared.random is not None:
                self._own.read(own_prefix, prepared.random)
            passed_over = self._own.own_variables if use_own else set()
            wrong = wrong_values(prepared.matches, prefix, passed_over)
            if use_own:
                wrong += wrong_values(prepared.own_matches, own_prefix)
        except (*LOCAL_FAILURES, AssertionError) as error:
            return f"worker {self._group.index}: {describe_failure(error)}"
        if wrong:
            return f"worker {self._group.index}: {wrong[0]} has another value than was saved"
        return ""

    def _own_prefix(self, name: str) -> Path:
        return self._run.worker_state_directory(name) / f"worker-{self._group.index}"

    def _record(self, name: str) -> CheckpointRecord | None:
        try:
            return load_if_there(self._run.record(name), CheckpointRecord)
        except DamagedFileError:
            return None


def _damage(prefix: Path) -> list[str]:
    """Returns what is wrong with the files at `prefix`, having read all of them."""
    try:
        found = verify(prefix).findings
    except (BundleError, FileNotFoundError) as error:
        return [f"{prefix.name} is damaged or missing: {error}"]
    return [
        f"{prefix.name} is damaged: {finding.message}"
        for finding in found
        if finding.severity == "error"
    ]


def _first(problems: list[str], who: str) -> list[str]:
    shown = [f"{who}: {problem}" for problem in problems[:SHOWN_PROBLEMS]]
    more = len(problems) - len(shown)
    return [*shown, f"{who}: and {more} more"] if more > 0 else shown
