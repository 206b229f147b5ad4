"""The marks of the history."""

from __future__ import annotations

from collections.abc import Iterable

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint


class Marks:
    """Marked checkpoints, in the order of marking."""

    def __init__(self) -> None:
        # By name, which finds one among thousands at once. None: it is gone, and may come back.
        self._marked: dict[str, Checkpoint | None] = {}
        self._among: tuple[Checkpoint, ...] = ()
        self._found: tuple[Checkpoint, ...] | None = None

    def __contains__(self, name: object) -> bool:
        """Whether a checkpoint is marked."""
        return name in self._marked

    def toggle(self, checkpoint: Checkpoint) -> None:
        """Marks a checkpoint, or removes its mark."""
        self._found = None
        if checkpoint.name in self._marked:
            del self._marked[checkpoint.name]
        else:
            self._marked[checkpoint.name] = checkpoint

    def toggle_all(self, checkpoints: Iterable[Checkpoint]) -> None:
        """Marks checkpoints; if they are marked already, removes all marks."""
        self._found = None
        count = len(self._marked)
        self._marked.update({checkpoint.name: checkpoint for checkpoint in checkpoints})
        if len(self._marked) == count:
            self._marked.clear()

    def clear(self) -> None:
        """Removes all marks."""
        self._found = None
        self._marked.clear()

    def among(self, checkpoints: tuple[Checkpoint, ...]) -> tuple[Checkpoint, ...]:
        """Returns the marked ones of `checkpoints`; looks them up again only in another tuple."""
        if self._among is not checkpoints:
            self._among, self._found = checkpoints, None
            if self._marked:
                by_name = {c.name: c for c in checkpoints if c.name in self._marked}
                self._marked = {name: by_name.get(name) for name in self._marked}
        if self._found is None:
            self._found = tuple(filter(None, self._marked.values()))
        return self._found
