"""Values of the script as JSON, from which they come back with equal types and bits."""

from __future__ import annotations

import base64
import math
import struct
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.state.variables import is_variable, raw_variable
from tfckpt_trainer.words.clean_text import is_utf8

_LARGEST_INTEGER = 1 << 63
_BITS = struct.Struct(">d")
_SPECIAL = "$"

_DEEPEST = 100
"""Levels of values in values."""


def encode_value(value: Any, place: str, *, tensors: bool = True, most: int | None = None) -> Any:
    """Returns a value as what JSON supports.

    Args:
        value: The value.
        place: Where it is, for errors.
        tensors: Whether tensors and variables of TensorFlow are taken; they come back as arrays.
        most: Bytes that it may have, with all values in it; by default any number.

    Raises:
        UsageError: It, or a value in it, has a type that would not come back, or it is too large.
    """
    return _Encoder(tensors, most).encode(value, place, 0)


def decode_value(value: Any) -> Any:
    """Returns what `encode_value` was given. What JSON holds itself comes back as it is."""
    if isinstance(value, list):
        return [decode_value(item) for item in value]
    if not isinstance(value, dict):
        return value
    decode = _DECODERS.get(value.get(_SPECIAL, ""))
    if decode is None:
        return {name: decode_value(item) for name, item in value.items()}
    return decode(value)


class _Encoder:
    """Encodes one value, and counts its bytes before they are encoded."""

    def __init__(self, takes_tensors: bool, most: int | None) -> None:
        self._takes_tensors = takes_tensors
        self._most = most
        self._counted = 0

    def encode(self, value: Any, place: str, depth: int) -> Any:
        kind = type(value)
        self._count(len(value) if issubclass(kind, (str, bytes)) else _BITS.size, place)
        if value is None or kind is bool:
            return value
        encode_single = _SINGLE.get(kind)
        if encode_single is not None:
            return encode_single(value)
        if depth > _DEEPEST:
            raise UsageError(f"{place[:200]} is nested more than {_DEEPEST} levels deep.")
        if kind is dict:
            return self._encode_dictionary(value, place, depth + 1)
        if kind in _SEQUENCES:
            listed = [self.encode(item, f"{place}[{n}]", depth + 1) for n, item in enumerate(value)]
            if kind is list:
                return listed
            if kind in (set, frozenset):
                # Equal sets may have another order; digests compare what is encoded.
                listed.sort(key=repr)
            encoded = {_SPECIAL: _SEQUENCES[kind], "value": listed}
            return {**encoded, "most": value.maxlen} if kind is deque else encoded
        return self._encode_array(value, place)

    def _encode_dictionary(self, value: dict[Any, Any], place: str, depth: int) -> Any:
        items = [
            [self.encode(key, place, depth), self.encode(item, f"{place}[{key!r}]", depth)]
            for key, item in value.items()
        ]
        if all(type(key) is str and is_utf8(key) for key in value) and _SPECIAL not in value:
            return dict(items)
        return {_SPECIAL: "dictionary", "value": items}

    def _encode_array(self, value: Any, place: str) -> Any:
        if self._takes_tensors and (isinstance(value, tf.Tensor) or is_variable(value)):
            value = raw_variable(value).numpy()
        # Others than arrays themselves have more than their elements, such as a mask.
        is_array = type(value) is np.ndarray or isinstance(value, np.generic)
        code = _code_of(value.dtype) if is_array else None
        if code is None:
            raise UsageError(
                f"{place} is a {type(value).__name__}, which cannot be saved. Use numbers, texts, "
                "bytes, lists, tuples, sets, deques, dictionaries and arrays of NumPy or "
                "TensorFlow."
            )
        self._count(value.nbytes, place)
        array = np.asarray(value)
        return {
            _SPECIAL: "array",
            "dtype": code,
            "shape": list(array.shape),
            "value": base64.b64encode(np.ascontiguousarray(array).tobytes()).decode(),
            "scalar": isinstance(value, np.generic),
        }

    def _count(self, size: int, place: str) -> None:
        self._counted += size
        if self._most is not None and self._counted > self._most:
            raise UsageError(f"{place[:200]} has more than {self._most:,} bytes.")


