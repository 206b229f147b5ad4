"""Keras's formats: HDF5 files (`.weights.h5`, `.h5`), and `.keras`, an archive with such a file.

Nothing outside of the file is read: external and symbolic links, and data in other files, are
refused. h5py is optional.

Format: https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t3.html
"""

from __future__ import annotations

import io
import math
import os
import resource
import signal
import struct
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from tfckpt_trainer.bundle.dtypes import ITEM_SIZES, numpy_dtype
from tfckpt_trainer.bundle.exchange.array_file import (
    ARCHIVE_ERRORS,
    PIECE,
    PLAIN_TYPES,
    Array,
    archive_members,
)
from tfckpt_trainer.bundle.exchange.whole_tensors import bands
from tfckpt_trainer.errors import DamagedFileError, TfckptError, UsageError
from tfckpt_trainer.rundir.storage.own_links import open_named_file
from tfckpt_trainer.scripts.exit_statuses import exit_words
from tfckpt_trainer.words.counts import count

if TYPE_CHECKING:
    from tfckpt_trainer.bundle.exchange.array_file import Chunks

WEIGHTS_MEMBER = "model.weights.h5"
"""The HDF5 file in a `.keras` archive."""

_VARIABLES = "vars"
"""Keras 3 keeps the variables of a layer in a group of this name; its `name` is that of the layer.
"""

_MOST_OBJECTS = 1_000_000
_LARGEST_CHUNK = 256 << 20
"""HDF5 reads a chunk as a whole."""

_FILTERS = {2, 3}
"""Shuffle and Fletcher-32. Keras does not compress, and a compressed piece of any size can unpack
to a thousand times as much."""

TRY_SECONDS = 60.0
"""How long reading the structure of a file may take, with the start of a process."""

_SLOWEST_READ = 5_000_000
"""Bytes a second."""

_MOST_MEMORY = 8 << 30
_TRY = "import sys; from tfckpt_trainer.bundle.exchange.hdf5 import try_file as t; t(*sys.argv[1:])"

_NEEDS_MORE = 3
"""How the process ends that needs more memory than that."""

_IS_DAMAGED, _IS_OTHER = 4, 5
"""How it ends if the file cannot be opened; it prints why."""

_CRASHES = signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL
_OF_DAMAGE = {_NEEDS_MORE, *(-crash for crash in _CRASHES)}
"""How it ends if the file is to blame; a lack of memory of the machine kills it otherwise."""

_LOCAL_HEADER = struct.Struct("<4s22xHH")


class OtherHdf5Error(DamagedFileError):
    """A file uses what HDF5 allows and Keras never writes: another program made it."""


