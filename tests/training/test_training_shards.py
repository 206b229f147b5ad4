"""How a checkpoint is divided into files: every row once, none too large, all workers agree."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.tensorflow

shapes = st.lists(st.integers(0, 9), max_size=3).map(tuple)


@st.composite
def states(draw):
    from tfckpt_trainer.training.checkpoint.saves.sharded_writer import TensorSize

    extents = draw(
        st.lists(st.builds(TensorSize, shapes, st.sampled_from([0, 1, 4, 8])), max_size=12)
    )
    return {f"tensor-{number}": extent for number, extent in enumerate(extents)}


@given(states(), st.integers(1, 5), st.none() | st.integers(1, 200))
def test_every_row_of_every_tensor_is_written_exactly_once(extents, writers, largest):
    from tfckpt_trainer.training.checkpoint.saves.sharded_writer import assign_shards

    divided = assign_shards(extents, writers, largest)
    assert len(divided) == writers
    pieces = [piece for shards in divided for shard in shards for piece in shard]
    for key, extent in extents.items():
        mine = [piece for piece in pieces if piece.key == key]
        if [piece.rows for piece in mine] == [None]:
            continue
        rows = [row for piece in mine for row in range(piece.begin, piece.begin + piece.rows)]
        assert rows == list(range(extent.shape[0])), key
    assert {piece.key for piece in pieces} == set(extents)
    assert all(shard for shards in divided for shard in shards)


@given(states(), st.integers(1, 5), st.integers(1, 200))
def test_no_shard_is_larger_than_allowed_unless_one_row_is(extents, writers, largest):
    from tfckpt_trainer.training.checkpoint.saves.sharded_writer import assign_shards

    def size(piece):
        extent = extents[piece.key]
        if piece.rows is None:
            return extent.size
        return piece.rows * extent.size // extent.shape[0]

    for shards in assign_shards(extents, writers, largest):
        for shard in shards:
            total = sum(map(size, shard))
            if total > largest:
                (piece,) = shard
                assert piece.rows == 1 or extents[piece.key].shape[:1] in {(), (1,)}


@given(st.integers(1, 6), st.integers(1, 40))
def test_workers_write_about_the_same_number_of_bytes(writers, tensors):
    from tfckpt_trainer.training.checkpoint.saves.sharded_writer import TensorSize, assign_shards

    extents = {str(number): TensorSize((25,), 4) for number in range(tensors)}
    divided = assign_shards(extents, writers, None)
    counts = [sum(len(shard) for shard in shards) for shards in divided]
    assert max(counts) <= math.ceil(tensors / writers) + 1
    assert sum(counts) == tensors
