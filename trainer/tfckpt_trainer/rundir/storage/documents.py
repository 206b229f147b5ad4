"""Typed, validated JSON documents with a schema version. Unknown fields are kept."""

from __future__ import annotations

import os
import re
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec

from tfckpt_trainer.errors import (
    DamagedFileError,
    NewerFileError,
    NotTrustedError,
    RefusedError,
    TfckptError,
    UsageError,
)
from tfckpt_trainer.machine.permissions import moving_advice
from tfckpt_trainer.rundir.storage.files import (
    RECORD_LIMIT,
    NotFlushedError,
    append_line,
    delete_file,
    open_plain,
    read_bounded,
    read_timed,
    write_atomic,
)
from tfckpt_trainer.rundir.storage.json_text import JsonError, decode_json
from tfckpt_trainer.version import __version__

SCHEMA = 1
"""Schema version of documents without a checksum, and of the JSON output of commands."""

SEALED_SCHEMA = 2
"""Schema version of documents that end with a checksum."""

_RELEASE = r"\d{1,9}(\.\d{1,9}){0,5}((a|b|rc|\.post|\.dev)\d{1,9}){0,3}"
"""How a release is named; anything else may be part of a command that somebody pastes."""

WRITTEN_BY = "written_by"
"""The field of a stored document with the release that wrote it."""

_training = threading.Event()
_decoders: dict[type, _Decoders] = {}
_preparing = threading.RLock()

_SEAL_SIZE = len(b',"crc32":"00000000"}')


class Document(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """Base class of all JSON documents.

    Attributes:
        version: The schema version that is written.
        has_copy: Whether a second copy is stored beside the file.
        is_private: Whether only the owner may read the file, because it may hold secrets.
        is_trusted: Whether it is executed or believed. It is read only if this user or root alone
            could have written it.
        schema: The schema version that was read.
        unknown: Fields of the file that this version does not know. They are written back.
    """

    version: ClassVar[int] = SCHEMA
    has_copy: ClassVar[bool] = False
    is_private: ClassVar[bool] = False
    is_trusted: ClassVar[bool] = False

    schema: int = SCHEMA
    unknown: dict[str, Any] = {}


class SealedDocument(Document, frozen=True, kw_only=True):
    """A document that ends with the CRC-32 of its own text.

    The last field is `"crc32"`: eight hexadecimal digits, the checksum of all bytes before the
    comma that precedes it.
    """

    version: ClassVar[int] = SEALED_SCHEMA

    schema: int = SEALED_SCHEMA


DocumentT = TypeVar("DocumentT", bound=Document)
ReadT = TypeVar("ReadT")
OnError = Callable[[Exception], object]
"""Called with the reason why something cannot be read and is left out."""


def encode(document: Document, *, release: str = "") -> bytes:
    """Returns `document` as one line of JSON, including unknown fields.

    Args:
        document: The document.
        release: The release that writes it, if that is recorded.

    Raises:
        UsageError: A string in it, such as a file name, is not valid UTF-8.
    """
    fields = msgspec.to_builtins(document)
    unknown = fields.pop("unknown")
    try:
        fields = {**unknown, **fields, "schema": document.version}
        data = msgspec.json.encode({**fields, WRITTEN_BY: release} if release else fields)
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{error.object!r} is not valid UTF-8 and cannot be stored as JSON. Rename the file."
        ) from error
    return _with_seal(data.removesuffix(b"}")) if document.version >= SEALED_SCHEMA else data