class Hdf5Reader:
    """An open HDF5 file or `.keras` archive.

    Damaged files can crash the HDF5 library, or keep it in a loop. So a child process reads the
    structure first.

    Args:
        path: The file.
        tried: The open file if that is done, which is closed with this.

    Raises:
        DamagedFileError: It is damaged.
        OtherHdf5Error: It refers to something outside of it, or stores values as Keras never does.
        UsageError: h5py is missing, or a tensor has a type that cannot be converted.
        OSError: The file cannot be read.
    """

    def __init__(self, path: Path, *, tried: BinaryIO | None = None) -> None:
        self._path = path
        self._summed = 0
        self._chunked: set[str] = set()
        with ExitStack() as stack:
            file = stack.enter_context(tried or open_named_file(path))
            h5py = _import_h5py(path)
            if tried is None:
                self._try_elsewhere(file.fileno())
            is_archive = zipfile.is_zipfile(file)
            self._archive = file if is_archive and tried is None else None
            with self._explained("it"):
                inner = _weights_in(file) if is_archive else file
                opened = stack.enter_context(h5py.File(inner, "r", rdcc_nbytes=PIECE))
                self.arrays = tuple(self._arrays(opened))
            self._close = stack.pop_all().close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    @property
    def checksums(self) -> str:
        """Which checksums reading compares, as words; empty if the file has none."""
        if not self._summed:
            return ""
        return f"Fletcher-32 of {self._summed:,} of {count(len(self.arrays), 'tensor')}"

    def read_pieces(self) -> None:
        """Reads the tensors that are stored in pieces, which have a structure of their own."""
        for array in self.arrays:
            if array.name in self._chunked:
                for _ in array.chunks():
                    pass

    def _try_elsewhere(self, file: int) -> None:
        # By the open file: another one may come to its name meanwhile.
        command = [sys.executable, "-P", "-c", _TRY, os.fspath(self._path), str(file)]
        limit = TRY_SECONDS + os.fstat(file).st_size / _SLOWEST_READ
        # NumPy would start a thread for each core, which takes a quarter of the time.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=limit,
                check=False,
                env=environment,
                pass_fds=[file],
            )
        except subprocess.TimeoutExpired:
            raise self._damage(f"reading its structure took more than {limit:.0f} s") from None
        # The child has the same position in it.
        os.lseek(file, 0, os.SEEK_SET)
        if done.returncode == 0:
            return
        if done.returncode in {_IS_DAMAGED, _IS_OTHER}:
            kind = OtherHdf5Error if done.returncode == _IS_OTHER else DamagedFileError
            raise kind(done.stdout.decode("utf-8", "surrogateescape"))
        is_limited = _is_memory_limited()
        if done.returncode in _OF_DAMAGE and not is_limited:
            raise self._damage("the HDF5 library cannot read its structure")
        how = exit_words(done.returncode)
        why = "; `ulimit -v` limits its memory" if is_limited else ""
        what = f"the process that reads its structure {how}{why}"
        raise UsageError(f"{self._path} cannot be checked: {what}.")

    def _arrays(self, file: Any) -> Iterator[Array]:
        import h5py

        seen: set[Any] = set()
        waiting = [("", file, "")]
        while waiting:
            name, item, owner = waiting.pop()
            # A group can be in itself, by a second name.
            address = h5py.h5o.get_info(item.id).addr
            if address in seen:
                continue
            seen.add(address)
            if len(seen) > _MOST_OBJECTS:
                raise self._damage(f"it has more than {_MOST_OBJECTS:,} objects")
            if isinstance(item, h5py.Dataset):
                yield self._array(name, item, owner)
            elif isinstance(item, h5py.Group):
                inside = list(self._inside(name, item, owner))
                waiting += reversed(inside)

    def _inside(self, path: str, group: Any, owner: str) -> Iterator[tuple[str, Any, str]]:
        import h5py

        if path.rpartition("/")[2] != _VARIABLES:
            owner = "/".join(filter(None, (owner, _layer_name(group))))
        for name in sorted(group, key=_natural):
            where = f"{path}/{name}" if path else name
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise self._other(f"{where} is a link, which is not followed")
            yield where, group[name], owner

    def _array(self, name: str, data: Any, owner: str) -> Array:
        problem = _problem_of(data)
        if problem:
            raise self._other(f"{name} {problem}")
        size, stored = math.prod(data.shape) * data.dtype.itemsize, data.id.get_storage_size()
        if size > stored:
            raise self._damage(f"{name} has {stored} bytes; expected {size} for its shape")
        self._summed += bool(data.fletcher32)
        if data.chunks is not None:
            self._chunked.add(name)
        dtype = data.dtype.name
        if data.dtype.kind == "V" and data.attrs.get("dtype") == "bfloat16":
            dtype = "bfloat16"
        elif dtype not in PLAIN_TYPES:
            raise UsageError(
                f"{self._path}: {name} has the type {data.dtype}, which cannot be converted; "
                "expected numbers."
            )
        return Array(name, dtype, data.shape, partial(self._chunks, name, data, dtype), owner)

    def _chunks(self, name: str, data: Any, dtype: str) -> Chunks:
        import numpy as np

        if self._mismatch:
            raise self._damage(self._mismatch)
        kind = numpy_dtype(dtype)
        with self._explained(name):
            for outer, start, end in bands(data.shape or (1,), ITEM_SIZES[dtype], PIECE):
                place = (*outer, slice(start, end)) if data.shape else ()
                values = np.ascontiguousarray(data[place]).reshape(-1)
                yield values.view(kind) if dtype == "bfloat16" else values.astype(kind, copy=False)

    @cached_property
    def _mismatch(self) -> str:
        """Why the weights in an archive do not match its checksum; empty if they do.

        HDF5 reads parts of them, for which the archive has no checksum.
        """
        if self._archive is None:
            return ""
        try:
            with (
                zipfile.ZipFile(self._archive) as archive,
                archive.open(WEIGHTS_MEMBER) as weights,
            ):
                while weights.read(PIECE):
                    pass
        except ARCHIVE_ERRORS as error:
            return str(error)
        return ""

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Turns the errors of HDF5, which have no number, into those of a damaged file."""
        try:
            yield
        except (OSError, KeyError, TypeError, OverflowError, *ARCHIVE_ERRORS) as error:
            if isinstance(error, OSError) and error.errno:
                raise
            raise self._damage(f"{what} cannot be read: {error}") from error

    def _damage(self, problem: str) -> DamagedFileError:
        return DamagedFileError(f"{self._path} is not a valid Keras file: {problem.rstrip('.')}.")

    def _other(self, problem: str) -> OtherHdf5Error:
        return OtherHdf5Error(
            f"{self._path} cannot be read here: {problem}. Keras never writes that; perhaps "
            "another program wrote it."
        )


def try_file(path: str, descriptor: str) -> None:
    """Reads the structure of an open file, in a process that may crash."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not _is_memory_limited():
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    try:
        file = os.fdopen(int(descriptor), "rb")
        try:
            opened = Hdf5Reader(Path(path), tried=file)
        except DamagedFileError as error:
            # No other process opens it: HDF5 can end one that failed to, at its exit.
            sys.stdout.buffer.write(str(error).encode("utf-8", "surrogateescape"))
            sys.stdout.flush()
            os._exit(_IS_OTHER if isinstance(error, OtherHdf5Error) else _IS_DAMAGED)
        # What else is wrong is said by the process that reads the file next.
        with suppress(TfckptError, OSError), opened as reader:
            reader.read_pieces()
    except MemoryError:
        sys.exit(_NEEDS_MORE)


