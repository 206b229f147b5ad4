"""The marks of the history."""

from __future__ import annotations

from collections.abc import Iterable

from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint


class Marks:
    """Names of marked checkpoints, in the order of marking."""

    def __init__(self) -> None:
        # A dictionary keeps the order, and finds a name among thousands at once.
        self._names: dict[str, None] = {}
        self._found: tuple[tuple[Checkpoint, ...], tuple[Checkpoint, ...]] | None = None

    def __contains__(self, name: object) -> bool:
        """Whether a checkpoint is marked."""
        return name in self._names

    @property
    def names(self) -> Iterable[str]:
        """The names, in the order of marking."""
        return self._names.keys()

    def toggle(self, name: str) -> None:
        """Marks a checkpoint, or removes its mark."""
        self._found = None
        if name in self._names:
            del self._names[name]
        else:
            self._names[name] = None

    def toggle_all(self, names: Iterable[str]) -> None:
        """Marks checkpoints; if they are marked already, removes all marks."""
        self._found = None
        count = len(self._names)
        self._names.update(dict.fromkeys(names))
        if len(self._names) == count:
            self._names.clear()

    def clear(self) -> None:
        """Removes all marks."""
        self._found = None
        self._names.clear()

    def among(self, checkpoints: tuple[Checkpoint, ...]) -> tuple[Checkpoint, ...]:
        """Returns the marked ones of `checkpoints`; searches them again only after a change."""
        if not self._names:
            return ()
        if self._found is None or self._found[0] is not checkpoints:
            known = {c.name: c for c in checkpoints if c.name in self._names}
            found = tuple(known[name] for name in self._names if name in known)
            self._found = checkpoints, found
        return self._found[1]
