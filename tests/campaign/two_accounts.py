"""Two accounts of one group on one run directory: neither locks the other out.

A case is a number. It makes who owns the run, and who does what with which umask.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import tfckpt_trainer
import tfckpt_tui
from accounts import ALICE, BOB, GROUP, share
from tfckpt_tui.cli.main import run

from .areas import Outcome
from .ledger import Facts, Ledger, facts_of
from .processes import in_child
from .storage_faults import COMMANDS, DELETED, RUN, healthy_run, in_place

_ACCOUNTS = {"alice": ALICE, "bob": BOB}
_NEEDS_MORE = re.compile(r"\.(training|examples|app|selftest)\b|__main__")
"""What imports TensorFlow or Textual."""

_UMASKS = (0o002, 0o007, 0o022, 0o027, 0o077)


class TwoAccounts:
    """Commands of two accounts on one run."""

    name = "accounts"

    def __init__(self, place: Path) -> None:
        """Makes the run that is copied for each case."""
        self._healthy = healthy_run(place / "healthy")
        import_all()

    def cases(self, chance: Random) -> Iterator[str]:
        """Yields numbers without end; none for who may not become another account."""
        while os.geteuid() == 0:
            yield str(chance.randrange(10**9))

    def run(self, case: str, place: Path) -> Outcome:
        """Has both accounts do something, and then both act once more."""
        chance = Random(case)
        # Both have to pass through.
        for directory in (place, *place.parents[:2]):
            directory.chmod(directory.stat().st_mode | 0o711)
        root = place / "run"
        shutil.copytree(self._healthy, root, symlinks=True)
        hand_over(root, _ACCOUNTS[chance.choice([*_ACCOUNTS])])
        (place / "out").mkdir()
        for part in ("out", *_ACCOUNTS):
            share(place / part, _ACCOUNTS.get(part, ALICE))
        elsewhere = place / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "file").write_text("of root")
        before, ledger = facts_below(elsewhere), Ledger(root)
        found: list[str] = []
        done: list[str] = []
        may_go: set[str] = set()
        for _ in range(4):
            command, who = chance.choice([*COMMANDS]), chance.choice([*_ACCOUNTS])
            umask = chance.choice(_UMASKS)
            may_go |= set(DELETED.get(command, ()))
            for words in COMMANDS[command]:
                if words[0] == "trash":
                    # It empties all of it.
                    may_go |= ledger.in_trash()
                done.append(f"{who} {umask:03o} {words[0]}")
                found += did(words, who, umask, place, done)
            found += [f"after {done}: {one}" for one in ledger.violations(may_go)]
        for who in _ACCOUNTS:
            for words in (["ls", RUN], ["pin", RUN, "ckpt-400"], ["unpin", RUN, "ckpt-400"]):
                found += did(words, who, 0o022, place, done, must=True)
        if facts_below(elsewhere) != before:
            found.append(f"after {done}: something elsewhere has changed")
        return Outcome(len(done), tuple(found))


def hand_over(root: Path, owner: int) -> None:
    """Gives a run to an account, in a directory that its group shares."""
    for path in (root, *root.rglob("*")):
        os.chown(path, owner, GROUP, follow_symlinks=False)
        if path.is_dir():
            path.chmod(0o2775)
        elif not path.is_symlink():
            path.chmod(0o664)


def import_all() -> None:
    """Imports all that commands need: other accounts may not read the modules of root."""
    for package in (tfckpt_trainer, tfckpt_tui):
        (place,) = map(Path, package.__path__)
        for path in place.rglob("*.py"):
            name = ".".join(path.relative_to(place.parent).with_suffix("").parts)
            if not _NEEDS_MORE.search(name):
                importlib.import_module(name.removesuffix(".__init__"))


def did(
    words: list[str] | tuple[str, ...],
    who: str,
    umask: int,
    place: Path,
    done: list[str],
    *,
    must: bool = False,
) -> list[str]:
    """Runs a command as an account; returns what must not have come of it."""

    def act() -> int:
        account = _ACCOUNTS[who]
        os.setgroups([GROUP])
        os.setresgid(GROUP, GROUP, GROUP)
        os.setresuid(account, account, account)
        os.umask(umask)
        os.chdir("/")
        for part in ("CACHE", "STATE", "CONFIG", "DATA"):
            os.environ[f"XDG_{part}_HOME"] = str(place / who / part)
        os.environ["HOME"] = str(place / who)
        return run(in_place(words, place))

    told = place / "told"
    told.unlink(missing_ok=True)
    code = in_child(act, told)
    said = told.read_text(encoding="utf-8") if told.exists() else ""
    if code not in range(5) or "Traceback" in said or (must and code):
        return [f"after {done}: `{words[0]}` by {who} ended with {code}: {said}"]
    return []


def facts_below(directory: Path) -> dict[str, Facts]:
    """Returns the facts of all that is below a directory."""
    return {str(path): facts_of(path) for path in directory.rglob("*")}
