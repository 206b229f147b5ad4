"""Whatever a power loss takes of a prune or an undo, each checkpoint stays whole or gone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cut_off import CUT_OFF, DONE, cut_off_at
from lost_changes import Tree, recorded, what_may_be_left
from test_catalog_crashes import NAMES, PRUNED, KerasScene, Scene

from real_file_systems import power_cut_disk
from tfckpt_trainer.catalog.directory.trash import list_trash
from tfckpt_trainer.catalog.retention.deleting import delete_for_good
from tfckpt_trainer.catalog.retention.prune import settle_interrupted_prunes
from tfckpt_trainer.rundir.paths import RunDirectory
from waiting import attempts
from weekly import weekly

pytestmark = pytest.mark.faults


class Left(Scene):
    """What a power loss left of a scene, judged as the scene is."""

    def __init__(self, scene: Scene, root: Path) -> None:
        self.root = root
        self.run = RunDirectory(root)
        self.state_file = scene.state_file
        self.original = scene.original
        self.names, self.pruned = scene.names, scene.pruned


@pytest.mark.parametrize(
    ("action", "make"),
    [
        *((action, Scene) for action in ("prune", "undo", "finish a prune", "finish an undo")),
        ("prune", KerasScene),
        ("undo", KerasScene),
    ],
)
def test_whatever_was_not_flushed_may_be_lost(
    tmp_path: Path, action: str, make: type[Scene]
) -> None:
    scene = make(tmp_path / "run")
    prepare(scene, action)
    first = Tree.of(scene.root)
    with recorded(scene.root) as changes:
        act_of(scene, action)()
    assert len([c for c in changes if c.kind == "flush"]) > 3
    count, judged = 0, set()
    for number, (story, tree) in enumerate(what_may_be_left(first, changes)):
        count += 1
        # Many losses leave the same, such as those of changes that undo each other.
        if tree.identity in judged:
            continue
        judged.add(tree.identity)
        left = Left(scene, tmp_path / str(number) / "run")
        tree.write(left.root)
        try:
            left.whole()
            left.finish()
            left.check()
            assert left.is_pruned() or left.is_original()
            if left.is_pruned():
                left.undo()
                assert left.is_original()
        except AssertionError as error:
            raise AssertionError(f"{action}, {story}: {error}") from error
    assert count > 20


@pytest.mark.parametrize("action", ["prune", "empty", *weekly("undo", "delete")])
def test_the_power_is_cut_anywhere(tmp_path: Path, action: str) -> None:
    with power_cut_disk(tmp_path / "disk") as disk:
        for call in attempts("an act whose power is not cut"):
            root = disk.root / str(call) / "run"
            root.parent.mkdir()
            scene = Scene(root)
            prepare(scene, action)
            disk.flush()
            code = cut_off_at(call, act_of(scene, action), disk.cut_power)
            if code == DONE:
                break
            assert code == CUT_OFF
            disk.restore_power()
            check(scene, action)
        assert call > 5


def prepare(scene: Scene, action: str) -> None:
    if action in {"undo", "empty"}:
        scene.prune()
    if action == "finish a prune":
        assert cut_off_at(15, scene.prune, lambda: None) == CUT_OFF
    if action == "finish an undo":
        scene.prune()
        assert cut_off_at(7, scene.undo, lambda: None) == CUT_OFF


def act_of(scene: Scene, action: str) -> Callable[[], object]:
    if action == "delete":
        return lambda: delete_for_good(scene.run, PRUNED, now=0.0, update_state_file=True)
    acts: dict[str, Callable[[], object]] = {
        "prune": scene.prune,
        "undo": scene.undo,
        "empty": scene.empty,
    }
    return acts.get(action, lambda: settle_interrupted_prunes(scene.run))


def check(scene: Scene, action: str) -> None:
    seen = scene.whole()
    assert seen >= set(NAMES) - set(PRUNED)
    if action in {"prune", "undo"}:
        scene.finish()
        scene.check()
        if scene.is_pruned():
            scene.undo()
        assert scene.is_original()
    elif action == "empty":
        assert seen == set(NAMES) - set(PRUNED)
        if list_trash(scene.run):
            scene.undo()
            assert scene.is_original()