def decode(data: bytes, kind: type[DocumentT], source: str) -> DocumentT:
    """Parses and validates untrusted JSON.

    Args:
        data: The bytes of the file.
        kind: The expected document type.
        source: The file name, for error messages.

    Raises:
        NewerFileError: The data was written by a newer release.
        DamagedFileError: The data is not valid JSON for `kind`, or does not match its checksum.
    """
    document = _decode_usual(data, kind)
    if document is not None:
        return document
    try:
        raw = decode_json(data, dict[str, Any])
        schema = raw.get("schema")
        if isinstance(schema, int) and schema > kind.version:
            raise NewerFileError(_newer_words(source, schema, kind.version, raw.get(WRITTEN_BY)))
        if kind.version >= SEALED_SCHEMA:
            if not _matches_seal(data):
                raise msgspec.ValidationError("it does not match its checksum")
            del raw["crc32"]
        raw.pop(WRITTEN_BY, None)
        names = set(kind.__struct_fields__) - {"unknown"}
        unknown = {key: value for key, value in raw.items() if key not in names}
        fields = {key: value for key, value in raw.items() if key in names}
        prepare(kind)
        return msgspec.convert({**fields, "unknown": unknown}, kind)
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(
            f"{source} is not a valid {kind.__name__}: {error}. Move the file away, or restore it "
            "from a copy."
        ) from error


def _decode_usual(data: bytes, kind: type[DocumentT]) -> DocumentT | None:
    """Parses a valid document whose fields are all known, in a third of the time; else None."""
    decoders = _decoders_of(kind)
    if kind.version >= SEALED_SCHEMA and not _matches_seal(data):
        return None
    try:
        decoders.names.decode(data)
        document: DocumentT = decoders.values.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return document if document.schema <= kind.version else None


def replace_newer_documents() -> None:
    """Lets this process replace documents of a newer release: it runs the training.

    Training was not started beside such documents, and what appears later must not end it.
    """
    _training.set()


def runs_training() -> bool:
    """Whether this process has called `replace_newer_documents`."""
    return _training.is_set()


def find_newer(path: Path) -> str:
    """Returns which release is needed to read a document of any kind; empty if this one can.

    A document that this user may not read says nothing, such as the command of another user.

    Raises:
        OSError: The file exists and cannot be read.
    """
    try:
        raw = decode_json(read_bounded(path), dict[str, Any])
    except (FileNotFoundError, NotADirectoryError, PermissionError, DamagedFileError, JsonError):
        return ""
    version = SEALED_SCHEMA if "crc32" in raw else SCHEMA
    schema = raw.get("schema")
    if not isinstance(schema, int) or schema <= version:
        return ""
    words = _newer_words(path.name, schema, version, raw.get(WRITTEN_BY))
    return f"{words} {moving_advice(path)}"


def _newer_words(source: str, schema: int, version: int, release: object) -> str:
    is_known = isinstance(release, str) and re.fullmatch(_RELEASE, release, re.ASCII) is not None
    by = f"tfckpt-tui {release}" if is_known else "a newer tfckpt-tui"
    needed = f"'tfckpt-tui>={release}'" if is_known else "tfckpt-tui"
    return (
        f"{source} was written by {by}: it has schema {schema}, and this release "
        f"({__version__}) reads up to {version}. Upgrade with "
        f"`pip install --upgrade {needed}`."
    )


def prepare(kind: type) -> None:
    """Lets msgspec look at a type before a value of it is decoded.

    If two threads decode the first values of a type at the same time, one uses the description of
    the type that the other has not finished, and the process crashes.
    """
    _decoders_of(kind)


class _Decoders(msgspec.Struct, frozen=True):
    """Parses documents of one type.

    Attributes:
        values: Parses all fields; ignores those that it does not know.
        names: Refuses a document with fields that `values` ignores.
    """

    values: msgspec.json.Decoder[Any]
    names: msgspec.json.Decoder[Any]


def decoder_of(kind: type[ReadT]) -> msgspec.json.Decoder[ReadT]:
    """Returns what decodes values of a type, made when it is first needed."""
    return _decoders_of(kind).values


def _decoders_of(kind: type) -> _Decoders:
    known = _decoders.get(kind)
    if known is None:
        with _preparing:
            known = _Decoders(msgspec.json.Decoder(kind), msgspec.json.Decoder(_names_of(kind)))
        _decoders[kind] = known
    return known


