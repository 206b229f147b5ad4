"""The safetensors format: a JSON header with names, types and places, then the bytes.

Format: https://huggingface.co/docs/safetensors
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from tfckpt_trainer.bundle.dtypes import ITEM_SIZES, numpy_dtype
from tfckpt_trainer.bundle.exchange.array_file import PIECE, WIDENED, Array, new_file
from tfckpt_trainer.errors import DamagedFileError, UsageError
from tfckpt_trainer.rundir.storage.json_text import JsonError, decode_json
from tfckpt_trainer.rundir.storage.own_links import open_named_file
from tfckpt_trainer.words.clean_text import is_utf8

if TYPE_CHECKING:
    from tfckpt_trainer.bundle.exchange.array_file import Chunks

_TYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "float8_e5m2": "F8_E5M2",
    "float8_e4m3fn": "F8_E4M3", "int16": "I16", "uint16": "U16", "float16": "F16",
    "bfloat16": "BF16", "int32": "I32", "uint32": "U32", "float32": "F32", "complex64": "C64",
    "float64": "F64", "int64": "I64", "uint64": "U64",
}  # fmt: skip
_NAMES = {short: name for name, short in _TYPES.items()}
SAFETENSORS_TYPES = WIDENED

_METADATA = "__metadata__"
_HEADER_LIMIT = 100_000_000
"""The limit of the reference implementation, in bytes."""

_ALIGNMENT = 8


class _Place(msgspec.Struct):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def write_safetensors(
    path: Path, arrays: Sequence[Array], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes a safetensors file.

    Args:
        path: The file.
        arrays: The tensors.
        metadata: Texts to store in the file.

    Raises:
        UsageError: A name or a type cannot be stored.
        RefusedError: The file exists.
        OSError: The file cannot be written.
    """
    # Large elements first, so that each tensor is aligned.
    ordered = sorted(arrays, key=lambda array: -ITEM_SIZES[array.dtype])
    header: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    offset = 0
    for array in ordered:
        header[_checked_name(array.name)] = {
            "dtype": _short_type(array),
            "shape": array.shape,
            "data_offsets": (offset, offset + array.size),
        }
        offset += array.size
    data = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    data += b" " * (-len(data) % _ALIGNMENT)
    if len(data) > _HEADER_LIMIT:
        raise UsageError(
            f"The header has {len(data)} bytes; safetensors allows {_HEADER_LIMIT}. "
            "Use --to npz instead."
        )
    with new_file(path) as temporary, open(temporary, "xb") as file:
        file.write(struct.pack("<Q", len(data)) + data)
        for array in ordered:
            for chunk in array.chunks():
                file.write(_bytes_of(chunk))


class SafetensorsReader:
    """An open safetensors file.

    Raises:
        DamagedFileError: It is not a safetensors file.
        UsageError: A tensor has a type that TensorFlow cannot store.
        OSError: The file cannot be read.
    """

    checksums = ""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = open_named_file(path)
        try:
            self._start, places = self._read_header()
            self.arrays = tuple(self._array(name, place) for name, place in places.items())
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def _read_header(self) -> tuple[int, dict[str, _Place]]:
        size = os.fstat(self._file.fileno()).st_size
        head = self._file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if not 0 < length <= min(_HEADER_LIMIT, size - 8):
            raise self._damage(f"its header has {length} bytes, the file {size}")
        try:
            entries = decode_json(self._file.read(length), dict[str, msgspec.Raw])
            entries.pop(_METADATA, None)
            places = {name: decode_json(bytes(raw), _Place) for name, raw in entries.items()}
        except JsonError as error:
            raise self._damage(str(error)) from error
        end = 0
        for start, stop in sorted(place.data_offsets for place in places.values()):
            if start != end or stop < start:
                raise self._damage(f"a tensor begins at byte {start}; expected {end}")
            end = stop
        if end != size - 8 - length:
            raise self._damage(f"it has {size - 8 - length} bytes of data; expected {end}")
        return 8 + length, places

    def _array(self, name: str, place: _Place) -> Array:
        dtype = _NAMES.get(place.dtype)
        if dtype is None:
            raise UsageError(
                f"{self._path}: {name} has the type {place.dtype}, which is not supported."
            )
        begin, end = place.data_offsets
        array = Array(name, dtype, tuple(place.shape), lambda: self._chunks(dtype, begin, end))
        if any(size < 0 for size in place.shape) or array.size != end - begin:
            raise self._damage(f"{name} has {end - begin} bytes; expected {array.size}")
        return array

    def _chunks(self, dtype: str, begin: int, end: int) -> Chunks:
        import numpy as np

        kind = numpy_dtype(dtype)
        while begin < end:
            count = min(PIECE, end - begin)
            data = os.pread(self._file.fileno(), count, self._start + begin)
            if len(data) != count:
                raise self._damage("it was truncated while being read")
            yield np.frombuffer(data, kind)
            begin += count

    def _damage(self, problem: str) -> DamagedFileError:
        return DamagedFileError(f"{self._path} is not a valid safetensors file: {problem}.")


def _bytes_of(chunk: Any) -> Any:
    import numpy as np

    # Types of `ml_dtypes` have no buffer interface.
    return np.ascontiguousarray(chunk).view(np.uint8).data


def _checked_name(name: str) -> str:
    if not is_utf8(name):
        raise UsageError(f"{name} is not UTF-8; a safetensors file cannot have such a name.")
    if name == _METADATA:
        raise UsageError(f"A safetensors file cannot have a tensor with the name {name}.")
    return name


def _short_type(array: Array) -> str:
    short = _TYPES.get(array.dtype)
    if short is None:
        raise UsageError(
            f"{array.name} is {array.dtype}, which safetensors does not have. Use --to npz instead."
        )
    return short
