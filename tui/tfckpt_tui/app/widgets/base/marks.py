"""The marks of a list."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")


class Marks(Generic[ItemT]):
    """Marked items, in the order of marking."""

    def __init__(self, key_of: Callable[[ItemT], str]) -> None:
        """Creates marks.

        Args:
            key_of: Returns the name by which an item is found again.
        """
        self._key_of = key_of
        # By name, which finds one among thousands at once. None: it is gone, and may come back.
        self._marked: dict[str, ItemT | None] = {}
        self._among: tuple[ItemT, ...] = ()
        self._found: tuple[ItemT, ...] | None = None

    def __len__(self) -> int:
        """How many items are marked, gone or not."""
        return len(self._marked)

    def __contains__(self, name: object) -> bool:
        """Whether an item is marked."""
        return name in self._marked

    def toggle(self, item: ItemT) -> None:
        """Marks an item, or removes its mark."""
        self._found = None
        name = self._key_of(item)
        if name in self._marked:
            del self._marked[name]
        else:
            self._marked[name] = item

    def toggle_all(self, items: Iterable[ItemT]) -> None:
        """Marks items; if they are marked already, removes all marks."""
        self._found = None
        count = len(self._marked)
        self._marked.update({self._key_of(item): item for item in items})
        if len(self._marked) == count:
            self._marked.clear()

    def remove(self, names: Iterable[str]) -> None:
        """Removes the marks of items with these names."""
        for name in self._marked.keys() & set(names):
            self._found = None
            del self._marked[name]

    def clear(self) -> None:
        """Removes all marks."""
        self._found = None
        self._marked.clear()

    def are_gone(self, items: tuple[ItemT, ...]) -> bool:
        """Whether there are marks, and all marked items are gone."""
        return bool(self._marked) and not self.among(items)

    def among(self, items: tuple[ItemT, ...]) -> tuple[ItemT, ...]:
        """Returns the marked ones of `items`; looks them up again only in another tuple."""
        if self._among is not items:
            self._among, self._found = items, None
            if self._marked:
                keyed = ((self._key_of(item), item) for item in items)
                by_name = {name: item for name, item in keyed if name in self._marked}
                self._marked = {name: by_name.get(name) for name in self._marked}
        if self._found is None:
            self._found = tuple(filter(None, self._marked.values()))
        return self._found
