"""Values of the script's own that go with a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, WorkerFacts


class UserState:
    """What a script keeps beside its variables: of kinds that JSON has.

    Attributes:
        shared: Equal on all workers; the chief's is saved.
        own: Of this worker alone.
        before_save: Called before these values are saved.
        after_restore: Called after they came back.
    """

    def __init__(self, index: int) -> None:
        self._index = index
        self.shared: dict[str, Any] = {}
        self.own: dict[str, Any] = {}
        self.before_save: list[Callable[[], None]] = []
        self.after_restore: list[Callable[[], None]] = []

    def give(self, facts: WorkerFacts) -> tuple[dict[str, Any], WorkerFacts]:
        """Returns the shared values, and `facts` with those of this worker.

        Raises:
            UsageError: JSON cannot carry a value.
        """
        for act in self.before_save:
            act()
        own = _plain("worker_state", self.own)
        return _plain("state", self.shared), msgspec.structs.replace(facts, state=own)

    def take(self, record: CheckpointRecord | None, *, own: bool) -> None:
        """Takes up what a checkpoint's record holds.

        Args:
            record: None where nobody of ours saved the checkpoint; then nothing is kept.
            own: Whether the values of single workers are theirs again.
        """
        self.shared.clear()
        self.own.clear()
        if record is not None:
            self.shared.update(record.state)
            mine = [facts.state for facts in record.workers if facts.index == self._index]
            self.own.update(mine[0] if own and mine else {})
        for act in self.after_restore:
            act()


def _plain(name: str, values: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, value in values.items():
        try:
            plain[str(key)] = msgspec.json.decode(msgspec.json.encode(value))
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"run.{name}[{key!r}] is a {type(value).__name__}, which JSON cannot carry "
                f"({error}); keep numbers, texts, lists and dictionaries of them."
            ) from None
    return plain
