"""Checksums of data in pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tfckpt_trainer.bundle.checksum import combine, crc32c


@given(first=st.binary(max_size=300), second=st.binary(max_size=5000))
def test_checksums_of_two_pieces_make_that_of_both(first, second):
    assert combine(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)
    assert combine(0, crc32c(second), len(second)) == crc32c(second)
