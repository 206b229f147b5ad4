from __future__ import annotations

import importlib
import json
from importlib import metadata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfckpt_trainer
import tfckpt_tui
from refusing_disk import RefusingDisk
from tfckpt_trainer.errors import DamagedFileError, NewerFileError, RefusedError, UsageError
from tfckpt_trainer.rundir.event_log import note_event
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, SaveManifest, SavePhase
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind
from tfckpt_trainer.rundir.records.run import Head
from tfckpt_trainer.rundir.storage import documents
from tfckpt_trainer.rundir.storage.disk import using
from tfckpt_trainer.rundir.storage.documents import (
    Document,
    SealedDocument,
    append,
    copy_of,
    decode,
    describe_damage,
    encode,
    find_newer,
    load,
    parse_lines,
    remove,
    store,
)
from tfckpt_trainer.rundir.storage.tail import Tail


def a_head(**changes):
    return Head(**{"checkpoint": "ckpt-5", "step": 5, "branch": 0, "sequence": 1, **changes})


def an_entry(message):
    return EventEntry(at=1.0, kind=EventKind.SAVE, message=message)


def test_a_document_comes_back_as_it_was_stored(tmp_path):
    store(tmp_path / "head.json", a_head())
    assert load(tmp_path / "head.json", Head) == a_head()


def test_bytes_that_are_no_utf_8_are_refused_by_name(tmp_path):
    with pytest.raises(UsageError, match=r"'bad-\\udcff' is not valid UTF-8"):
        store(tmp_path / "head.json", a_head(checkpoint="bad-\udcff"))
    assert list(tmp_path.iterdir()) == []


def test_a_document_that_ends_with_another_one_comes_back():
    record = CheckpointRecord(
        name="a", step=1, branch=0, sequence=1, saved_at=0.0, trigger="", state={"x": {"y": {}}}
    )
    manifest = SaveManifest(name="a", phase=SavePhase.COMMITTING, record=record)
    assert decode(encode(manifest), SaveManifest, "a.json") == manifest


@pytest.mark.parametrize("field", ["unknown", "colour", "crc32"])
def test_fields_that_are_no_fields_of_this_release(field):
    data = json.dumps({**json.loads(encode(an_entry("saved"))), field: {"checkpoint": 5}}).encode()
    assert decode(data, EventEntry, "a line").unknown == {field: {"checkpoint": 5}}


def test_a_document_names_its_release_once(tmp_path):
    release = encode(a_head(), release="9.9")
    assert decode(release, Head, "head.json") == a_head()


def test_unknown_fields_are_kept(tmp_path):
    document = decode(encode(a_head(unknown={"colour": {"of": "tomorrow"}})), Head, "head.json")
    assert json.loads(encode(document))["colour"] == {"of": "tomorrow"}
    assert decode(encode(document), Head, "head.json").unknown == {"colour": {"of": "tomorrow"}}


def test_a_newer_schema_is_refused_with_the_way_out():
    data = json.dumps({**json.loads(encode(a_head())), "schema": 3}).encode()
    with pytest.raises(NewerFileError, match=r"head\.json was written by a newer .*Upgrade"):
        decode(data, Head, "head.json")


def kinds(*, with_tensorflow):
    """All kinds of documents that the packages have; those of training need TensorFlow."""
    left_out = {"examples"} if with_tensorflow else {"examples", "selftest", "training"}
    for package in (tfckpt_trainer, tfckpt_tui):
        (place,) = map(Path, package.__path__)
        for path in place.rglob("*.py"):
            parts = path.relative_to(place).with_suffix("").parts
            if left_out.isdisjoint(parts):
                importlib.import_module(".".join((package.__name__, *parts)))
    found = set(Document.__subclasses__())
    while more := {sub for kind in found for sub in kind.__subclasses__()} - found:
        found |= more
    return sorted(found - {SealedDocument}, key=lambda kind: kind.__name__)


@pytest.mark.parametrize(
    "with_tensorflow", [False, pytest.param(True, marks=pytest.mark.tensorflow)]
)
def test_each_kind_of_document_of_a_newer_release_names_that_release(tmp_path, with_tensorflow):
    found = kinds(with_tensorflow=with_tensorflow)
    assert {CheckpointRecord, Head, EventEntry} < set(found)
    for kind in found:
        sealed = {"crc32": "00000000"} if issubclass(kind, SealedDocument) else {}
        newer = {"schema": kind.version + 1, "written_by": "9.8.7", **sealed}
        path = tmp_path / f"{kind.__name__}.json"
        path.write_bytes(json.dumps(newer).encode())
        for copy in (copy_of(path), tmp_path / "other.json"):
            copy.write_bytes(encode(a_head()))
        with pytest.raises(NewerFileError, match=r"written by tfckpt-tui 9\.8\.7: it has schema"):
            load(path, kind)
        assert "Upgrade with `pip install --upgrade 'tfckpt-tui>=9.8.7'`." in find_newer(path)
        with pytest.raises(RefusedError, match=r"tfckpt-tui>=9\.8\.7.* Nothing was changed"):
            store(path, a_head())
        assert json.loads(path.read_bytes()) == newer
        assert find_newer(tmp_path / "other.json") == ""


@pytest.mark.parametrize(
    "release", ["1'; touch owned; '", "$(touch owned)", "1 --index-url=x", "1.0\n", "٣.1", "1" * 60]
)
def test_what_is_no_release_is_in_no_command(tmp_path, release):
    """Another user may have written it, and a message is pasted."""
    path = tmp_path / "head.json"
    path.write_text(json.dumps({"schema": 99, "written_by": release}))
    with pytest.raises(NewerFileError) as refused:
        load(path, Head)
    for said in (find_newer(path), str(refused.value)):
        assert "`pip install --upgrade tfckpt-tui`" in said
        assert release not in said


