"""Whether training resumes exactly from the checkpoints of a run, and what is missing if not."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec


class ExactnessLevel(StrEnum):
    """How much is known about an exact resume.

    `CHECKED`: a check trained, restored and compared. `EXPECTED`: all state is saved as far as is
    known, and nothing was compared. `NOT_POSSIBLE`: state is missing.
    """

    CHECKED = "checked"
    EXPECTED = "expected"
    NOT_POSSIBLE = "not possible"


class InputPosition(StrEnum):
    """What a checkpoint holds of an input pipeline.

    `EXACT`: the position with all buffers. `POSITION`: the same without the state of stateful
    operations. `COUNT`: the number of elements read.
    """

    EXACT = "exact"
    POSITION = "position"
    COUNT = "count"


_RANK = {position: rank for rank, position in enumerate(InputPosition)}


class PipelineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One input pipeline, as its position is saved.

    Attributes:
        name: Its name in the dictionary that was passed as `dataset`; `dataset` if there is one.
        position: What is saved.
        causes: Why not more is saved, each as a noun phrase.
        remedies: What to change in the script, each as an imperative sentence.
        skips: Whether a restore reads and drops the counted elements.
    """

    name: str
    position: InputPosition
    causes: list[str] = []
    remedies: list[str] = []
    skips: bool = False

    @property
    def reason(self) -> str:
        """Why resuming is not exact, as a clause; empty if the position is exact."""
        if self.position is InputPosition.EXACT:
            return ""
        return f"the input pipeline {self.name!r} uses {' and '.join(self.causes)}"

    @property
    def restored(self) -> str:
        """What a restore does with the input, as a clause."""
        if self.position is InputPosition.EXACT:
            return f"{self.name!r} continues where it was"
        if self.position is InputPosition.POSITION:
            lost = "the state of its operations is not restored"
            return f"{self.name!r} continues at its position, but {lost}"
        if self.position is InputPosition.COUNT and self.skips:
            return f"{self.name!r} starts over and skips the elements that were read"
        return f"{self.name!r} starts over"


class Exactness(msgspec.Struct, frozen=True, kw_only=True):
    """What resuming from a checkpoint brings back, as the trainer found at its start.

    Attributes:
        level: What is known.
        reasons: Why it is not possible, each as a clause; empty otherwise.
        inputs: The input pipelines.
    """

    level: ExactnessLevel
    reasons: list[str] = []
    inputs: list[PipelineFacts] = []

    @property
    def words(self) -> str:
        """The level, with the reasons."""
        if not self.reasons:
            return self.level.value
        return f"{self.level.value} because {'; '.join(self.reasons)}"

    @property
    def causes(self) -> str:
        """The reasons in few words; empty if there are none."""
        of_inputs = {one.reason: " and ".join(one.causes) for one in self.inputs}
        return "; ".join(of_inputs.get(reason, reason) for reason in self.reasons)


class CheckSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check: it trained, restored, trained again and compared.

    Attributes:
        at: Time of the check, in seconds since the epoch.
        steps: Number of compared steps.
        difference: The first thing that differs, as a clause; empty if all is equal.
    """

    at: float
    steps: int
    difference: str = ""


def exactness_of(inputs: list[PipelineFacts], reasons: list[str]) -> Exactness:
    """Returns what is expected of a run before anything was compared.

    Args:
        inputs: The input pipelines.
        reasons: Further reasons why resuming is not exact, each as a clause.
    """
    all_reasons = list(dict.fromkeys([*(one.reason for one in inputs if one.reason), *reasons]))
    level = ExactnessLevel.NOT_POSSIBLE if all_reasons else ExactnessLevel.EXPECTED
    return Exactness(level=level, reasons=all_reasons, inputs=inputs)


def merge_exactness(of_workers: Sequence[Exactness]) -> Exactness:
    """Returns what holds for all workers: of each pipeline, what the worst worker saves."""
    inputs: dict[str, PipelineFacts] = {}
    for one in (facts for exactness in of_workers for facts in exactness.inputs):
        known = inputs.get(one.name)
        if known is None or _RANK[one.position] > _RANK[known.position]:
            inputs[one.name] = one
    reasons = [reason for exactness in of_workers for reason in exactness.reasons]
    return exactness_of(list(inputs.values()), reasons)


def with_check(found: Exactness | None, check: CheckSummary | None) -> Exactness | None:
    """Returns what is known about a run: what the trainer found, and what a check compared.

    A check that found no difference does not outweigh state that is known to be missing.
    """
    if check is None or (found is not None and found.reasons):
        return found
    inputs = found.inputs if found is not None else []
    if check.difference:
        return Exactness(
            level=ExactnessLevel.NOT_POSSIBLE,
            reasons=[f"a check found that {check.difference}"],
            inputs=inputs,
        )
    return Exactness(level=ExactnessLevel.CHECKED, inputs=inputs)
