"""How soon a new checkpoint is known, and what following costs while nothing happens.

    python tests/benchmarks/follow.py [--rounds N]

The time from the rename of an index into a directory until the snapshot that has it is handed
over, with file events and with polling every 0.5 s, beside a bare scandir with stat of the same
directory; and the part of one core that the monitor takes while nothing happens.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import numpy as np
from scripts.figures import report
from scripts.machine import on_quiet_machine

from bundle_writing import array, write
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.monitor.run_monitor import Monitor
from tfckpt_tui.monitor.snapshot import RunSnapshot

IDLE_SECONDS = 10.0
LIMIT_SECONDS = 240.0


class Followed:
    """A monitor on a directory, and which checkpoints its newest snapshot has."""

    def __init__(self, root: Path, poll: float | None) -> None:
        self._condition = threading.Condition()
        self._names: frozenset[str] = frozenset()
        self.monitor = Monitor(RunDirectory(root), poll)
        self.monitor.start(self._take)

    def _take(self, snapshot: RunSnapshot) -> None:
        with self._condition:
            self._names = frozenset(c.name for c in snapshot.checkpoints if c.restorable)
            self._condition.notify_all()

    def wait_for(self, name: str) -> float:
        """Returns when a snapshot had the checkpoint."""
        with self._condition:
            seen = self._condition.wait_for(lambda: name in self._names, LIMIT_SECONDS)
            assert seen, f"{name} was not seen"
        return time.perf_counter()


@on_quiet_machine
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    for count in (10, 10_000):
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory)
            fill(root, count)
            size = {"along": "checkpoints", "at": count}
            bare = [1e3 * scan(root) for _ in range(options.rounds)]
            report("scandir with stat", bare, "ms", **size)
            events, idle = follow(root, None, count, options.rounds)
            report("new checkpoint is known by file events", events, "ms", **size)
            report("idle, of one core", [100 * idle], "%", **size)
            polling, _ = follow(root, 0.5, count, options.rounds)
            report("new checkpoint is known by polling", polling, "ms", **size)


def fill(root: Path, count: int) -> None:
    """Writes one checkpoint and copies it; all of them are older than an hour."""
    paths = write(root / "ckpt-0", {"v": array(np.zeros(4, np.float32))})
    contents = [(path.name.removeprefix("ckpt-0"), path.read_bytes()) for path in paths]
    old = time.time() - 3600
    for number in range(count):
        for ending, content in contents:
            path = root / f"ckpt-{number}{ending}"
            path.write_bytes(content)
            os.utime(path, (old, old))


def scan(root: Path) -> float:
    began = time.perf_counter()
    with os.scandir(root) as entries:
        for entry in entries:
            entry.stat()
    return time.perf_counter() - began


def follow(root: Path, poll: float | None, count: int, rounds: int) -> tuple[list[float], float]:
    """Returns the milliseconds until a checkpoint is known, and the idle share of a core."""
    followed = Followed(root, poll)
    followed.wait_for("ckpt-0")
    settle(followed)
    began, used = time.perf_counter(), time.process_time()
    time.sleep(IDLE_SECONDS)
    idle = (time.process_time() - used) / (time.perf_counter() - began)
    taken = []
    for number in range(rounds):
        name = f"new-{'events' if poll is None else 'poll'}-{count + number}"
        *data, index = write(root / "hidden", {"v": array(np.zeros(4, np.float32))})
        for path in data:
            path.rename(root / path.name.replace("hidden", name))
        index.rename(root / f"{name}.index")
        renamed = time.perf_counter()
        # The state file is what TensorFlow and our library write next; its end is an event.
        (root / "checkpoint").write_text(f'model_checkpoint_path: "{name}"\n')
        taken.append(1e3 * (followed.wait_for(name) - renamed))
        # Not in step with the polls.
        time.sleep(0.7 + 0.05 * number)
    followed.monitor.stop()
    return taken, idle


def settle(followed: Followed) -> None:
    """Waits until everything that a first look put off was looked at, and some seconds more."""
    catalog = followed.monitor._reader._catalog
    deadline = time.monotonic() + LIMIT_SECONDS
    quiet = 0
    # It counts anew during a look: only nothing for two seconds is nothing.
    while quiet < 10 and time.monotonic() < deadline:
        quiet = 0 if catalog.deferred else quiet + 1
        followed.monitor.refresh()
        time.sleep(0.2)
    time.sleep(3)


if __name__ == "__main__":
    main()
