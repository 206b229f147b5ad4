"""Records the README's animation from a real run: `python docs/tools/make_recording.py`.

The real app runs in a pseudo-terminal, on the demo's two workers. The script types the keys, waits
for what the screen says then, and kills a worker. Only the waiting is shortened.
"""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import pyte

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "e2e"), str(Path(__file__).parent)]

from animated_terminal import (  # noqa: E402
    BACKGROUND,
    FOREGROUND,
    Caption,
    Cell,
    Frame,
    Screen,
    animated_svg,
    colour,
)
from terminal import Terminal  # noqa: E402

RECORDING = ROOT / "docs" / "images" / "recording.svg"
COLUMNS, ROWS = 110, 32
ALTERNATE_SCREEN = 1049
SAMPLE_SECONDS = 0.1
SHORTEST_FRAME_SECONDS = 0.5
KEY_PAUSE_SECONDS = 0.5
LIMIT_SECONDS = 240


@dataclass
class Scene:
    """A part of the recording with one caption.

    Attributes:
        most_seconds: How long it may be shown; a longer one is played faster.
    """

    caption: Caption
    most_seconds: float
    samples: list[tuple[float, Screen]] = field(default_factory=list)
    end: float = 0.0

    def frames(self) -> Iterator[Frame]:
        """Yields each screen with how long it is shown."""
        times = [at for at, _ in self.samples] + [self.end]
        speed = max(1.0, (times[-1] - times[0]) / self.most_seconds)
        for (at, screen), until in zip(self.samples, times[1:], strict=True):
            yield Frame(screen, self.caption, (until - at) / speed)


class TwoScreens(pyte.Screen):
    """A screen with the second one that full-screen programs use (`CSI ? 1049 h`)."""

    def set_mode(self, *modes: int, **options: bool) -> None:
        """Keeps the first screen when the second one is switched on."""
        super().set_mode(*modes, **options)
        if ALTERNATE_SCREEN in modes and options.get("private"):
            self._first = copy.deepcopy((self.buffer, self.cursor))
            self.erase_in_display(2)

    def reset_mode(self, *modes: int, **options: bool) -> None:
        """Brings back the first screen when the second one is switched off."""
        super().reset_mode(*modes, **options)
        if ALTERNATE_SCREEN in modes and options.get("private"):
            self.buffer, self.cursor = self._first


