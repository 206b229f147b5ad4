"""Checkpoints in the app: inspect, verify, mark, compare, filter, sort."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import cast

import pytest
from app_driving import POLL, top, until, until_screen, until_shown, until_told
from rundir_factory import RunFactory
from textual.pilot import Pilot
from textual.widgets import Input

from real_file_systems import fill, small_tmpfs
from tfckpt_trainer.catalog.directory.trash import RETENTION
from tfckpt_trainer.catalog.retention.prune import move_to_trash
from tfckpt_trainer.catalog.scan.foreign_writers import foreign_writers
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.app.dashboard import DashboardScreen
from tfckpt_tui.app.dialogs.prune_questions import BesideTrainerDialog
from tfckpt_tui.app.screens.checkpoint import CheckpointScreen
from tfckpt_tui.app.screens.compare import CompareScreen
from tfckpt_tui.app.widgets.checkpoints.history import History
from tfckpt_tui.monitor.snapshot import RunSnapshot
from tfckpt_tui.settings.config import Config

SIZE = (120, 40)


@pytest.fixture
def made(tmp_path: Path) -> RunFactory:
    """A directory of three checkpoints that our library did not write."""
    factory = RunFactory(tmp_path)
    for step in (10, 20, 30):
        factory.checkpoint(step, recorded=False, seconds_ago=600 - step)
    return factory


def flip_a_bit(factory: RunFactory, name: str) -> None:
    path = factory.run.root / f"{name}.data-00000-of-00001"
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)


async def opened(pilot: Pilot[int]) -> TfckptApp:
    await until_shown(pilot, "ckpt-30")
    app = pilot.app
    assert isinstance(app, TfckptApp)
    return app


async def test_enter_shows_variables_and_statistics_of_a_checkpoint(made: RunFactory) -> None:
    async with TfckptApp(made.run).run_test(size=SIZE, notifications=True) as pilot:
        app = await opened(pilot)
        await pilot.press("enter")
        await until_shown(pilot, "name-based, as saved by TensorFlow 1")
        assert isinstance(app.screen, CheckpointScreen)
        await until_shown(pilot, "resuming from it brings back")
        await pilot.press("enter")
        await until_shown(pilot, "deviation")
        # The variable holds the step, 30, and 0.5.
        assert "max 30.00" in top(app)
        assert "min 0.5000" in top(app)
        await pilot.press("escape")
        await until(pilot, lambda: "deviation" not in top(app), "the figures are gone")
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, CheckpointScreen), "back")


async def test_search_narrows_the_tree_and_escape_ends_it(made: RunFactory) -> None:
    async with TfckptApp(made.run).run_test(size=SIZE, notifications=True) as pilot:
        app = await opened(pilot)
        await pilot.press("enter")
        await until_shown(pilot, "float32")
        await pilot.press("slash", "z", "z", "enter")
        await until_shown(pilot, "nothing matches")
        await pilot.press("escape")
        await until(pilot, lambda: "float32" in top(app), "all variables are back")
        assert isinstance(app.screen, CheckpointScreen)


async def test_verifying_makes_a_checkpoint_verified(made: RunFactory) -> None:
    async with TfckptApp(made.run).run_test(size=SIZE, notifications=True) as pilot:
        await opened(pilot)
        assert "✓ verified" not in top(pilot.app)
        await pilot.press("v")
        await until_shown(pilot, "ckpt-30 is sound")
        await until_shown(pilot, "✓ verified")
        # It is somebody else's directory: nothing was written into it.
        assert not made.run.control.exists()


async def test_damage_stays_on_the_screen_until_it_is_dismissed(made: RunFactory) -> None:
    flip_a_bit(made, "ckpt-30")
    async with TfckptApp(made.run).run_test(size=SIZE, notifications=True) as pilot:
        app = await opened(pilot)
        await pilot.press("v")
        await until_shown(pilot, "ckpt-30 is corrupt")
        await until_shown(pilot, "✗ corrupt")
        assert "does not match its checksum" in top(app)
        await pilot.press("escape")
        await until(pilot, lambda: "is corrupt:" not in top(app), "dismissed")
        await pilot.press("enter")
        await until_shown(pilot, "✗ corrupt: ")
        assert "damaged" in top(app)


async def test_the_key_that_shows_all_findings_is_the_one_that_the_user_set(
    made: RunFactory,
) -> None:
    flip_a_bit(made, "ckpt-30")
    with (made.run.root / "ckpt-30.data-00000-of-00001").open("ab") as file:
        file.write(b"more")
    app = TfckptApp(made.run, config=Config(keys={"inspect": "f7"}))
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await opened(pilot)
        await pilot.press("v")
        await until_shown(pilot, "1 more finding: press f7 on it")


async def test_the_contents_of_a_checkpoint_without_an_index_are_unknown(
    made: RunFactory,
) -> None:
    (made.run.root / "ckpt-30.index").unlink()
    async with TfckptApp(made.run).run_test(size=SIZE, notifications=True) as pilot:
        app = await opened(pilot)
        await pilot.press("home", "enter")
        await until_shown(pilot, "contents unknown")
        assert "reading…" not in top(app)
        assert "unknown: the index cannot be read" in top(app)


async def test_a_new_checkpoint_is_verified_automatically(made: RunFactory) -> None:
    async with TfckptApp(made.run, poll=POLL).run_test(size=SIZE, notifications=True) as pilot:
        app = await opened(pilot)
        await until(pilot, lambda: app.snapshot, "a snapshot")
        made.checkpoint(40, recorded=False)
        # Only a look at settled files calls it complete; those of a moment ago may be written.
        old = os.stat(made.run.root / "ckpt-10.index").st_mtime
        for path in made.run.root.glob("ckpt-40.*"):
            os.utime(path, (old, old))
        await until(
            pilot,
            lambda: app.snapshot and app.snapshot.checkpoint("ckpt-40"),
            "the new one is seen",
        )
        await until_shown(pilot, "✓ verified")


async def test_two_marked_checkpoints_are_compared(made: RunFactory) -> None:
    async with TfckptApp(made.run).run_test(size=SIZE, notifications=True) as pilot:
        app = await opened(pilot)
        await pilot.press("space", "down", "space")
        await until_shown(pilot, "2 marked")
        await pilot.press("d")
        await until_screen(pilot, CompareScreen)
        await until_shown(pilot, "1 changed")
        assert "from ckpt-10 step 10  to ckpt-30 step 30" in top(app)
        await pilot.press("n")
        # From (10, 0.5) to (30, 0.5).
        await until_shown(pilot, "200 %")
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, CompareScreen), "back")
        await until(pilot, lambda: "2 marked" not in top(app), "the marks are gone")


async def test_the_help_fits_a_small_terminal(made: RunFactory) -> None:
    async with TfckptApp(made.run).run_test(size=(60, 20)) as pilot:
        app = await opened(pilot)
        await pilot.press("d")
        await until_screen(pilot, CompareScreen)
        await until_shown(pilot, "1 changed")
        await pilot.press("question_mark")
        await until_shown(pilot, "Keys of the comparison")
        raw = top(app).splitlines()
        keys = next(place for place, line in enumerate(raw) if "Keys of" in line)
        # The rest of an explanation stands below its beginning, not below the key.
        column = raw[keys + 1].index("Reads")
        assert raw[keys + 2][column - 2 : column].isspace()
        assert not raw[keys + 2][column].isspace()


async def test_names_take_the_room_that_no_other_column_needs(tmp_path: Path) -> None:
    factory = RunFactory(tmp_path)
    name = "a-name-of-sixty-cells-" + "x" * 35 + "-10"
    factory.checkpoint(10, name=name, recorded=False)
    factory.run.records_directory.mkdir(parents=True)
    factory.checkpoint(20, duration=0.066)
    async with TfckptApp(factory.run).run_test(size=(200, 40)) as pilot:
        await until_shown(pilot, "ckpt-20")
        assert name in top(pilot.app)
        assert "66.0 ms" in top(pilot.app)


async def test_the_variables_of_a_saved_model_are_kept_for_the_same_reason(tmp_path: Path) -> None:
    place = tmp_path / "model" / "variables"
    place.mkdir(parents=True)
    (place.parent / "saved_model.pb").write_bytes(b"x")
    factory = RunFactory(place)
    factory.checkpoint(0, name="variables", recorded=False, listed=False)
    async with TfckptApp(factory.run).run_test(size=SIZE) as pilot:
        await until_shown(pilot, "1 diagnostic")
        await pilot.press("p")
        await until_shown(pilot, "a SavedModel needs it")


async def test_without_marks_compare_uses_the_previous_checkpoint(made: RunFactory) -> None:
    async with TfckptApp(made.run).run_test(size=SIZE, notifications=True) as pilot:
        app = await opened(pilot)
        await pilot.press("d")
        await until_shown(pilot, "1 changed")
        assert "from ckpt-20 step 20  to ckpt-30 step 30" in top(app)


async def test_three_marked_checkpoints_cannot_be_compared(made: RunFactory) -> None:
    async with TfckptApp(made.run).run_test(size=SIZE, notifications=True) as pilot:
        await opened(pilot)
        await pilot.press("space", "space", "space", "d")
        await until_shown(pilot, "3 checkpoints are marked")


async def test_the_problem_in_the_title_leaves_room_for_the_numbers(made: RunFactory) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    (made.run.root / "ckpt-30.data-00000-of-00001").write_bytes(pointer)
    for size in ((80, 24), (100, 30), (140, 30)):
        async with TfckptApp(made.run).run_test(size=size, notifications=True) as pilot:
            app = await opened(pilot)
            await pilot.press("home")
            await until_shown(pilot, "✗ ckpt-30: `git lfs pull`")
            (title,) = [text for text in top(app).splitlines() if "history" in text]
            assert "3 checkpoints" in title
            assert ("of Git LFS" in title) == (size[0] == 140), title


@pytest.mark.parametrize("damage", ["index", "data"])
async def test_unreadable_checkpoints_say_why(made: RunFactory, damage: str) -> None:
    if damage == "index":
        (made.run.root / "ckpt-30.index").write_bytes(b"garbage" * 30)
    else:
        (made.run.root / "ckpt-30.data-00000-of-00001").unlink()
    async with TfckptApp(made.run).run_test(size=SIZE, notifications=True) as pilot:
        await opened(pilot)
        await pilot.press("home", "enter")
        await until_screen(pilot, CheckpointScreen)
        words = "does not end with the index magic number" if damage == "index" else "is missing"
        await until_shown(pilot, words)


async def test_a_checkpoint_deleted_meanwhile_is_reported(made: RunFactory) -> None:
    async with TfckptApp(made.run, poll=POLL).run_test(size=SIZE, notifications=True) as pilot:
        await opened(pilot)
        await pilot.press("enter")
        await until_shown(pilot, "float32")
        for path in made.run.root.glob("ckpt-30.*"):
            path.unlink()
        await until_shown(pilot, "This checkpoint no longer exists")


async def test_diagnostics_appear_and_disappear(made: RunFactory) -> None:
    state = made.run.state_file
    sound = state.read_bytes()
    state.write_bytes(sound.replace(b'_path: "ckpt-30"', b'_path: "x"', 1))
    async with TfckptApp(made.run, poll=POLL).run_test(size=SIZE, notifications=True) as pilot:
        app = await opened(pilot)
        await until_shown(pilot, "diagnostic")
        await pilot.press("o")
        await until_shown(pilot, "The state file names x as the newest")
        state.write_bytes(sound)
        await until_shown(pilot, "There are no alerts and no diagnostics.")
        await pilot.press("escape")
        await until_screen(pilot, DashboardScreen)
        assert "diagnostic" not in top(app).splitlines()[2]


async def test_a_double_click_does_what_enter_does(made: RunFactory) -> None:
    async with TfckptApp(made.run).run_test(size=SIZE, notifications=True) as pilot:
        app = await opened(pilot)
        history = app.screen.query_one(History)
        await pilot.click(History, offset=(6, 4), times=2)
        await until_screen(pilot, CheckpointScreen)
        assert history.cursor == 2


async def test_pruning_beside_a_foreign_trainer_asks_twice(made: RunFactory) -> None:
    made.checkpoint(40, recorded=False)
    async with TfckptApp(made.run).run_test(size=SIZE, notifications=True) as pilot:
        app = await opened(pilot)
        await until_shown(pilot, "ckpt-40")
        for answer in ("n", "y"):
            await pilot.press("p", "2", "enter")
            await until_shown(pilot, "prune new files?")
            assert "A file of a checkpoint changed" in top(app)
            assert "If none does, wait " in top(app)
            assert (made.run.root / "ckpt-10.index").exists()
            await pilot.press(answer)
        await until_shown(pilot, "moved to the trash")
        await until(pilot, lambda: not (made.run.root / "ckpt-10.index").exists(), "it is gone")


async def test_new_files_of_a_foreign_trainer_are_not_pruned(made: RunFactory) -> None:
    for name in ("best-1", "ckpt-40"):
        made.checkpoint(40, name=name, recorded=False)
    async with TfckptApp(made.run).run_test(size=SIZE, notifications=True) as pilot:
        await opened(pilot)
        await until_shown(pilot, "best-1")
        await pilot.press("p", "1", "enter")
        await until_shown(pilot, "move 3 checkpoints to the trash")
        await pilot.press("y")
        await until_shown(pilot, "3 checkpoints moved to the trash")
        assert (made.run.root / "best-1.index").exists()


async def test_if_all_files_are_new_no_prune_is_offered(made: RunFactory) -> None:
    made.checkpoint(40, recorded=False)
    foreign = foreign_writers(made.run, time.time())
    snapshot = cast(RunSnapshot, None)
    assert len(BesideTrainerDialog(snapshot, foreign, 1).choices()) == 2
    nothing = BesideTrainerDialog(snapshot, foreign, 0)
    (cancel,) = nothing.choices()
    assert cancel.key == "n"
    async with TfckptApp(made.run).run_test(size=SIZE) as pilot:
        pilot.app.push_screen(nothing)
        await until_shown(pilot, "All chosen checkpoints are open or were just written.")
        assert "confirm" not in top(pilot.app)


async def test_undo_offers_prunes_of_users_before_those_of_the_trainer(
    made: RunFactory,
) -> None:
    for name, by in (("ckpt-10", "ada@host"), ("ckpt-20", RETENTION)):
        move_to_trash(made.run, [name], by=by, now=time.time(), update_state_file=False)
    async with TfckptApp(made.run).run_test(size=SIZE, notifications=True) as pilot:
        await opened(pilot)
        await pilot.press("u")
        await until_shown(pilot, "by ada@host")
        await pilot.press("y")
        await until_shown(pilot, "ckpt-10")
        await pilot.press("u")
        await until_shown(pilot, "prunes it again after the next save")


# finding


def names_shown(app: TfckptApp) -> list[str]:
    history = app.screen.query_one(History)
    return [history.row_key(row) for row in range(history.row_count())]


async def test_a_filter_narrows_the_history_while_it_is_typed(made: RunFactory) -> None:
    async with TfckptApp(made.run).run_test(size=SIZE, notifications=True) as pilot:
        app = await opened(pilot)
        await pilot.press("slash", *"step>10")
        await until_shown(pilot, "2 of 3 checkpoints match step>10")
        assert names_shown(app) == ["ckpt-30", "ckpt-20"]
        await pilot.press(*" -30", "enter")
        await until(pilot, lambda: names_shown(app) == ["ckpt-20"], "one is left")
        # The keys mean actions again, and act on what is shown.
        await pilot.press("space")
        await until_shown(pilot, "1 marked")
        await pilot.press("escape")
        await until(pilot, lambda: len(names_shown(app)) == 3, "all are back")


async def test_an_invalid_filter_stays_open_and_is_explained(made: RunFactory) -> None:
    async with TfckptApp(made.run).run_test(size=SIZE, notifications=True) as pilot:
        app = await opened(pilot)
        await pilot.press("slash", *"size>1XB", "enter")
        await until_shown(pilot, "is not a valid")
        await pilot.press("escape")
        await until(pilot, lambda: len(names_shown(app)) == 3, "all are there")


async def test_no_part_of_an_invalid_filter_applies(made: RunFactory) -> None:
    async with TfckptApp(made.run).run_test(size=SIZE, notifications=True) as pilot:
        app = await opened(pilot)
        await pilot.press("slash", *"step>20")
        await until(pilot, lambda: len(names_shown(app)) < 3, "the valid part applies")
        await pilot.press("x", "enter")
        await until(pilot, lambda: len(names_shown(app)) == 3, "all are there")
        await until_shown(pilot, "3 checkpoints")
        assert app.screen.query_one("#filter", Input).value == "step>20x"


async def test_a_filter_without_matches_says_how_to_clear_it(made: RunFactory) -> None:
    async with TfckptApp(made.run).run_test(size=SIZE, notifications=True) as pilot:
        await opened(pilot)
        await pilot.press("slash", *"zzz", "enter")
        await until_shown(pilot, "no checkpoint matches zzz; esc shows all")
        await pilot.press("v")
        await until_shown(pilot, "Not now: verify")


async def test_columns_are_sorted_and_the_order_is_reversed(made: RunFactory) -> None:
    async with TfckptApp(made.run).run_test(size=SIZE, notifications=True) as pilot:
        app = await opened(pilot)
        await pilot.press("greater_than_sign")
        await until_shown(pilot, "step ▼")
        await pilot.press("equals_sign")
        await until_shown(pilot, "step ▲")
        assert names_shown(app) == ["ckpt-10", "ckpt-20", "ckpt-30"]
        await pilot.press("less_than_sign")
        await until(pilot, lambda: names_shown(app)[0] == "ckpt-30", "the history's own order")


async def test_a_path_is_copied(made: RunFactory) -> None:
    async with TfckptApp(made.run).run_test(size=SIZE, notifications=True) as pilot:
        app = await opened(pilot)
        await pilot.press("y")
        await until_told(pilot, "to the clipboard of the terminal.")
        assert app.clipboard == str(made.run.root / "ckpt-30")


async def test_the_palette_goes_to_checkpoints_and_steps(made: RunFactory) -> None:
    async with TfckptApp(made.run).run_test(size=SIZE, notifications=True) as pilot:
        app = await opened(pilot)
        await pilot.press("colon", *"pt-20")
        await until_shown(pilot, "go to ckpt-20")
        await pilot.press("enter")
        await until(
            pilot, lambda: app.query_one(History).selected.name == "ckpt-20", "the cursor is there"
        )
        await pilot.press("colon", *"11")
        await until_shown(pilot, "go to step 11")
        await pilot.press("enter")
        await until(
            pilot, lambda: app.query_one(History).selected.name == "ckpt-10", "the nearest step"
        )


# a full disk


async def test_on_a_full_disk_a_second_question_offers_to_delete_for_good(
    tmp_path: Path,
) -> None:
    with small_tmpfs(tmp_path / "disk", megabytes=4) as root:
        made = RunFactory(root / "run").create()
        for step in (10, 20, 30):
            made.checkpoint(step, seconds_ago=7200 - step)
        fill(root)
        async with TfckptApp(made.run).run_test(size=SIZE, notifications=True) as pilot:
            app = await opened(pilot)
            await pilot.press("p", "1", "enter")
            await until_shown(pilot, "Nothing was moved to the trash")
            await until_shown(pilot, "Nothing can bring")
            assert (made.run.root / "ckpt-10.index").exists()
            await pilot.press("n")
            await pilot.press("p", "1", "enter")
            await until_shown(pilot, "Nothing can bring")
            await pilot.press("y")
            await until_shown(pilot, "2 checkpoints deleted for good")
            await until(pilot, lambda: names_shown(app) == ["ckpt-30"], "one is left")
        assert sorted(path.stem for path in made.run.root.glob("*.index")) == ["ckpt-30"]
