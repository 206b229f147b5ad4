"""How long threads of a process wait for the processor, on a machine under load."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


class Stalls:
    """The time that threads of processes stood in the run queue since this was made."""

    def __init__(self, *pids: int) -> None:
        self._pids = pids
        self._first = self._read()
        self._last = dict(self._first)

    def seconds(self) -> float:
        """The sum over all threads until now; until the last call for those that have ended."""
        self._last |= self._read()
        return sum(last - self._first.get(task, 0.0) for task, last in self._last.items())

    def _read(self) -> dict[Path, float]:
        waited: dict[Path, float] = {}
        for pid in self._pids:
            with suppress(OSError):
                for task in Path(f"/proc/{pid}/task").iterdir():
                    waited[task] = int((task / "schedstat").read_text().split()[1]) / 1e9
        return waited
