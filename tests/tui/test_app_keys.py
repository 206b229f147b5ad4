"""Each key and each dialog, on real run directories."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Collection
from typing import Any

import msgspec
import pytest
from app_driving import (
    POLL,
    opened,
    resize,
    shown,
    top,
    until,
    until_jobs_are_shown,
    until_screen,
    until_shown,
)
from rundir_factory import RunFactory
from textual.pilot import Pilot
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Input

from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.rundir.command_queue import CommandQueue, advance, requester
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import Command, CommandKind, CommandState, Transition
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.documents import load, store
from tfckpt_tui.app.actions.table import ACTIONS
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.app.dashboard import DashboardScreen
from tfckpt_tui.app.screens.checkpoint import CheckpointScreen
from tfckpt_tui.app.screens.diagnostics import DiagnosticsScreen
from tfckpt_tui.app.widgets.checkpoints.history import History
from tfckpt_tui.services.control.prune import prune
from tfckpt_tui.services.control.request import FrontEnd
from tfckpt_tui.settings.config import Config
from tfckpt_tui.settings.keys import CHECKPOINT_ACTIONS, CHECKPOINT_KEYS, RESERVED_KEYS

SIZE = (110, 36)


async def asked(pilot: Pilot[int], run: RunDirectory) -> Command:
    """Returns the command that the app dropped into the box, taken as a trainer takes it."""
    box = CommandQueue(run)
    return await until(pilot, lambda: box.claim(time.time()), "a command in the box")


def select(pilot: Pilot[int], name: str) -> None:
    pilot.app.screen.query_one(History).select(name)


async def test_every_action_has_its_key(live: RunFactory) -> None:
    async with opened(live.run) as pilot:
        bound = {
            binding.id: key
            for key, bindings in pilot.app.screen._bindings.key_to_bindings.items()
            for binding in bindings
        }
        for action in ACTIONS:
            assert bound[action.name] == action.key


async def test_garbage_is_collected_again_after_a_key(live: RunFactory) -> None:
    async with opened(live.run) as pilot:
        await pilot.press("down")
        await until(pilot, gc.isenabled, "the garbage collector")
        await pilot.press("up")
    assert gc.isenabled(), "after the app"


NEWER_KEYS = {"super+c"}
"""Older releases of Textual leave them free."""


def fixed_keys(screen: Screen[Any], movable: Collection[str]) -> set[str]:
    """The keys of a screen, of its widgets and of the app that no configuration changes."""
    chains = [screen._binding_chain]
    for widget in screen.focus_chain:
        if not isinstance(widget, Input):
            screen.set_focus(widget)
            chains.append(screen._binding_chain)
    return {
        key
        for chain in chains
        for _, bindings in chain
        for key, binding in bindings
        if binding.id not in movable
    }


@pytest.mark.matrix
async def test_no_action_can_have_a_key_that_a_pane_or_the_app_takes(live: RunFactory) -> None:
    async with opened(live.run) as pilot:
        await until_shown(pilot, "ckpt-b1-400")
        names = {action.name for action in ACTIONS}
        fixed = fixed_keys(pilot.app.screen, names)
        assert set(RESERVED_KEYS) - NEWER_KEYS <= fixed <= set(RESERVED_KEYS)


async def test_the_keys_of_the_screen_of_a_checkpoint_collide_with_none(live: RunFactory) -> None:
    async with opened(live.run) as pilot:
        await pilot.press("enter")
        await until_screen(pilot, CheckpointScreen)
        await until_jobs_are_shown(pilot)
        screen = pilot.app.screen
        own = {binding.id for _, binding in screen._bindings if binding.id}
        assert own == set(CHECKPOINT_ACTIONS)
        assert fixed_keys(screen, own) - set(RESERVED_KEYS) == set(CHECKPOINT_KEYS)


async def test_an_action_without_a_key_has_none(live: RunFactory) -> None:
    app = TfckptApp(live.run, poll=POLL, config=Config(keys={"help": "", "pin": "f4"}))
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, "f4 pin")
        await pilot.press("question_mark")
        assert isinstance(app.screen, DashboardScreen)


async def test_the_screen_of_a_checkpoint_has_the_keys_of_the_configuration(
    live: RunFactory,
) -> None:
    keys = {"verify": "f5", "pin": "v", "charts": "f6"}
    app = TfckptApp(live.run, poll=POLL, config=Config(keys=keys))
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, "ckpt-b1-400")
        await pilot.press("enter")
        await until(pilot, lambda: "f5 verify" in top(app), "the keys")
        assert "v pin" in top(app)
        assert "f6 chart" in top(app)


async def test_save_is_asked_for_followed_and_told(live: RunFactory) -> None:
    async with opened(live.run) as pilot:
        await pilot.press("s")
        command = await asked(pilot, live.run)
        assert command.kind is CommandKind.SAVE
        assert command.requested_by.endswith("terminal app")
        box = CommandQueue(live.run)
        command = advance(
            command,
            CommandState.AGREED,
            "",
            step=812,
            seen_by=[0, 1],
            worker_count=2,
        )
        box.update(command)
        await until_shown(pilot, "save: agreed for step 812 · known to 2 of 2 workers")
        command = advance(
            command, CommandState.WORKING, "", result={"bytes_done": 1_000, "bytes_total": 2_000}
        )
        box.update(command)
        await until_shown(pilot, "1.00 KB of 2.00 KB")
        live.checkpoint(812, 1, "ckpt-b1-400", trigger="command")
        box.finish(advance(command, CommandState.DONE, "Saved ckpt-b1-812."))
        await until_shown(pilot, "save: done · Saved ckpt-b1-812.")
        await until_shown(pilot, "ckpt-b1-812 ")


async def test_a_failure_stays_in_full_until_it_is_dismissed(live: RunFactory) -> None:
    reason = "Not enough disk: " + " ".join(f"word{number}" for number in range(40)) + " END"
    async with opened(live.run) as pilot:
        await pilot.press("s")
        command = await asked(pilot, live.run)
        CommandQueue(live.run).finish(advance(command, CommandState.REFUSED, reason))
        await until_shown(pilot, "save refused:")

        def whole() -> bool:
            return reason in " ".join(shown(pilot.app).split())

        await until(pilot, whole, "the whole reason")
        await pilot.press("down", "up")
        app = pilot.app
        assert isinstance(app, TfckptApp)
        before = app.snapshot
        await until(pilot, lambda: app.snapshot is not before, "a newer snapshot")
        assert "save refused:" in shown(pilot.app)
        await pilot.press("escape")
        await until(pilot, lambda: "save refused:" not in shown(pilot.app), "it is dismissed")


async def test_a_refusal_of_what_somebody_else_asked_goes_by_itself(live: RunFactory) -> None:
    box = CommandQueue(live.run)
    async with opened(live.run) as pilot:
        for by, reason in (("ada", "Not yours."), (requester(FrontEnd.APP), "Yours.")):
            box.submit(CommandKind.SAVE, requested_by=by)
            command = box.claim(time.time())
            assert command is not None
            long_ago = Transition(state=CommandState.REFUSED, at=time.time() - 100)
            refused = advance(command, CommandState.REFUSED, reason)
            box.finish(msgspec.structs.replace(refused, history=[long_ago]))
        await until_shown(pilot, "save refused: Yours.")
        assert "Not yours." not in shown(pilot.app)
        box.submit(CommandKind.SAVE, requested_by="ada")
        command = box.claim(time.time())
        assert command is not None
        box.finish(advance(command, CommandState.REFUSED, "Just now."))
        await until_shown(pilot, "save refused: Just now.")


async def test_a_prune_that_was_undone_is_done_no_more(live: RunFactory) -> None:
    box = CommandQueue(live.run)

    def carry_out(kind: CommandKind, arguments: dict[str, Any]) -> None:
        box.submit(kind, arguments, requested_by="ada")
        command = box.claim(time.time())
        assert command is not None
        box.finish(advance(command, CommandState.DONE, "", result={"trash": "1"}))

    async with opened(live.run) as pilot:
        carry_out(CommandKind.PRUNE, {"names": ["ckpt-100"]})
        await until_shown(pilot, "prune: done")
        carry_out(CommandKind.UNDO, {"trash": "1"})
        await until_shown(pilot, "undo: done")
        assert "prune: done" not in shown(pilot.app)


async def test_restore_of_the_selected_checkpoint(live: RunFactory) -> None:
    async with opened(live.run) as pilot:
        select(pilot, "ckpt-200")
        await pilot.press("r")
        await until_shown(pilot, "which checkpoint?")
        screen = shown(pilot.app)
        assert "ckpt-200" in top(pilot.app)
        assert "Training goes back 238 steps, from step 438 on branch 1." in screen
        assert "The last 38 steps so far are in no checkpoint and are lost." in screen
        assert "Training continues on new branch 2." in screen
        assert "All checkpoints are kept. Training leaves 2 of them behind." in screen
        await pilot.press("y")
        command = await asked(pilot, live.run)
        assert (command.kind, command.arguments) == (
            CommandKind.RESTORE,
            {"name": "ckpt-200", "partial": False, "values": {}},
        )
        await until_shown(pilot, "restore ckpt-200: seen")


async def test_restore_of_a_typed_step(live: RunFactory) -> None:
    async with opened(live.run) as pilot:
        await pilot.press("r")
        await until_shown(pilot, "which checkpoint?")
        await pilot.press(*"250")
        await until_shown(pilot, "No checkpoint has step 250; near are:")
        assert "100, 200, 300, 400" in shown(pilot.app)
        await pilot.press("enter", "y", "enter")
        assert CommandQueue(live.run).pending() == [], "what is refused cannot be asked for"
        await pilot.press("ctrl+u", *"300", "enter")
        command = await asked(pilot, live.run)
        assert command.arguments == {"name": "ckpt-300", "partial": False, "values": {}}


async def test_restore_of_a_damaged_checkpoint_is_refused_before_it_is_asked(
    live: RunFactory,
) -> None:
    (live.run.root / "ckpt-200.data-00000-of-00001").unlink()
    async with opened(live.run) as pilot:
        select(pilot, "ckpt-200")
        await pilot.press("r")
        await until_shown(pilot, "ckpt-200 is incomplete.")
        pilot.app.screen.query_one("#target", Input).value = "ckpt-200"
        await until_shown(pilot, "ckpt-200 is incomplete and cannot be restored")
        await pilot.press("y")
        assert CommandQueue(live.run).pending() == []


async def test_no_is_the_answer_unless_one_says_yes(live: RunFactory) -> None:
    async with opened(live.run) as pilot:
        for keys in (["x", "enter"], ["x", "escape"], ["x", "n"], ["r", "escape"], ["p", "escape"]):
            await pilot.press(*keys)
            await until_screen(pilot, DashboardScreen)
        assert CommandQueue(live.run).pending() == []
        assert len(list(live.run.root.glob("*.index"))) == 6


@pytest.mark.parametrize(("key", "save"), [("s", True), ("d", False)])
async def test_stop_says_what_is_lost(live: RunFactory, key: str, save: bool) -> None:
    async with opened(live.run) as pilot:
        await pilot.press("x")
        await until_shown(pilot, "Without a save, 38 steps since the newest checkpoint are lost.")
        await pilot.press(key)
        command = await asked(pilot, live.run)
        assert (command.kind, command.arguments) == (CommandKind.STOP, {"save": save})


async def test_pause_and_resume_are_one_key(live: RunFactory) -> None:
    from tfckpt_trainer.rundir.records.worker import Activity

    async with opened(live.run) as pilot:
        assert "z pause" in shown(pilot.app)
        await pilot.press("z")
        assert (await asked(pilot, live.run)).kind is CommandKind.PAUSE
        for index in range(2):
            live.live_worker(index, activity=Activity.PAUSED)
        await until_shown(pilot, "z resume")
        await pilot.press("z")
        assert (await asked(pilot, live.run)).kind is CommandKind.RESUME


async def test_prune_through_the_trainer(live: RunFactory) -> None:
    async with opened(live.run) as pilot:
        await pilot.press("p")
        await until_shown(pilot, "keep last")
        assert "1 to the trash · 5 stay" in shown(pilot.app)
        assert "ckpt-100" in shown(pilot.app)
        await pilot.press("2")
        await until_shown(pilot, "4 checkpoints go to the trash")
        screen = shown(pilot.app)
        assert "training continues from it" in screen
        assert "no rule keeps it" in screen
        await pilot.press("enter")
        command = await asked(pilot, live.run)
        assert command.kind is CommandKind.PRUNE
        names = {"names": ["ckpt-400", "ckpt-300", "ckpt-200", "ckpt-100"]}
        assert command.arguments == names


async def test_prune_and_undo_without_a_trainer(ended: RunFactory) -> None:
    async with opened(ended.run) as pilot:
        assert "u undo" not in shown(pilot.app)
        await pilot.press("p")
        await until_shown(pilot, "keep last")
        await pilot.press("3")
        await until_shown(pilot, "3 checkpoints go to the trash")
        await pilot.press("enter")
        await until_shown(pilot, "3 checkpoints moved to the trash.")
        await until(pilot, lambda: "3 in the trash" in shown(pilot.app), "the trash is shown")
        assert len(list(ended.run.root.glob("*.index"))) == 3
        await until_shown(pilot, "u undo")
        await pilot.press("u")
        await until_shown(pilot, "come back from the trash.")
        await pilot.press("y")
        await until(
            pilot, lambda: len(list(ended.run.root.glob("*.index"))) == 6, "all are back again"
        )


async def test_a_prune_that_cannot_be_brought_back_is_no_empty_trash(ended: RunFactory) -> None:
    pruned = prune(ended.run, ["ckpt-100"], through=FrontEnd.COMMAND_LINE)
    (ended.run.trash / (pruned.trash or "") / "manifest.json").write_text("{")
    async with opened(ended.run) as pilot:
        await pilot.press("u")
        await until_shown(pilot, "Nothing can be brought back.")
        await pilot.press("T")
        await until_shown(pilot, "Nothing in it can be brought back. Press o to read why.")
        await pilot.press("o")
        await until_screen(pilot, DiagnosticsScreen)


async def test_rules_that_make_no_sense_prune_nothing(ended: RunFactory) -> None:
    async with opened(ended.run) as pilot:
        await pilot.press("p")
        await until_shown(pilot, "keep last")
        await pilot.press("0", "x")
        await until_shown(pilot, "is not a whole number above 0")
        pilot.app.screen.query_one("#keep-best").focus()
        await pilot.press(*"accuracy:max:2")
        pilot.app.screen.query_one("#keep-last").focus()
        await pilot.press("ctrl+u", "2")
        await until_shown(pilot, "No checkpoint has the metric 'accuracy'")
        await pilot.press("enter", "y", "escape")
        assert len(list(ended.run.root.glob("*.index"))) == 6


async def test_pin_and_unpin(ended: RunFactory) -> None:
    async with opened(ended.run) as pilot:
        select(pilot, "ckpt-300")
        await pilot.press("*")
        await until_shown(pilot, "★ 1 pinned")
        assert (ended.run.pins_directory / "ckpt-300").exists()
        await until_shown(pilot, "* unpin")
        await pilot.press("*")
        await until(pilot, lambda: "★ 1 pinned" not in shown(pilot.app), "unpinned")
        assert not (ended.run.pins_directory / "ckpt-300").exists()


async def test_logs_are_followed_turned_and_searched(live: RunFactory) -> None:
    live.run.worker_log(0).write_text("first line\nerror: [/nope] \x1b[31mred\n")
    live.run.worker_log(1).write_text("".join(f"line {n}\n" for n in range(5000)))
    async with opened(live.run) as pilot:
        await pilot.press("l", "right")
        await until_shown(pilot, "error: [/nope] red")
        with live.run.worker_log(0).open("a") as log:
            log.write("appended\n")
        await until_shown(pilot, "appended")
        await pilot.press("right")
        await until_shown(pilot, "line 4999")
        await pilot.press("home")
        await until_shown(pilot, "line 12")
        await until_shown(pilot, "held")
        await pilot.press("slash", *"line 321", "enter")
        await until_shown(pilot, "line 3219")
        await until_shown(pilot, "11 matches")
        await pilot.press("escape")
        await until(pilot, lambda: "matches" not in top(pilot.app), "the search is over")
        await pilot.press("escape")
        await until_screen(pilot, DashboardScreen)


async def listed_in_help(made: RunFactory, *, read_only: bool = False) -> set[str]:
    """Returns the names of the actions that the help of the dashboard lists."""
    async with opened(made.run, read_only=read_only, size=(110, 200)) as pilot:
        await pilot.press("question_mark")
        await until_shown(pilot, "States of a checkpoint")
        text = " ".join(top(pilot.app).split())
        return {action.name for action in ACTIONS if action.title in text}


async def test_the_help_of_a_live_run_lists_what_works(live: RunFactory) -> None:
    listed = await listed_in_help(live)
    assert {"save", "restore", "prune", "pin", "pause", "stop", "force-stop"} <= listed
    assert {"inspect", "verify", "logs", "filter", "help", "detach"} <= listed
    assert not listed & {"launch", "undo"}


async def test_the_help_of_a_stopped_run_lists_what_works(ended: RunFactory) -> None:
    listed = await listed_in_help(ended)
    assert {"restore", "prune", "pin", "launch", "inspect", "verify", "logs"} <= listed
    assert not listed & {"save", "pause", "stop", "force-stop", "undo"}


async def test_the_help_of_a_read_only_app_lists_nothing_that_changes_the_run(
    live: RunFactory,
) -> None:
    listed = await listed_in_help(live, read_only=True)
    assert not listed & {action.name for action in ACTIONS if action.changes_run}
    assert {"inspect", "verify", "compare", "logs", "filter", "help", "detach"} <= listed


async def test_tensorboard_tells_its_state(live: RunFactory) -> None:
    async with opened(live.run) as pilot:
        await pilot.press("t")
        await until_shown(pilot, "not running")
        await pilot.press("c")
        await until_screen(pilot, DashboardScreen)


async def test_q_leaves_and_touches_nothing(live: RunFactory) -> None:
    before = sorted(path.name for path in live.run.root.rglob("*"))
    app = TfckptApp(live.run, poll=POLL)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.snapshot, "a first snapshot")
        await pilot.press("q")
    assert app.return_code == 0
    assert sorted(path.name for path in live.run.root.rglob("*")) == before


async def test_read_only_changes_nothing_and_says_so(live: RunFactory) -> None:
    async with opened(live.run, read_only=True) as pilot:
        assert "read-only" in shown(pilot.app)
        for key in ("s", "r", "p", "u", "*", "z", "x"):
            pilot.app.clear_notifications()
            await pilot.pause()
            assert "read only" not in shown(pilot.app)
            await pilot.press(key)
            await until_shown(pilot, "read only")
            assert isinstance(pilot.app.screen, DashboardScreen)
            assert CommandQueue(live.run).pending() == []


async def test_without_a_trainer_what_needs_one_says_so(ended: RunFactory) -> None:
    async with opened(ended.run) as pilot:
        assert "s save" not in shown(pilot.app)
        for key, reason in {"s": "No trainer answers", "x": "There is nothing to stop."}.items():
            await pilot.press(key)
            await until_shown(pilot, reason)
            assert isinstance(pilot.app.screen, DashboardScreen)


async def test_the_selection_stays_on_its_checkpoint(live: RunFactory) -> None:
    async with opened(live.run) as pilot:
        history = pilot.app.screen.query_one(History)
        select(pilot, "ckpt-300")
        live.checkpoint(450, 1, "ckpt-b1-400")
        await until(pilot, lambda: history.row_count() == 7, "a new row")
        assert history.selected is not None
        assert history.selected.name == "ckpt-300"
        select(pilot, "ckpt-b1-450")
        live.checkpoint(500, 1, "ckpt-b1-450")
        await until(pilot, lambda: history.row_count() == 8, "another new row")
        assert history.selected.name == "ckpt-b1-500", "who looks at the newest goes on doing so"


async def test_the_palette_finds_actions(live: RunFactory) -> None:
    async with opened(live.run) as pilot:
        await pilot.press("ctrl+p", *"save")
        await until_shown(pilot, "save: Save a checkpoint now")
        await pilot.press("enter", "enter")
        assert (await asked(pilot, live.run)).kind is CommandKind.SAVE


async def test_the_palette_says_why_an_action_is_unavailable(ended: RunFactory) -> None:
    async with opened(ended.run) as pilot:
        await pilot.press("ctrl+p", *"save")
        await until_shown(pilot, "save: Save a checkpoint now")
        await until_shown(pilot, "Not now: ")


async def test_too_small_a_terminal_says_so(live: RunFactory) -> None:
    async with opened(live.run, size=(10, 3)) as pilot:
        for width, height in ((10, 3), (1, 1), (59, 24), (80, 15)):
            await resize(pilot, width, height)
            if width >= 59:
                await until_shown(pilot, f"This terminal is {width}×{height}.")
            await resize(pilot, 80, 24)
            await until_shown(pilot, "history")


async def test_a_stalled_process_follows_the_size_of_its_terminal(
    live: RunFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = time.monotonic

    def stalled() -> float:
        """As if the process had to wait whenever a timer looks how long it has to wait itself."""
        timer = sys._getframe(1).f_locals.get("self")
        if isinstance(timer, Timer) and timer._repeat == 0:
            time.sleep(0.02)
        return clock()

    monkeypatch.setattr("textual._time.get_time", stalled)
    async with opened(live.run, size=(80, 15)) as pilot:
        await resize(pilot, 80, 24)
        await until_shown(pilot, "history")


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (120, 40), (200, 50), (400, 120)])
async def test_every_size_shows_what_matters(live: RunFactory, size: tuple[int, int]) -> None:
    async with opened(live.run, size=size) as pilot:
        screen = shown(pilot.app)
        needed = ["training", "step 438", "disk", "workers", "history", "ckpt-b1-400", "? help"]
        if size >= (80, 24):
            needed += ["loss", "throughput", "events", "q detach"]
        for text in needed:
            assert text in screen


CONDITIONS: list[Callable[[RunFactory], None]] = [
    lambda made: made.run.event_log.write_bytes(b"\x00\xff{not json}\n" * 50),
    lambda made: made.run.series.write_bytes(b'{"schema":1,"at":"x"}\n'),
    lambda made: made.run.head_file.write_bytes(b"[]"),
    lambda made: made.run.state_file.write_bytes(b"model_checkpoint_path: 12\xff"),
    lambda made: made.run.record("ckpt-300").write_bytes(b"{}"),
    lambda made: (made.run.root / "ckpt-100.index").write_bytes(b"garbage"),
]


@pytest.mark.parametrize("damage", CONDITIONS)
async def test_damage_is_shown_and_never_ends_the_app(
    live: RunFactory, damage: Callable[[RunFactory], object]
) -> None:
    damage(live)
    async with opened(live.run) as pilot:
        await until_shown(pilot, "ckpt-b1-400")
        await pilot.press("down", "down", "r", "escape", "p", "escape", "l", "escape")
        await until_screen(pilot, DashboardScreen)


async def test_an_export_asks_for_the_format_and_tells_of_a_script_that_fails(
    ended: RunFactory,
) -> None:
    async with opened(ended.run) as pilot:
        select(pilot, "ckpt-200")
        await pilot.press("e")
        await until_shown(pilot, "was not launched by tfckpt-tui")
    command = (sys.executable, "-c", "print('no model'); raise SystemExit(3)")
    info = load(ended.run.run_file, RunInfo)
    store(ended.run.run_file, msgspec.structs.replace(info, launched=True))
    store(
        ended.run.launch_file,
        LaunchOptions(
            run_directory=str(ended.run.root),
            command=command,
            working_directory=str(ended.run.root),
        ),
    )
    async with opened(ended.run) as pilot:
        select(pilot, "ckpt-200")
        await pilot.press("e")
        await until_shown(pilot, "Export ckpt-200")
        await pilot.press("escape", "e", "w")
        await until_shown(pilot, "ended with status 3 before its training")
    assert not list((ended.run.root / "exports").iterdir())


async def test_events_are_filtered_and_shown_in_full(ended: RunFactory) -> None:
    ended.event_log(
        EventKind.WORKER_LOST, "Worker 1 was killed by SIGKILL.", by="supervisor",
        details={"worker": 1, "log": ["step 41", "step 42"]},
    )  # fmt: skip
    async with opened(ended.run) as pilot:
        await pilot.press("J")
        await until_shown(pilot, "step 42")
        assert "SIGKILL" in shown(pilot.app)
        await pilot.press("slash", *"restore ada", "enter")
        await until_shown(pilot, "match restore ada")
        await until_shown(pilot, "Back to ckpt-300; branch 1 begins.")
        await pilot.press("escape")
        await until(pilot, lambda: "match" not in shown(pilot.app), "all events are back")
        await pilot.press("escape")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 1, "the dashboard")


async def test_the_trash_is_looked_into_brought_back_and_emptied(ended: RunFactory) -> None:
    async with opened(ended.run) as pilot:
        await pilot.press("T")
        await until_shown(pilot, "The trash is empty.")
        await pilot.press("escape", "p")
        await until_shown(pilot, "keep last")
        await pilot.press("3", "enter")
        await until_shown(pilot, "3 in the trash")
        await pilot.press("T")
        await until_shown(pilot, "ckpt-100")
        await pilot.press("u")
        await until_shown(pilot, "3 checkpoints (")
        await pilot.press("y")
        await until(
            pilot, lambda: len(list(ended.run.root.glob("*.index"))) == 6, "all are back again"
        )
        await until_shown(pilot, "The trash is empty.")
        await pilot.press("escape", "p")
        await until_shown(pilot, "keep last")
        await pilot.press("3", "enter")
        await until_shown(pilot, "3 in the trash")
        await pilot.press("T", "E")
        await until_shown(pilot, "Nothing can bring")
        await pilot.press("y")
        await until_shown(pilot, "3 checkpoints deleted for good.")
        assert not list(ended.run.trash.glob("*/ckpt-*"))


async def test_a_worker_is_looked_at_and_the_arrows_turn_to_the_next(live: RunFactory) -> None:
    async with opened(live.run) as pilot:
        await pilot.press("w")
        await until_shown(pilot, "worker 0")
        await until_shown(pilot, "of the fastest worker's")
        await pilot.press("right")
        await until_shown(pilot, "worker 1")
        live.live_worker(1, step_seconds=0.5)
        await until_shown(pilot, "424% of the fastest worker's")
        await pilot.press("l")
        await until_shown(pilot, "There are no logs")
        await pilot.press("escape", "escape")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 1, "the dashboard")


async def test_a_letter_of_another_alphabet_says_that_it_is_no_key(ended: RunFactory) -> None:
    hint = "The keys are Latin letters."
    async with opened(ended.run) as pilot:
        await pilot.press("ö")
        await pilot.pause()
        assert hint not in top(pilot.app)
        await pilot.press("slash", *"ы", "escape")
        await pilot.pause()
        assert hint not in top(pilot.app)
        await pilot.press("й", "й")
        await until_shown(pilot, hint)
