"""Writes checkpoint directories as TensorFlow and as our library leave them; checks them itself."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from bundle_writing import write_floats
from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.rundir.paths import RunDirectory, checkpoint_name
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, FileFacts
from tfckpt_trainer.rundir.records.run import Head
from tfckpt_trainer.rundir.storage.documents import store

NOW = 1_700_000_000.0
LONG_AGO = 3600.0
"""Seconds: nobody writes any more what was changed before."""


class CheckpointDirectory:
    """A directory under construction; ages are seconds before `NOW`."""

    def __init__(self, root: Path, *, are_all_different: bool = False) -> None:
        root.mkdir(exist_ok=True)
        self._are_all_different = are_all_different
        self.root = root
        self.run = RunDirectory(root)
        self._sequence = 0

    def tensorflow(
        self,
        name: str,
        *,
        age: float = LONG_AGO,
        shards: int = 1,
        listed: bool = True,
        into: Path | None = None,
    ) -> None:
        """Writes a checkpoint as TensorFlow does."""
        first = len([*self.root.glob("*.index")]) if self._are_all_different else 0
        floats = ((float(first + shard), 0.5) for shard in range(shards))
        for path in write_floats((into or self.root) / name, *floats):
            self.touch(path, age)
        if listed:
            self._list(name)

    def ours(
        self,
        step: int,
        branch: int = 0,
        *,
        age: float = LONG_AGO,
        parent: str | None = None,
        metrics: dict[str, float | None] | None = None,
        workers: int = 1,
        shards: int = 1,
    ) -> str:
        """Writes a checkpoint as our library does, each worker's own state with it."""
        name = checkpoint_name(step, branch)
        self.tensorflow(name, age=age, shards=shards)
        paths = sorted(self.root.glob(f"{name}.*"))
        own = self.run.worker_state_directory(name)
        own.mkdir(parents=True)
        for index in range(workers):
            paths += write_floats(own / f"worker-{index}", (0.0, 0.5))
        for path in own.iterdir():
            self.touch(path, age)
        self.record(name, step, branch, age=age, parent=parent, metrics=metrics, paths=paths)
        return name

    def record(
        self,
        name: str,
        step: int,
        branch: int = 0,
        *,
        age: float = LONG_AGO,
        parent: str | None = None,
        metrics: dict[str, float | None] | None = None,
        paths: list[Path] | None = None,
    ) -> None:
        """Writes the record of a checkpoint; each one is the newest so far."""
        self._sequence += 1
        record = CheckpointRecord(
            name=name,
            step=step,
            branch=branch,
            sequence=self._sequence,
            saved_at=NOW - age,
            trigger="every 100 steps",
            parent=parent,
            metrics=metrics or {},
            files=[
                FileFacts(
                    name=str(path.relative_to(self.root)),
                    size=path.stat().st_size,
                    crc32c=crc32c(path.read_bytes()),
                )
                for path in paths or []
            ],
        )
        self.run.records_directory.mkdir(parents=True, exist_ok=True)
        store(self.run.record(name), record)

    def restored(self, name: str, step: int, branch: int) -> None:
        """Notes a restore, as our library does."""
        self._sequence += 1
        head = Head(checkpoint=name, step=step, branch=branch, sequence=self._sequence)
        self.run.control.mkdir(exist_ok=True)
        store(self.run.head_file, head)

    def temporary(self, name: str, *, age: float, part_age: float | None = None) -> Path:
        """Writes the directory in which TensorFlow collects the parts of a save."""
        directory = self.root / f"{name}_temp"
        directory.mkdir(parents=True)
        part = directory / "part-00000-of-00001.data-00000-of-00001.tempstate123"
        part.write_bytes(b"half")
        self.touch(part, age if part_age is None else part_age)
        self.touch(directory, age)
        return directory

    def index_of_part(self, temporary: Path, name: str, age: float) -> Path:
        """Puts an index into a directory of parts: that of a checkpoint, which TensorFlow wrote."""
        index = temporary / "part-00000-of-00001.index.tempstate123"
        shutil.copy(self.root / f"{name}.index", index)
        self.touch(index, age)
        self.touch(temporary, age)
        return index

    def touch(self, path: Path, age: float) -> None:
        """Says when a file was changed."""
        os.utime(path, (NOW - age, NOW - age))

    def scan(self, later: float = 0.0) -> dict[str, Checkpoint]:
        """Looks with a new catalog; the order of the answer is kept."""
        return {c.name: c for c in Catalog(self.run).scan(NOW + later)}

    def _list(self, name: str) -> None:
        old = listed_stamps(self.root) if self.run.state_file.exists() else []
        stamps = [
            *((n, s) for n, s in old if n != name),
            (name, 1 + max([0, *(s for _, s in old)])),
        ]
        lines = [f'model_checkpoint_path: "{name}"']
        lines += [f'all_model_checkpoint_paths: "{listed}"' for listed, _ in stamps]
        lines += [f"all_model_checkpoint_timestamps: {stamp!r}" for _, stamp in stamps]
        self.run.state_file.write_text("\n".join(lines) + "\n")


def contents(root: Path) -> dict[str, bytes]:
    """Returns every file of a directory with what is in it.

    Without the trash, the count of prunes, the locks and the reserve.
    """
    left_out = {".tfckpt/trash", ".tfckpt/trash.json", ".tfckpt/reserve"}
    found: dict[str, bytes] = {}
    # Thousands of directories are compared so; `Path.rglob` takes three times as long.
    waiting = [""]
    while waiting:
        with os.scandir(root / waiting.pop()) as entries:
            for entry in entries:
                name = entry.path.removeprefix(f"{root}/")
                if name in left_out or name.endswith(".lock"):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(name)
                elif entry.is_file():
                    with open(entry.path, "rb") as file:
                        found[name] = file.read()
    return dict(sorted(found.items()))


def listed_names(root: Path) -> list[str]:
    """Returns what TensorFlow's state file lists, read without the product's code."""
    text = (root / "checkpoint").read_text()
    return re.findall(r'^all_model_checkpoint_paths: "(.+)"$', text, re.MULTILINE)


def listed_stamps(root: Path) -> list[tuple[str, float]]:
    """Returns what the state file lists with its times, read without the product's code."""
    text = (root / "checkpoint").read_text()
    stamps = re.findall(r"^all_model_checkpoint_timestamps: (.+)$", text, re.MULTILINE)
    return list(zip(listed_names(root), map(float, stamps), strict=True))


def latest_name(root: Path) -> str:
    """Returns what TensorFlow would restore, read without the product's code."""
    found = re.search(r'^model_checkpoint_path: "(.+)"$', (root / "checkpoint").read_text(), re.M)
    assert found is not None
    return found[1]
