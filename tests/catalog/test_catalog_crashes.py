"""Killed before any change of files, prune and undo leave each checkpoint whole or gone.

What lies on the disk is judged here without the product's code: by names and bytes.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from checkpoint_directory import (
    LONG_AGO,
    NOW,
    CheckpointDirectory,
    contents,
    latest_name,
    listed_names,
)
from cut_off import (
    CUT_OFF,
    DONE,
    RAISED,
    SURVIVED,
    killed_at,
    meddled_at,
    refused_at,
)

from refusing_disk import RefusingDisk
from tfckpt_trainer.catalog.directory.trash import TrashReader, list_trash
from tfckpt_trainer.catalog.retention.emptying import empty_trash
from tfckpt_trainer.catalog.retention.prune import (
    move_files_to_trash,
    move_to_trash,
    settle_interrupted_prunes,
    undo,
)
from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.rundir.storage.disk import using
from waiting import attempts
from weekly import weekly

pytestmark = pytest.mark.faults

NAMES = ("ckpt-50", "ckpt-100", "ckpt-200", "ckpt-300")
PRUNED = ("ckpt-50", "ckpt-200")


def history(root: Path) -> CheckpointDirectory:
    made = CheckpointDirectory(root)
    made.run.create()
    made.tensorflow("ckpt-50", shards=2)
    made.ours(100, workers=2)
    made.ours(200, workers=2, shards=2)
    made.ours(300)
    return made


class Scene:
    """A directory, what was in it at first, and what must always be true of it."""

    names: Sequence[str] = NAMES
    pruned: Sequence[str] = PRUNED

    def __init__(self, root: Path, *, state_file: bool = True) -> None:
        root.parent.mkdir(parents=True, exist_ok=True)
        self.made = self.history(root)
        self.root = root
        self.run = self.made.run
        self.state_file = state_file
        self.code = DONE
        self.original = contents(root)

    def history(self, root: Path) -> CheckpointDirectory:
        return history(root)

    def prune(self) -> None:
        move_to_trash(self.run, self.pruned, by="me", now=NOW, update_state_file=self.state_file)

    def undo(self) -> None:
        undo(self.run, None, update_state_file=self.state_file)

    def finish(self) -> None:
        settle_interrupted_prunes(self.run)

    def empty(self) -> None:
        empty_trash(self.run)

    def whole(self) -> set[str]:
        """What TensorFlow or Keras sees; each must have every byte of all its files."""
        return self._whole_among(contents(self.root))

    def _whole_among(self, now: Mapping[str, bytes]) -> set[str]:
        seen = {name for name in self.names if {name, f"{name}.index"} & now.keys()}
        for name in seen:
            for file, data in self.files_of(name).items():
                assert now.get(file) == data, f"{name} is there without {file}"
        return seen

    def files_of(self, name: str) -> dict[str, bytes]:
        """All files of a checkpoint as they were at first."""
        return {
            file: data
            for file, data in self.original.items()
            if file == name or f"{name}." in file or f"/{name}/" in file
        }

    def check(self) -> None:
        """Nothing is half there, nothing is lost, and TensorFlow's list names what is there."""
        now = contents(self.root)
        seen = self._whole_among(now)
        assert seen >= set(self.names) - set(self.pruned)
        trashed = {
            path.relative_to(place).as_posix(): path.read_bytes()
            for place in self.run.trash.glob("*")
            for path in place.rglob("*")
            if path.is_file()
        }
        for name in self.names:
            for file, data in self.files_of(name).items():
                assert data in (now.get(file), trashed.get(file)), f"{file} is lost"
        assert latest_name(self.root) == "ckpt-300"
        if self.state_file:
            assert set(listed_names(self.root)) <= seen
        else:
            assert now["checkpoint"] == self.original["checkpoint"]

    def is_pruned(self) -> bool:
        """Whether a prune is done, with every file of it in the trash."""
        now = contents(self.root)
        return self._whole_among(now) == set(self.names) - set(self.pruned) and not any(
            self.files_of(name).keys() & now.keys() for name in self.pruned
        )

    def is_original(self) -> bool:
        """Whether all is as at first, but for temporary files that a kill left."""
        now = {
            file: data for file, data in contents(self.root).items() if not file.endswith(".tmp")
        }
        return now == self.original


BEGINNINGS = {
    ".keras": b"PK\3\4" + bytes(26) + b"config.json",
    ".h5": b"\x89HDF\r\n\x1a\n",
}
"""What files of Keras begin with."""


