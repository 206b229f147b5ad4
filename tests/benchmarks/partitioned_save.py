"""What saves and restores of an embedding on two parameter servers cost, and who holds it.

    python tests/benchmarks/partitioned_save.py [--megabytes MB...]

A step touches 1% of the rows. Each size is saved in the foreground and in the background, and
restored by a second start, which is compared with a read by TensorFlow alone. The memory of the
chief is what its peak grew by after the model was built. That of a server is its peak: half of the
embedding, and TensorFlow itself.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tfckpt_trainer.launch.launcher import launch
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.supervision.stop import stop_supervisor
from tfckpt_trainer.rundir.paths import RunDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))
from scripts.figures import report, report_ratio
from scripts.machine import on_quiet_machine

from waiting import wait_until

SCRIPT = Path(__file__).with_name("scripts") / "partitioned_embedding.py"
LIMIT_SECONDS = 600
PLAIN = "a plain Checkpoint.read"


def measured(root: Path, steps: int, *words: object) -> dict[str, Any]:
    """Trains up to a step in a run directory; returns what the script measured."""
    output = root.parent / f"{root.name}-{steps}.json"
    script = (sys.executable, str(SCRIPT), "--output", str(output), "--steps", str(steps))
    launch(
        LaunchOptions(
            run_directory=str(root),
            command=(*script, *map(str, words)),
            working_directory=str(root.parent),
            parameter_servers=2,
            standby=False,
        )
    )
    try:
        text = wait_until(
            lambda: output.read_text() if output.exists() else None, LIMIT_SECONDS, "the script"
        )
    finally:
        stop_supervisor(RunDirectory(root), 20, by="benchmark")
    return json.loads(text)


@on_quiet_machine
def main() -> None:
    """Measures all sizes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, nargs="*", default=[200, 1000, 2000])
    given = parser.parse_args()
    for size in given.megabytes:
        at = {"along": "MB", "at": size}
        for way in ("foreground", "background"):
            words = ("--megabytes", size, *(["--background"] if way == "background" else []))
            with tempfile.TemporaryDirectory() as directory:
                root = Path(directory) / "run"
                found = measured(root, 9, *words)
                again = measured(root, 10, *words) if way == "foreground" else None
            stall = [seconds * 1e3 for seconds in found["stall"]]
            report(f"{way} save: training stands still", stall, "ms", **at)
            report(f"{way} save: memory of the chief", [found["grown"]], "MB", **at)
            report(f"{way} save: peak memory of a server", [found["server"]], "MB", **at)
            if again is not None:
                report("restore at a start: memory of the chief", [again["grown"]], "MB", **at)
                report("restore at a start, clock", [again["started"] * 1e3], "ms", **at)
                report_ratio("restore at a start", [again["started"]], [again["read"]], PLAIN, **at)


if __name__ == "__main__":
    main()
