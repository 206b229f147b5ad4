"""Processor time of keys on the page of charts, with very many metrics and points.

    python tests/benchmarks/chart_keys.py [--metrics N] [--points N] [--profile KEY]

The real app runs without a terminal, on one snapshot of a run that reported every metric at every
point. A key's time is that of the whole process from the key to the frame with all charts,
after the time until the chosen chart is drawn.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
import tempfile
import time
from pathlib import Path

from msgspec.structs import replace

for part in ("", "tui"):
    sys.path.insert(0, str(Path(__file__).parents[1] / part))
from app_driving import StillMonitor
from large_list import pressed
from rundir_factory import two_branches
from scripts.figures import report
from scripts.machine import on_quiet_machine

from tfckpt_trainer.rundir.records.event import SeriesPoint
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.app.widgets.charts.chart import Chart
from tfckpt_tui.charting.series import Series
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader

KEYS = (
    *("down", "pagedown", "full_stop", "comma", "<", "plus", "left", "0", "s", "L", "o", "t"),
    *("b", "n", "g", "enter", "escape", "space", "m", "pagedown", "pageup"),
)


@on_quiet_machine
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--metrics", type=int, default=100)
    parser.add_argument("--points", type=int, default=50_000)
    parser.add_argument("--profile", metavar="KEY", help="say where the time of this key goes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        made = two_branches(Path(directory) / "run", live=True)
        snapshot = SnapshotReader(made.run).read(made.now)
        samples = series_of(options.metrics, options.points, made.now).samples
        app = TfckptApp(made.run, monitor=StillMonitor(replace(snapshot, samples=samples)))
        asyncio.run(measure(app, options.profile, options.metrics))


def series_of(metrics: int, count: int, now: float) -> Series:
    """The points that the app keeps of a run with `count` points."""
    series = Series()
    names = ["loss", *(f"layer_{number}/norm" for number in range(metrics - 1))]
    for first in range(0, count, 10_000):
        series.add(
            SeriesPoint(
                at=now - count + step,
                step=step,
                branch=0 if step < count // 2 else 1,
                # A value for each point, shared by its metrics: the memory is not measured here.
                metrics=dict.fromkeys(names, 5 / (1 + step / 1000) + math.sin(step) / 10),
                examples_per_second=400.0,
                step_seconds=0.1,
            )
            for step in range(first, min(count, first + 10_000))
        )
    return series


async def measure(app: TfckptApp, profiled: str | None, metrics: int) -> None:
    async with app.run_test(size=(200, 50)) as pilot:
        while app.snapshot is None:
            await pilot.pause(0.05)
        await pilot.pause(0.5)
        first: list[float] = []
        drawn = Chart.draw

        def timed(chart: Chart) -> bool:
            was_stale = drawn(chart)
            first.append(time.process_time())
            return was_stale

        Chart.draw = timed  # type: ignore[method-assign]
        for key in ("c", *KEYS):
            first.clear()
            began = time.process_time()
            taken = await pressed(pilot, key, profiled)
            chosen = 1e3 * (first[0] - began) if first else taken
            report(f"key {key}: the chosen chart", [chosen], "ms", along="metrics", at=metrics)
            report(f"key {key}: all charts", [taken], "ms", along="metrics", at=metrics)


if __name__ == "__main__":
    main()
