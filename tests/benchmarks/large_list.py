"""Processor time of keys in the app, on a run with very many checkpoints, all of them marked.

    python tests/benchmarks/large_list.py [--checkpoints N] [--profile KEY]

The real app runs without a terminal, on one snapshot. A key's time is that of the whole process
from the key to the frame that shows what it did.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import sys
import tempfile
import time
from pathlib import Path

from msgspec.structs import replace

for part in ("", "tui"):
    sys.path.insert(0, str(Path(__file__).parents[1] / part))
import msgspec
from app_driving import StillMonitor
from rundir_factory import two_branches
from scripts.figures import report
from scripts.machine import on_quiet_machine
from textual.pilot import Pilot

from tfckpt_trainer.catalog.scan.lineage import current_lineage
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader

KEYS = ("down", "up", "pagedown", "end", "home", "space", "M", "down", "space", "up", ">", "=", "<")
FILTERS = ("ckpt-19 -pinned", "step>15000 state:complete", "loss<2.5 marked")


@on_quiet_machine
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoints", type=int, default=20_000)
    parser.add_argument("--profile", metavar="KEY", help="say where the time of this key goes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        made = two_branches(Path(directory) / "run", live=True)
        small = SnapshotReader(made.run).read(made.now)
        snapshot = enlarged(small, options.checkpoints)
        app = TfckptApp(made.run, monitor=StillMonitor(snapshot))
        asyncio.run(measure(app, options.profile, options.checkpoints))


def enlarged(snapshot: RunSnapshot, count: int) -> RunSnapshot:
    """A snapshot with `count` checkpoints like the newest one of another."""
    one = snapshot.checkpoints[0]
    assert one.packed is not None
    checkpoints = tuple(
        msgspec.structs.replace(
            one,
            name=f"ckpt-{step}",
            step=step,
            branch=0,
            parent=f"ckpt-{step - 1}" if step > 1 else None,
            is_head=step == count,
            packed=replace_record(one.packed, step),
        )
        for step in range(count, 0, -1)
    )
    lineage = current_lineage(checkpoints, 0)
    return replace(snapshot, checkpoints=checkpoints, lineage=lineage)


def replace_record(record, step: int):
    return msgspec.structs.replace(
        record, name=f"ckpt-{step}", step=step, branch=0, parent=f"ckpt-{step - 1}"
    )


async def measure(app: TfckptApp, profiled: str | None, checkpoints: int) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        while app.snapshot is None:
            await pilot.pause(0.05)
        await pilot.pause(0.5)
        taken: dict[str, list[float]] = {}
        for key in KEYS:
            taken.setdefault(key, []).append(await pressed(pilot, key, profiled))
        for text in FILTERS:
            for key in ("/", *text, "escape"):
                what = key if key in ("/", "escape") else f"of the filter {text!r}"
                taken.setdefault(what, []).append(await pressed(pilot, key, profiled))
        for what, milliseconds in taken.items():
            report(f"key {what}", milliseconds, "ms", along="checkpoints", at=checkpoints)


async def pressed(pilot: Pilot[int], key: str, profiled: str | None) -> float:
    """Presses a key, and returns the milliseconds of processor time that it took."""
    profile = cProfile.Profile() if key == profiled else None
    began = time.process_time()
    if profile is not None:
        profile.enable()
    await pilot.press(key)
    if profile is not None:
        profile.disable()
        pstats.Stats(profile).sort_stats("cumulative").print_stats(25)
    return 1e3 * (time.process_time() - began)


if __name__ == "__main__":
    main()
