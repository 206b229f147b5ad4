"""The Git commit of a script as text."""

from __future__ import annotations

from tfckpt_trainer.rundir.records.run import CodeVersion
from tfckpt_tui.formats import units

_SHORT = 12


def code_in_words(code: CodeVersion) -> str:
    """Returns the commit and what differs from it: `5f0c on main, 2 files changed (+3 -1)`."""
    branch = f" on {code.branch}" if code.branch else ""
    return f"{code.commit[:_SHORT]}{branch}, {changes_in_words(code)}"


def changes_in_words(code: CodeVersion) -> str:
    """Returns what differs from the commit: `2 files changed (+3 -1)`."""
    if code.changed_files is None:
        return "changes unknown: Git did not answer in time"
    if not code.changed_files:
        return "no file changed"
    lines = f"+{code.added:,} -{code.removed:,}"
    return f"{units.count(code.changed_files, 'file')} changed ({lines})"
