"""JSON of other programs is decoded within bounds."""

from __future__ import annotations

from typing import Any

import pytest

from tfckpt_trainer.catalog.directory.result_batches import _key_of
from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.records.run import Head
from tfckpt_trainer.rundir.storage.documents import decode
from tfckpt_trainer.rundir.storage.json_text import JsonError, decode_json

DEPTH = 100_000
"""More than any release of Python allows; 3.13 allows some 10,000 levels."""

DEEP = b'{"a":' * DEPTH
DEEP_WHOLE = DEEP + b"1" + b"}" * DEPTH
LONG = b'{"a":' + b"9" * 5000 + b"}"
ALL = [
    DEEP,
    DEEP_WHOLE,
    LONG,
    b'{"a":1e' + b"9" * 5000 + b"}",
    b"\xff",
    b'{"a":"\xff"}',
    b"[]",
    b'{"a":1} {"a":1}',
    b"",
]


@pytest.mark.matrix
@pytest.mark.parametrize("text", ALL, ids=range(len(ALL)))
def test_what_is_no_json_of_its_kind_is_one_error(text):
    with pytest.raises(JsonError):
        decode_json(text, dict[str, Any])
    with pytest.raises(DamagedFileError, match=r"^head\.json is not a valid Head: "):
        decode(text, Head, "head.json")
    assert _key_of(text) is None


@pytest.mark.parametrize("text", [DEEP, DEEP_WHOLE], ids=["open", "whole"])
def test_deep_json_is_called_that(text):
    with pytest.raises(JsonError, match="it is nested too deeply"):
        decode_json(text, dict[str, Any])
