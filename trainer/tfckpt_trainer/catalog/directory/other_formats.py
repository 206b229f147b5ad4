"""What a directory has beside its checkpoints: files of other formats, and checkpoints below it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path

import msgspec

from tfckpt_trainer.bundle.links import LFS_BEGIN
from tfckpt_trainer.catalog.directory.checkpoint_files import size_of_directory
from tfckpt_trainer.catalog.directory.save_directories import TEMPORARY
from tfckpt_trainer.catalog.directory.saved_model import SAVED_MODEL_FILES
from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.paths import EXPORTS, is_plain_name, position_in_name
from tfckpt_trainer.rundir.storage.files import open_plain
from tfckpt_trainer.rundir.storage.json_text import JsonError, decode_json
from tfckpt_trainer.rundir.storage.own_links import maker_of

_MOST_DIRECTORIES = 64
"""Subdirectories that are looked into."""

_MOST_ENTRIES = 10_000
"""Entries that are looked at in each."""


class Format(msgspec.Struct, frozen=True):
    """A format of files or directories.

    Attributes:
        name: Its name, for display.
        reader: What loads it: a Python function, or a command.
        begins: A pattern that the first bytes of each of its files match; empty for directories.
    """

    name: str
    reader: str
    begins: bytes = b""


_HDF5 = rb"(.{512}|.{1024}|.{2048})?\x89HDF\r\n\x1a\n"
"""Its specification allows such a block of the user before the signature."""
_LONGEST_BEGIN = 2056

_KERAS = rb"PK\x03\x04.{26}(metadata\.json|config\.json|model\.weights\.h5|assets/)"
"""An archive whose first member is one of those that Keras writes."""

_LEGACY = Format("Keras HDF5", "`keras.models.load_model` or `model.load_weights`", _HDF5)
_SAFETENSORS = Format("safetensors", "`tfckpt-tui convert`", rb".{6}\0\0\{")
_FILES = {
    ".keras": Format("Keras model", "`keras.models.load_model`", _KERAS),
    ".weights.h5": Format("Keras weights", "`model.load_weights`", _HDF5),
    ".h5": _LEGACY,
    ".hdf5": _LEGACY,
    ".safetensors": _SAFETENSORS,
}
"""The formats of files, by the end of the name; the longest end counts."""

_ENDS = tuple(_FILES)

SAVED_MODEL = Format("SavedModel", "`tf.saved_model.load`")
_ORBAX = Format("Orbax", "`orbax.checkpoint`")
_ORBAX_FILES = frozenset({"_CHECKPOINT_METADATA", "manifest.ocdbt"})

BACKUP = "latest.weights.h5"
"""What Keras's `BackupAndRestore` saves."""

BACKUP_OF_CHIEF = "chief"
"""The directory below that of this callback of Keras 2, in which the chief saves a checkpoint."""

OF_KERAS = (".weights.h5", ".keras")
"""How the names of files end with which the training of a Keras model goes on."""

_BACKUP_METADATA = "training_metadata.json"
"""Beside it, how many epochs are done."""

_METADATA_LIMIT = 1 << 16

# Not compiled here: few directories have such files.
_PART = r"(?P<name>.+)_\d{5}\.weights\.h5"
"""What `model.save_weights("NAME.weights.json", max_shard_size=…)` writes beside that file."""


class OtherFile(msgspec.Struct, frozen=True):
    """A file or a directory of another format.

    Attributes:
        size: In bytes; of a directory, of all files below it.
        saved_at: When it was last written, in seconds since the epoch.
        epoch: Epochs that were done, from its name; None if that does not tell.
        step: The step, from its name; None if that does not tell.
        is_link_of_others: Whether it is a link of another user that is not followed; size and time
            are those of the link.
    """

    name: str
    format: Format
    size: int
    saved_at: float
    epoch: int | None = None
    step: int | None = None
    is_link_of_others: bool = False

    @property
    def is_readable(self) -> bool:
        """Whether its tensors can be read; directories can only be listed."""
        return format_of(self.name) == self.format

    def begins_as_named(self, root: Path) -> bool | None:
        """Whether its first bytes are those of its format, or cannot be read.

        None if a program that writes or fetches it may still come to them.
        """
        if self.is_link_of_others:
            return True
        try:
            return _begins_so(root / self.name, self.size, self.saved_at, self.format.begins)
        except (OSError, DamagedFileError):
            return True

    @property
    def position(self) -> str:
        """The epoch and the step as words; empty if neither is known."""
        epoch = "" if self.epoch is None else f"epoch {self.epoch:,}"
        step = "" if self.step is None else f"step {self.step:,}"
        return ", ".join(filter(None, (epoch, step)))


