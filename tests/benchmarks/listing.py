"""Lists very many checkpoints, against a bare `os.scandir` with `stat` of the same directory.

    python tests/benchmarks/listing.py [--checkpoints N ...] [--rounds N]

Of 100,000 checkpoints and more there is one round: it has as many files to average over.

Two files a checkpoint. Three directories: one that TensorFlow alone wrote and does not list
(a manager's list holds few), one that a manager which deletes nothing wrote and lists, and one
of our library with a record each. Scandir and the looks take turns in one run; the files are in
the page cache. A first look is that of a new `Catalog`: in haste, as a screen takes it, which
puts off what it need not know at once; in full, as a script takes it; the looks in haste that
follow until nothing is put off are counted. A warm look is the second one of the same `Catalog`,
with nothing changed, and with one checkpoint more. An open app looks each second, and seldom at all
files again: its looks are the mean of five minutes. The directories are in /dev/shm if there is
one: on a disk, making so many files takes many times as long as all looks.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from scripts.figures import report, report_ratio
from scripts.machine import on_quiet_machine

from bundle_writing import write_floats
from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, FileFacts
from tfckpt_trainer.rundir.storage.documents import encode
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader

BARE = "scandir with stat"
LOOKS = "looks in haste until all is known"
KINDS = ("foreign", "listed", "ours")
ONE_ROUND = 100_000
APP_LOOKS = 300
QUIET_SECONDS = 60
TRIGGER = "every 100 steps"
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


@on_quiet_machine
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoints", type=int, nargs="+", default=[10, 1_000, 10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    options = parser.parse_args()
    for count in options.checkpoints:
        for kind in options.kinds:
            with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
                made = Directory(Path(directory), kind)
                for step in range(1, count + 1):
                    made.checkpoint(step)
                made.finish()
                rounds = options.rounds if count < ONE_ROUND else 1
                report_times(measure(made, rounds), kind, count)


class Directory:
    """Files as a save leaves them, written as fast as they can be."""

    def __init__(self, root: Path, kind: str) -> None:
        self.run = RunDirectory(root)
        self._kind = kind
        self._steps: list[int] = []
        self._files = [
            (path.name[1:], path.read_bytes(), crc32c(path.read_bytes()))
            for path in write_floats(root / "x", (0.0, 0.5))
        ]
        for ending, *_ in self._files:
            (root / f"x{ending}").unlink()
        if kind == "ours":
            self.run.create()

    @property
    def count(self) -> int:
        return len(self._steps)

    def checkpoint(self, step: int) -> None:
        for ending, content, _ in self._files:
            write(f"{self.run.root}/ckpt-{step}{ending}", content)
        if self._kind == "ours":
            write(str(self.run.record(f"ckpt-{step}")), encode(self._record(step)))
        self._steps.append(step)

    def finish(self) -> None:
        """Writes the state file, as the last save did."""
        listed = self._steps if self._kind == "listed" else self._steps[-5:]
        lines = [f'model_checkpoint_path: "ckpt-{self._steps[-1]}"']
        lines += [f'all_model_checkpoint_paths: "ckpt-{step}"' for step in listed]
        lines += [f"all_model_checkpoint_timestamps: {1.7e9 + step}" for step in listed]
        self.run.state_file.write_text("\n".join(lines) + "\n")

    def _record(self, step: int) -> CheckpointRecord:
        facts = [
            FileFacts(name=f"ckpt-{step}{ending}", size=len(content), crc32c=crc)
            for ending, content, crc in self._files
        ]
        return CheckpointRecord(
            name=f"ckpt-{step}",
            step=step,
            branch=0,
            sequence=step,
            saved_at=time.time(),
            trigger=TRIGGER,
            parent=f"ckpt-{step - 1}" if step > 1 else None,
            metrics={"loss": 1 / step, "accuracy": 0.5},
            files=facts,
        )


def write(path: str, content: bytes) -> None:
    with open(path, "wb", buffering=0) as file:
        file.write(content)


def measure(made: Directory, rounds: int) -> dict[str, list[float]]:
    """Returns seconds by what was done; the first is what all others are compared with."""
    times: dict[str, list[float]] = {}

    def timed(what: str, action: Callable[[], object]) -> None:
        start = time.perf_counter()
        action()
        times.setdefault(what, []).append(time.perf_counter() - start)

    for _ in range(rounds):
        timed(BARE, partial(bare, made.run.root))
        hasty, full = Catalog(made.run), Catalog(made.run)
        look_in_haste = partial(hasty.scan, time.time(), quick=True)
        timed("first look, in haste", look_in_haste)
        timed("the next in haste", look_in_haste)
        if LOOKS not in times:
            times[LOOKS] = [2 + looks_until_known(look_in_haste, hasty)]
        timed("first look, in full", partial(full.scan, time.time()))
        timed("nothing changed", partial(full.scan, time.time()))
        times.setdefault("nothing changed, an open app", []).append(look_of_an_app(made.run))
        made.checkpoint(made.count + 1)
        made.finish()
        timed("one more", partial(full.scan, time.time()))
    return times


def look_of_an_app(run: RunDirectory) -> float:
    """Returns the seconds of one of the looks of an open app, once it has read everything."""
    reader, now = SnapshotReader(run), time.time()
    reader.read(now)
    while not reader.has_read_all:
        reader.read(now)
    # It has to find the directory at rest.
    first = now + QUIET_SECONDS
    reader.read(first)
    start = time.perf_counter()
    for second in range(1, APP_LOOKS + 1):
        reader.read(first + second)
    return (time.perf_counter() - start) / APP_LOOKS


def looks_until_known(look_in_haste: Callable[[], object], catalog: Catalog) -> int:
    looks = 0
    while catalog.deferred:
        look_in_haste()
        looks += 1
    return looks


def bare(root: Path) -> int:
    total = 0
    with os.scandir(root) as entries:
        for entry in entries:
            total += entry.stat(follow_symlinks=False).st_size
    return total


def report_times(times: dict[str, list[float]], kind: str, count: int) -> None:
    """Reports what each look takes."""
    size = {"along": "checkpoints", "at": count}
    base = times.pop(BARE)
    report(f"{BARE}, {kind}", [1e3 * seconds for seconds in base], "ms", **size)
    report(f"{LOOKS}, {kind}", times.pop(LOOKS), "looks", **size)
    for what, values in times.items():
        report_ratio(f"{what}, {kind}", values, base, BARE, **size)


if __name__ == "__main__":
    main()