def _names_of(kind: type) -> type:
    """Returns a type with the fields that a stored document may have, whatever their values."""
    if not issubclass(kind, Document):
        return dict
    sealed = ["crc32"] if kind.version >= SEALED_SCHEMA else []
    known = [name for name in kind.__struct_fields__ if name != "unknown"]
    fields = [(name, msgspec.Raw, msgspec.Raw()) for name in known]
    texts = [(name, str, "") for name in (WRITTEN_BY, *sealed)]
    return msgspec.defstruct(f"{kind.__name__}Names", [*fields, *texts], forbid_unknown_fields=True)


def _with_seal(text: bytes) -> bytes:
    """Closes a JSON object, given without its closing brace, with its checksum."""
    return b'%b,"crc32":"%08x"}' % (text, zlib.crc32(text))


def _matches_seal(data: bytes) -> bool:
    return _with_seal(data.rstrip()[:-_SEAL_SIZE]) == data.rstrip()


def copy_of(path: Path) -> Path:
    """Returns the path of the second copy of a document."""
    return path.with_name(f"{path.name}.copy")


def load(
    path: Path | str,
    kind: type[DocumentT],
    limit: int = RECORD_LIMIT,
    *,
    written_by: int | None = None,
) -> DocumentT:
    """Reads and validates one document. Falls back to its copy if it is damaged or closed.

    Args:
        path: The file.
        kind: Its type.
        limit: Its largest size in bytes.
        written_by: The only user besides root who may have written it; by default any, and this
            user for a type that is trusted.

    Raises:
        FileNotFoundError: The file does not exist, even if its copy does.
        NotTrustedError: Another user could have written the file.
        DamagedFileError: The file is damaged, and so is its copy if there is one.
    """
    return load_with_text(path, kind, limit, written_by=written_by)[0]


def load_with_text(
    path: Path | str,
    kind: type[DocumentT],
    limit: int = RECORD_LIMIT,
    *,
    written_by: int | None = None,
) -> tuple[DocumentT, bytes]:
    """Reads one document as `load` does; returns it with the text that it was decoded from."""
    if kind.is_trusted and written_by is None:
        written_by = os.geteuid()
    try:
        text = read_bounded(path, limit, written_by=written_by)
        return _decode_file(text, kind, path), text
    except NewerFileError:
        # Its copy may be older.
        raise
    except (DamagedFileError, PermissionError):
        copy = _load_copy(Path(path), kind, limit, written_by) if kind.has_copy else None
        if copy is None:
            raise
        return copy


def _decode_file(text: bytes, kind: type[DocumentT], path: Path | str) -> DocumentT:
    try:
        return decode(text, kind, os.fspath(path).rpartition("/")[2])
    except NewerFileError as error:
        raise NewerFileError(f"{error} {moving_advice(Path(path))}") from None


def load_if_exists(path: Path | str, kind: type[DocumentT]) -> DocumentT | None:
    """Reads one document; returns None if there is no file."""
    try:
        return load(path, kind)
    except (FileNotFoundError, NotADirectoryError):
        return None