class Neighbours(msgspec.Struct, frozen=True):
    """What a directory has beside its checkpoints.

    Attributes:
        below: Subdirectories with checkpoints, or with files of Keras.
        others: Files and directories of other formats, newest first.
        misnamed: Files that have the name of such a format, and the content of another.
    """

    below: tuple[str, ...] = ()
    others: tuple[OtherFile, ...] = ()
    misnamed: tuple[str, ...] = ()


NO_NEIGHBOURS = Neighbours()


def find_neighbours(root: Path) -> Neighbours:
    """Looks at the names in a directory and in its subdirectories.

    Raises:
        OSError: The directory cannot be read.
    """
    below: list[str] = []
    formats: dict[str, Format] = {}
    directories: list[str] = []
    with os.scandir(root) as entries:
        for entry in entries:
            if entry.name.startswith(".") or entry.name.endswith(TEMPORARY):
                continue
            if entry.is_dir(follow_symlinks=False):
                directories.append(entry.name)
            elif form := format_of(entry.name):
                formats[entry.name] = form
    for name in sorted(directories)[:_MOST_DIRECTORIES]:
        names = _names_in(root / name)
        inside = {format_of(file) for file in names} - {None}
        if names & SAVED_MODEL_FILES:
            formats[name] = SAVED_MODEL
        elif names & _ORBAX_FILES:
            formats[name] = _ORBAX
        elif has_checkpoint(names):
            below.append(name)
        elif BACKUP_OF_CHIEF in names and has_checkpoint(_names_in(root / name / BACKUP_OF_CHIEF)):
            below.append(f"{name}/{BACKUP_OF_CHIEF}")
        elif inside - {_SAFETENSORS}:
            below += [] if name == EXPORTS else [name]
        elif inside:
            formats[name] = _SAFETENSORS
    return _neighbours(root, tuple(below), formats.items())


def _neighbours(
    root: Path,
    below: tuple[str, ...],
    files: Iterable[tuple[str, Format]],
    kept: Sequence[OtherFile] = (),
) -> Neighbours:
    others = _described(root, files)
    misnamed = {other.name for other in others if other.begins_as_named(root) is False}
    return Neighbours(
        below,
        _newest_first((*kept, *(other for other in others if other.name not in misnamed))),
        tuple(sorted(misnamed)),
    )


def look_again(root: Path, neighbours: Neighbours) -> Neighbours:
    """Returns the same files with the size and time that they have now.

    Keras writes HDF5 files in their place, which does not change the directory. Directories are
    measured again only if they changed: they can have thousands of files.
    """
    kept = [other for other in neighbours.others if _is_same_directory(root / other.name, other)]
    again = {other.name: other.format for other in neighbours.others if other not in kept}
    again |= {name: form for name in neighbours.misnamed if (form := format_of(name))}
    return _neighbours(root, neighbours.below, again.items(), kept)


def has_checkpoint(names: frozenset[str]) -> bool:
    """Whether files are those of a checkpoint: an index, and data of the same name."""
    return bool(paired_names(names))


def paired_names(names: Collection[str]) -> set[str]:
    """Returns the names of the checkpoints that have an index and data, by the names of files."""
    indexed = {name.removesuffix(".index") for name in names if name.endswith(".index")}
    return indexed & {name.rpartition(".data-")[0] for name in names if ".data-" in name}


def has_keras_file(names: Iterable[str]) -> bool:
    """Whether a file is surely one of Keras; `.h5` files can hold other data."""
    return any(name.endswith(OF_KERAS) for name in names)


def format_of(name: str) -> Format | None:
    """Returns the format of a file by its name; None if that tells none."""
    end = end_of_name(name)
    return _FILES[end] if end else None


def is_event_file(name: str) -> bool:
    """Whether a file with this name is an event file, as TensorBoard finds them."""
    return "tfevents" in name


