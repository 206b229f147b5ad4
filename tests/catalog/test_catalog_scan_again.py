"""Looks again and again: in haste, at what changed only, and at very many files."""

from __future__ import annotations

import os
import shutil
import threading

import pytest
from checkpoint_directory import LONG_AGO, NOW, CheckpointDirectory

from tfckpt_trainer.catalog.directory import listing as listing_module
from tfckpt_trainer.catalog.directory.checkpoint_files import FileScanner
from tfckpt_trainer.catalog.directory.checkpoints import CheckpointState
from tfckpt_trainer.catalog.directory.history import Records
from tfckpt_trainer.catalog.retention.prune import move_to_trash, undo
from tfckpt_trainer.catalog.scan import catalog as scan_module
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.rundir.storage.identity import identity_of
from waiting import attempts


@pytest.fixture
def two_a_look(monkeypatch):
    monkeypatch.setattr(scan_module, "QUICK_INDEXES", 2)
    monkeypatch.setattr(scan_module, "QUICK_RECORDS", 2)


def states(checkpoints) -> dict[str, str]:
    return {checkpoint.name: checkpoint.state.value for checkpoint in checkpoints}


@pytest.mark.usefixtures("two_a_look")
class TestInHaste:
    def test_damage_within_an_index_shows_later_the_newest_first(self, made):
        for step in range(1, 7):
            made.tensorflow(f"ckpt-{step}", age=1000 - step)
            index = made.root / f"ckpt-{step}.index"
            index.write_bytes(b"\xff" * 100)
            made.touch(index, 1000 - step)
        catalog = Catalog(made.run)
        seen = []
        for left in (4, 2, 0, 0):
            found = catalog.scan(NOW, quick=True)
            seen.append([c.name for c in found if c.state is CheckpointState.CORRUPT])
            assert catalog.deferred == left
        assert [len(names) for names in seen] == [2, 4, 6, 6]
        assert seen[0] == ["ckpt-6", "ckpt-5"]

    def test_what_names_and_sizes_say_shows_at_once(self, made):
        for step in range(10, 20):
            made.tensorflow(f"ckpt-{step}", age=100 - step)
        made.tensorflow("good", shards=2, age=LONG_AGO)
        made.tensorflow("short", shards=3, age=LONG_AGO)
        (made.root / "short.data-00001-of-00003").unlink()
        made.tensorflow("empty", age=LONG_AGO)
        (made.root / "empty.index").write_bytes(b"")
        made.tensorflow("alone", age=LONG_AGO)
        (made.root / "alone.data-00000-of-00001").unlink()
        made.temporary("killed", age=LONG_AGO)
        for name in ("good", "short", "empty", "alone", "killed"):
            for path in made.root.glob(f"{name}.*"):
                made.touch(path, LONG_AGO)
        found = states(Catalog(made.run).scan(NOW, quick=True))
        names = ("good", "short", "empty", "alone", "killed")
        assert [found[name] for name in names] == [
            "complete",
            "incomplete",
            "incomplete",
            "incomplete",
            "orphaned",
        ]

    def test_it_ends_where_a_look_in_full_begins(self, made):
        for step in range(100, 1100, 100):
            made.ours(step, age=2000 - step)
            if step % 300 == 0:
                made.restored(f"ckpt-{step}", step, 0)
            if step % 400 == 0:
                (made.root / f"ckpt-{step}.index").unlink()
        made.tensorflow("other-3", shards=3)
        catalog = Catalog(made.run)
        for looks in attempts("a look in full", most=10):
            found = catalog.scan(NOW, quick=True)
            if not catalog.deferred:
                assert looks >= 4
                break
        assert found == Catalog(made.run).scan(NOW)

    def test_a_new_one_goes_before_what_was_put_off(self, made):
        for step in range(1, 9):
            made.tensorflow(f"ckpt-{step}", age=1000 - step)
        catalog = Catalog(made.run)
        catalog.scan(NOW, quick=True)
        made.tensorflow("ckpt-9", age=1)
        (made.root / "ckpt-9.index").write_bytes(b"\xff" * 100)
        assert states(catalog.scan(NOW, quick=True))["ckpt-9"] == "corrupt"

    def test_what_was_put_off_may_be_gone(self, made):
        for step in range(1, 9):
            made.ours(step, age=1000 - step)
        catalog = Catalog(made.run)
        catalog.scan(NOW, quick=True)
        for path in made.root.glob("ckpt-*"):
            path.unlink()
        shutil.rmtree(made.run.records_directory)
        assert catalog.scan(NOW, quick=True) == ()
        assert catalog.deferred == 0

    def test_in_full_puts_nothing_off(self, made):
        for step in range(1, 9):
            made.ours(step, age=1000 - step)
        catalog = Catalog(made.run)
        catalog.scan(NOW)
        assert catalog.deferred == 0


