"""Files of other people beside the checkpoints of a run, with names that look like ours.

A case is a number. It makes the files and the commands, which follow each other without a fault.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from .areas import Outcome
from .ledger import Ledger
from .storage_faults import COMMANDS, DrawnRuns, badly_ended, do, may_go_by

_STEMS = (
    "ckpt-100", "ckpt-200", "ckpt-600", "ckpt-007", "ckpt-", "foreign-7", "foreign-8", "model",
    "ckpt-100-copy", "CKPT-100", "ckpt-100.bak", "checkpoint", "best", "ckpt-500-b1", ".ckpt-100",
    "ckpt-１００", "ckpt-100 ", "ckpt-1e2", "average-400", "edited-100",
)  # fmt: skip
_ENDINGS = (
    "", ".index.bak", ".data-00000-of-00002", ".data-00000-of-00001.orig", ".data-0-of-1", ".meta",
    ".index~", ".INDEX", ".tempstate123", ".part", ".json", ".txt", ".keras", ".weights.h5", ".npz",
    "_temp", ".data-99999-of-99999", ".index.tmp", ".lock", ".data-00001-of-00001",
)  # fmt: skip
_PLACES = ("", "", "", "notes/", "logs/", "ckpt-100/", "ckpt-300.d/", "backup/")
_KINDS = ("bytes", "bytes", "bytes", "empty", "link", "broken link", "directory")


class StrangersFiles(DrawnRuns):
    """A file that is no checkpoint keeps its bytes, its name and its times, whatever is asked."""

    name = "strangers"

    def run(self, case: str, place: Path) -> Outcome:
        """Puts files beside a run, and runs commands."""
        chance = Random(case)
        root = self.copied(place)
        others = list(dict.fromkeys(filter(None, (drop(root, chance) for _ in range(25)))))
        ledger = Ledger(root, others)
        found: list[str] = []
        may_go: set[str] = set()
        done = []
        for _ in range(6):
            command = chance.choice([*COMMANDS])
            for words in COMMANDS[command]:
                may_go |= may_go_by(command, words, ledger)
                done.append(words[0])
                found += [f"after {done}: {one}" for one in badly_ended(words, *do(words, place))]
            found += [f"after {done}: {one}" for one in ledger.violations(may_go)]
        return Outcome(len(others), tuple(found))


def drop(root: Path, chance: Random) -> str:
    """Makes a file of somebody else; returns its relative path, or nothing if one is there."""
    name = chance.choice(_PLACES) + chance.choice(_STEMS) + chance.choice(_ENDINGS)
    path, kind = root / name, chance.choice(_KINDS)
    if os.path.lexists(path) or any(p.is_file() for p in path.parents):
        return ""
    path.parent.mkdir(exist_ok=True)
    if kind == "directory":
        path.mkdir()
    elif kind.endswith("link"):
        path.symlink_to("notes.txt" if kind == "link" else "nowhere")
    else:
        path.write_bytes(chance.randbytes(40) if kind == "bytes" else b"")
        os.utime(path, (1_600_000_000 + chance.randrange(10**6),) * 2)
    return name
