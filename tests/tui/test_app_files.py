"""Files of other formats in the app, such as those of Keras: their rows, and the page of each."""

from __future__ import annotations

import os
import time
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
from app_driving import opened, shown, top, until, until_screen, until_shown
from rundir_factory import RunFactory

from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.app.dashboard import DashboardScreen
from tfckpt_tui.app.screens.tensor_pages import FileScreen
from tfckpt_tui.settings.config import Config

WEIGHTS = "w-05.weights.h5"


@pytest.fixture
def made(tmp_path: Path) -> RunFactory:
    """A directory that only Keras wrote to."""
    made = RunFactory(tmp_path / "keras")
    made.run.root.mkdir()
    return made


def write_weights(path: Path, value: float = 2.5) -> Path:
    with h5py.File(path, "w") as file:
        file["layers/dense/vars/0"] = np.full((4, 3), value, np.float32)
        file["layers/dense/vars/1"] = np.zeros(3, np.float32)
        file["optimizer/vars/0"] = 7
        file["layers/dense/vars"].attrs["name"] = "first"
    return path


async def test_files_are_listed_and_followed(made: RunFactory) -> None:
    file = made.run.root / WEIGHTS
    file.write_bytes(bytes(2000))
    async with opened(made.run) as pilot:
        await until_shown(pilot, f"{WEIGHTS}  Keras weights, epoch 5  2.00 KB")
        assert "0 checkpoints · 1 other file" in top(pilot.app)
        # Keras overwrites a file of the same name in its place.
        file.write_bytes(bytes(3000))
        (made.run.root / "w-06.weights.h5").write_bytes(b"\0")
        await until_shown(pilot, "3.00 KB")
        await until_shown(pilot, "2 other files")


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
async def test_enter_shows_the_tensors_of_a_file(made: RunFactory, size: tuple[int, int]) -> None:
    write_weights(made.run.root / WEIGHTS)
    for step in (10, 20):
        made.checkpoint(step, recorded=False, seconds_ago=600)
    async with opened(made.run, size=size) as pilot:
        await until_shown(pilot, WEIGHTS)
        await pilot.press("end", "enter")
        await until_shown(pilot, "layers/dense/vars")
        assert isinstance(pilot.app.screen, FileScreen)
        assert "tensors 3" in top(pilot.app)
        assert "layer" in top(pilot.app) and "first" in top(pilot.app)
        assert f"tfckpt-tui compare RUN CKPT {WEIGHTS}" in top(pilot.app)
        await pilot.press("down", "enter")
        await until_shown(pilot, "max 2.500")
        assert "elements 12" in top(pilot.app)
        await pilot.press("escape")
        await until_shown(pilot, "loaded by  model.load_weights")
        await pilot.press("slash", *"first", "enter")
        await until_shown(pilot, "2 of 3 match first")
        await pilot.press("escape", "escape")
        await until_screen(pilot, DashboardScreen)


async def test_a_file_that_keras_saves_again_is_read_again(made: RunFactory) -> None:
    file = made.run.root / WEIGHTS
    file.write_bytes(bytes(2000))
    async with opened(made.run) as pilot:
        await until_shown(pilot, WEIGHTS)
        await pilot.press("enter")
        await until_shown(pilot, "contents unknown: the file cannot be read")
        await until_shown(pilot, "neither")
        write_weights(file)
        await until_shown(pilot, "tensors 3")
        assert "neither" not in shown(pilot.app)
        file.unlink()
        await until_shown(pilot, "This file no longer exists")
        write_weights(file)
        await until(pilot, lambda: "no longer" not in shown(pilot.app), "it is there again")


async def test_v_says_what_the_checksums_of_a_file_show(made: RunFactory) -> None:
    weights = write_weights(made.run.root / WEIGHTS, np.nan)
    archive = made.run.root / "w-06.keras"
    with zipfile.ZipFile(archive, "w") as written:
        written.write(weights, "model.weights.h5")
    os.utime(archive, (time.time() + 9,) * 2)
    async with opened(made.run) as pilot:
        await until_shown(pilot, WEIGHTS)
        await pilot.press("end", "enter")
        await until_shown(pilot, "tensors 3")
        await pilot.press("v")
        await until_shown(pilot, "✓ readable: all values were read; it has no checksums")
        await until_shown(pilot, "1 tensor with NaN or infinite values")
        await pilot.press("escape", "home", "v")
        await until_shown(pilot, "✓ sound: CRC-32 of 1 file in it")
        await until_shown(pilot, "tensors 3")
        await pilot.press("escape", "enter")
        await until_shown(pilot, "not verified yet: press v to read every byte")
        await pilot.press("v")
        await until_shown(pilot, "✓ sound: CRC-32 of 1 file in it")
        data = bytearray(archive.read_bytes())
        data[data.index(np.full(3, np.nan, np.float32).tobytes())] ^= 1
        archive.write_bytes(data)
        await until_shown(pilot, "not verified yet")
        await pilot.press("v")
        await until_shown(pilot, "✗ corrupt")
        await until_shown(pilot, "Bad CRC-32")


