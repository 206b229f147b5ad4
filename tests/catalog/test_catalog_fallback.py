"""Checkpoints in a fallback directory come back whole, once, and are never lost on the way."""

from __future__ import annotations

import pytest
from checkpoint_directory import CheckpointDirectory, contents
from cut_off import CUT_OFF, DONE, killed_at
from msgspec.structs import replace

from real_file_systems import fill, small_tmpfs
from tfckpt_trainer.catalog.commit.fallback import bring_back, fallback_of
from tfckpt_trainer.catalog.commit.saves import finish_interrupted_saves
from tfckpt_trainer.catalog.directory.checkpoints import CheckpointState
from tfckpt_trainer.errors import RefusedError
from tfckpt_trainer.rundir.records.checkpoint import (
    CheckpointRecord,
    FileFacts,
    SaveManifest,
    SavePhase,
)
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.documents import load, store
from waiting import attempts


@pytest.fixture
def made(tmp_path):
    return run_and_fallback(tmp_path)


def run_and_fallback(place):
    """A run with one checkpoint, and a newer one in its fallback directory."""
    run = CheckpointDirectory(place / "run")
    run.run.create()
    store(run.run.run_file, RunInfo(id="0123456789ab", created_at=0.0))
    run.ours(100)
    directory = fallback_of(run.run, place / "elsewhere")
    directory.root.parent.mkdir()
    fallback = CheckpointDirectory(directory.root)
    fallback.run.create()
    fallback._sequence = 7
    fallback.ours(200, workers=2, shards=2)
    return run, fallback


def files_of(made, name):
    return {
        path: data
        for path, data in contents(made.root).items()
        if name in path and "saving" not in path
    }


def test_several_runs_share_a_fallback_directory(made, tmp_path):
    _, fallback = made
    assert fallback.root == tmp_path / "elsewhere" / "run-0123456789ab"


def test_without_a_fallback_directory_there_is_nothing_to_do(tmp_path):
    run = CheckpointDirectory(tmp_path / "run")
    back = bring_back(run.run, fallback_of(run.run, tmp_path / "none"))
    assert (back.names, back.left) == ((), ())


def test_a_checkpoint_comes_back_byte_by_byte_and_leaves_the_fallback_directory(made):
    run, fallback = made
    before = files_of(fallback, "ckpt-200")
    assert bring_back(run.run, fallback.run).names == ("ckpt-200",)
    after = files_of(run, "ckpt-200")
    assert {path: after[path] for path in before} == before
    assert run.scan()["ckpt-200"].state is CheckpointState.COMPLETE
    assert run.scan()["ckpt-200"].is_head
    assert files_of(fallback, "ckpt-200") == {}
    assert bring_back(run.run, fallback.run).names == ()


@pytest.mark.faults
def test_one_killed_anywhere_is_finished_by_the_next_start(tmp_path):
    for call in attempts("one that is not killed"):
        place = tmp_path / str(call)
        place.mkdir()
        run, fallback = run_and_fallback(place)
        whole = files_of(fallback, "ckpt-200")
        code = killed_at(call, lambda run=run, fallback=fallback: bring_back(run.run, fallback.run))
        assert code in {CUT_OFF, DONE}
        finish_interrupted_saves(run.run)
        bring_back(run.run, fallback.run)
        found = files_of(run, "ckpt-200")
        assert {path: found.get(path) for path in whole} == whole, f"killed at change {call}"
        assert not (fallback.root / "ckpt-200.index").exists()
        if code == DONE:
            break
    assert call > 10


def test_a_damaged_copy_is_refused_and_nothing_is_lost(made):
    run, fallback = made
    data = next(fallback.root.glob("ckpt-200.data-*"))
    data.write_bytes(data.read_bytes()[:-1] + b"\xff")
    before = contents(run.root), contents(fallback.root)
    with pytest.raises(RefusedError, match=r"differs from what was saved.*move .* away"):
        bring_back(run.run, fallback.run)
    assert (contents(run.root), contents(fallback.root)) == before


def test_a_full_disk_is_refused_and_nothing_is_lost(tmp_path):
    with small_tmpfs(tmp_path / "disk") as disk:
        run, fallback = run_and_fallback(disk)
        before = files_of(fallback, "ckpt-200")
        filler = fill(disk)
        with pytest.raises(RefusedError, match=r"cannot be copied .* No space left on device"):
            bring_back(run.run, fallback.run)
        assert files_of(fallback, "ckpt-200") == before
        assert not (run.root / "ckpt-200.index").exists()
        filler.unlink()
        assert bring_back(run.run, fallback.run).names == ("ckpt-200",)


def test_another_checkpoint_of_the_same_name_stays_where_it_is(made):
    run, fallback = made
    run.ours(200)
    before = contents(run.root), contents(fallback.root)
    back = bring_back(run.run, fallback.run)
    assert back.left == ("ckpt-200 stays there, because the run has another of this name.",)
    assert (contents(run.root), contents(fallback.root)) == before


@pytest.mark.parametrize(
    "file", ["../../precious", "/precious", ".tfckpt/workers/ckpt-200/../../../../../precious"]
)
def test_a_record_there_that_names_a_file_elsewhere_brings_nothing_back(made, tmp_path, file):
    run, fallback = made
    precious = tmp_path / "precious"
    precious.write_text("hers")
    forged = load(fallback.run.record("ckpt-200"), CheckpointRecord)
    facts = FileFacts(name=file, size=4, crc32c=0)
    store(fallback.run.record("ckpt-200"), replace(forged, files=[*forged.files, facts]))
    back = bring_back(run.run, fallback.run)
    assert (back.names, len(back.left)) == ((), 1)
    assert precious.read_text() == "hers"
    assert "ckpt-200" not in run.scan()


@pytest.mark.parametrize("phase", SavePhase)
def test_a_manifest_of_a_save_that_names_files_elsewhere_deletes_and_moves_none(
    made, tmp_path, phase
):
    run, fallback = made
    (tmp_path / "best.data-00000-of-00001").write_text("hers")
    before = contents(run.root)
    forged = load(fallback.run.record("ckpt-200"), CheckpointRecord)
    facts = FileFacts(name="../best.data-00000-of-00001", size=4, crc32c=1)
    record = replace(forged, name="../best", files=[facts])
    store(run.run.save_manifest("ckpt-7"), SaveManifest(name="ckpt-7", phase=phase, record=record))
    assert finish_interrupted_saves(run.run).completed == ()
    assert (tmp_path / "best.data-00000-of-00001").read_text() == "hers"
    assert contents(run.root) == before
