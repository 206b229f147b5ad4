"""A hostile directory: whatever its texts are, they are shown, and nothing else happens."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from app_driving import POLL, shown, until, until_jobs_are_shown, until_shown
from rich.segment import Segment
from rundir_factory import RunFactory, two_branches
from textual.color import Color

from tfckpt_trainer.rundir.command_queue import CommandQueue, advance
from tfckpt_trainer.rundir.records.command import LONGEST_NAME, CommandKind, CommandState
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.hyperparameter import Hyperparameter, PlannedChange
from tfckpt_trainer.rundir.records.run import GuardInForce, GuardSource
from tfckpt_trainer.rundir.records.trash import TrashedCheckpoint, TrashManifest
from tfckpt_trainer.rundir.records.worker import Activity, Ending
from tfckpt_trainer.rundir.storage.documents import store
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.app.base_app import UnsafeTextFilter
from tfckpt_tui.app.widgets.checkpoints.history import History
from tfckpt_tui.formats.text import UNSAFE
from weekly import weekly

HOSTILE = [
    "\x1b]52;c;UFdORUQ=\x07",
    "\x1b[2J\x1b]2;HACKED\x1b\\",
    "\x9b31m\x90q\x9c",
    "[/nope]",
    "[bold red]x[/bold red] a[/]b",
    "[@click=app.quit]click me[/]",
    "[INFO] ckpt[best].index [[node model/dense]]",
    "\u202egnp.tpkc\u2066",
    "a\r\nb\tc\x00d\x7f",
    "é" * 300 + "終" * 50 + "👩‍🔬",
    "\udcff\udc80",
    "$primary {self} %s %(x)s \\",
]


WALK = [
    *(["r"], ["p", "1"], ["u"], ["x"], ["question_mark"], ["t"], ["ctrl+p"], ["enter"], ["d"]),
    *(["w", "right"], ["c", "down"], ["J", "down", "l"], ["T"], ["comma"], ["colon"], ["e"]),
    *(["o"], ["space", "p"], ["l", "e"], ["L"], ["H", "enter", "1"], ["G", "a", "x"], ["G", "x"]),
]
"""Keys that open each screen and each dialog."""


def poison(text: str, made: RunFactory) -> None:
    """Puts `text` wherever the app shows text from the directory."""
    sendable = text.encode("utf-8", "replace").decode()
    name = "".join(c for c in sendable if c not in "/\x00")[:40] + "-450"
    guards = [GuardInForce(rule=sendable, source=source) for source in GuardSource]
    made.event_log(EventKind.GUARD, sendable, step=1, details={"rule": sendable})
    made.create(guards=guards, strategy=sendable, id=sendable, host=sendable)
    made.checkpoint(
        450,
        1,
        "ckpt-b1-400",
        name=name,
        trigger=sendable,
        metrics={"loss": 1.0, sendable: 2.0},
        listed=False,
    )
    made.live_worker(0)
    planned = PlannedChange(value=1, begins=500, by=sendable)
    made.tells(
        Hyperparameter(
            name=sendable,
            value=1,
            script_value=1,
            what=sendable,
            changed_at=1,
            changed_by=sendable,
            planned=planned,
        )
    )
    changes = [{"name": sendable}, sendable]
    made.event_log(EventKind.SET, sendable, by=sendable, details={"hyperparameters": changes})
    made.worker(1, host=sendable, activity=Activity.EXITED, ending=Ending.FAILED, detail=sendable)
    made.event_log(EventKind.SAVE, sendable, step=450, by=sendable)
    for sequence, trashed in enumerate((name, sendable)):
        manifest = TrashManifest(
            id=f"20260101T00000{sequence}-abcdef",
            at=made.now - 60,
            by=sendable,
            checkpoints=[
                TrashedCheckpoint(
                    name=trashed,
                    step=1,
                    size=5,
                    files=[f"{trashed}.index"],
                    identities=[(1, 1, 1)],
                    checksums=[None],
                )
            ],
            sequence=sequence,
        )
        (made.run.trash / manifest.id).mkdir()
        store(made.run.trash / manifest.id / "manifest.json", manifest)
    made.run.worker_log(0).write_bytes(text.encode("utf-8", "surrogateescape") + b"\n" * 3)
    box = CommandQueue(made.run)
    box.submit(CommandKind.RESTORE, {"name": sendable[:LONGEST_NAME]}, requested_by=sendable)
    taken = box.claim(time.time())
    assert taken is not None
    box.update(advance(taken, CommandState.WORKING, sendable))
    box.submit(CommandKind.SAVE, requested_by=sendable)


def fail_if_unsafe(app: TfckptApp, keys: Sequence[str]) -> None:
    """Looks at the topmost screen."""
    for segment in (one for strip in app.screen._compositor.render_strips() for one in strip):
        assert not re.search(UNSAFE, segment.text), (keys, segment.text)
        assert "@click" not in str(segment.style.meta if segment.style else "")


@pytest.mark.parametrize("first", [1, 2, *weekly(0, 3)])
async def test_hostile_text_is_shown_and_does_nothing(first: int, tmp_path: Path) -> None:
    text = " ".join(HOSTILE[first::4])
    made = two_branches(tmp_path / "run", live=True)
    poison(text, made)
    app = TfckptApp(made.run, poll=POLL)
    async with app.run_test(size=(200, 50), notifications=True) as pilot:
        await until(pilot, lambda: app.snapshot, "a first snapshot")
        box = CommandQueue(made.run)
        taken = box.claim(time.time())
        if taken is not None:
            refusal = text.encode("utf-8", "replace").decode()
            box.finish(advance(taken, CommandState.REFUSED, refusal))
        await until_shown(pilot, "save refused:")
        fail_if_unsafe(app, ())
        for keys in WALK:
            await pilot.press("home")
            for key in keys:
                await pilot.press(key)
                await until_jobs_are_shown(pilot)
                fail_if_unsafe(app, keys)
            for _ in range(4):
                if len(app.screen_stack) > 1:
                    await pilot.press("escape")
                    await pilot.pause()
        await until(pilot, lambda: len(app.screen_stack) == 1, "all dialogs are closed")
        fail_if_unsafe(app, ())
        history = app.screen.query_one(History)
        assert history.row_count() == 7
        assert "ckpt-b1-400" in shown(app)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_the_second_line_of_defence_lets_nothing_through(text: str) -> None:
    filtered = UnsafeTextFilter().apply([Segment(text), Segment("plain")], Color(0, 0, 0))
    assert not any(re.search(UNSAFE, segment.text) for segment in filtered)
    assert filtered[1].text == "plain"


async def test_a_name_with_an_escape_is_restored_by_its_true_name(tmp_path: Path) -> None:
    made = two_branches(tmp_path / "run", live=True)
    name = made.checkpoint(450, 1, "ckpt-b1-400", name="ckpt\x1b[31m-450", listed=False)
    app = TfckptApp(made.run, poll=POLL)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, "ckpt␛[31m-450")
        app.screen.query_one(History).select(name)
        await pilot.press("r")
        await until_shown(pilot, "which checkpoint?")
        await pilot.press("y")
        box = CommandQueue(made.run)
        command = await until(pilot, lambda: box.claim(time.time()), "a command")
        assert command.arguments == {"name": name, "partial": False, "values": {}}
