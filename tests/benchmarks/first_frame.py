"""Time to the first frame and resident memory of the app, against a bare Textual app.

    python tests/benchmarks/first_frame.py [--rounds N] [--checkpoints N ...]

Each program is started in a pseudo-terminal; the time runs until its words are on the screen.
The two apps and `import tensorflow` take turns in one run. A first start has an empty cache of the
user; the others have what an earlier start, which read all checkpoints, remembered there.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

for part in ("", "e2e"):
    sys.path.insert(0, str(Path(__file__).parents[1] / part))
from listing import TRIGGER, Directory
from scripts.figures import report, report_ratio
from scripts.machine import on_quiet_machine
from terminal import Terminal

from tfckpt_trainer.catalog.directory.remembered_listing import (
    NAMES_REMEMBERED,
    directory_identity,
    is_settled_directory,
)
from waiting import wait_until

END = "\x1b[F"
BARE = [sys.executable, str(Path(__file__).with_name("scripts") / "bare_app.py")]


@on_quiet_machine
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--checkpoints", type=int, nargs="+", default=[10, 1_000, 10_000, 100_000])
    options = parser.parse_args()
    report("import tensorflow", [import_tensorflow()], "s")
    for count in options.checkpoints:
        with tempfile.TemporaryDirectory() as directory:
            compare(Path(directory), count, options.rounds)


def compare(root: Path, count: int, rounds: int) -> None:
    """Starts both apps in turns on a directory of so many checkpoints."""
    run, cache = root / "run", root / "cache"
    run.mkdir()
    made = Directory(run, "ours")
    for step in range(1, count + 1):
        made.checkpoint(step)
    made.finish()
    # Until then no listing is remembered, and the next look at so many comes after a minute.
    wait_until(lambda: is_settled_directory(directory_identity(run), time.time()), 10, "quiet")
    ours = [sys.executable, "-m", "tfckpt_tui.cli.main", "attach", str(run)]
    newest = f"ckpt-{count}"
    # The files of the programs and of the directory are in the page cache from now on.
    first_frame(ours, "history", cache=root / "before")
    resident = until_all_read(ours, cache, count)
    bare_times, frame_times, row_times, first_times = [], [], [], []
    for number in range(rounds):
        bare_times.append(first_frame(BARE, "bare app ready", cache=cache)[0])
        frame, rows = first_frame(ours, "history", newest, cache=cache)
        frame_times.append(frame)
        row_times.append(rows)
        first = first_frame(ours, "history", newest, cache=root / f"empty-{number}")
        first_times.append(first[1])
    size = {"along": "checkpoints", "at": count}
    bare = "a bare Textual app"
    report(bare, [1e3 * seconds for seconds in bare_times], "ms", **size)
    report_ratio("first frame", frame_times, bare_times, bare, **size)
    report_ratio("rows on screen", row_times, bare_times, bare, **size)
    report_ratio("rows on screen, first start", first_times, bare_times, bare, **size)
    report("resident memory", [resident / 1e6], "MB", **size)


def until_all_read(ours: list[str], cache: Path, count: int) -> int:
    """Starts our app until it has read all checkpoints; returns the memory that is resident then.

    It reads the record of the oldest last. If there are many, it remembers the newest.
    """
    with Terminal(ours, columns=140, rows=40, environment=environment(cache)) as terminal:
        terminal.wait_for(f"{count:,} checkpoints", 120)
        terminal.press(END)
        terminal.wait_for(rf"ckpt-1 .* {TRIGGER}", 600)
        if count > NAMES_REMEMBERED:
            wait_until(lambda: list(cache.rglob("newest.json")), 60, "the newest are remembered")
        resident: int = psutil.Process(terminal.process.pid).memory_info().rss
        terminal.press("q")
        terminal.process.wait(30)
    return resident


def environment(cache: Path) -> dict[str, str]:
    # Installed programs have their bytecode; a working copy may be told not to write it.
    return {"PYTHONDONTWRITEBYTECODE": "", "XDG_CACHE_HOME": str(cache)}


def first_frame(
    command: list[str], frame: str, rows: str | None = None, *, cache: Path
) -> tuple[float, float]:
    """Seconds until `frame` is shown, and until `rows` are."""
    began = time.perf_counter()
    with Terminal(command, columns=140, rows=40, environment=environment(cache)) as terminal:
        terminal.wait_for(frame, 60)
        until_frame = time.perf_counter() - began
        terminal.wait_for(rows or frame, 60)
        until_rows = time.perf_counter() - began
        terminal.press("q")
        terminal.process.wait(30)
    return until_frame, until_rows


def import_tensorflow() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import tensorflow"], check=True, capture_output=True)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
