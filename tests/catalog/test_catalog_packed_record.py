"""Records as they are kept in memory, and what a scan knows of files with several hard links."""

from __future__ import annotations

import os
import time

from bundle_writing import write_floats
from tfckpt_trainer.catalog.directory.packed_record import RecordPacker
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, FileFacts
from tfckpt_trainer.rundir.storage.documents import encode


def record(step: int, **more) -> CheckpointRecord:
    files = [FileFacts(name=f"ckpt-{step}.index", size=step, crc32c=1)]
    return CheckpointRecord(
        name=f"ckpt-{step}",
        step=step,
        branch=0,
        sequence=step,
        saved_at=1.0,
        trigger="command",
        files=files,
        **more,
    )


def test_a_packed_record_is_the_same_after_it_is_unpacked():
    pack = RecordPacker().pack
    whole = [
        record(1),
        record(2, unknown={"later": [1, "ü"]}, state={"large": 1 << 80, "text": "x" * 100_000}),
        record(3, metrics={"loss": None}, not_finite={"loss": "inf"}),
    ]
    for one in whole:
        packed = pack(one, encode(one))
        assert packed.unpack() == one
        assert packed.files == one.files


def test_packed_records_are_equal_if_the_records_are():
    first, second = RecordPacker().pack, RecordPacker().pack
    one, other = record(1), record(2)
    assert first(one, encode(one)) == first(one, encode(one)) != first(other, encode(other))
    second(other, encode(other))
    assert second(one, encode(one)) == first(one, encode(one))
    assert hash(second(one, encode(one))) == hash(first(one, encode(one)))


def test_bytes_of_hard_links_are_shared_from_when_the_second_name_appears(tmp_path):
    files = write_floats(tmp_path / "ckpt-1", (0.0, 0.5))
    catalog = Catalog(RunDirectory(tmp_path))
    catalog.scan(time.time())
    assert catalog.shared_bytes == 0
    for file in files:
        os.link(file, tmp_path / file.name.replace("ckpt-1", "ckpt-2"))
    catalog.scan(time.time())
    assert catalog.shared_bytes == sum(file.stat().st_size for file in files)
