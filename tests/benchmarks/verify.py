"""The rate of verifying, against a plain CRC32C of the same files and against TensorFlow.

    python tests/benchmarks/verify.py [--rounds N] [--small N] [--directory DIR] [--no-tensorflow]

A plain CRC32C reads the files with the same reads of 1 MiB and computes the same google-crc32c
over them, in one thread, knowing nothing of tensors. It takes turns in one process with `verify` in
one thread, as trainers verify, with `verify` in a thread for each core, as the command does, and
with parsing alone: reading the index and looking at sizes, which is the fixed cost. The files are
in the page cache, which is where verifying is measured against the processor and not against the
disk.
TensorFlow reads every tensor of the checkpoint in a process of its own, and so does
`tfckpt-tui verify`, both with their imports. At last, that command verifies very many small
checkpoints, against a plain read of their files, and again, when it remembers the results.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

SCRIPTS = Path(__file__).with_name("scripts")
sys.path.insert(0, str(SCRIPTS))
import google_crc32c
from listing import Directory
from made_checkpoints import make
from scripts.figures import report, report_ratio
from scripts.machine import on_quiet_machine

from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.bundle.shard import CHUNK
from tfckpt_trainer.bundle.structure import structure_findings
from tfckpt_trainer.bundle.verify import verify
from tfckpt_tui.services.processes.parallel_map import usable_cores

KINDS = {
    "1 GB in 100 tensors": (100, 1_000_000_000),
    "400 MB in 2,000 tensors": (2_000, 400_000_000),
    "4 MB in 2,000 tensors": (2_000, 4_000_000),
    "300 KB in 30 tensors": (30, 300_000),
}
PLAIN, FINITE, PARSING = "plain CRC32C", "verify, looking for what is not finite", "parsing alone"


@on_quiet_machine
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--small", type=int, default=10_000, help="how many small checkpoints")
    parser.add_argument("--directory", help="where to write the checkpoints, for a real disk")
    parser.add_argument("--no-tensorflow", action="store_true")
    options = parser.parse_args()
    for title, (tensors, size) in KINDS.items():
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            prefix = Path(directory) / "ckpt-1"
            total = make(prefix, tensors, size)
            report_rates(title, total, measure(prefix, options.rounds))
            if not options.no_tensorflow:
                against_tensorflow(title, prefix, max(1, options.rounds // 2))
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        many_small(Path(directory), options.small)


def measure(prefix: Path, rounds: int) -> dict[str, list[float]]:
    """Returns seconds by what was done."""
    files = sorted(prefix.parent.glob(f"{prefix.name}.*"))
    actions: dict[str, Callable[[], object]] = {
        PLAIN: partial(plain, files),
        "verify": partial(verified, prefix),
        "verify on all cores": partial(verified, prefix, threads=usable_cores()),
        "verify, with digests of whole files": partial(verified, prefix, digests=True),
        FINITE: partial(verified, prefix, finite=True),
        PARSING: partial(parse, prefix),
    }
    times: dict[str, list[float]] = {what: [] for what in actions}
    for action in actions.values():
        action()
    for _ in range(rounds):
        for what, action in actions.items():
            began = time.perf_counter()
            action()
            times[what].append(time.perf_counter() - began)
    return times


def plain(files: list[Path]) -> int:
    value = 0
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        offset = 0
        while data := os.pread(descriptor, CHUNK, offset):
            value = google_crc32c.extend(value, data)
            offset += len(data)
        os.close(descriptor)
    return value


def verified(
    prefix: Path, *, digests: bool = False, finite: bool = False, threads: int = 1
) -> None:
    found = verify(prefix, digests=digests, finite=finite, threads=threads)
    assert found.ok and not found.not_finite


def parse(prefix: Path) -> None:
    assert structure_findings(prefix, read_index(prefix)) == []


def report_rates(title: str, total: int, times: dict[str, list[float]]) -> None:
    base = times[PLAIN]
    report(f"{PARSING}, {title}", [1e3 * seconds for seconds in times.pop(PARSING)], "ms")
    for what, values in times.items():
        rates = [total / seconds / 1e9 for seconds in values]
        report(f"rate of {what}, {title}", rates, "GB/s")
        shares = [100 * plain / ours for plain, ours in zip(base, values, strict=True)]
        if what != PLAIN:
            report(f"{what}, {title}", shares, "%", against="of the rate of a plain CRC32C")


def many_small(root: Path, count: int) -> None:
    """Compares verifying many checkpoints of a run with reading their files."""
    made = Directory(root, "ours")
    for step in range(1, count + 1):
        made.checkpoint(step)
    made.finish()
    files = [Path(entry.path) for entry in os.scandir(root) if entry.name.startswith("ckpt-")]
    words = [sys.executable, "-m", "tfckpt_tui.cli.main", "verify", str(root)]
    for what in ("`tfckpt-tui verify` of small checkpoints", "the same, remembered"):
        began = time.perf_counter()
        subprocess.run(words, check=True, capture_output=True)
        ours = time.perf_counter() - began
        began = time.perf_counter()
        plain(files)
        theirs = time.perf_counter() - began
        report_ratio(
            what, [ours], [theirs], "a plain read of the files", along="checkpoints", at=count
        )


def against_tensorflow(title: str, prefix: Path, rounds: int) -> None:
    """Compares processes that read everything: TensorFlow, and `tfckpt-tui verify`."""
    script = [sys.executable, str(SCRIPTS / "made_checkpoints.py"), str(prefix)]
    ours = [sys.executable, "-m", "tfckpt_tui.cli.main", "verify", str(prefix.parent), "--again"]
    whole: list[float] = []
    reading: list[float] = []
    theirs: list[float] = []
    bare: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run(ours, check=True, capture_output=True)
        whole.append(time.perf_counter() - began)
        began = time.perf_counter()
        verify(prefix)
        bare.append(time.perf_counter() - began)
        said = subprocess.run(script, check=True, capture_output=True, text=True).stdout.split()
        reading.append(float(said[1]))
        theirs.append(float(said[0]) + float(said[1]))
    report_ratio(f"time of verify, {title}", bare, reading, "TensorFlow reading every tensor")
    against = "importing TensorFlow and reading every tensor"
    report_ratio(f"`tfckpt-tui verify`, {title}", whole, theirs, against)


if __name__ == "__main__":
    main()
