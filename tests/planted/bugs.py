"""The planted bugs: what is wrong, and where."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

FILES = Path(__file__).with_name("bugs")


class StaleBugError(Exception):
    """The text that a bug replaces is not, or not once, in the file."""


@dataclass(frozen=True)
class Bug:
    """A planted bug: one text in one file of the product is replaced by another.

    Attributes:
        name: Its name, such as `pin-forgotten`.
        sentence: What goes wrong.
        path: The file, relative to the checkout.
        before: The right text; it is in the file once.
        after: The wrong text.
        tests: Folders, files or tests that may notice it, as pytest takes them. They are tried
            first, and the cheapest of them come first.
    """

    name: str
    sentence: str
    path: str
    before: str
    after: str
    tests: tuple[str, ...]

    def applied_to(self, text: str) -> str:
        """Returns the text of the file with the bug.

        Raises:
            StaleBugError: The file has changed, and the bug needs a change too.
        """
        found = text.count(self.before)
        if found != 1:
            raise StaleBugError(f"{self.name}: {self.path} has its text {found} times, not once.")
        return text.replace(self.before, self.after)


def read_bugs(directory: Path = FILES) -> list[Bug]:
    """Returns all bugs."""
    tables: dict[str, dict[str, str]] = {}
    for path in sorted(directory.glob("*.toml")):
        tables |= tomllib.loads(path.read_text(encoding="utf-8"))
    return [
        Bug(name, **{**table, "tests": tuple(table["tests"])}) for name, table in tables.items()
    ]
