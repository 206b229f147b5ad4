"""Opening the index of a checkpoint, against `tf.train.load_checkpoint` and its list of shapes.

    python tests/benchmarks/open_index.py [--rounds N]

Each opening is measured in a process of its own, with the time of its imports and without; both
sides take turns. The checkpoints have 33, 2,000 and 10,000 tensors.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPTS = Path(__file__).with_name("scripts")
sys.path.insert(0, str(SCRIPTS))
from made_checkpoints import make

OURS = """
import sys, time
from pathlib import Path
began = time.perf_counter()
from tfckpt_trainer.bundle.index import read_index
imported = time.perf_counter()
shapes = {name: entry.shape for name, entry in read_index(Path(sys.argv[1])).entries.items()}
"""
THEIRS = """
import sys, time
began = time.perf_counter()
import tensorflow as tf
imported = time.perf_counter()
shapes = tf.train.load_checkpoint(sys.argv[1]).get_variable_to_shape_map()
"""
END = """
import resource
done = time.perf_counter()
print(len(shapes), imported - began, done - imported,
      resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print("tensors | ours: import, open, memory | TensorFlow's | with imports | without")
    for tensors in (33, 2_000, 10_000):
        with tempfile.TemporaryDirectory() as directory:
            prefix = Path(directory) / "ckpt-1"
            make(prefix, tensors, 100 * tensors)
            compare(prefix, tensors, options.rounds)


def compare(prefix: Path, tensors: int, rounds: int) -> None:
    """Opens a checkpoint in turns and prints medians and ratios."""
    taken: dict[str, list[tuple[float, float, float]]] = {OURS: [], THEIRS: []}
    for _ in range(rounds):
        for script, results in taken.items():
            results.append(run(script, prefix, tensors))
    ours, theirs = (
        tuple(statistics.median(column) for column in zip(*taken[script], strict=True))
        for script in (OURS, THEIRS)
    )
    print(
        f"{tensors:7,} | {words(ours)} | {words(theirs)} | "
        f"{(theirs[0] + theirs[1]) / (ours[0] + ours[1]):.0f} times faster | "
        f"{ours[1] / theirs[1]:.1f} times its time"
    )


def words(result: tuple[float, ...]) -> str:
    imported, opened, kilobytes = result
    return f"{1000 * imported:.0f} ms, {1000 * opened:.1f} ms, {kilobytes / 1000:.0f} MB"


def run(script: str, prefix: Path, tensors: int) -> tuple[float, float, float]:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run(
        [sys.executable, "-c", script + END, str(prefix)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    count, imported, opened, memory = ended.stdout.split()
    assert int(count) == tensors, "not every tensor was listed"
    return float(imported), float(opened), float(memory)


if __name__ == "__main__":
    main()
