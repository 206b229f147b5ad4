"""A pin that was acknowledged holds, whatever prunes at the same time."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from checkpoint_directory import NOW, CheckpointDirectory, listed_names
from cut_off import CUT_OFF, DONE, RAISED, killed_at, meddled_at
from test_catalog_crashes import PRUNED, Scene

from child_processes import entered_elsewhere
from tfckpt_trainer.catalog.directory import pins
from tfckpt_trainer.catalog.directory.pins import pin, pinned_names, set_pins
from tfckpt_trainer.catalog.directory.trash import list_trash, locked_trash
from tfckpt_trainer.catalog.retention.deleting import delete_for_good
from tfckpt_trainer.catalog.retention.emptying import empty_trash
from tfckpt_trainer.catalog.retention.prune import move_to_trash, settle_interrupted_prunes, undo
from tfckpt_trainer.errors import RefusedError, UsageError
from waiting import attempts


@pytest.fixture
def history(made: CheckpointDirectory) -> CheckpointDirectory:
    made.run.create()
    for step in (100, 200, 300):
        made.ours(step)
    return made


def prune(made: CheckpointDirectory, *names: str):
    return move_to_trash(made.run, names, by="ada", now=NOW, update_state_file=True)


def test_a_pin_waits_for_a_prune_and_says_when_it_takes_long(history):
    with (
        entered_elsewhere(locked_trash(history.run)),
        pytest.raises(RefusedError, match=r"running for more than 0.2 s. Nothing was changed"),
    ):
        set_pins(history.run, ["ckpt-100"], pinned=True, timeout=0.2)
    assert pinned_names(history.run) == frozenset()
    set_pins(history.run, ["ckpt-100"], pinned=True)
    assert pinned_names(history.run) == {"ckpt-100"}


def test_what_is_in_the_trash_is_not_pinned_and_the_way_back_is_told(history):
    manifest = prune(history, "ckpt-100")
    with pytest.raises(UsageError, match=f"in the trash.* undo .* --trash {manifest.id}"):
        set_pins(history.run, ["ckpt-200", "ckpt-100"], pinned=True)
    assert pinned_names(history.run) == frozenset()
    undo(history.run, manifest.id, update_state_file=True)
    set_pins(history.run, ["ckpt-100"], pinned=True)
    assert pinned_names(history.run) == {"ckpt-100"}


def test_what_a_cut_off_prune_holds_in_part_is_not_pinned(tmp_path):
    scene = Scene(tmp_path / "run")
    assert killed_at(16, scene.prune) == CUT_OFF
    with pytest.raises(UsageError, match="in the trash"):
        set_pins(scene.run, ["ckpt-200"], pinned=True)
    assert pinned_names(scene.run) == frozenset()


def test_what_was_never_there_is_not_pinned(history):
    with pytest.raises(UsageError, match="no checkpoint 'ckpt-7'"):
        set_pins(history.run, ["ckpt-100", "ckpt-7"], pinned=True)
    assert pinned_names(history.run) == frozenset()


def test_a_deleted_checkpoint_whose_graph_another_program_wrote_is_not_pinned(history):
    (history.root / "ckpt-100.meta").write_bytes(b"a graph of another program")
    delete_for_good(history.run, ["ckpt-100"], now=NOW, update_state_file=True)
    assert (history.root / "ckpt-100.meta").exists()
    with pytest.raises(UsageError, match="no checkpoint 'ckpt-100'"):
        set_pins(history.run, ["ckpt-100"], pinned=True)
    assert pinned_names(history.run) == frozenset()


@pytest.mark.faults
@pytest.mark.parametrize("recovers", [False, True])
def test_a_pin_at_any_moment_of_a_prune_even_where_no_lock_is_shared(
    tmp_path, monkeypatch, recovers
):
    monkeypatch.setattr(pins, "locked_trash", lambda *_: nullcontext())
    outcomes = set()
    for call in attempts("a prune without a pin in between"):
        scene = Scene(tmp_path / str(call) / "run")
        if recovers:
            assert killed_at(16, scene.prune) == CUT_OFF
        said = tmp_path / f"said-{call}"

        def pin_meanwhile(scene: Scene = scene, said: Path = said) -> None:
            try:
                set_pins(scene.run, ["ckpt-200"], pinned=True)
                said.write_text("pinned")
            except (UsageError, OSError):
                said.write_text("refused")

        code = meddled_at(call, scene.finish if recovers else scene.prune, pin_meanwhile)
        if code == DONE:
            break
        scene.finish()
        seen = scene.whole()
        if said.read_text() == "pinned":
            assert "ckpt-200" in seen, f"an acknowledged pin was pruned at call {call}"
            assert pinned_names(scene.run) == {"ckpt-200"}
            assert "ckpt-200" in listed_names(scene.root)
        else:
            assert pinned_names(scene.run) == frozenset()
        outcomes.add((said.read_text(), code == RAISED))
    assert ("refused", False) in outcomes
    assert any(said == "pinned" for said, _ in outcomes)


@pytest.mark.parametrize("call", [13, 14, 15, 18, 25])
def test_what_was_pinned_since_comes_back_with_all_of_its_prune(tmp_path, call):
    scene = Scene(tmp_path / "run")
    assert killed_at(call, scene.prune) == CUT_OFF
    # As a user may, by hand: `pin` waits for the prune.
    pin(scene.run, "ckpt-200")
    settle_interrupted_prunes(scene.run)
    assert scene.whole() == set(scene.names)
    assert {"ckpt-50", "ckpt-200"} <= set(listed_names(scene.root))
    assert list_trash(scene.run) == []


def test_a_pin_of_another_save_under_the_name_does_not_block_the_rest(tmp_path):
    scene = Scene(tmp_path / "run")
    assert killed_at(15, scene.prune) == CUT_OFF
    scene.made.tensorflow("ckpt-50", shards=1, age=7200)
    pin(scene.run, "ckpt-50")
    settle_interrupted_prunes(scene.run)
    assert (scene.root / "ckpt-50.index").exists()
    assert (scene.root / "ckpt-50.data-00000-of-00001").exists()
    assert (scene.root / "ckpt-200.index").exists()
    assert settle_interrupted_prunes(scene.run) == []


def test_what_is_pinned_is_not_emptied_unless_the_pin_is_of_another(history):
    manifest = prune(history, "ckpt-100")
    pin(history.run, "ckpt-100")
    kept = empty_trash(history.run)
    assert kept.names == ()
    assert tuple(map(str, kept.kept)) == (
        f"ckpt-100 in {manifest.id} stays in the trash: pinned. Bring it back with "
        f"`tfckpt-tui undo {history.root} --trash {manifest.id}`.",
    )
    history.tensorflow("ckpt-100")
    assert empty_trash(history.run).names == ("ckpt-100",)


def test_a_pin_that_cannot_be_written_leaves_none(history, monkeypatch):
    def refuse(run, name):
        if name == "ckpt-200":
            raise OSError(5, "the disk refuses")
        pin(run, name)

    monkeypatch.setattr(pins, "pin", refuse)
    with pytest.raises(OSError, match="refuses"):
        set_pins(history.run, ["ckpt-100", "ckpt-200"], pinned=True)
    assert pinned_names(history.run) == frozenset()


def test_a_pin_of_what_is_gone_can_be_taken_off(tmp_path):
    scene = Scene(tmp_path / "run")
    scene.prune()
    with pytest.raises(UsageError, match="in the trash"):
        set_pins(scene.run, list(PRUNED), pinned=False)
    pin(scene.run, PRUNED[0])
    set_pins(scene.run, [PRUNED[0]], pinned=False)
    assert pinned_names(scene.run) == frozenset()
