"""What verifying finds in checkpoints that are damaged on purpose, and what it says on its way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bundle_writing import (
    GRAPH_KEY,
    Object,
    Parts,
    Stored,
    array,
    graph,
    in_parts,
    key_of,
    rows,
    strings,
    variable,
    variants,
    write,
)
from tfckpt_trainer.bundle import verify as verifying
from tfckpt_trainer.bundle.analysis.finite import NonFiniteValues
from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.bundle.verify import Verification
from weekly import tries, weekly

MATRIX = np.arange(24, dtype=np.float32).reshape(6, 4)
LARGE = 3 << 20
"""Bytes of a tensor that is read in several pieces."""


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Iterator[None]:
    """Has threads check small files too, in blocks of some of these tensors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verifying, "_WORTH_THREADS", 0)
        patch.setattr(verifying, "_BLOCK", 200)
        yield


def verify(prefix: Path, **options: Any) -> Verification:
    """Verifies in one thread, and then in several, which must find the same."""
    found = verifying.verify(prefix, **options)
    if not options.keys() & {"on_progress", "cancelled"}:
        by_threads = verifying.verify(prefix, **options, threads=3)
        assert set(by_threads.findings) == set(found.findings)
        assert replace(by_threads, findings=found.findings) == found
    return found


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    return tmp_path / "ckpt-1"


def data_of(prefix: Path, shard: int = 0, count: int = 1) -> Path:
    return prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{count:05d}")


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def kinds(found: Verification, severity: str = "error") -> list[tuple[str, str | None]]:
    return [(one.kind, one.tensor) for one in found.findings if one.severity == severity]


def everything() -> dict[str, Stored | Parts]:
    return {
        "matrix": array(MATRIX),
        "empty": array(np.zeros((0, 3), np.float32)),
        "scalar": array(np.float64(1.5)),
        "text": strings([b"", b"a", "ü".encode() * 300]),
        "no text": strings([]),
        "state": variants([b"", b"one", b"x" * 100_000]),
        "parts": in_parts(MATRIX, rows(6, 4, 1, 3, 2)),
    }


# what is whole


@pytest.mark.parametrize("shards", [1, 3])
def test_a_whole_checkpoint_has_no_findings(prefix: Path, shards: int) -> None:
    tensors = everything()
    for number, tensor in enumerate(tensors.values()):
        if isinstance(tensor, Stored):
            tensor.shard = number % shards
    paths = write(prefix, tensors, shards)
    found = verify(prefix)
    assert found.ok
    assert found.findings == ()
    assert found.tensors == len(tensors)
    assert found.bytes == sum(path.stat().st_size for path in paths)


def test_the_checksums_of_whole_files_are_those_of_their_bytes(prefix: Path) -> None:
    tensors = everything() | {"large": array(np.arange(LARGE, dtype=np.uint8))}
    # Bytes between tensors, and behind them, are of the file too.
    tensors["gap"] = Stored(4, (2,), [b"\1" * 10], size=2, crc=crc32c(b"\1\1"))
    paths = write(prefix, tensors)
    with open(paths[0], "ab") as file:
        file.write(b"more")
    found = verify(prefix, digests=True)
    assert found.file_checksums == {path.name: crc32c(path.read_bytes()) for path in paths}
    index = prefix.with_name(f"{prefix.name}.index")
    assert verify(prefix).file_checksums == {index.name: crc32c(index.read_bytes())}