class TestVeryManyFiles:
    def test_a_file_changed_in_place_shows_when_its_turn_comes(self, made, monkeypatch):
        monkeypatch.setattr(listing_module, "STATS_PER_REFRESH", 4)
        monkeypatch.setattr(scan_module, "NEWEST_WATCHED", 1)
        for step in range(1, 11):
            made.tensorflow(f"ckpt-{step}", age=1000 - step)
        catalog = Catalog(made.run)
        catalog.scan(NOW)
        os.truncate(made.root / "ckpt-2.data-00000-of-00001", 3)
        for _ in attempts("its turn", most=6):
            if states(catalog.scan(NOW))["ckpt-2"] == "incomplete":
                break
        os.truncate(made.root / "ckpt-10.data-00000-of-00001", 3)
        assert states(catalog.scan(NOW))["ckpt-10"] == "incomplete"

    def test_a_file_replaced_shows_at_once(self, made, monkeypatch):
        monkeypatch.setattr(listing_module, "STATS_PER_REFRESH", 1)
        monkeypatch.setattr(scan_module, "NEWEST_WATCHED", 0)
        for step in range(1, 11):
            made.tensorflow(f"ckpt-{step}", age=1000 - step)
        catalog = Catalog(made.run)
        catalog.scan(NOW)
        (made.root / "other").write_bytes(b"x")
        os.replace(made.root / "other", made.root / "ckpt-2.data-00000-of-00001")
        assert states(catalog.scan(NOW))["ckpt-2"] == "incomplete"

    def test_nothing_changed_gives_the_very_same(self, made):
        for step in range(1, 11):
            made.ours(step, age=1000 - step)
        catalog = Catalog(made.run)
        assert catalog.scan(NOW) is catalog.scan(NOW + 1)


