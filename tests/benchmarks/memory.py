"""Peak resident memory of the commands that read or write whole checkpoints.

    python tests/benchmarks/memory.py [--size BYTES] [--directory DIR]

Two checkpoints of 1 GB, written as one large tensor, as 100, and as 2,000. Each command is a
process of its own, which tells its `VmHWM`. Python with the imports of
`tfckpt-tui --help` is the floor.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).with_name("scripts")))
from made_checkpoints import make
from scripts.figures import report
from scripts.machine import on_quiet_machine

COMMANDS = {
    "verify": ["verify", "--again", "RUN", "ckpt-1"],
    "verify --finite": ["verify", "RUN", "ckpt-1", "--finite"],
    "inspect": ["inspect", "RUN", "ckpt-1"],
    "inspect --stats": ["inspect", "RUN", "ckpt-1", "--stats"],
    "compare": ["compare", "RUN", "ckpt-1", "ckpt-2"],
    "compare --norms": ["compare", "RUN", "ckpt-1", "ckpt-2", "--norms"],
    "compare --histogram": ["compare", "RUN", "ckpt-1", "ckpt-2", "--histogram"],
    "track": ["track", "RUN", "layer_00000/kernel"],
    "extract --to npz": ["extract", "RUN", "ckpt-1", "--to", "npz", "-o", "RUN/w.npz"],
    "convert": ["convert", "RUN", "new-1", "RUN/w.npz"],
    "convert --like": ["convert", "RUN", "new-2", "RUN/w.npz", "--like", "RUN", "ckpt-1"],
    "extract --to npy": ["extract", "RUN", "ckpt-1", "--to", "npy", "-o", "RUN/npy"],
    "extract --to safetensors": [
        "extract", "RUN", "ckpt-1", "--to", "safetensors", "-o", "RUN/w.safetensors"
    ],
    "average": ["average", "RUN", "ckpt-1", "ckpt-2"],
    "edit --cast": ["edit", "RUN", "ckpt-1", "--cast", "layer_*", "float16", "--yes"],
}  # fmt: skip
NEEDED = {"w.npz"}
"""Results that a later command reads; all others are deleted at once."""


RUN = """
import sys
from tfckpt_tui.cli.main import run

code = run(sys.argv[1:])
status = open("/proc/self/status").read()
sys.stderr.write(status.partition("VmHWM:")[2].split()[0])
sys.exit(code)
"""
"""Tells its own peak in KiB: that of `getrusage` counts what forked it too."""


@on_quiet_machine
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=1_000_000_000)
    parser.add_argument("--directory", help="where to write the checkpoints")
    options = parser.parse_args()
    report("--help", [peak(["--help"]) / 1e6], "MB")
    for tensors in (1, 100, 2_000):
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            for step in (1, 2):
                make(Path(directory) / f"ckpt-{step}", tensors, options.size, seed=step)
            kept = {*os.listdir(directory), *NEEDED}
            for title, words in COMMANDS.items():
                arguments = [word.replace("RUN", directory) for word in words]
                what = f"{title}, {options.size / 1e6:.0f} MB"
                report(what, [peak(arguments) / 1e6], "MB", along="tensors", at=tensors)
                for name in set(os.listdir(directory)) - kept:
                    place = Path(directory) / name
                    shutil.rmtree(place) if place.is_dir() else place.unlink()


def peak(words: list[str]) -> int:
    """Runs a command in a process of its own and returns the most bytes it ever had in memory."""
    command = [sys.executable, "-c", RUN, *words]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(ended.stderr.split()[-1]) * 1024


if __name__ == "__main__":
    main()