def test_what_appears_in_a_run_in_training_does_not_end_it(tmp_path):
    path = tmp_path / "head.json"
    path.write_bytes(b'{"schema": 99}')
    with pytest.raises(RefusedError, match="a newer tfckpt-tui"):
        store(path, a_head())
    documents.replace_newer_documents()
    store(path, a_head())
    assert load(path, Head) == a_head()


def test_what_another_user_may_not_read_refuses_nothing(open_place, become_nobody):
    path = open_place / "launch.json"
    path.write_bytes(b'{"schema": 99}')
    path.chmod(0o600)
    assert find_newer(path)
    become_nobody()
    assert find_newer(path) == ""


def test_a_stored_document_names_the_release_that_wrote_it(tmp_path):
    path = tmp_path / "head.json"
    store(path, a_head())
    assert json.loads(path.read_bytes())["written_by"] == metadata.version("tfckpt-tui")
    assert load(path, Head) == a_head()
    store(path, load(path, Head))
    assert path.read_bytes().count(b"written_by") == 1


@pytest.mark.parametrize("schema", [1, 2])
def test_a_document_without_its_checksum_is_damaged(schema):
    fields = {**json.loads(encode(a_head())), "schema": schema}
    del fields["crc32"]
    with pytest.raises(DamagedFileError, match="does not match its checksum"):
        decode(json.dumps(fields).encode(), Head, "head.json")


@given(step=st.integers(0, 10**9), name=st.text(max_size=20), bit=st.integers(min_value=0))
def test_no_flipped_bit_passes_for_another_document(step, name, bit):
    data = bytearray(encode(a_head(step=step, checkpoint=name)))
    bit %= 8 * len(data)
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DamagedFileError, match="head"):
        decode(bytes(data), Head, "head.json")


@pytest.mark.parametrize("damage", [b"", b"{", b'{"schema":2}'])
def test_a_damaged_document_is_read_from_its_copy(tmp_path, damage):
    store(tmp_path / "head.json", a_head())
    (tmp_path / "head.json").write_bytes(damage)
    assert load(tmp_path / "head.json", Head) == a_head()
    assert "not a valid Head" in describe_damage(tmp_path / "head.json", Head)
    copy_of(tmp_path / "head.json").write_bytes(damage)
    with pytest.raises(DamagedFileError, match="head"):
        load(tmp_path / "head.json", Head)


def test_a_copy_alone_is_no_document(tmp_path):
    store(tmp_path / "head.json", a_head())
    (tmp_path / "head.json").unlink()
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "head.json", Head)
    remove(tmp_path / "head.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b'{"step": "five"}', b"\xff\xfe", b"[" * 100_000]
)
def test_garbage_is_one_clear_error(data):
    with pytest.raises(DamagedFileError, match=r"head\.json is not a valid Head"):
        decode(data, Head, "head.json")


@given(st.binary(max_size=300))
def test_no_bytes_crash_a_reader(data):
    try:
        decode(data, CheckpointRecord, "record")
    except DamagedFileError:
        return
    raise AssertionError("random bytes were taken for a record")


@given(st.text(max_size=50), st.integers(1, 40))
def test_a_torn_last_line_hides_only_itself(message, cut):
    whole = encode(an_entry(message)) + b"\n"
    torn = whole + whole[:-cut]
    entries, used = parse_lines(torn, EventEntry, "journal")
    assert [entry.message for entry in entries] == [message]
    assert used == len(whole)


def test_a_damaged_line_in_the_middle_is_passed_over():
    good = encode(an_entry("good")) + b"\n"
    entries, _ = parse_lines(good + b'{"torn\n' + good, EventEntry, "journal")
    assert len(entries) == 2


def test_a_tail_returns_each_entry_once(tmp_path):
    path = tmp_path / "journal.jsonl"
    tail = Tail(path, EventEntry)
    assert tail.read_new() == []
    append(path, an_entry("one"))
    assert [entry.message for entry in tail.read_new()] == ["one"]
    append(path, an_entry("two"))
    append(path, an_entry("three"))
    assert [entry.message for entry in tail.read_new()] == ["two", "three"]
    assert tail.read_new() == []


def test_a_tail_reads_a_replaced_file_anew(tmp_path):
    path = tmp_path / "journal.jsonl"
    append(path, an_entry("a long message of the old file"))
    tail = Tail(path, EventEntry)
    tail.read_new()
    path.unlink()
    append(path, an_entry("new"))
    assert [entry.message for entry in tail.read_new()] == ["new"]


def test_a_line_cut_off_by_a_full_disk_does_not_swallow_the_next(tmp_path):
    path = tmp_path / "journal.jsonl"
    append(path, an_entry("one"))
    path.write_bytes(path.read_bytes() + b'{"schema":1,"at":2.0,"ki')
    append(path, an_entry("three"))
    entries, _ = parse_lines(path.read_bytes(), EventEntry, "journal")
    assert [entry.message for entry in entries] == ["one", "three"]


def test_a_line_that_cannot_be_flushed_is_there_once(tmp_path):
    run = RunDirectory(tmp_path)
    run.create()
    with using(RefusingDisk(bool, ["flush"])):
        told = note_event(run, EventKind.NOTE, "one")
    assert "may not survive a power loss" in told
    assert [entry.message for entry in Tail(run.event_log, EventEntry).read_new()] == ["one"]
