"""How completions are asked for by a shell, and written for it."""

from __future__ import annotations

import os
import re
from functools import cached_property

from click.shell_completion import BashComplete, CompletionItem, add_completion_class
from click.shell_completion import split_arg_string as split_words

_UNSAFE = re.compile(r"([^\w@%+=:,./-])")
_WORDS = 'COMP_WORDS="${COMP_WORDS[*]}"'
_LINE = 'COMP_LINE="${COMP_LINE:0:COMP_POINT}"'


def words_of_shell() -> list[str]:
    """Returns the command line that a shell wants to complete."""
    return split_words(os.environ.get("COMP_LINE") or os.environ.get("COMP_WORDS", ""))[1:]


class QuotingBashComplete(BashComplete):
    """Quotes names with spaces, as bash wants to have them inserted, and keeps `CKPT:TENSOR` whole.

    Bash splits its list of words at colons too, but not the line. It replaces what follows the last
    colon.
    """

    source_template = BashComplete.source_template.replace(_WORDS, f"{_WORDS} {_LINE}")

    def get_completion_args(self) -> tuple[list[str], str]:
        """Returns the complete words and the incomplete one."""
        line = os.environ.get("COMP_LINE")
        if not line:
            return super().get_completion_args()
        words = split_words(line)[1:]
        return (words, "") if line[-1].isspace() else (words[:-1], words[-1] if words else "")

    def format_completion(self, item: CompletionItem) -> str:
        """Returns a line of the answer."""
        value = item.value[self._kept_by_bash :]
        # The script of click reads it with `read`, which takes one level of backslashes away.
        quoted = _UNSAFE.sub(r"\\\\\1", value) if item.type == "plain" else value
        return f"{item.type},{quoted}"

    @cached_property
    def _kept_by_bash(self) -> int:
        """How many characters of the incomplete word bash does not replace."""
        line = os.environ.get("COMP_LINE", "")
        typed = split_words(line)[-1] if line and not line[-1].isspace() else ""
        places = split_words(os.environ.get("COMP_WORDS", ""))[int(os.environ["COMP_CWORD"]) :]
        is_split = ":" in typed and (not places or places[0] == ":" or ":" not in places[0])
        return typed.rindex(":") + 1 if is_split else 0


def register() -> None:
    """Lets click use the classes of this module."""
    add_completion_class(QuotingBashComplete)
