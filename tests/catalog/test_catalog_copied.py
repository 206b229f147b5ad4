"""In a copy of a run directory inodes and often times are others; what was cut off is finished."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from checkpoint_directory import contents
from cut_off import CUT_OFF, killed_at
from msgspec.structs import replace
from test_catalog_crashes import NAMES, PRUNED, Scene

from bundle_writing import array, write
from real_file_systems import small_ext4
from tfckpt_trainer.catalog.directory.pins import set_pins
from tfckpt_trainer.catalog.directory.trash import list_trash
from tfckpt_trainer.catalog.retention import matching
from tfckpt_trainer.catalog.retention.prune import move_to_trash, settle_interrupted_prunes
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.trash import TrashManifest, TrashPhase
from tfckpt_trainer.rundir.storage.documents import load, store
from waiting import attempts
from weekly import weekly

pytestmark = pytest.mark.faults


def with_cp_a(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", source, target], check=True)


def with_cp_r(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-r", source, target], check=True)


def with_tar(source: Path, target: Path) -> None:
    archive = target.with_suffix(".tar")
    subprocess.run(["tar", "cf", archive, "-C", source.parent, source.name], check=True)
    target.mkdir()
    subprocess.run(["tar", "xf", archive, "-C", target, "--strip-components=1"], check=True)


def with_touched_times(source: Path, target: Path) -> None:
    shutil.copytree(source, target)
    for path in target.rglob("*"):
        os.utime(path, (1e9, 1e9))


@pytest.mark.parametrize(
    "copies", [[with_cp_a, with_cp_r, with_touched_times], *weekly([with_tar])]
)
def test_a_cut_off_prune_is_finished_in_a_copy(tmp_path, copies):
    outcomes = set()
    for call in attempts("one that is not killed"):
        original = Scene(tmp_path / f"{call}" / "run")
        if killed_at(call, original.prune) != CUT_OFF:
            break
        for scene in moved(original, tmp_path / "copies" / str(call), copies):
            scene.finish()
            seen = scene.whole()
            assert seen in ({*NAMES}, {*NAMES} - {*PRUNED}), call
            for name in PRUNED:
                left = set(scene.files_of(name)) & set(contents(scene.root))
                assert left in (set(), set(scene.files_of(name))), f"{name} is half there: {left}"
            if list_trash(scene.run):
                scene.undo()
            assert scene.is_original()
            outcomes.add((scene.root.name, len(seen)))
    assert outcomes >= {(copy.__name__, count) for copy in copies for count in (2, 4)}


@pytest.mark.parametrize(
    "copies", [[with_cp_r, with_touched_times], *weekly([with_cp_a, with_tar])]
)
def test_a_cut_off_undo_is_finished_in_a_copy(tmp_path, copies):
    for call in attempts("one that is not killed"):
        original = Scene(tmp_path / f"{call}" / "run")
        original.prune()
        if killed_at(call, original.undo) != CUT_OFF:
            break
        for scene in moved(original, tmp_path / "copies" / str(call), copies):
            scene.finish()
            if list_trash(scene.run):
                scene.undo()
            assert scene.is_original()


def test_on_another_file_system(tmp_path):
    original = Scene(tmp_path / "first" / "run")
    assert killed_at(16, original.prune) == CUT_OFF
    with small_ext4(tmp_path / "disk", megabytes=16) as root:
        (scene,) = moved(original, root / "runs", [with_cp_r])
        scene.finish()
        assert scene.is_original()


def moved(scene: Scene, place: Path, copies: Sequence[Callable[[Path, Path], None]]) -> list[Scene]:
    """Returns the scene in copies, each named after what made it; all of the original is gone."""
    place.mkdir(parents=True)
    made = []
    for copy in copies:
        left = Scene.__new__(Scene)
        left.root = place / copy.__name__
        copy(scene.root, left.root)
        left.run = RunDirectory(left.root)
        left.state_file, left.original = scene.state_file, scene.original
        made.append(left)
    shutil.rmtree(scene.root)
    return made


@pytest.mark.parametrize("damaged", [False, True])
def test_a_large_data_file_is_known_by_its_tensors(tmp_path, monkeypatch, damaged):
    """Without a record nothing but its index tells what is in it."""
    monkeypatch.setattr(matching, "SMALL_FILE", 1 << 12)
    run = trained_elsewhere(tmp_path / "run")
    data = run.root / "ckpt-1.data-00000-of-00001"
    if damaged:
        content = bytearray(data.read_bytes())
        content[7] ^= 1
        data.write_bytes(content)
    cut_after_the_index(run)
    copied = RunDirectory(tmp_path / "copied")
    with_cp_r(run.root, copied.root)
    settle_interrupted_prunes(copied)
    assert (copied.root / data.name).read_bytes() == data.read_bytes()
    assert (copied.root / "ckpt-1.index").exists()
    assert list_trash(copied) == []


def test_a_data_file_of_another_save_stays(tmp_path, monkeypatch):
    """Its index was moved away; another trainer is saving under the same name."""
    monkeypatch.setattr(matching, "SMALL_FILE", 1 << 12)
    run = trained_elsewhere(tmp_path / "run")
    cut_after_the_index(run)
    other = write(tmp_path / "ckpt-1", {f"v{n}": array([n + 0.5] * 999) for n in range(9)})
    data = run.root / "ckpt-1.data-00000-of-00001"
    shutil.copyfile(other[0], data)
    settle_interrupted_prunes(run)
    assert data.read_bytes() == other[0].read_bytes()
    assert not (run.root / "ckpt-1.index").exists()


def trained_elsewhere(root: Path) -> RunDirectory:
    root.mkdir()
    run = RunDirectory(root)
    for step in (1, 2, 3):
        for path in write(root / f"ckpt-{step}", {f"v{n}": array([n] * 999) for n in range(9)}):
            os.utime(path, (1e9 + step, 1e9 + step))
    return run


def cut_after_the_index(run: RunDirectory) -> None:
    """Leaves what a prune leaves that is killed after its first move."""
    done = move_to_trash(run, ["ckpt-1"], by="me", now=2e9, update_state_file=False)
    place = run.trash / done.id
    for path in place.glob("*.data-*"):
        path.rename(run.root / path.name)
    manifest = load(place / "manifest.json", TrashManifest)
    store(place / "manifest.json", replace(manifest, phase=TrashPhase.PRUNING))


def test_a_verification_is_of_the_bytes_that_were_read(tmp_path):
    """A copy may be damaged: what was read elsewhere says nothing of it."""
    scene = Scene(tmp_path / "first" / "run")
    set_pins(scene.run, ["ckpt-100"], pinned=True)
    target = tmp_path / "copied"
    with_cp_a(scene.root, target)
    found = {c.name: c for c in Catalog(RunDirectory(target)).scan(2e9)}
    assert found["ckpt-100"].pinned
    assert found["ckpt-100"].restorable