@pytest.mark.parametrize("at", [0, 400, LARGE // 2, -1])
def test_the_checksums_of_whole_files_are_right_where_tensors_are_damaged(
    prefix: Path, at: int
) -> None:
    paths = write(prefix, everything() | {"large": array(np.arange(LARGE, dtype=np.uint8))})
    flip(paths[0], at)
    found = verify(prefix, digests=True)
    assert not found.ok
    assert found.file_checksums[paths[0].name] == crc32c(paths[0].read_bytes())


# one damage after the other


@pytest.mark.parametrize("name", ["matrix", "scalar", "text", "state", "parts"])
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_a_flipped_bit_is_found_in_the_tensor_that_has_it(
    prefix: Path, name: str, place: str
) -> None:
    before = {"before": array(MATRIX)}
    write(prefix, before)
    start = data_of(prefix).stat().st_size
    write(prefix, before | {name: everything()[name]})
    end = data_of(prefix).stat().st_size
    write(prefix, before | {name: everything()[name], "after": array(MATRIX)})
    flip(data_of(prefix), {"first": start, "middle": (start + end) // 2, "last": end - 1}[place])
    assert kinds(verify(prefix)) == [("checksum", name)]


@tries(60)
@given(data=st.data())
def test_whichever_byte_is_changed_it_is_found(tmp_path_factory, data: st.DataObject) -> None:
    prefix = tmp_path_factory.mktemp("any") / "ckpt-1"
    paths = write(prefix, everything())
    path = data.draw(st.sampled_from(paths))
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    # The highest bit alone makes a zero in the footer a longer zero, which harms nobody.
    content[place] ^= data.draw(st.integers(1, 255).filter(lambda bits: bits != 128))
    path.write_bytes(content)
    assert verify(prefix).findings


@tries(40)
@given(data=st.data())
def test_wherever_a_file_is_cut_it_is_an_error(tmp_path_factory, data: st.DataObject) -> None:
    prefix = tmp_path_factory.mktemp("any") / "ckpt-1"
    path = data.draw(st.sampled_from(write(prefix, everything())))
    os.truncate(path, data.draw(st.integers(0, path.stat().st_size - 1)))
    assert not verify(prefix).ok


def test_a_cut_file_tells_which_tensors_are_gone(prefix: Path) -> None:
    write(prefix, {"a": array(MATRIX), "b": array(MATRIX), "c": array(MATRIX)})
    os.truncate(data_of(prefix), 100)
    assert kinds(verify(prefix)) == [
        ("shard-short", None),
        ("tensor-cut", "b"),
        ("tensor-cut", "c"),
    ]


def test_bytes_that_nobody_reads_are_a_warning(prefix: Path) -> None:
    write(prefix, everything())
    with open(data_of(prefix), "ab") as file:
        file.write(b"x" * 100)
    found = verify(prefix)
    assert found.ok
    assert kinds(found, "warning") == [("shard-long", None)]
    assert "has 100 bytes that no tensor uses" in found.findings[0].message


def test_bytes_that_no_tensor_uses_are_not_read(prefix: Path) -> None:
    write(prefix, everything())
    used = verify(prefix).bytes
    os.truncate(data_of(prefix), 1 << 43)
    found = verify(prefix)
    assert kinds(found, "warning") == [("shard-long", None)]
    assert found.bytes == used


def test_a_data_file_of_another_save_is_a_warning(prefix: Path) -> None:
    write(prefix, everything())
    data_of(prefix, 1, 2).write_bytes(b"stale")
    data_of(prefix.with_name("ckpt-11")).write_bytes(b"of another checkpoint")
    found = verify(prefix)
    assert found.ok
    assert [one.file for one in found.findings] == ["ckpt-1.data-00001-of-00002"]
    assert kinds(found, "warning") == [("shard-extra", None)]


def test_data_of_another_step_is_found_though_its_size_is_right(prefix: Path) -> None:
    write(prefix, {"a": array(MATRIX), "same": array(MATRIX)})
    index = prefix.with_name("ckpt-1.index").read_bytes()
    write(prefix, {"a": array(MATRIX * 2), "same": array(MATRIX)})
    prefix.with_name("ckpt-1.index").write_bytes(index)
    assert kinds(verify(prefix)) == [("checksum", "a")]


def test_two_data_files_in_each_others_place(prefix: Path) -> None:
    first, second, _ = write(prefix, {"a": array(MATRIX), "b": array(MATRIX + 1, 1)}, 2)
    aside = first.with_name("aside")
    os.rename(first, aside)
    os.rename(second, first)
    os.rename(aside, second)
    assert kinds(verify(prefix)) == [("checksum", "a"), ("checksum", "b")]


@pytest.mark.parametrize("kind", ["missing", "directory", "pipe"])
@pytest.mark.parametrize("file", ["data", "index"])
def test_something_else_in_the_place_of_a_file_is_found_and_not_waited_for(
    prefix: Path, file: str, kind: str
) -> None:
    paths = write(prefix, everything())
    path = paths[-1] if file == "index" else paths[0]
    aside = path.with_name("aside")
    os.rename(path, aside)
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    found = verify(prefix, digests=True)
    expected = "shard-not-plain" if file == "data" else "index"
    if kind == "missing":
        expected = "shard-missing" if file == "data" else "index-missing"
    assert (expected, None) in kinds(found)
    assert path.name in {one.file for one in found.findings}


def test_one_missing_data_file_keeps_no_other_from_being_checked(prefix: Path) -> None:
    tensors = {f"t{shard}": array(MATRIX, shard) for shard in range(3)}
    paths = write(prefix, tensors, 3)
    paths[0].unlink()
    flip(paths[2], 0)
    assert kinds(verify(prefix)) == [("shard-missing", None), ("checksum", "t2")]


def test_an_index_without_a_byte_is_no_index(prefix: Path) -> None:
    write(prefix, everything())
    prefix.with_name("ckpt-1.index").write_bytes(b"")
    assert kinds(verify(prefix)) == [("index-empty", None)]


# what an index can say wrong, with right checksums


def test_tensors_that_share_bytes(prefix: Path) -> None:
    write(prefix, {"a": array(MATRIX), "b": Stored(1, (6, 4), [], offset=92, size=4, crc=1)})
    assert ("overlap", "b") in kinds(verify(prefix))


def test_an_empty_tensor_shares_bytes_with_nobody(prefix: Path) -> None:
    empty = Stored(1, (0,), [], offset=0)
    write(prefix, {"a": array(MATRIX), "empty": empty, "middle": Stored(1, (0,), [], offset=50)})
    data = data_of(prefix)
    found = verify(prefix, digests=True)
    assert found.findings == ()
    assert found.file_checksums[data.name] == crc32c(data.read_bytes())


def test_a_size_that_is_not_that_of_the_shape(prefix: Path) -> None:
    write(prefix, {"a": Stored(1, (7,), [b"\0" * 24])})
    found = verify(prefix)
    assert kinds(found) == [("size", "a")]
    assert found.findings[0].message == "a has 24 bytes; expected 28 for float32 7"


@pytest.mark.parametrize(
    ("listed", "parts", "problem"),
    [
        ([((0, 3), (0, 4))], [((0, 3), (0, 4))], "its parts have 12 elements; expected 24"),
        (rows(6, 4, 3, 3), rows(6, 4, 3, 3)[:1], "part 3:6×0:4 is missing"),
        ([((0, 6), (2, 4))], [], "part 0:6×2:6 is missing"),
        ([((0, 4), (0, 4)), ((2, 2), (0, 4))], None, "its parts overlap"),
        ([((0, 6), (0, 2)), ((0, 3), (1, 2)), ((3, 3), (2, 2))], None, "its parts overlap"),
        ([((0, 6),)], [], "a part has 1 dimensions; expected 2"),
    ],
)
def test_parts_that_do_not_make_up_the_tensor(prefix: Path, listed, parts, problem: str) -> None:
    whole = in_parts(MATRIX, listed if parts is None else parts)
    write(prefix, {"a": Parts(1, (6, 4), whole.parts, listed)})
    found = verify(prefix)
    assert kinds(found) == [("slice", "a")]
    assert problem in found.findings[0].message


def test_a_part_beyond_the_tensor_and_one_of_another_shape(prefix: Path) -> None:
    beyond = in_parts(np.zeros((8, 4), np.float32), [((4, 4), (0, 4))]).parts
    write(prefix, {"a": Parts(1, (6, 4), beyond)})
    assert "reaches beyond the tensor" in verify(prefix).findings[0].message
    other = {((0, 6), (0, 4)): array(MATRIX.reshape(4, 6))}
    write(prefix, {"a": Parts(1, (6, 4), other)})
    assert "has shape 4×6; expected 6×4" in verify(prefix).findings[0].message


def test_a_grid_of_parts_is_whole(prefix: Path) -> None:
    boxes = [((row, 2), (column, 2)) for row in (0, 2, 4) for column in (0, 2)]
    write(prefix, {"a": in_parts(MATRIX, boxes)})
    assert verify(prefix).findings == ()


# the object graph


def graph_of(*keys: str) -> Stored:
    nodes = [Object({str(n): n + 1 for n in range(len(keys))})]
    nodes += [Object({}, [("VALUE", "", key)]) for key in keys]
    return graph(nodes)


def test_a_tensor_that_only_the_object_graph_has(prefix: Path) -> None:
    there, absent = key_of("w"), key_of("v")
    near = {f"{absent}2": array(MATRIX), there: array(MATRIX)}
    write(prefix, {**near, GRAPH_KEY: graph_of(there, absent)})
    found = verify(prefix)
    assert kinds(found) == [("object-graph", absent)]
    assert absent in found.findings[0].message


@pytest.mark.parametrize("names", [["-keys", "-values"], ["_STATE"]])
def test_an_object_may_have_several_tensors_under_one_key(prefix: Path, names: list[str]) -> None:
    key = "table/.ATTRIBUTES/table"
    tensors = {key + name: array(MATRIX) for name in names}
    write(prefix, {**tensors, f"{key}/x": array(MATRIX), GRAPH_KEY: graph_of(key)})
    assert verify(prefix).findings == ()


def test_an_object_graph_that_is_none(prefix: Path) -> None:
    write(prefix, {"a": array(MATRIX), GRAPH_KEY: strings([b"\xff\xff\xff"], ())})
    assert kinds(verify(prefix)) == [("object-graph", GRAPH_KEY)]
    broken = graph([Object({"a": 7}, [variable("a")])])
    write(prefix, {"a": array(MATRIX), GRAPH_KEY: broken})
    assert kinds(verify(prefix)) == [("object-graph", GRAPH_KEY)]


def test_a_damaged_object_graph_is_told_once(prefix: Path) -> None:
    write(prefix, {"a": array(MATRIX), GRAPH_KEY: graph_of("a")})
    flip(data_of(prefix), -1)
    assert kinds(verify(prefix)) == [("checksum", GRAPH_KEY)]


# strings and variants of every size


@tries(40)
@given(
    lengths=st.lists(st.sampled_from([0, 1, 127, 128, 16_383, 16_384, 70_000, 1 << 20]), max_size=6)
)
def test_texts_and_variants_of_any_lengths(tmp_path_factory, lengths: list[int]) -> None:
    prefix = tmp_path_factory.mktemp("any") / "ckpt-1"
    texts = [bytes([number]) * length for number, length in enumerate(lengths)]
    write(prefix, {"text": strings(texts), "state": variants(texts)})
    assert verify(prefix).findings == ()


@pytest.mark.parametrize(
    ("count", "length"),
    [
        *((count, 0) for count in (65_535, 65_536, 65_537, 131_073)),
        (65_537, 130),
        *weekly((65_535, 130), (65_536, 130), (131_073, 130)),
    ],
)
def test_more_texts_than_one_read_has_lengths(prefix: Path, count: int, length: int) -> None:
    write(prefix, {"before": array(MATRIX), "text": strings([b"x" * length] * count)})
    found = verify(prefix, digests=True)
    assert found.findings == ()
    data = data_of(prefix)
    assert found.file_checksums[data.name] == crc32c(data.read_bytes())
    flip(data, -1 if length else MATRIX.nbytes + count)
    assert kinds(verify(prefix)) == [("checksum", "text")]


@pytest.mark.parametrize("shape", [(1 << 40,), (4,), (0,)])
def test_a_tensor_of_texts_of_another_shape(prefix: Path, shape: tuple[int, ...]) -> None:
    write(prefix, {"text": strings([b"one", b"two"], shape)})
    assert kinds(verify(prefix)) == [("checksum", "text")]


@pytest.mark.parametrize("data", [b"", b"\xff" * 30, b"\x05abc", b"\x00" * 3])
@pytest.mark.parametrize("dtype", [7, 21])
def test_garbage_in_the_place_of_texts_and_variants(prefix: Path, dtype: int, data: bytes) -> None:
    write(prefix, {"a": Stored(dtype, (2,), [data], crc=1), "b": array(MATRIX)})
    assert kinds(verify(prefix)) == [("checksum", "a")]


# progress and giving up


def test_progress_only_grows_and_ends_at_the_whole(prefix: Path) -> None:
    tensors = everything() | {"large": array(np.zeros(LARGE, np.uint8))}
    paths = write(prefix, tensors)
    told: list[tuple[int, int]] = []
    verify(prefix, on_progress=lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    size = paths[0].stat().st_size
    assert {total for _, total in told} == {size}
    assert told[-1][0] == size
    # Often enough for a screen, not for each of the small tensors' bytes.
    assert len(told) > LARGE >> 20


def test_progress_reaches_the_whole_of_a_damaged_one_too(prefix: Path) -> None:
    write(prefix, everything())
    flip(data_of(prefix), 150)
    told: list[tuple[int, int]] = []

    def tell(done: int, total: int) -> None:
        told.append((done, total))

    for threads in (1, 3):
        assert not verify(prefix, on_progress=tell, threads=threads).ok
        assert told[-1][0] == told[-1][1]


@pytest.mark.parametrize("after", [1, 3])
def test_giving_up_stops_reading_and_is_no_verdict(prefix: Path, after: int) -> None:
    write(prefix, {f"t{number}": array(np.zeros(LARGE, np.uint8)) for number in range(4)})
    asked: list[int] = []

    def cancelled() -> bool:
        asked.append(1)
        return len(asked) >= after

    for threads in (1, 3):
        asked.clear()
        found = verify(prefix, cancelled=cancelled, threads=threads)
        assert (found.complete, found.ok) == (False, False)
        assert len(asked) == after
        assert found.findings == ()


# values that are not finite


def test_what_is_not_finite_is_counted_and_placed(prefix: Path) -> None:
    values = MATRIX.copy()
    values[2, 3], values[4, 0], values[5, 1] = np.nan, np.inf, -np.inf
    fine = array(np.arange(4, dtype=np.int64))
    write(prefix, {"a": array(values), "fine": array(MATRIX), "whole": fine})
    found = verify(prefix, finite=True)
    assert found.not_finite == (NonFiniteValues("a", 1, 2, 24, (2, 3), "a"),)
    assert found.ok
    assert verify(prefix).not_finite == ()


@pytest.mark.parametrize("order", [(1, 3, 2), (3, 3)])
def test_the_parts_of_a_tensor_are_counted_together(prefix: Path, order: tuple[int, ...]) -> None:
    values = MATRIX.copy()
    values[5, 2], values[0, 3] = np.nan, np.nan
    write(prefix, {"a": in_parts(values, reversed(rows(6, 4, *order)))})
    assert verify(prefix, finite=True).not_finite == (NonFiniteValues("a", 2, 0, 24, (0, 3), "a"),)


FLOATS = ["float16", "float32", "float64", "bfloat16", "complex64", "complex128"]
FLOATS += ["float8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2fnuz"]


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_type_that_can_be_not_finite_is_looked_at(prefix: Path, dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    values = np.zeros(5).astype(kind)
    values[3] = np.nan
    write(prefix, {"a": array(values)})
    (found,) = verify(prefix, finite=True).not_finite
    assert (found.nan, found.infinite, found.first) == (1, 0, (3,))


def test_one_beyond_the_first_piece_is_placed_too(prefix: Path) -> None:
    values = np.zeros((1000, 700), np.float64)
    values[900, 5] = np.inf
    write(prefix, {"small": array(np.zeros(3, np.uint8)), "a": array(values)})
    assert verify(prefix, finite=True).not_finite == (
        NonFiniteValues("a", 0, 1, 700_000, (900, 5), "a"),
    )


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2), (5,), ()])
def test_a_shape_that_lies_is_an_error_and_nothing_worse(
    prefix: Path, shape: tuple[int, ...]
) -> None:
    data = np.full(4, np.nan, np.float32).tobytes()
    lying = {((0, 4),): Stored(1, shape, [data])}
    write(prefix, {"a": Stored(1, shape, [data]), "b": Parts(1, (4,), lying)})
    found = verify(prefix, finite=True)
    assert ("size", "a") in kinds(found)
    assert found.not_finite == ()
