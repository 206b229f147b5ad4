"""Keys, clicks and sizes of the terminal by chance, in the running app, on whole and damaged runs.

A case is a number. It makes the run, the damage, the keys, and whether the app may change the run.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

from child_processes import in_child
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.app.actions.table import ACTIONS
from tfckpt_tui.app.app import TfckptApp

from .areas import Outcome
from .hostile_input import damage
from .ledger import Ledger, facts_below
from .storage_faults import DrawnRuns

KEYS = 40
_SIZES = ((80, 24), (120, 40), (200, 50), (40, 10), (3, 2))
_MOVES = (
    "up", "down", "left", "right", "pageup", "pagedown", "home", "end", "tab", "shift+tab",
    "enter", "escape", "escape", "space", "slash", "question_mark", "backspace", "a", "0", "é",
)  # fmt: skip
_LEFT_OUT = frozenset({"detach", "launch", "tensorboard"})
"""Actions that end the app, or start other programs."""


class RandomKeys(DrawnRuns):
    """Whatever is pressed, the app goes on, and a read-only one changes nothing."""

    name = "keys"

    def run(self, case: str, place: Path) -> Outcome:
        """Opens the app on a run, and presses keys."""
        chance = Random(case)
        root = self.copied(place)
        damaged = chance.random() < 0.5
        if damaged:
            files = sorted(path for path in root.rglob("*") if path.is_file())
            for path in chance.sample(files, 3):
                path.write_bytes(damage(path.read_bytes() or b"\0", chance))
        read_only = damaged or chance.random() < 0.5
        before, ledger = facts_below(root), Ledger(root)
        code, said = in_child(lambda: asyncio.run(press(root, chance, read_only=read_only)))
        found = [f"the app ended with {code}: {said}"] if code else []
        if read_only and facts_below(root) != before:
            changed = {*facts_below(root).items()} ^ {*before.items()}
            found.append(f"a read-only app changed {sorted({name for name, _ in changed})}")
        elif not read_only:
            found += ledger.lost()
        return Outcome(KEYS, tuple(found))


async def press(root: Path, chance: Random, *, read_only: bool) -> int:
    """Presses keys in an app on a run; returns 1 if it did not go on."""
    possible = [action for action in ACTIONS if action.name not in _LEFT_OUT]
    keys = [key for action in possible for key in action.key.split(",") if key]
    app = TfckptApp(RunDirectory(root), read_only=read_only)
    pressed: list[str] = []
    async with app.run_test(size=chance.choice(_SIZES)) as pilot:
        for _ in range(KEYS):
            kind = chance.random()
            if kind < 0.05:
                await pilot.resize_terminal(*chance.choice(_SIZES))
            elif kind < 0.15:
                width, height = app.size
                at = chance.randrange(max(1, width)), chance.randrange(max(1, height))
                await pilot.click(offset=at)
            else:
                key = chance.choice(keys if kind < 0.6 else _MOVES)
                pressed.append(key)
                await pilot.press(key)
            if app.crash is not None or not app.is_running:
                break
    if app.crash is not None:
        print(f"after {pressed}: {app.crash.summary}\n{app.crash.trace}")
    return int(app.crash is not None)
