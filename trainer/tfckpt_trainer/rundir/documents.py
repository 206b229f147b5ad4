"""JSON documents with a schema version: typed, validated, unknown fields kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tfckpt_trainer.errors import DamagedFileError, UsageError
from tfckpt_trainer.rundir.files import RECORD_LIMIT, append_line, read_bounded, write_atomic

SCHEMA = 1
"""The version that this code writes; a file with a larger one is refused."""


class Document(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """Base of everything we write as JSON.

    Attributes:
        schema: Version of the contract that wrote it.
        unknown: Fields of the file that this code does not know; they are written back.
    """

    schema: int = SCHEMA
    unknown: dict[str, Any] = {}


DocumentT = TypeVar("DocumentT", bound=Document)


def encode(document: Document) -> bytes:
    """Returns `document` as one line of JSON, with the unknown fields it was read with.

    Raises:
        UsageError: A text in it, such as the name of a file, has bytes that are no UTF-8.
    """
    fields = msgspec.to_builtins(document)
    unknown = fields.pop("unknown")
    try:
        return msgspec.json.encode({**unknown, **fields})
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{error.object!r} is not valid UTF-8, and cannot be written down; rename the file."
        ) from error


def decode(data: bytes, kind: type[DocumentT], source: str) -> DocumentT:
    """Turns JSON from outside into a validated `kind`.

    Args:
        data: The bytes read.
        kind: The document expected.
        source: The file's name, for the message.

    Raises:
        DamagedFileError: It is no JSON, a field is missing or has another type, or it was
            written by a newer version.
    """
    try:
        raw = msgspec.json.decode(data)
        if not isinstance(raw, dict):
            raise msgspec.ValidationError(f"expected an object, got {type(raw).__name__}")
        schema = raw.get("schema")
        if isinstance(schema, int) and schema > SCHEMA:
            raise DamagedFileError(
                f"{source} was written by a newer tfckpt-tui (schema {schema}, this one knows "
                f"{SCHEMA}); upgrade this installation."
            )
        known = set(kind.__struct_fields__) - {"unknown"}
        unknown = {key: value for key, value in raw.items() if key not in known}
        fields = {key: value for key, value in raw.items() if key in known}
        return msgspec.convert({**fields, "unknown": unknown}, kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedFileError(
            f"{source} is not a valid {kind.__name__}: {error}. Move it away, or restore it."
        ) from error


def load(path: Path, kind: type[DocumentT], limit: int = RECORD_LIMIT) -> DocumentT:
    """Reads and validates one document.

    Raises:
        FileNotFoundError: There is no such file.
        DamagedFileError: It is not what was expected.
    """
    return decode(read_bounded(path, limit), kind, path.name)


def load_if_there(path: Path, kind: type[DocumentT]) -> DocumentT | None:
    """Reads one document, or returns None where there is no file."""
    try:
        return load(path, kind)
    except (FileNotFoundError, NotADirectoryError):
        return None


def store(path: Path, document: Document, *, durable: bool = True) -> None:
    """Writes `document` so that a reader sees the old file or the whole new one."""
    write_atomic(path, encode(document), durable=durable)


def append(path: Path, document: Document) -> None:
    """Appends `document` as one line to the file `path`."""
    append_line(path, encode(document))


def parse_lines(data: bytes, kind: type[DocumentT], source: str) -> tuple[list[DocumentT], int]:
    """Reads whole lines of an append-only file; a torn last line is left for the next look.

    Returns:
        The documents, and how many bytes of `data` they took. Lines that are damaged (a crash
        in mid-write, then further appends) are passed over: they must not block a start.
    """
    end = data.rfind(b"\n") + 1
    documents = []
    for line in data[:end].splitlines():
        try:
            documents.append(decode(line, kind, source))
        except DamagedFileError:
            continue
    return documents, end