def find_other_file(root: Path, name: str) -> OtherFile | None:
    """Returns a file or directory of another format by its name; None if there is none."""
    if not is_plain_name(name):
        return None
    form = format_of(name)
    if form is not None:
        return next(iter(_described(root, [(name, form)])), None)
    with suppress(OSError):
        return next((other for other in find_neighbours(root).others if other.name == name), None)
    return None


def find_others_at(root: Path, position: str) -> list[OtherFile]:
    """Returns the files of other formats of a step or an epoch, if their tensors can be read.

    Args:
        root: The directory.
        position: The step or the epoch, as a user writes it.
    """
    if not (position.isascii() and position.isdigit()):
        return []
    with suppress(OSError):
        files = find_neighbours(root).others
        return [one for one in files if one.is_readable and int(position) in (one.epoch, one.step)]
    return []


def _described(root: Path, files: Iterable[tuple[str, Format]]) -> tuple[OtherFile, ...]:
    def described() -> Iterator[OtherFile]:
        for name, form in files:
            with suppress(OSError):
                path = os.path.join(root, name)
                facts = os.stat(path)
                maker = maker_of(path, os.readlink(path)) if os.path.islink(path) else None
                if maker not in {None, facts.st_uid}:
                    link = os.lstat(path)
                    yield OtherFile(name, form, link.st_size, link.st_mtime, is_link_of_others=True)
                    continue
                if stat.S_ISREG(facts.st_mode):
                    is_part = _is_part(root, name)
                    epoch, step = (None, None) if is_part else position_in_name(_without_end(name))
                    if name == BACKUP:
                        epoch = _epoch_of_backup(root)
                    yield OtherFile(name, form, facts.st_size, facts.st_mtime, epoch, step)
                elif stat.S_ISDIR(facts.st_mode) and not os.path.islink(root / name):
                    # Directories of other frameworks are named by steps.
                    number, step = position_in_name(_without_end(name))
                    size = size_of_directory(root / name)
                    step = number if step is None else step
                    yield OtherFile(name, form, size, facts.st_mtime, step=step)

    return _newest_first(described())


@lru_cache(maxsize=4096)
def _begins_so(path: Path, size: int, saved_at: float, pattern: bytes) -> bool | None:
    """Whether a file of this size and time begins so.

    None if it is empty, begins with zeros or is a pointer of Git LFS.
    """
    with open_plain(path) as file:
        begin = file.read(_LONGEST_BEGIN)
    if not begin.strip(b"\0") or begin.startswith(LFS_BEGIN):
        return None
    return re.match(pattern, begin, re.DOTALL) is not None


def _newest_first(files: Iterable[OtherFile]) -> tuple[OtherFile, ...]:
    return tuple(sorted(files, key=lambda file: (-file.saved_at, file.name)))


def _is_same_directory(path: Path, file: OtherFile) -> bool:
    with suppress(OSError):
        facts = os.lstat(path)
        return stat.S_ISDIR(facts.st_mode) and facts.st_mtime == file.saved_at
    return False


def _is_part(root: Path, name: str) -> bool:
    """Whether Keras wrote a file as one of several: its number is no epoch."""
    match = re.fullmatch(_PART, name, re.DOTALL)
    return match is not None and (root / f"{match['name']}.weights.json").is_file()


def _epoch_of_backup(directory: Path) -> int | None:
    broken = (OSError, DamagedFileError, JsonError)
    with suppress(*broken), open_plain(directory / _BACKUP_METADATA) as file:
        return decode_json(file.read(_METADATA_LIMIT), _BackupMetadata).epoch
    return None


class _BackupMetadata(msgspec.Struct):
    epoch: int


def _without_end(name: str) -> str:
    return name.removesuffix(end_of_name(name))


def end_of_name(name: str) -> str:
    """Returns the end of the name of a file that tells its format; empty if none does."""
    if not name.endswith(_ENDS):
        # The usual case first: this runs for every file of a directory.
        return ""
    return max((end for end in _ENDS if name.endswith(end)), key=len)


def _names_in(directory: Path) -> frozenset[str]:
    with suppress(OSError), os.scandir(directory) as entries:
        return frozenset(entry.name for entry in islice(entries, _MOST_ENTRIES))
    return frozenset()
