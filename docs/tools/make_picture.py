"""Makes the pictures of the documentation from a real run: `python docs/tools/make_picture.py`.

Two workers train the demo's model, are taken back to an older step once, and train on; then the
app looks at them and its screens are kept as they are. Each picture names the state of the tests'
picture of the same screen: a test fails when that changed and this one was not made again.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
import tempfile
import time
from pathlib import Path

from tfckpt_trainer.launch.launcher import launch
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.supervision.stop import stop_supervisor
from tfckpt_trainer.rundir.heartbeats.reading import read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import RestoreArguments, SaveArguments
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.services.control.prune import set_pins
from tfckpt_tui.services.control.request import FrontEnd, ask

ROOT = Path(__file__).parents[2]
PICTURES_DIRECTORY = ROOT / "docs" / "images"
SNAPSHOTS = ROOT / "tests" / "tui" / "__snapshots__" / "test_app_snapshots"
PICTURES = {
    "dashboard": ((), "test_dashboard[120x40].svg"),
    "checkpoint": (("enter",), "test_checkpoint[120x40].svg"),
    "restore": (("down", "down", "r"), "test_restore[120x40].svg"),
    "charts": (("c",), "test_charts[120x40].svg"),
    "logs": (("l",), "test_logs[120x40].svg"),
}
"""For each picture the keys that open the screen, and the tests' picture of it."""

SIZE = (120, 40)
LIMIT_SECONDS = 300


def main() -> None:
    """Runs the demo for about a minute and writes the pictures."""
    with tempfile.TemporaryDirectory() as directory:
        run = RunDirectory(Path(directory) / "language-model")
        start(run)
        try:
            wait_for_step(run, 430, branch=0)
            ask(run, RestoreArguments(name="ckpt-200"), through=FrontEnd.APP)
            wait_for_step(run, 330, branch=1)
            ask(run, SaveArguments(), through=FrontEnd.APP)
            set_pins(run, ["ckpt-b1-300"], pinned=True, through=FrontEnd.APP)
            wait_for_step(run, 420, branch=1)
            for name, (keys, _) in PICTURES.items():
                asyncio.run(take_picture(run, name, keys))
        finally:
            stop_supervisor(run, LIMIT_SECONDS)


def state_of(name: str) -> str:
    """Returns the line by which a picture names the state of its screen."""
    snapshot = SNAPSHOTS / PICTURES[name][1]
    digest = hashlib.sha256(snapshot.read_bytes()).hexdigest()
    return f"<!-- as {snapshot.name}: {digest} -->"


def start(run: RunDirectory) -> None:
    """Starts the demo's workers."""
    launch(
        LaunchOptions(
            run_directory=str(run.root),
            command=(sys.executable, "-m", "tfckpt_trainer.examples.language_model"),
            working_directory=str(run.root.parent),
            workers=2,
        )
    )


def wait_for_step(run: RunDirectory, step: int, *, branch: int) -> None:
    """Waits until a worker is beyond `step` of `branch`."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not any(w.step >= step and w.branch == branch for w in read_workers(run)):
        if time.monotonic() > deadline:
            raise SystemExit(f"The run did not come to step {step} in {LIMIT_SECONDS} s.")
        time.sleep(0.2)


async def take_picture(run: RunDirectory, name: str, keys: tuple[str, ...]) -> None:
    """Opens the app on the run, presses keys, and keeps the screen."""
    app = TfckptApp(run)
    async with app.run_test(size=SIZE) as pilot:
        deadline = time.monotonic() + LIMIT_SECONDS
        while app.snapshot is None or not app.snapshot.samples:
            if time.monotonic() > deadline:
                raise SystemExit("The app showed no run.")
            await pilot.pause(0.1)
        await pilot.press(*keys)
        await pilot.pause(1.5)
        picture = app.export_screenshot(title="tfckpt-tui")
        (PICTURES_DIRECTORY / f"{name}.svg").write_text(f"{picture}\n{state_of(name)}\n")


if __name__ == "__main__":
    main()