def load_timed(path: Path | str, kind: type[DocumentT]) -> tuple[DocumentT, float] | None:
    """Reads a document that has no copy and is not trusted; returns None if there is no file.

    Returns:
        The document, and when its file changed, in seconds since the epoch by its file system.
    """
    try:
        text, changed_ns = read_timed(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _decode_file(text, kind, path), changed_ns / 1e9


def why_not_named(
    path: Path, kind: type[DocumentT], user: int, is_named: Callable[[DocumentT], bool]
) -> str:
    """Returns why a document does not show that a user named something in it; empty if it does.

    Args:
        path: The file.
        kind: Its type.
        user: The only user besides root whose word counts.
        is_named: Whether the document names it.

    Raises:
        DamagedFileError: The file is damaged.
    """
    try:
        return "" if is_named(load(path, kind, written_by=user)) else f"{path} names it no longer."
    except FileNotFoundError:
        return f"{path} is gone."
    except NotTrustedError as error:
        return error.found


def ignore(error: Exception) -> None:
    """Leaves out what cannot be read."""


def try_read(read: Callable[[], ReadT], on_error: OnError = ignore) -> ReadT | None:
    """Returns what `read` returns; None if what it reads is damaged or cannot be read.

    Args:
        read: Reads a file or a directory.
        on_error: Called with the reason if it cannot be read.
    """
    try:
        return read()
    except (TfckptError, OSError, msgspec.MsgspecError) as error:
        on_error(error)
        return None


def describe_damage(path: Path, kind: type[Document]) -> str:
    """Returns a description of the damage of a file, ignoring its copy; empty if it is valid.

    Raises:
        FileNotFoundError: The file does not exist.
    """
    try:
        decode(read_bounded(path), kind, path.name)
    except DamagedFileError as error:
        return str(error)
    return ""


def describe_copy_damage(path: Path, kind: type[Document]) -> str:
    """Returns a description of the damage of a copy; empty if it is valid or missing."""
    copy = copy_of(path)
    try:
        return describe_damage(copy, kind)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return f"{copy.name} cannot be read: {error.strerror}."


def store(path: Path, document: Document, *, durable: bool = True) -> None:
    """Writes `document` atomically, and its copy first if it has one.

    Raises:
        RefusedError: A newer release wrote the file that it would replace. Not raised after
            `replace_newer_documents`.
        NotFlushedError: The document was written but not flushed to disk.
        OSError: The file was not replaced.
    """
    newer = "" if runs_training() else find_newer(path)
    if newer:
        raise RefusedError(f"{newer} Nothing was changed.")
    data = encode(document, release=__version__)
    mode = 0o600 if document.is_private else None
    unflushed: NotFlushedError | None = None
    if document.has_copy:
        # Written first, so that a file never exists without its copy.
        try:
            write_atomic(copy_of(path), data, durable=durable, mode=mode)
        except NotFlushedError as error:
            unflushed = error
    write_atomic(path, data, durable=durable, mode=mode)
    if unflushed is not None:
        raise unflushed


def remove(path: Path) -> None:
    """Deletes a document and its copy, if they exist."""
    delete_file(path)
    delete_file(copy_of(path))


def _load_copy(
    path: Path, kind: type[DocumentT], limit: int, written_by: int | None
) -> tuple[DocumentT, bytes] | None:
    try:
        text = read_bounded(copy_of(path), limit, written_by=written_by)
        return decode(text, kind, path.name), text
    except (DamagedFileError, NotTrustedError, OSError):
        return None


def append(path: Path, document: Document, *, durable: bool = True) -> int:
    """Appends `document` as one line to a file, as `append_line` does; returns its size."""
    return append_line(path, encode(document), durable=durable)


def keep_newest_lines(path: Path, size: int) -> None:
    """Replaces an append-only file that nobody else writes by its last lines.

    Args:
        path: The file.
        size: How many bytes of it to keep at most.

    Raises:
        DamagedFileError: It is no regular file.
        OSError: The disk refuses. The file is as it was.
    """
    with open_plain(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - size))
        data = file.read(size)
    # The line in which it begins is not complete.
    write_atomic(path, data[data.find(b"\n") + 1 :], durable=False)


def parse_lines(data: bytes, kind: type[DocumentT], source: str) -> tuple[list[DocumentT], int]:
    """Parses the complete lines of an append-only file.

    Damaged lines, such as a crash during a write leaves, are skipped.

    Returns:
        The documents, and the number of bytes up to the end of the last complete line.
    """
    end = data.rfind(b"\n") + 1
    documents = []
    for line in data[:end].splitlines():
        # Spares millions of messages about lines that are no JSON.
        if line.rstrip().endswith(b"}"):
            with suppress(DamagedFileError):
                documents.append(decode(line, kind, source))
    return documents, end
