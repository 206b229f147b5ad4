"""JSON documents with a schema version: typed, validated, unknown fields kept."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec

from tfckpt_trainer.errors import DamagedFileError, UsageError
from tfckpt_trainer.rundir.files import (
    RECORD_LIMIT,
    NotFlushedError,
    append_line,
    read_bounded,
    write_atomic,
)

SCHEMA = 1
"""The version of documents without a checksum, and of what commands print as JSON."""

SEALED_SCHEMA = 2
"""The version of documents that carry a checksum of themselves."""

_SEAL_SIZE = len(b',"crc32":"00000000"}')


class Document(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """Base of everything we write as JSON.

    Attributes:
        schema: Version of the contract that wrote it; it is written anew in the present one.
        unknown: Fields of the file that this code does not know; they are written back.
    """

    version: ClassVar[int] = SCHEMA
    has_copy: ClassVar[bool] = False

    schema: int = SCHEMA
    unknown: dict[str, Any] = {}


class SealedDocument(Document, frozen=True, kw_only=True):
    """A document that ends with the CRC-32 of its own text, so that no flipped bit passes.

    The last field of the file is `"crc32"`: eight hexadecimal digits, the checksum of all bytes
    before the comma that precedes it. Files of schema 1 have none and are read as they are.
    """

    version: ClassVar[int] = SEALED_SCHEMA

    schema: int = SEALED_SCHEMA


DocumentT = TypeVar("DocumentT", bound=Document)


def encode(document: Document) -> bytes:
    """Returns `document` as one line of JSON, with the unknown fields it was read with.

    Raises:
        UsageError: A text in it, such as the name of a file, has bytes that are no UTF-8.
    """
    fields = msgspec.to_builtins(document)
    unknown = fields.pop("unknown")
    try:
        data = msgspec.json.encode({**unknown, **fields, "schema": document.version})
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{error.object!r} is not valid UTF-8, and cannot be written down; rename the file."
        ) from error
    return _with_seal(data.removesuffix(b"}")) if document.version >= SEALED_SCHEMA else data


def decode(data: bytes, kind: type[DocumentT], source: str) -> DocumentT:
    """Turns JSON from outside into a validated `kind`.

    Args:
        data: The bytes read.
        kind: The document expected.
        source: The file's name, for the message.

    Raises:
        DamagedFileError: It is no JSON, a field is missing or has another type, it does not
            match its checksum, or it was written by a newer version.
    """
    try:
        raw = msgspec.json.decode(data)
        if not isinstance(raw, dict):
            raise msgspec.ValidationError(f"expected an object, got {type(raw).__name__}")
        schema = raw.get("schema")
        if isinstance(schema, int) and schema > kind.version:
            raise DamagedFileError(
                f"{source} was written by a newer tfckpt-tui (schema {schema}, this one knows "
                f"{kind.version}); upgrade this installation."
            )
        if kind.version >= SEALED_SCHEMA and (schema != SCHEMA or "crc32" in raw):
            if not _matches_seal(data):
                raise msgspec.ValidationError("it does not match its checksum")
            del raw["crc32"]
        known = set(kind.__struct_fields__) - {"unknown"}
        unknown = {key: value for key, value in raw.items() if key not in known}
        fields = {key: value for key, value in raw.items() if key in known}
        return msgspec.convert({**fields, "unknown": unknown}, kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedFileError(
            f"{source} is not a valid {kind.__name__}: {error}. Move it away, or restore it."
        ) from error


def _with_seal(text: bytes) -> bytes:
    """Returns an object of JSON, without its closing brace, closed with its checksum."""
    return b'%b,"crc32":"%08x"}' % (text, zlib.crc32(text))


def _matches_seal(data: bytes) -> bool:
    return _with_seal(data.rstrip()[:-_SEAL_SIZE]) == data.rstrip()


def copy_of(path: Path) -> Path:
    """Returns where the second copy of a document lies."""
    return path.with_name(f"{path.name}.copy")


def load(path: Path, kind: type[DocumentT], limit: int = RECORD_LIMIT) -> DocumentT:
    """Reads and validates one document; a damaged one is read from its copy, if it has one.

    Raises:
        FileNotFoundError: There is no such file, whether or not there is a copy of it.
        DamagedFileError: It is not what was expected.
    """
    try:
        return decode(read_bounded(path, limit), kind, path.name)
    except DamagedFileError:
        copy = _load_copy(path, kind, limit) if kind.has_copy else None
        if copy is None:
            raise
        return copy


def load_if_there(path: Path, kind: type[DocumentT]) -> DocumentT | None:
    """Reads one document, or returns None where there is no file."""
    try:
        return load(path, kind)
    except (FileNotFoundError, NotADirectoryError):
        return None


def damage_of(path: Path, kind: type[Document]) -> str:
    """Returns what is wrong with the file itself, whatever its copy holds; empty if nothing is.

    Raises:
        FileNotFoundError: There is no such file.
    """
    try:
        decode(read_bounded(path), kind, path.name)
    except DamagedFileError as error:
        return str(error)
    return ""


def damage_of_copy(path: Path, kind: type[Document]) -> str:
    """Returns what is wrong with the copy of a document; empty if it is sound or not there."""
    copy = copy_of(path)
    try:
        return damage_of(copy, kind)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return f"{copy.name} cannot be read: {error.strerror}."


def store(path: Path, document: Document, *, durable: bool = True) -> None:
    """Writes `document` so that a reader sees the old file or the whole new one.

    Raises:
        NotFlushedError: It was written; the disk refused to flush it.
        OSError: Nothing was replaced.
    """
    data = encode(document)
    unflushed: NotFlushedError | None = None
    if document.has_copy:
        # First: where the file itself is there, its copy is.
        try:
            write_atomic(copy_of(path), data, durable=durable)
        except NotFlushedError as error:
            unflushed = error
    write_atomic(path, data, durable=durable)
    if unflushed is not None:
        raise unflushed


def remove(path: Path) -> None:
    """Removes a document and its copy, as far as they are there."""
    path.unlink(missing_ok=True)
    copy_of(path).unlink(missing_ok=True)


def _load_copy(path: Path, kind: type[DocumentT], limit: int) -> DocumentT | None:
    try:
        return decode(read_bounded(copy_of(path), limit), kind, path.name)
    except (DamagedFileError, OSError):
        return None


def append(path: Path, document: Document, *, durable: bool = True) -> None:
    """Appends `document` as one line to the file `path`; raises as `append_line` does."""
    append_line(path, encode(document), durable=durable)


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