async def test_pages_name_the_key_of_verify_that_the_user_set(made: RunFactory) -> None:
    made.checkpoint(10, recorded=False)
    write_weights(made.run.root / WEIGHTS)
    app = TfckptApp(made.run, config=Config(keys={"verify": "f7"}))
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, WEIGHTS)
        for row in ("home", "end"):
            await pilot.press(row, "enter")
            await until_shown(pilot, "not verified yet: press f7 to read every byte")
            await pilot.press("escape")
            await until_shown(pilot, "history")


async def test_other_keys_say_what_a_file_is(made: RunFactory) -> None:
    write_weights(made.run.root / WEIGHTS)
    async with opened(made.run) as pilot:
        await until_shown(pilot, WEIGHTS)
        for key in ("asterisk", "space", "e", "d"):
            pilot.app.clear_notifications()
            await pilot.press(key)
            await until(pilot, lambda: pilot.app._notifications, "a message")
            said = str(next(iter(pilot.app._notifications)).message)
            assert said == (
                f"{WEIGHTS} is no checkpoint of TensorFlow, but Keras weights: "
                "`model.load_weights` loads it. Press ⏎ to see its tensors."
            )


async def test_a_directory_of_another_format_is_only_listed(made: RunFactory) -> None:
    (made.run.root / "9").mkdir()
    (made.run.root / "9" / "_CHECKPOINT_METADATA").write_text("")
    async with opened(made.run) as pilot:
        await until_shown(pilot, "Orbax, step 9")
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app._notifications, "a message")
        said = str(next(iter(pilot.app._notifications)).message)
        assert said.endswith(
            "9 is no checkpoint of TensorFlow, but Orbax: `orbax.checkpoint` loads it."
        )
        assert isinstance(pilot.app.screen, DashboardScreen)


async def test_a_file_is_pruned_on_its_page_and_comes_back(made: RunFactory) -> None:
    for epoch in (1, 2):
        path = write_weights(made.run.root / f"w-{epoch:02d}.weights.h5")
        os.utime(path, (1e9 + epoch,) * 2)
    first = made.run.root / "w-01.weights.h5"
    before = first.read_bytes()
    async with opened(made.run) as pilot:
        await until_shown(pilot, first.name)
        await pilot.press("enter")
        await until_shown(pilot, "tensors 3")
        await pilot.press("p")
        await until_shown(pilot, "It cannot be pruned: the newest Keras weights.")
        await pilot.press("escape", "escape", "end", "enter")
        await until_shown(pilot, "tensors 3")
        await pilot.press("p")
        await until_shown(pilot, "brings it back until the trash is emptied")
        await pilot.press("n")
        assert first.exists()
        await pilot.press("p")
        await until_shown(pilot, "prune a file")
        await pilot.press("y")
        await until_shown(pilot, "This file no longer exists")
        assert not first.exists()
        await pilot.press("escape")
        await until_shown(pilot, "1 in the trash")
        await pilot.press("u")
        await until_shown(pilot, "1 file (")
        await pilot.press("y")
        await until_shown(pilot, "2 other files")
        assert first.read_bytes() == before


async def test_an_app_that_only_reads_prunes_no_file(made: RunFactory) -> None:
    write_weights(made.run.root / WEIGHTS)
    async with TfckptApp(made.run, read_only=True).run_test(notifications=True) as pilot:
        await until_shown(pilot, WEIGHTS)
        await pilot.press("enter")
        await until_shown(pilot, "v verify")
        assert "prune" not in top(pilot.app)
        await pilot.press("p")
        await pilot.pause()
        assert isinstance(pilot.app.screen, FileScreen)