class KerasScene(Scene):
    """Files of Keras's callbacks beside a checkpoint, of which prune moves two."""

    names = ("w-01.keras", "w-01.weights.h5", "w-02.keras", "w-02.weights.h5", "ckpt-300")
    pruned = names[:2]

    def history(self, root: Path) -> CheckpointDirectory:
        made = CheckpointDirectory(root)
        made.tensorflow("ckpt-300")
        for name in self.names[:-1]:
            begin = (
                b"PK\3\4" + bytes(26) + b"config.json"
                if name.endswith(".keras")
                else b"\x89HDF\r\n\x1a\n"
            )
            (root / name).write_bytes(begin + name.encode() * 99)
            made.touch(root / name, LONG_AGO - int(name[2:4]))
        return made

    def prune(self) -> None:
        move_files_to_trash(self.run, self.pruned, by="me", now=NOW)


def each_call(
    tmp_path: Path, act: Callable[[Scene, int], int], make: Callable[[Path], Scene] = Scene
) -> list[Scene]:
    """Plays a scene again and again, one call later each time, until it comes to its end."""
    played = []
    for call in attempts("a scene that is not cut off"):
        root = tmp_path / str(call) / "run"
        root.parent.mkdir()
        scene = make(root)
        scene.code = act(scene, call)
        if scene.code == DONE:
            break
        played.append(scene)
    assert len(played) > 2
    return played


@pytest.mark.parametrize("make", [Scene, partial(Scene, state_file=False), KerasScene])
def test_a_prune_killed_anywhere(tmp_path, make):
    def act(scene: Scene, call: int) -> int:
        code = killed_at(call, scene.prune)
        scene.check()
        return code

    scenes = each_call(tmp_path, act, make)
    assert len(scenes) > 12
    outcomes = set()
    for scene in scenes:
        scene.finish()
        scene.check()
        pruned = scene.is_pruned()
        assert pruned or scene.is_original()
        if pruned:
            scene.undo()
        assert scene.is_original()
        assert list_trash(scene.run) == []
        outcomes.add(pruned)
    assert outcomes == {True, False}


@pytest.mark.parametrize("make", [Scene, KerasScene])
def test_an_undo_killed_anywhere(tmp_path, make):
    def act(scene: Scene, call: int) -> int:
        scene.prune()
        code = killed_at(call, scene.undo)
        scene.check()
        return code

    for scene in each_call(tmp_path, act, make):
        scene.finish()
        scene.check()
        assert scene.is_pruned() or scene.is_original()
        if scene.is_pruned():
            scene.undo()
        assert scene.is_original()
        assert list_trash(scene.run) == []


def first_to_finish(tmp_path: Path, act: Callable[[Scene, int], int]) -> int:
    """The first call at which a kill leaves something to finish.

    How many come before depends on the library that locks.
    """

    def leaves_something(call: int) -> bool:
        scene = Scene(tmp_path / f"before-{call}" / "run")
        assert act(scene, call) == CUT_OFF
        return bool(TrashReader(scene.run).in_transit())

    return next(filter(leaves_something, attempts("something to finish")))


@pytest.mark.parametrize("later", [0, *weekly(2, 4, 10, 14)])
def test_the_recovery_of_a_prune_killed_anywhere(tmp_path, later):
    first = later + first_to_finish(tmp_path, lambda scene, call: killed_at(call, scene.prune))

    def act(scene: Scene, call: int) -> int:
        assert killed_at(first, scene.prune) == CUT_OFF
        code = killed_at(call, scene.finish)
        scene.check()
        return code

    for scene in each_call(tmp_path, act):
        scene.finish()
        scene.check()
        if scene.is_pruned():
            scene.undo()
        assert scene.is_original()


@pytest.mark.parametrize("later", [1, *weekly(4, 6, 9)])
def test_the_recovery_of_an_undo_killed_anywhere(tmp_path, later):
    def undo_killed_at(scene: Scene, call: int) -> int:
        scene.prune()
        return killed_at(call, scene.undo)

    first = later + first_to_finish(tmp_path, undo_killed_at)

    def act(scene: Scene, call: int) -> int:
        assert undo_killed_at(scene, first) == CUT_OFF
        code = killed_at(call, scene.finish)
        scene.check()
        return code

    for scene in each_call(tmp_path, act):
        scene.finish()
        scene.check()
        assert scene.is_original()


