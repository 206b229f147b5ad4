"""How completions are asked for by a shell, and written for it."""

from __future__ import annotations

import os
import re

from click.shell_completion import BashComplete, CompletionItem, add_completion_class
from click.shell_completion import split_arg_string as split_words

VARIABLE = "_TFCKPT_TUI_COMPLETE"
"""The environment variable by which a shell asks."""

_UNSAFE = re.compile(r"([^\w@%+=:,./-])")


def words_of_shell() -> list[str] | None:
    """Returns the command line that a shell wants to complete; None if none asks."""
    if VARIABLE not in os.environ:
        return None
    return split_words(os.environ.get("COMP_WORDS", ""))[1:]


class QuotingBashComplete(BashComplete):
    """Quotes names with spaces, as bash wants to have them inserted, and keeps `CKPT:TENSOR` whole.

    Bash splits words at the characters of `COMP_WORDBREAKS`, which it reads before the function
    of a command runs.
    """

    source_template = f"{BashComplete.source_template}\nCOMP_WORDBREAKS=${{COMP_WORDBREAKS//:}}\n"

    def format_completion(self, item: CompletionItem) -> str:
        """Returns a line of the answer."""
        # The script of click reads it with `read`, which takes one level of backslashes away.
        quoted = _UNSAFE.sub(r"\\\\\1", item.value) if item.type == "plain" else item.value
        return f"{item.type},{quoted}"


def register() -> None:
    """Lets click use the classes of this module."""
    add_completion_class(QuotingBashComplete)
