"""What is odd in a directory: each diagnostic where it applies, none where it does not."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from checkpoint_directory import LONG_AGO, NOW, CheckpointDirectory, contents, latest_name

from tfckpt_trainer.catalog.directory.history import read_state_list
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.catalog.scan.diagnostics import Diagnostic


def diagnostics(made: CheckpointDirectory, *, changed: float = LONG_AGO) -> dict[str, Diagnostic]:
    """Looks once; `changed` says how long ago the directory last changed."""
    catalog = Catalog(made.run)
    catalog.scan(NOW)
    for path in (made.run.state_file, made.root):
        if path.exists():
            made.touch(path, changed)
    found = catalog.diagnostics(NOW)
    assert len({diagnostic.kind for diagnostic in found}) == len(found)
    return {diagnostic.kind: diagnostic for diagnostic in found}


def advises_no_loss(diagnostic: Diagnostic) -> bool:
    """Whether no word of it asks for anything to be deleted, moved or written."""
    words = (
        "elete",
        "emove",
        "ove it",
        "ove them",
        "mv ",
        "rm ",
        "printf",
        "model_checkpoint_path",
    )
    return not any(word in diagnostic.message for word in words)


def test_nothing_is_odd_in_a_plain_directory(made):
    for step in (1, 2, 3):
        made.tensorflow(f"ckpt-{step}", shards=step, age=LONG_AGO - step)
    (made.root / "events.out.tfevents.1").write_bytes(b"x")
    (made.root / "notes.txt").write_bytes(b"x")
    (made.root / "eval").mkdir()
    assert diagnostics(made) == {}


def test_steps_and_times_disagree(made):
    for name, age in [("ckpt-100", 4000), ("ckpt-75", 3700), ("ckpt-25", 3900), ("ckpt-500", 3800)]:
        made.tensorflow(name, age=age, listed=False)
    found = diagnostics(made)
    order = found["order-by-step"]
    assert order.severity == "warning"
    assert "ckpt-75 was written after ckpt-500 and has a smaller step" in order.message
    assert f"`tfckpt-tui pin {made.root} ckpt-75`" in order.message
    missing = found["state-file-missing"].message
    assert 'model_checkpoint_path: "ckpt-500"' in missing
    assert "ckpt-75 was written later" in missing


def test_steps_and_times_agree_or_tie(made):
    for step in (1, 2, 10):
        made.tensorflow(f"ckpt-{step}", age=LONG_AGO, listed=False)
    assert diagnostics(made).keys() == {"state-file-missing"}


def test_nothing_is_odd_in_ours_with_branches(made):
    made.ours(100)
    made.ours(200)
    made.ours(200, 1)
    assert diagnostics(made) == {}


def test_a_run_of_this_library_goes_on_without_a_state_file(made):
    made.ours(100)
    made.run.state_file.unlink(missing_ok=True)
    found = diagnostics(made)
    assert set(found) == {"state-file-missing"}
    assert "tfckpt_trainer continues from its own records" in found["state-file-missing"].message
    assert "scratch" not in found["state-file-missing"].message


def test_no_state_file_is_missing_among_the_variables_of_a_saved_model(tmp_path):
    (tmp_path / "model").mkdir()
    made = CheckpointDirectory(tmp_path / "model" / "variables")
    made.tensorflow("variables", listed=False)
    assert set(diagnostics(made)) == {"state-file-missing"}
    (tmp_path / "model" / "saved_model.pb").write_bytes(b"x")
    found = diagnostics(made)
    assert set(found) == {"saved-model"}
    assert advises_no_loss(found["saved-model"])


def test_nothing_is_odd_where_nothing_is(made):
    assert diagnostics(made) == {}


class TestStateFile:
    @pytest.mark.parametrize(
        ("content", "kind", "effect"),
        [
            (b"", "state-file-empty", "ValueError"),
            (b"\n# words\n", "state-file-empty", "ValueError"),
            (b'all_model_checkpoint_paths: "a"', "state-file-incomplete", "ValueError"),
            (b"\0\xff", "state-file-undecodable", "UnicodeDecodeError"),
            (b"\0", "state-file-damaged", "starts from scratch"),
            (None, "state-file-missing", "starts from scratch"),
        ],
    )
    def test_it_says_nothing(self, made, content, kind, effect):
        made.tensorflow("ckpt-1")
        made.tensorflow("ckpt-2", age=1)
        made.run.state_file.unlink()
        if content is not None:
            made.run.state_file.write_bytes(content)
        found = diagnostics(made)
        assert list(found) == [kind]
        assert found[kind].severity == "warning"
        assert effect in found[kind].message
        assert 'model_checkpoint_path: "ckpt-2"' in found[kind].message

    @pytest.mark.parametrize(
        ("make", "kind", "effect"),
        [
            (Path.mkdir, "state-file-directory", "its saves fail"),
            (os.mkfifo, "state-file-irregular", "may wait for it for ever"),
            (lambda path: path.write_bytes(bytes(17 << 20)), "state-file-oversized", "not read"),
        ],
    )
    def test_it_is_no_usual_file(self, made, make, kind, effect):
        made.tensorflow("ckpt-1")
        file = made.run.state_file
        file.unlink()
        make(file)
        found = diagnostics(made)
        assert list(found) == [kind]
        assert effect in found[kind].message
        command = found[kind].message.split("`")[-2]
        subprocess.run(["/bin/sh", "-c", command], check=True, stdout=subprocess.DEVNULL)
        # What is too large is only to be looked at: TensorFlow may read it.
        is_mended = kind != "state-file-oversized"
        assert (diagnostics(made) == {}) is is_mended
        assert not is_mended or latest_name(made.root) == "ckpt-1"

    def test_one_that_is_a_link_is_left_to_tensorflow(self, made, tmp_path):
        made.tensorflow("ckpt-1")
        os.rename(made.run.state_file, tmp_path / "elsewhere")
        made.run.state_file.symlink_to(tmp_path / "elsewhere")
        assert diagnostics(made) == {}

    def test_it_names_what_is_gone(self, made):
        made.tensorflow("ckpt-1")
        made.tensorflow("ckpt-2")
        for path in made.root.glob("ckpt-2.*"):
            path.unlink()
        found = diagnostics(made)
        assert list(found) == ["latest-missing"]
        assert "ckpt-2 as the newest, which is not there" in found["latest-missing"].message
        assert '"ckpt-1"' in found["latest-missing"].message

    def test_it_names_what_is_incomplete(self, made):
        made.tensorflow("ckpt-1", shards=2)
        (made.root / "ckpt-1.data-00001-of-00002").unlink()
        assert "which is incomplete" in diagnostics(made)["latest-unusable"].message

    def test_it_names_what_is_corrupt(self, made):
        made.tensorflow("ckpt-1")
        made.tensorflow("ckpt-2")
        index = made.root / "ckpt-2.index"
        data, seen = bytearray(index.read_bytes()), index.stat()
        data[0] ^= 1
        index.write_bytes(data)
        os.utime(index, ns=(seen.st_atime_ns, seen.st_mtime_ns))
        found = diagnostics(made)
        assert list(found) == ["latest-unusable"]
        assert (
            "ckpt-2 as the newest, which is corrupt: ckpt-2.index at byte 0: a block does not "
            "match its checksum. TensorFlow does not fall back to another checkpoint: a trainer "
            "without tfckpt_trainer stops, or starts from scratch. If no trainer runs, "
        ) in found["latest-unusable"].message

    def test_it_lists_what_is_gone(self, made):
        for step in range(1, 7):
            made.tensorflow(f"ckpt-{step}")
        for step in range(1, 6):
            for path in made.root.glob(f"ckpt-{step}.*"):
                path.unlink()
        found = diagnostics(made)
        assert list(found) == ["listed-missing"]
        assert "ckpt-1, ckpt-2, ckpt-3 and 2 more" in found["listed-missing"].message
        assert found["listed-missing"].severity == "note"

    @pytest.mark.parametrize("still_there", [False, True])
    def test_it_names_the_place_that_the_directory_was_moved_from(
        self, made, tmp_path, still_there
    ):
        made.tensorflow("model-7")
        old = tmp_path / "old"
        made.run.state_file.write_text(
            f'model_checkpoint_path: "{old}/model-7"\nall_model_checkpoint_paths: "{old}/model-7"\n'
        )
        if still_there:
            shutil.copytree(made.root, old)
        found = diagnostics(made)
        assert list(found) == ["other-place"]
        message = found["other-place"].message
        assert str(old) in message
        assert "A model-7 is here" in message
        assert ("that one is restored" in message) is still_there

    def test_an_absolute_path_to_this_place_is_right(self, made, tmp_path):
        made.tensorflow("model-7")
        (tmp_path / "link").symlink_to(made.root)
        text = f'model_checkpoint_path: "{made.root}/model-7"\n'
        made.run.state_file.write_text(
            text + text.replace("model_", "all_model_", 1).replace("_path:", "_paths:")
        )
        assert diagnostics(made) == {}


def test_two_prefixes_may_share_one_state_file(made):
    made.tensorflow("ckpt-1")
    made.tensorflow("best-2")
    made.tensorflow("final")
    found = diagnostics(made)
    assert list(found) == ["two-prefixes"]
    message = found["two-prefixes"].message
    assert "best-2 and ckpt-1 have 2 prefixes. Managers that share one state file" in message


def test_two_of_one_step(made):
    for step in (1, 2):
        made.tensorflow(f"ckpt-{step}")
        made.tensorflow(f"best-{step}")
    found = diagnostics(made)
    assert set(found) == {"two-prefixes", "same-step"}
    assert "1 more step" in found["same-step"].message


def test_data_newer_than_its_index(made):
    made.tensorflow("ckpt-1", shards=2)
    made.touch(made.root / "ckpt-1.data-00001-of-00002", LONG_AGO - 10)
    found = diagnostics(made)
    assert list(found) == ["data-newer"]
    assert found["data-newer"].name == "ckpt-1"


def test_unlisted_ones(made):
    made.tensorflow("ckpt-1", listed=False)
    made.tensorflow("ckpt-2")
    found = diagnostics(made)
    assert list(found) == ["unlisted"]
    size = sum(path.stat().st_size for path in made.root.glob("ckpt-1.*"))
    assert (found["unlisted"].name, found["unlisted"].bytes) == ("ckpt-1", size)


class TestLeftovers:
    def test_data_of_another_count(self, made):
        made.tensorflow("ckpt-1")
        extra = made.root / "ckpt-1.data-00001-of-00002"
        extra.write_bytes(b"12345")
        made.touch(extra, LONG_AGO)
        found = diagnostics(made)
        assert list(found) == ["extra-data"]
        assert (found["extra-data"].name, found["extra-data"].bytes) == (extra.name, 5)

    def test_the_temporary_directory_beside_a_complete_one(self, made):
        made.tensorflow("ckpt-1", age=LONG_AGO)
        made.temporary("ckpt-1", age=LONG_AGO)
        found = diagnostics(made)
        assert list(found) == ["leftover-temp"]
        assert (found["leftover-temp"].name, found["leftover-temp"].bytes) == ("ckpt-1_temp", 4)

    def test_the_names_of_parts_alone_are_not_called_left_by_a_save(self, made):
        made.tensorflow("ckpt-1", age=LONG_AGO)
        made.temporary("ckpt-1", age=LONG_AGO)
        found = diagnostics(made)["leftover-temp"]
        assert "Nothing shows that TensorFlow wrote them" in found.message
        assert advises_no_loss(found)

    def test_not_while_its_save_may_go_on(self, made):
        made.tensorflow("ckpt-1", age=1)
        made.temporary("ckpt-1", age=1)
        made.touch(made.root / "ckpt-1.index", 0)
        assert diagnostics(made) == {}

    def test_state_files_that_were_not_finished(self, made):
        made.tensorflow("ckpt-1")
        for name, age in [("checkpoint.tmp0123abcd", LONG_AGO), ("checkpoint.tmpff", 5)]:
            (made.root / name).write_bytes(b"x" * 7)
            made.touch(made.root / name, age)
        found = diagnostics(made)
        assert list(found) == ["state-file-temp"]
        assert found["state-file-temp"].name == "checkpoint.tmp0123abcd"
        assert found["state-file-temp"].bytes == 7

    def test_what_is_named_like_a_part_and_is_of_none(self, made):
        made.tensorflow("ckpt-1")
        for name in ("lone-3.meta", ".index", "x.data-1-of-2", "y.data-1-of-2"):
            (made.root / name).write_bytes(b"x" * 3)
            made.touch(made.root / name, LONG_AGO)
        found = diagnostics(made)
        assert list(found) == ["stray"]
        assert found["stray"].bytes == 12
        assert "and 1 more" in found["stray"].message
        assert "Keep them" in found["stray"].message
        assert advises_no_loss(found["stray"])


def test_warnings_come_first(made):
    made.tensorflow("ckpt-0", listed=False, age=LONG_AGO + 1)
    made.tensorflow("ckpt-1", listed=False)
    made.tensorflow("ckpt-2")
    for path in made.root.glob("ckpt-2.*"):
        path.unlink()
    assert list(diagnostics(made)) == ["latest-missing", "unlisted"]


class TestAdviceThatCouldLoseSomething:
    """Each was followed by somebody whose look was stale, early, or of a layout not known here."""

    def lost_newest(self, made):
        made.tensorflow("ckpt-1")
        made.tensorflow("ckpt-2")
        for path in made.root.glob("ckpt-2.*"):
            path.unlink()

    def test_the_command_names_the_older_one_and_keeps_the_list(self, made):
        self.lost_newest(made)
        before = made.run.state_file.read_text()
        message = diagnostics(made)["latest-missing"].message
        command = message[message.index("`") + 1 : message.rindex("`")]
        subprocess.run(command, shell=True, check=True)
        assert made.run.state_file.read_text() == 'model_checkpoint_path: "ckpt-1"\n'
        assert (made.root / "checkpoint.before").read_text() == before

    @pytest.mark.parametrize("name", ["it's-1", 'say "x"-1', "-rf-1", "a\\b-1", "ü-1"])
    def test_any_name_makes_a_command_that_works(self, made, name):
        made.tensorflow(name)
        made.run.state_file.unlink()
        message = diagnostics(made)["state-file-missing"].message
        subprocess.run(message[message.index(": `") + 3 : -2], shell=True, check=True)
        assert diagnostics(made) == {}
        assert Catalog(made.run).scan(NOW)[0].listed is False
        assert read_state_list(made.run).latest == name

    def test_a_checkpoint_that_the_listing_does_not_show_yet(self, made):
        """The listing of a network disk lags; asked for by its name, the file is there."""
        self.lost_newest(made)
        catalog = Catalog(made.run)
        catalog.scan(NOW)
        made.tensorflow("ckpt-2", listed=False)
        for later in (0, 3600):
            (found,) = catalog.diagnostics(NOW + later)
            assert (found.kind, found.severity) == ("listing-stale", "note")
            assert advises_no_loss(found)

    def test_a_state_file_that_the_listing_does_not_show_yet(self, made):
        made.tensorflow("ckpt-1")
        made.run.state_file.rename(made.root / "aside")
        catalog = Catalog(made.run)
        catalog.scan(NOW)
        assert [one.kind for one in catalog.diagnostics(NOW)] == ["state-file-missing"]
        (made.root / "aside").rename(made.run.state_file)
        assert catalog.diagnostics(NOW) == ()

    @pytest.mark.parametrize("kind", ["latest-missing", "state-file-missing", "state-file-empty"])
    def test_while_a_save_or_a_copy_may_be_under_way(self, made, kind):
        self.lost_newest(made)
        if kind != "latest-missing":
            made.run.state_file.unlink()
        if kind == "state-file-empty":
            made.run.state_file.touch()
        found = diagnostics(made, changed=5.0)
        assert list(found) == [kind]
        assert found[kind].severity == "warning"
        assert "look again" in found[kind].message
        assert advises_no_loss(found[kind])

    def test_two_looks_some_seconds_apart_are_enough(self, made):
        self.lost_newest(made)
        made.touch(made.run.state_file, 1)
        made.touch(made.root, 1)
        catalog = Catalog(made.run)
        catalog.scan(NOW)
        messages = [catalog.diagnostics(NOW + later)[0].message for later in (0, 4, 6)]
        assert ["printf" in message for message in messages] == [False, False, True]

    def test_what_changes_between_two_looks_counts_anew(self, made):
        self.lost_newest(made)
        made.touch(made.root, -10)
        catalog = Catalog(made.run)
        catalog.scan(NOW)
        catalog.diagnostics(NOW)
        made.tensorflow("ckpt-3", age=0)
        for path in made.root.glob("ckpt-3.*"):
            path.unlink()
        catalog.scan(NOW + 6)
        made.touch(made.root, -10)
        assert "printf" not in catalog.diagnostics(NOW + 6)[0].message
        assert "printf" in catalog.diagnostics(NOW + 12)[0].message

    def test_on_a_network_disk_the_machine_that_trains_is_asked(self, made, monkeypatch):
        monkeypatch.setattr(
            "tfckpt_trainer.catalog.scan.observation.is_network_file_system", lambda _: True
        )
        self.lost_newest(made)
        message = diagnostics(made)["latest-missing"].message
        assert "on the machine that trains" in message
        assert message.index(f"`ls -l {made.root}`") < message.index("printf")

    @pytest.mark.parametrize("what", ["incomplete", "unreadable"])
    def test_what_is_newer_and_may_yet_be_had(self, made, what):
        made.tensorflow("ckpt-1")
        made.tensorflow("ckpt-2", shards=2, age=LONG_AGO - 10)
        made.run.state_file.unlink()
        shard = made.root / "ckpt-2.data-00001-of-00002"
        shard.unlink()
        if what == "unreadable":
            shard.symlink_to("/elsewhere/data")
        found = diagnostics(made)["state-file-missing"]
        assert f"ckpt-2 is newer than ckpt-1, and {what}" in found.message
        assert advises_no_loss(found)

    def test_a_newest_one_that_is_unreadable_here(self, made):
        made.tensorflow("ckpt-1")
        made.tensorflow("ckpt-2", age=LONG_AGO - 10)
        data = made.root / "ckpt-2.data-00000-of-00001"
        data.unlink()
        data.symlink_to("/elsewhere/data")
        found = diagnostics(made)["latest-unusable"]
        assert "which is unreadable here" in found.message
        assert advises_no_loss(found)

    def test_not_while_the_newest_is_written_again(self, made):
        made.tensorflow("ckpt-1")
        made.tensorflow("ckpt-2", age=30)
        made.temporary("ckpt-2", age=1)
        assert diagnostics(made) == {}

    @pytest.mark.parametrize("other", ["ckpt-2.keras", "ckpt-2.weights.h5", "ckpt-2"])
    def test_a_newest_one_of_a_format_that_is_not_known(self, made, other):
        self.lost_newest(made)
        (made.root / other).write_bytes(b"?")
        found = diagnostics(made)["latest-missing"]
        assert other in found.message
        assert advises_no_loss(found)

    def test_another_checkpoint_with_a_longer_name_is_none(self, made):
        self.lost_newest(made)
        made.tensorflow("ckpt-20", listed=False, age=LONG_AGO + 10)
        assert "printf" in diagnostics(made)["latest-missing"].message

    def test_a_place_that_may_not_be_looked_into(self, made, tmp_path):
        made.tensorflow("model-7")
        place = tmp_path / ("n" * 300)
        made.run.state_file.write_text(f'model_checkpoint_path: "{place}/model-7"\n')
        found = diagnostics(made)["other-place"]
        assert "it may be there" in found.message
        assert advises_no_loss(found)

    def test_a_place_on_a_disk_that_may_not_be_mounted(self, made):
        made.tensorflow("model-7")
        made.run.state_file.write_text('model_checkpoint_path: "/not/mounted/model-7"\n')
        message = diagnostics(made)["other-place"].message
        assert message.index("mount it first") < message.index("printf")

    def test_the_newest_is_never_called_unlisted(self, made):
        """A save writes the index first, and the state file after it."""
        made.tensorflow("ckpt-1")
        made.tensorflow("ckpt-2", listed=False, age=LONG_AGO - 10)
        assert diagnostics(made) == {}

    def test_what_was_saved_just_now_is_not_called_unlisted(self, made):
        for step in (1, 2, 3):
            made.tensorflow(f"ckpt-{step}", listed=step == 1, age=30 - step)
        assert diagnostics(made) == {}

    def test_the_unlisted_go_to_the_trash(self, made):
        made.tensorflow("ckpt-1", listed=False)
        made.tensorflow("ckpt-2", age=LONG_AGO - 10)
        message = diagnostics(made)["unlisted"].message
        assert f"`tfckpt-tui prune {made.root} NAME`" in message
        assert "trash" in message

    def test_data_of_another_count_that_is_older_is_moved_away(self, made):
        made.tensorflow("ckpt-1")
        extra = made.root / "ckpt-1.data-00001-of-00002"
        extra.write_bytes(b"12345")
        made.touch(extra, LONG_AGO + 60)
        message = diagnostics(made)["extra-data"].message
        assert "elete" not in message
        command = message[message.index("`") + 1 : message.rindex("`")]
        subprocess.run(command, shell=True, check=True)
        assert (made.root / "moved-away" / extra.name).read_bytes() == b"12345"
        assert diagnostics(made) == {}

    @pytest.mark.parametrize("older_than_index", [0, -60])
    def test_data_of_another_count_that_is_as_new_is_kept(self, made, older_than_index):
        """A save of the same name in more parts writes its data before its index."""
        made.tensorflow("ckpt-1")
        extra = made.root / "ckpt-1.data-00001-of-00002"
        extra.write_bytes(b"12345")
        made.touch(extra, LONG_AGO + older_than_index)
        found = diagnostics(made)["extra-data"]
        assert "Keep them" in found.message
        assert advises_no_loss(found)

    def test_data_of_another_count_of_a_save_that_goes_on(self, made):
        made.tensorflow("ckpt-1")
        extra = made.root / "ckpt-1.data-00001-of-00002"
        extra.write_bytes(b"12345")
        made.touch(extra, 5)
        assert list(diagnostics(made)) == ["data-newer"]

    def test_a_temporary_directory_is_moved_away(self, made):
        made.tensorflow("ckpt-1")
        made.index_of_part(made.temporary("ckpt-1", age=LONG_AGO), "ckpt-1", LONG_AGO)
        message = diagnostics(made)["leftover-temp"].message
        command = message[message.index("`") + 1 : message.rindex("`")]
        subprocess.run(command, shell=True, check=True)
        assert len(list((made.root / "moved-away" / "ckpt-1_temp").iterdir())) == 2
        assert diagnostics(made) == {}

    def test_a_temporary_directory_with_parts_of_a_later_save_is_kept(self, made):
        made.tensorflow("ckpt-1", age=LONG_AGO)
        parts = made.temporary("ckpt-1", age=LONG_AGO - 60)
        made.index_of_part(parts, "ckpt-1", LONG_AGO - 60)
        found = diagnostics(made)["leftover-temp"]
        assert "Keep it" in found.message
        assert advises_no_loss(found)

    def test_parts_of_a_killed_save_are_moved_away(self, made):
        made.tensorflow("ckpt-1")
        part = made.root / "ckpt-2.index.tempstate123"
        part.write_bytes(b"x")
        made.touch(part, LONG_AGO)
        found = diagnostics(made)
        assert list(found) == ["part-temp"]
        assert "mv -n ckpt-2.index.tempstate123 moved-away/" in found["part-temp"].message

    def test_a_list_that_was_not_finished_is_kept_while_there_is_no_other(self, made):
        made.tensorflow("ckpt-1")
        made.run.state_file.rename(made.root / "checkpoint.tmp0123abcd")
        made.touch(made.root / "checkpoint.tmp0123abcd", LONG_AGO)
        found = diagnostics(made)
        assert set(found) == {"state-file-missing", "state-file-temp"}
        assert "may have its old content" in found["state-file-temp"].message
        assert advises_no_loss(found["state-file-temp"])

    def test_a_file_that_a_link_leads_to_is_no_stray(self, made):
        made.tensorflow("ckpt-1")
        kept = made.root / "kept.data-1-of-1"
        kept.write_bytes((made.root / "ckpt-1.data-00000-of-00001").read_bytes())
        made.touch(kept, LONG_AGO)
        (made.root / "best.data-00000-of-00001").symlink_to(kept.name)
        (made.root / "best.index").symlink_to("ckpt-1.index")
        assert diagnostics(made) == {}

    def test_two_prefixes_leave_what_is_there(self, made):
        made.tensorflow("ckpt-1")
        made.tensorflow("best-2")
        assert "Leave the files that are here" in diagnostics(made)["two-prefixes"].message


class TestLinks:
    def alias(self, made, name, target):
        for suffix in (".index", ".data-00000-of-00001"):
            (made.root / f"{name}{suffix}").symlink_to(f"{target}{suffix}")

    def test_nothing_is_odd_in_a_link_to_another_checkpoint(self, made):
        """It is neither a second prefix, nor of the same step, nor unlisted, nor mixed."""
        made.tensorflow("ckpt-300")
        made.tensorflow("ckpt-301", age=LONG_AGO - 1)
        self.alias(made, "best-300", "ckpt-300")
        self.alias(made, "zbest", "ckpt-301")
        assert diagnostics(made) == {}

    def test_a_state_file_may_name_one(self, made):
        made.tensorflow("ckpt-300")
        self.alias(made, "best", "ckpt-300")
        made.run.state_file.write_text('model_checkpoint_path: "best"\n')
        assert diagnostics(made) == {}

    @pytest.mark.parametrize(
        ("target", "kind"),
        [
            ("/elsewhere/file", "link-outside"),
            ("gone", "link-dead"),
            ("best.index", "link-dead"),
            ("sub", "link-dead"),
        ],
    )
    def test_one_that_leads_to_no_file_here(self, made, target, kind):
        made.tensorflow("ckpt-1")
        (made.root / "sub").mkdir()
        (made.root / "best.index").symlink_to(target)
        found = diagnostics(made)
        assert list(found) == [kind]
        assert f"best.index -> {target}" in found[kind].message
        assert found[kind].severity == ("note" if kind == "link-outside" else "warning")
        assert advises_no_loss(found[kind]) is (kind == "link-outside")

    def test_the_command_removes_the_link_alone(self, made):
        made.tensorflow("ckpt-1")
        dead = made.root / "-x.index"
        dead.symlink_to("gone")
        before = contents(made.root)
        message = diagnostics(made)["link-dead"].message
        command = message[message.index("`") + 1 : message.rindex("`")]
        subprocess.run(command, shell=True, check=True)
        assert not dead.is_symlink()
        assert contents(made.root) == before

    def test_a_target_of_thousands_of_characters_is_shortened(self, made):
        made.tensorflow("ckpt-1")
        (made.root / "best.index").symlink_to("x/" * 2000 + "y")
        assert len(diagnostics(made)["link-outside"].message) < 600


@pytest.mark.parametrize("latest", ["\\000", "x" * 5000, "../" * 300 + "y", "a/\\000/b", "/", "."])
def test_a_state_file_that_names_what_no_file_can_be_called(made, latest):
    made.tensorflow("ckpt-1")
    made.run.state_file.write_text(f'model_checkpoint_path: "{latest}"\n')
    assert set(diagnostics(made)) <= {"latest-missing", "other-place"}