@pytest.mark.parametrize("make", [Scene, *weekly(KerasScene)])
def test_an_emptying_killed_anywhere(tmp_path, make):
    def act(scene: Scene, call: int) -> int:
        scene.prune()
        return killed_at(call, scene.empty)

    for scene in each_call(tmp_path, act, make):
        assert scene.whole() == set(scene.names) - set(scene.pruned)
        if list_trash(scene.run):
            scene.undo()
            assert scene.is_original()
        else:
            scene.empty()
            assert list(scene.run.trash.glob("*")) == []


def error_of(act: Callable[[], None]) -> Exception | None:
    try:
        act()
    except (OSError, TfckptError) as error:
        return error
    return None


def tells_what_is_in_the_trash(scene: Scene, act: Callable[[], None]) -> None:
    """Fails unless an error of `act` names what it left half done in the trash."""
    error = error_of(act)
    if error is None:
        return
    _, _, said = str(error).partition("Now in the trash: ")
    begun = [
        manifest.parent
        for manifest in scene.run.trash.glob("*/manifest.json")
        if json.loads(manifest.read_text())["phase"] != "trashed"
    ]
    left = {name for name in scene.pruned for place in begun if list(place.glob(f"{name}.*"))}
    assert {name for name in scene.pruned if name in said} == left, error
    assert not left or "Nothing was changed" not in str(error)
    assert not left or not re.search(r"trash \S+ empty", str(error)), "they would be lost"
    raise error


REFUSALS = [
    (False, errno.EIO),
    (True, errno.ENOSPC),
    *weekly((False, errno.ENOSPC), (True, errno.EIO)),
]


@pytest.mark.parametrize(("for_good", "number"), REFUSALS)
def test_a_prune_that_the_disk_refuses_anywhere(tmp_path, for_good, number):
    def act(scene: Scene, call: int) -> int:
        prune = partial(tells_what_is_in_the_trash, scene, scene.prune)
        code = refused_at(call, prune, for_good=for_good, number=number)
        scene.check()
        return code

    for scene in each_call(tmp_path, act):
        if not for_good and scene.code == RAISED:
            assert scene.is_original(), "an error came out, and something was moved"
        if scene.code == SURVIVED:
            assert scene.is_pruned(), "no error came out, and something was not moved"
        scene.finish()
        scene.check()
        assert scene.is_original() or scene.is_pruned()


@pytest.mark.parametrize(("for_good", "number"), REFUSALS)
def test_an_undo_that_the_disk_refuses_anywhere(tmp_path, for_good, number):
    def act(scene: Scene, call: int) -> int:
        scene.prune()
        undo = partial(tells_what_is_in_the_trash, scene, scene.undo)
        code = refused_at(call, undo, for_good=for_good, number=number)
        scene.check()
        return code

    for scene in each_call(tmp_path, act):
        scene.finish()
        scene.check()
        if scene.is_pruned():
            scene.undo()
        assert scene.is_original()


def test_a_prune_never_takes_what_another_process_saves_meanwhile(tmp_path):
    """A trainer of somebody else's saves ckpt-50 again while it is being pruned."""
    outcomes = set()

    def act(scene: Scene, call: int) -> int:
        data = scene.root / "ckpt-50.data-00000-of-00002"

        def save_again() -> None:
            if list(scene.run.trash.glob("*/manifest.json")):
                data.with_suffix(".new").write_bytes(b"new data")
                data.with_suffix(".new").rename(data)

        code = meddled_at(call, scene.prune, save_again)
        trashed = [path for path in scene.run.trash.rglob("*.data-*") if path.is_file()]
        assert b"new data" not in [path.read_bytes() for path in trashed]
        if code == RAISED:
            assert scene.files_of("ckpt-200").items() <= contents(scene.root).items()
        if data.exists():
            outcomes.add(code)
        return code

    each_call(tmp_path, act)
    assert outcomes == {RAISED, SURVIVED}


def test_the_child_can_be_killed_and_refused(tmp_path):
    (tmp_path / "run").mkdir()

    def write() -> None:
        for name in ("one", "two"):
            (tmp_path / "run" / name).write_bytes(b"1")

    assert killed_at(2, write) == CUT_OFF
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["one"]
    assert refused_at(1, write, for_good=True) == RAISED
    assert killed_at(3, write) == DONE


@pytest.mark.parametrize("first", range(7))
def test_a_disk_that_refuses_every_seventh_change_loses_nothing(tmp_path, first):
    scene = Scene(tmp_path / "run")
    disk = RefusingDisk(lambda count: count % 7 == first)
    with using(disk):
        for act in [scene.prune, scene.undo] * 4:
            with suppress(OSError, TfckptError):
                act()
            scene.check()
    assert disk.count > 7
    scene.finish()
    scene.check()