class TestWhatIsWhat:
    @pytest.mark.parametrize("year", [1902, 1970, 2100, 2400])
    def test_files_with_times_of_other_centuries(self, made, year):
        made.tensorflow("ckpt-1", shards=2)
        at = (year - 1970) * 365 * 86_400 * 10**9 + 7
        for path in made.root.glob("ckpt-1.*"):
            os.utime(path, ns=(at, at))
        facts = FileScanner(made.root).scan()["ckpt-1"].facts
        assert [fact.name for fact in facts] == [
            "ckpt-1.data-00000-of-00002",
            "ckpt-1.data-00001-of-00002",
            "ckpt-1.index",
        ]
        assert [fact.identity for fact in facts] == [
            identity_of(made.root / fact.name) for fact in facts
        ]

    def test_a_record_that_is_a_link_is_none(self, made):
        made.ours(100)
        record = made.run.record("ckpt-100")
        os.rename(record, record.with_name("elsewhere"))
        record.symlink_to("elsewhere")
        made.run.record_copy("ckpt-100").unlink()
        (found,) = Catalog(made.run).scan(NOW)
        assert found.record is None
        assert found.state is CheckpointState.INEXACT

    def test_a_record_changed_in_place(self, made):
        made.ours(100)
        catalog = Catalog(made.run)
        catalog.scan(NOW)
        made.run.record("ckpt-100").write_bytes(b"{}")
        (made.run.records_directory / "ckpt-100.json.copy").unlink()
        (found,) = catalog.scan(NOW)
        assert found.state is CheckpointState.INEXACT

    def test_a_graph_of_tensorflow_1_before_and_after_its_index(self, made):
        catalog = Catalog(made.run)
        (made.root / "model-7.meta").write_bytes(b"\n\x05graph")
        assert catalog.scan(NOW) == ()
        made.tensorflow("model-7")
        size = sum(path.stat().st_size for path in made.root.glob("model-7.*"))
        assert catalog.scan(NOW)[0].size == size
        for path in made.root.glob("model-7.[di]*"):
            path.unlink()
        assert catalog.scan(NOW) == ()

    def test_a_plain_file_is_no_temporary_directory_and_the_other_way_round(self, made):
        made.tensorflow("ckpt-1")
        (made.root / "ckpt-1_temp").write_bytes(b"notes of somebody")
        (made.root / "ckpt-2.index").mkdir()
        catalog = Catalog(made.run)
        expected = sum(path.stat().st_size for path in made.root.glob("ckpt-1.*"))
        assert [(c.name, c.size) for c in catalog.scan(NOW)] == [("ckpt-1", expected)]
        (made.root / "ckpt-1_temp").unlink()
        (made.root / "ckpt-2.index").rmdir()
        made.tensorflow("ckpt-2")
        assert states(catalog.scan(NOW)) == {"ckpt-1": "complete", "ckpt-2": "complete"}

    @pytest.mark.parametrize("opened", [0, 256])
    def test_a_name_that_counts_no_data_files(self, made, monkeypatch, opened):
        monkeypatch.setattr(scan_module, "QUICK_INDEXES", opened)
        made.tensorflow("ckpt-1")
        os.rename(
            made.root / "ckpt-1.data-00000-of-00001", made.root / "ckpt-1.data-00000-of-00000"
        )
        for quick in (True, False):
            assert states(Catalog(made.run).scan(NOW, quick=quick))["ckpt-1"] == "incomplete"

    def test_a_directory_that_cannot_be_read_for_a_while(self, made: CheckpointDirectory):
        made.tensorflow("ckpt-1")
        catalog = Catalog(made.run)
        before = catalog.scan(NOW)
        away = made.root.with_name("away")
        os.rename(made.root, away)
        with pytest.raises(FileNotFoundError):
            catalog.scan(NOW)
        os.rename(away, made.root)
        assert catalog.scan(NOW) == before


def test_a_look_beside_prunes_and_undos_takes_nothing_for_a_save_or_for_damage(made):
    names = [made.ours(step, age=1.0) for step in range(20)]
    finished = threading.Event()

    def prune_and_undo() -> None:
        try:
            for name in names[:-1]:
                move_to_trash(made.run, [name], by="k", now=NOW, update_state_file=True)
                if name.endswith("5"):
                    undo(made.run, None, update_state_file=True)
        finally:
            finished.set()

    again = Catalog(made.run)
    thread = threading.Thread(target=prune_and_undo)
    thread.start()
    seen = set()
    while not finished.is_set():
        for catalog in (again, Catalog(made.run)):
            seen |= {(c.state, c.problem) for c in catalog.scan(NOW)}
    thread.join()
    # Complete: its record was read after the prune, and its files after the undo.
    expected = {CheckpointState.VERIFIED, CheckpointState.COMPLETE, CheckpointState.TRASHED}
    assert {state for state, _ in seen} <= expected, seen
    assert list(states(again.scan(NOW))) == ["ckpt-19", "ckpt-15", "ckpt-5"]


def test_a_record_that_was_away_while_it_was_read_is_read_when_it_is_back(
    made, tmp_path, monkeypatch
):
    """An undo brings the same file back, which the listing has seen before."""
    made.ours(1)
    record, away = made.run.record("ckpt-1"), tmp_path / "away"
    records = Records(made.run)
    compare = records._entries.compare

    def moved_away(**options):
        changes = compare(**options)
        record.rename(away)
        return changes

    with monkeypatch.context() as patch:
        patch.setattr(records._entries, "compare", moved_away)
        assert records.look() == {}
    away.rename(record)
    assert list(records.look()) == ["ckpt-1"]