def _is_memory_limited() -> bool:
    """Whether this machine lets a process have less memory than the structure of a file may take.

    Then nothing that goes wrong shows that the file is damaged.
    """
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    return most != resource.RLIM_INFINITY and most < _MOST_MEMORY


def is_keras_archive(path: Path) -> bool:
    """Whether an archive is one of Keras, by the names in it."""
    try:
        with open_named_file(path) as file, zipfile.ZipFile(file) as archive:
            return WEIGHTS_MEMBER in archive.namelist()
    except ARCHIVE_ERRORS:
        return False


def _import_h5py(path: Path) -> Any:
    try:
        import h5py
    except ImportError as error:
        raise UsageError(
            f"{path.name} is an HDF5 file, which h5py reads. Install it with "
            "`pip install 'tfckpt-tui[h5]'`."
        ) from error
    return h5py


def _problem_of(data: Any) -> str:
    """Returns what a dataset has that Keras never writes; empty if it has nothing such."""
    if data.shape is None:
        return "has no values"
    if data.external or data.is_virtual:
        return "has its data in another file, which is not read"
    made = data.id.get_create_plist()
    if not {made.get_filter(position)[0] for position in range(made.get_nfilters())} <= _FILTERS:
        return "is compressed, which is not supported"
    if data.chunks is not None and math.prod(data.chunks) * data.dtype.itemsize > _LARGEST_CHUNK:
        return f"is stored in pieces of more than {_LARGEST_CHUNK >> 20} MiB"
    return ""


def _layer_name(group: Any) -> str:
    import h5py

    if not isinstance(group.get(_VARIABLES, getlink=True), h5py.HardLink):
        return ""
    name = group[_VARIABLES].attrs.get("name")
    return name if isinstance(name, str) else ""


def _natural(name: str) -> tuple[int, int, str]:
    """Returns a sort key by which `2` comes before `10`."""
    is_number = name.isascii() and name.isdigit()
    return not is_number, int(name[:18]) if is_number else 0, name


def _weights_in(file: BinaryIO) -> BinaryIO:
    """Returns the HDF5 file in an archive, to be read in its place."""
    with zipfile.ZipFile(file) as archive:
        archive_members(archive)
        member = archive.getinfo(WEIGHTS_MEMBER)
    if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
        raise ValueError("its weights are compressed or encrypted, as Keras never stores them")
    file.seek(member.header_offset)
    head = file.read(_LOCAL_HEADER.size)
    signature, *lengths = _LOCAL_HEADER.unpack(head) if len(head) == 30 else (b"", 0)
    start = member.header_offset + _LOCAL_HEADER.size + sum(lengths)
    end = start + member.file_size
    if signature != b"PK\3\4" or end > os.fstat(file.fileno()).st_size:
        raise ValueError("it was truncated")
    return _Part(file, start, member.file_size)  # type: ignore[return-value]


class _Part(io.RawIOBase):
    """A part of a file, as a file."""

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        self._file, self._start, self._size, self._at = file, start, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        count = max(0, min(len(view), self._size - self._at))
        data = os.pread(self._file.fileno(), count, self._start + self._at)
        view[: len(data)] = data
        self._at += len(data)
        return len(data)
