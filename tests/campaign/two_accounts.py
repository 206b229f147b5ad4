"""Two accounts of one group on one run directory: neither locks the other out.

A case is a number. It makes who owns the run, and who does what with which umask.
"""

from __future__ import annotations

import importlib
import os
import re
from pathlib import Path
from random import Random

import tfckpt_trainer
import tfckpt_tui
from accounts import ALICE, BOB, GROUP, share
from child_processes import in_child

from .areas import Outcome
from .ledger import Ledger, facts_below
from .storage_faults import COMMANDS, RUN, DrawnRuns, badly_ended, may_go_by, on_disk

_ACCOUNTS = {"alice": ALICE, "bob": BOB}
_NEEDS_MORE = re.compile(r"\.(training|examples|app|selftest)\b|__main__")
"""What imports TensorFlow or Textual."""

_UMASKS = (0o002, 0o007, 0o022, 0o027, 0o077)


class TwoAccounts(DrawnRuns):
    """Commands of two accounts on one run."""

    name = "accounts"

    def __init__(self, place: Path) -> None:
        """Makes the run that is copied for each case, and imports what other accounts cannot."""
        super().__init__(place)
        # Nobody else may become another account.
        self.is_left_out = os.geteuid() != 0
        import_all()

    def run(self, case: str, place: Path) -> Outcome:
        """Has both accounts do something, and then both act once more."""
        chance = Random(case)
        # Both have to pass through.
        for directory in (place, *place.parents[:2]):
            directory.chmod(directory.stat().st_mode | 0o711)
        root = self.copied(place)
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
            for words in COMMANDS[command]:
                may_go |= may_go_by(command, words, ledger)
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

    def action() -> int:
        account = _ACCOUNTS[who]
        os.setgroups([GROUP])
        os.setresgid(GROUP, GROUP, GROUP)
        os.setresuid(account, account, account)
        os.umask(umask)
        os.chdir("/")
        for part in ("CACHE", "STATE", "CONFIG", "DATA"):
            os.environ[f"XDG_{part}_HOME"] = str(place / who / part)
        os.environ["HOME"] = str(place / who)
        return on_disk(words, place)

    code, told = in_child(action)
    found = [f"it ended with {code}: {told}"] if must and code else badly_ended(words, code, told)
    return [f"after {done}: {one}" for one in found]
