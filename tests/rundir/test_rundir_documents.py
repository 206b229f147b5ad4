from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfckpt_trainer.errors import DamagedFileError, UsageError
from tfckpt_trainer.rundir.documents import append, decode, encode, load, parse_lines, store
from tfckpt_trainer.rundir.journal import Tail
from tfckpt_trainer.rundir.records import CheckpointRecord, Head, JournalEntry, JournalKind


def a_head(**changes):
    return Head(**{"checkpoint": "ckpt-5", "step": 5, "branch": 0, "sequence": 1, **changes})


def an_entry(message):
    return JournalEntry(at=1.0, kind=JournalKind.SAVE, message=message)


def test_a_document_comes_back_as_it_was_stored(tmp_path):
    store(tmp_path / "head.json", a_head())
    assert load(tmp_path / "head.json", Head) == a_head()


def test_bytes_that_are_no_utf_8_are_refused_by_name(tmp_path):
    with pytest.raises(UsageError, match=r"'bad-\\udcff' is not valid UTF-8"):
        store(tmp_path / "head.json", a_head(checkpoint="bad-\udcff"))
    assert list(tmp_path.iterdir()) == []


def test_unknown_fields_are_kept(tmp_path):
    data = json.dumps({**json.loads(encode(a_head())), "colour": {"of": "tomorrow"}}).encode()
    document = decode(data, Head, "head.json")
    assert json.loads(encode(document))["colour"] == {"of": "tomorrow"}


def test_a_newer_schema_is_refused_with_the_way_out():
    with pytest.raises(DamagedFileError, match=r"head\.json was written by a newer .*upgrade"):
        decode(encode(a_head(schema=2)), Head, "head.json")


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
    entries, used = parse_lines(torn, JournalEntry, "journal")
    assert [entry.message for entry in entries] == [message]
    assert used == len(whole)


def test_a_damaged_line_in_the_middle_is_passed_over():
    good = encode(an_entry("good")) + b"\n"
    entries, _ = parse_lines(good + b'{"torn\n' + good, JournalEntry, "journal")
    assert len(entries) == 2


def test_a_tail_returns_each_entry_once(tmp_path):
    path = tmp_path / "journal.jsonl"
    tail = Tail(path, JournalEntry)
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
    tail = Tail(path, JournalEntry)
    tail.read_new()
    path.unlink()
    append(path, an_entry("new"))
    assert [entry.message for entry in tail.read_new()] == ["new"]