class Recorder(Terminal):
    """A terminal of which every change is kept."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        super().__init__(command, columns=COLUMNS, rows=ROWS, environment=environment)
        with self._lock:
            self._screen = TwoScreens(COLUMNS, ROWS)
            self._stream = pyte.ByteStream(self._screen)
            self._stream.feed(bytes(self.raw))
        self.scenes: list[Scene] = []
        self._sampling = threading.Event()

    @contextmanager
    def scene(self, key: str, text: str, most_seconds: float) -> Iterator[None]:
        """Records while the block runs."""
        scene = Scene(Caption(key, text), most_seconds)
        self.scenes.append(scene)
        self._sampling.clear()
        sampler = threading.Thread(target=self._sample, args=(scene,))
        sampler.start()
        try:
            yield
        finally:
            self._sampling.set()
            sampler.join()
            scene.end = time.monotonic()

    def type(self, text: str) -> None:
        """Types character by character, so that it can be read."""
        for character in text:
            self.press(character)
            time.sleep(0.07)

    def _sample(self, scene: Scene) -> None:
        while True:
            screen = self._cells()
            if not scene.samples or scene.samples[-1][1] != screen:
                scene.samples.append((time.monotonic(), screen))
            if self._sampling.wait(SAMPLE_SECONDS):
                return

    def _cells(self) -> Screen:
        with self._lock:
            lines = [self._screen.buffer[row] for row in range(ROWS)]
            return tuple(tuple(_cell(line[at]) for at in range(COLUMNS)) for line in lines)


def _cell(character: object) -> Cell:
    foreground = colour(character.fg, FOREGROUND)  # type: ignore[attr-defined]
    background = colour(character.bg, BACKGROUND)  # type: ignore[attr-defined]
    if character.reverse:  # type: ignore[attr-defined]
        foreground, background = background, foreground
    text = character.data or " "  # type: ignore[attr-defined]
    if text == " ":  # the colour of a blank shows nowhere
        return Cell(text, FOREGROUND, background)
    return Cell(text, foreground, background, character.bold, character.underscore)  # type: ignore[attr-defined]


def main() -> None:
    """Runs the demo for some minutes and writes the animation."""
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        environment = {
            "COLORTERM": "truecolor",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PS1": "$ ",
            **{f"XDG_{name}_HOME": str(home / name.lower()) for name in ("CACHE", "CONFIG")},
            "XDG_STATE_HOME": str(home),
        }
        shell = ["bash", "--norc", "--noprofile", "--noediting"]
        try:
            with Recorder(shell, environment) as terminal:
                play(terminal, home / "tfckpt-tui")
        finally:
            end_processes(home)
    frames = list(shown_frames(terminal.scenes))
    poster = next(index for index, frame in enumerate(frames) if "kill" in frame.caption.key) - 1
    RECORDING.write_text(
        animated_svg(frames, title="tfckpt-tui: two workers in training", poster=poster) + "\n"
    )
    seconds = sum(frame.seconds for frame in frames)
    size = RECORDING.stat().st_size
    print(f"{RECORDING}: {len(frames)} frames, {seconds:.0f} s, {size / 1e6:.2f} MB")


def play(terminal: Recorder, runs: Path) -> None:
    """Starts, saves, kills a worker, goes back, prunes, undoes and detaches."""
    with terminal.scene("", "Start the demo: two workers train a language model.", 4):
        terminal.wait_for(r"\$")
        time.sleep(1)
        terminal.type("tfckpt-tui demo")
        time.sleep(0.7)
        terminal.press("enter")
    with terminal.scene("", "The app opens on the run. The loss falls; checkpoints are saved.", 11):
        terminal.wait_for(r"2 of 2 live", LIMIT_SECONDS)
        terminal.wait_for(r"ckpt-100 .*every 100 steps", LIMIT_SECONDS)
        time.sleep(3)
    with terminal.scene("s", "Save now. The checkpoint is verified and flushed to disk.", 6):
        time.sleep(KEY_PAUSE_SECONDS)
        terminal.press("s")
        terminal.wait_for(r"Saved ckpt-\d+ \(command\)", LIMIT_SECONDS)
        time.sleep(4)
    with terminal.scene("", "Training goes on.", 4):
        terminal.wait_for(r"ckpt-200 .*every 100 steps", LIMIT_SECONDS)
        time.sleep(1)
    kill_worker(terminal, runs)
    with terminal.scene("r", "Restore. The dialog asks which checkpoint.", 4):
        time.sleep(KEY_PAUSE_SECONDS)
        terminal.press("r")
        terminal.wait_for(r"which checkpoint\?")
        time.sleep(3)
    with terminal.scene("1 0 0", "Step 100. The dialog says what follows.", 5):
        for key in "100":
            terminal.press(key)
            time.sleep(KEY_PAUSE_SECONDS)
        terminal.wait_for(r"on new branch 1")
        time.sleep(4)
    with terminal.scene("enter", "Both workers restore it in place. No process restarts.", 6):
        terminal.press("enter")
        terminal.wait_for(r"At ckpt-100 on branch 1|Restored ckpt-100 on 2 workers", LIMIT_SECONDS)
        time.sleep(4)
    with terminal.scene("", "A new branch begins. The old checkpoints stay.", 6):
        terminal.wait_for(r"ckpt-b1-200 ", LIMIT_SECONDS)
        time.sleep(2)
    prune_and_undo(terminal)
    with terminal.scene("q", "Detach. Training goes on; `tfckpt-tui attach` comes back.", 6):
        time.sleep(KEY_PAUSE_SECONDS)
        terminal.press("q")
        terminal.wait_until_gone(r"branch 1")
        time.sleep(5)


def kill_worker(terminal: Recorder, runs: Path) -> None:
    """Ends worker 1 from outside, as the kernel does when memory runs out."""
    [run] = runs.glob("demo-*")
    status = subprocess.run(
        [sys.executable, "-m", "tfckpt_tui.cli.main", "status", str(run), "--json"],
        capture_output=True,
        check=True,
    )
    victim = json.loads(status.stdout)["workers"][1]["pid"]
    command = f"kill -9 {victim}"
    with terminal.scene(command, "In another terminal: kill a worker.", 3):
        time.sleep(2)
        os.kill(victim, signal.SIGKILL)
        terminal.wait_for(r"restarted 1 of 3 times", LIMIT_SECONDS)
    text = "All workers start again from the newest restorable checkpoint."
    with terminal.scene(command, text, 8):
        terminal.wait_for(r"● training", LIMIT_SECONDS)
        terminal.wait_for(r"2 of 2 live", LIMIT_SECONDS)
        time.sleep(4)


def prune_and_undo(terminal: Recorder) -> None:
    """Moves all but one checkpoint to the trash, and brings them back."""
    with terminal.scene("p", "Prune by a retention policy.", 3):
        time.sleep(KEY_PAUSE_SECONDS)
        terminal.press("p")
        terminal.wait_for(r"keep last")
        time.sleep(2)
    with terminal.scene("1", "Keep the last one. The plan lists what goes, and why.", 5):
        terminal.press("1")
        terminal.wait_for(r"│ 1 +│")
        time.sleep(4.5)
    with terminal.scene("enter", "They move to the trash.", 5):
        terminal.press("enter")
        terminal.wait_for(r"Moved to the trash: ", LIMIT_SECONDS)
        time.sleep(4)
    with terminal.scene("u", "Undo: bring them back from the trash.", 4):
        time.sleep(KEY_PAUSE_SECONDS)
        terminal.press("u")
        terminal.wait_for(r"undo a prune")
        time.sleep(3)
    with terminal.scene("y", "The checkpoints are back.", 5):
        terminal.press("y")
        terminal.wait_for(r"Brought back: ", LIMIT_SECONDS)
        time.sleep(4)


def shown_frames(scenes: list[Scene]) -> Iterator[Frame]:
    """Yields the frames of all scenes; those too short to see are joined with the next one."""
    for scene in scenes:
        waiting = 0.0
        frames = list(scene.frames())
        for index, frame in enumerate(frames):
            waiting += frame.seconds
            if waiting >= SHORTEST_FRAME_SECONDS or index == len(frames) - 1:
                yield replace(frame, seconds=waiting)
                waiting = 0.0


def end_processes(home: Path) -> None:
    """Ends what the demo started: every process whose environment names its directory."""
    for process in psutil.process_iter():
        try:
            words = process.environ().get("XDG_STATE_HOME")
        except psutil.Error:
            continue
        if words == str(home):
            process.kill()


if __name__ == "__main__":
    main()