def _encode_integer(value: int) -> Any:
    # As hexadecimal digits, whose number Python does not limit.
    is_small = abs(value) < _LARGEST_INTEGER
    return value if is_small else {_SPECIAL: "integer", "value": hex(value)}


def _encode_float(value: float) -> Any:
    is_number = math.isfinite(value)
    return value if is_number else {_SPECIAL: "bits", "value": _BITS.pack(value).hex()}


def _encode_bytes(value: bytes, name: str = "bytes") -> dict[str, str]:
    return {_SPECIAL: name, "value": base64.b64encode(value).decode()}


def _encode_text(value: str, name: str = "text") -> dict[str, str]:
    return _encode_bytes(value.encode("utf-8", "surrogatepass"), name)


def _decode_text(value: Mapping[str, Any]) -> str:
    return base64.b64decode(value["value"]).decode("utf-8", "surrogatepass")


def _code_of(dtype: np.dtype[Any]) -> Any:
    """Returns what JSON supports of a type; None if that would not be the same type again.

    Most types have a code, those of other packages a name, and those with fields a list of them.
    """
    if dtype.hasobject:
        return None
    codes = (dtype.str, dtype.name) if dtype.names is None else (dtype.descr,)
    for code in codes:
        with suppress(TypeError, ValueError):
            again = _type_of(code)
            if again == dtype and again.type is dtype.type:
                return code
    return None


def _type_of(code: Any) -> np.dtype[Any]:
    dtype: np.dtype[Any]
    if isinstance(code, list):
        # Beside fields, this knows the bytes between them.
        dtype = np.lib.format.descr_to_dtype(_fields_of(code))
    else:
        dtype = np.dtype(code)
    return dtype


def _fields_of(code: Any) -> Any:
    """Returns a list of fields as NumPy wants it, with tuples where JSON has lists."""
    if not isinstance(code, list):
        return code
    fields = []
    for name, kind, *shape in code:
        label = tuple(name) if isinstance(name, list) else name
        fields.append((label, _fields_of(kind), *map(tuple, shape)))
    return fields


def _decode_array(value: Mapping[str, Any]) -> npt.NDArray[Any]:
    data = base64.b64decode(value["value"])
    array = np.frombuffer(data, _type_of(value["dtype"])).reshape(value["shape"]).copy()
    return array[()] if value["scalar"] else array


_SINGLE: Mapping[type, Callable[[Any], Any]] = {
    str: lambda value: value if is_utf8(value) else _encode_text(value),
    int: _encode_integer,
    float: _encode_float,
    bytes: _encode_bytes,
    # NumPy drops zeros at the end of those in an array.
    np.str_: lambda value: _encode_text(value, "numpy text"),
    np.bytes_: lambda value: _encode_bytes(value, "numpy bytes"),
}
"""What encodes values without others in them."""

_SEQUENCES: Mapping[type, str] = {
    list: "list",
    tuple: "tuple",
    set: "set",
    frozenset: "frozenset",
    deque: "deque",
}

_DECODERS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    # Older releases wrote decimal digits.
    "integer": lambda value: int(value["value"], 0),
    "bits": lambda value: _BITS.unpack(bytes.fromhex(value["value"]))[0],
    # Older releases wrote the words of Python.
    "float": lambda value: float(value["value"]),
    "bytes": lambda value: base64.b64decode(value["value"]),
    "numpy bytes": lambda value: np.bytes_(base64.b64decode(value["value"])),
    "text": _decode_text,
    "numpy text": lambda value: np.str_(_decode_text(value)),
    "dictionary": lambda value: {
        decode_value(key): decode_value(item) for key, item in value["value"]
    },
    "tuple": lambda value: tuple(map(decode_value, value["value"])),
    "set": lambda value: set(map(decode_value, value["value"])),
    "frozenset": lambda value: frozenset(map(decode_value, value["value"])),
    "deque": lambda value: deque(map(decode_value, value["value"]), value["most"]),
    "array": _decode_array,
}
