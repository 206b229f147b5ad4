"""What a copy has to send: files that a destination lacks, from where they end there."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tfckpt_trainer.bundle.verify import Progress
from tfckpt_trainer.errors import RefusedError
from tfckpt_trainer.rundir.heartbeats.process_ids import host_name
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.formats import units
from tfckpt_tui.services.copying.destination import Destination, Placed
from tfckpt_tui.services.copying.source import SourceCheckpoint, SourceFile

Phase = Callable[[str], Progress]
"""Called with what is being done; returns what is told its bytes done and in total."""


@dataclass
class Part:
    """What is left to do for one checkpoint.

    Attributes:
        missing: Files that the destination does not have under their names.
        arrived: Bytes of them that an earlier copy left.
        useless: Paths of what is no part of a file.
    """

    source: SourceCheckpoint
    staging: str
    missing: list[SourceFile] = field(default_factory=list)
    arrived: dict[str, int] = field(default_factory=dict)
    useless: list[str] = field(default_factory=list)

    @property
    def needed_bytes(self) -> int:
        """Bytes to send."""
        return sum(file.size - self.arrived.get(file.name, 0) for file in self.missing)

    def placed(self, files: Sequence[SourceFile]) -> list[Placed]:
        """Returns files with where each is until all are there."""
        return [(file, self.staged(file)) for file in files]

    def staged(self, file: SourceFile) -> str:
        """Returns where a file is until all are there."""
        folder, slash, name = file.name.rpartition("/")
        # `.tfckpt/workers/NAME/…` and `.tfckpt/records/…`; no two of them share a name.
        return (
            f"{self.staging}/{folder.split('/')[1]}/{name}" if slash else f"{self.staging}/{name}"
        )


def plan_copy(
    run: RunDirectory,
    destination: Destination,
    sources: Sequence[SourceCheckpoint],
    phase: Phase,
) -> tuple[list[Part], int]:
    """Finds out what a destination lacks; returns it with the free space there.

    Raises:
        RefusedError: The destination has other files of these names, or too little space.
        TfckptError: It cannot be read.
    """
    parts = [Part(source, _staging(run, source.name)) for source in sources]
    paths = [path for part in parts for f in part.source.files for path in (f.name, part.staged(f))]
    # The next start there would complete or discard such a save, and with it a copy of this name.
    saves = {source.name: f".tfckpt/saving/{source.name}.json" for source in sources}
    survey = destination.survey(list(saves), [*paths, *saves.values()])
    for part in parts:
        name = part.source.name
        strays = [path for path in survey.others if path.startswith(f"{name}.")]
        strays += [saves[name]] if saves[name] in survey.sizes else []
        there = [file for file in part.source.files if file.name in survey.sizes]
        wrong = [file for file in there if survey.sizes[file.name] != file.size]
        if there:
            phase(f"comparing {name} with {destination.label}")
        if strays or wrong or (there and destination.differing([(f, f.name) for f in there])):
            raise _taken(destination, name)
        part.missing += [file for file in part.source.files if file.name not in survey.sizes]
        for file in part.missing:
            arrived = survey.sizes.get(part.staged(file), 0)
            if 0 < arrived <= file.size:
                part.arrived[file.name] = arrived
            elif arrived:
                part.useless.append(part.staged(file))
    return parts, _require_space(destination, parts, survey.free_bytes)


def _taken(destination: Destination, name: str) -> RefusedError:
    return RefusedError(
        f"{destination.label} has other files named {name}: another checkpoint, or a damaged copy. "
        "Move them away, or copy to another directory."
    )


def _require_space(destination: Destination, parts: Sequence[Part], free: int) -> int:
    needed = sum(part.needed_bytes for part in parts)
    if needed > free:
        raise RefusedError(
            f"{destination.label} has {units.size(free)} free; the copy needs "
            f"{units.size(needed)}. Make room there, or copy fewer checkpoints."
        )
    return free


def _staging(run: RunDirectory, name: str) -> str:
    """Returns a directory for the parts of a checkpoint, which no other source shares."""
    origin = f"{host_name()}:{run.root}:{os.getuid()}".encode(errors="surrogateescape")
    return f".tfckpt/copying/{name}.{hashlib.sha256(origin).hexdigest()[:8]}"
