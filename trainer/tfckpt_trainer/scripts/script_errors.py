"""Describes an error of a training script in one line: file and line of the script first.

TensorFlow puts the stack of an operation that failed in a graph into its message, and so does
AutoGraph for an error while it traces a function. The stack of Python then shows the library only.
"""

from __future__ import annotations

import linecache
import re
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile, zip_longest
from pathlib import Path
from types import TracebackType

LONGEST_MESSAGE = 1000
"""Characters of a message that are kept; assertions print whole tensors."""

_PACKAGE = Path(__file__).resolve().parent.parent
_LIBRARIES = (*set(sysconfig.get_paths().values()), str(_PACKAGE))
PACKAGE_FOLDERS = ("/site-packages/", "/dist-packages/")
"""Parts of the paths of installed packages, also of those outside this environment."""
_EXAMPLES = str(_PACKAGE / "examples")

_FRAME = re.compile(
    r'^(?P<indent>\s*)File "(?P<file>[^"]+)", line (?P<line>\d+)'
    r"(?:, in (?P<function>.*?))?(?:  \*+)?$"
)
_HEADERS = re.compile(
    r"^\s*(?:"
    r"Graph execution error:"
    r"|Detected at node .*"
    r"|in user code:"
    r"|Traceback \(most recent call last\):"
    r"|\d+ root error\(s\) found\."
    r"|\d+ successful operations\."
    r"|\d+ derived errors ignored\.(?: \[Op:[^\]]*\])?"
    r"|(?:\t|\s+(?=\[\[\{\{?node )) ?\[\[.*\]\](?: \[Op:[^\]]*\])?(?: name: ?)?"
    r")\s*$"
)
_NOISE = re.compile(
    r"\x1b\[[0-9;]*m"
    r"|^\s*\(\d+\) [A-Z_]+: "
    r"|\{\{function_node [^}]*\}\} ?"
    r"|\s*\[Op:[^\]]*\](?: name: ?)?\s*$"
)
_CRASHED = "Current thread "
_CRASH_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.+)$')
_TRACEBACK = "Traceback (most recent call last):"
_KIND = re.compile(r"(?:\w+\.)*(?P<name>\w+)(?:: |$)")
_WITH_STACK = ("Graph execution error:", "in user code:")
_KERAS_ARGUMENTS = re.compile(r"^\s*Arguments received by .*\):$")


@dataclass(frozen=True)
class ScriptLine:
    """A line of a Python file.

    Attributes:
        function: The function that it belongs to; empty if unknown.
        text: Its text as a traceback shows it, without indentation; empty if unknown.
    """

    file: str
    number: int
    function: str = field(default="", compare=False)
    text: str = field(default="", compare=False)

    @property
    def is_of_script(self) -> bool:
        """Whether it is the user's: not of Python, of an installed package, or generated."""
        if self.file.startswith("<") or "__autograph_generated_file" in self.file:
            return False
        if self.file.startswith(_EXAMPLES):
            return True
        if any(folder in self.file for folder in PACKAGE_FOLDERS):
            return False
        return not any(self.file.startswith(f"{library}/") for library in _LIBRARIES)

    @property
    def source(self) -> str:
        """Its text, without indentation; empty if it cannot be read."""
        return linecache.getline(self.file, self.number).strip()

    def __str__(self) -> str:
        path = Path(self.file)
        here = Path.cwd()
        shown = path.relative_to(here) if path.is_relative_to(here) else path
        return f"{shown}:{self.number}"


@dataclass(frozen=True)
class ScriptError:
    """An error as it is shown to users.

    Attributes:
        line: The innermost line of the script; None if none is known.
        message: Type and message of the error, in one line.
    """

    line: ScriptLine | None
    message: str

    def __str__(self) -> str:
        return self.message if self.line is None else f"{self.line}: {self.message}"


def describe_script_error(error: BaseException) -> ScriptError:
    """Returns where in the script an error was raised, and its message."""
    described = _describe(type(error).__name__, _lines_of(error.__traceback__), _text_of(error))
    line = described.line
    return described if line is None else replace(described, line=replace(line, text=line.source))


def _describe(kind: str, stack: Sequence[ScriptLine], text: str) -> ScriptError:
    inner, message = split_message(text)
    # The stack in a message is of the operation, which Python's stack does not show.
    lines = [line for line in [*stack, *inner] if line.is_of_script]
    # AutoGraph's own error says nothing: the message in it names the type of the one it wraps.
    has_kind = message.startswith(f"{kind}:") or (kind == "StagingError" and bool(message))
    shown = message if has_kind else f"{kind}: {message}".rstrip(": ")
    return ScriptError(lines[-1] if lines else None, shown)


def find_script_error(log: Sequence[str]) -> ScriptError | None:
    """Returns the error of the last traceback in the lines of a log; None if there is none."""
    starts = [number for number, line in enumerate(log) if line == _TRACEBACK]
    if not starts:
        return None
    stack = list(takewhile(lambda line: line[:1].isspace(), log[starts[-1] + 1 :]))
    raised, *rest = log[starts[-1] + 1 + len(stack) :] or [""]
    kind = _KIND.match(raised)
    if kind is None:
        return None
    # The message goes on only if it has a stack; what follows otherwise is other output.
    message = [raised[kind.end() :], *(rest if raised.endswith(_WITH_STACK) else ())]
    return _describe(kind["name"], split_message("\n".join(stack))[0], "\n".join(message))


def find_crash_line(log: Sequence[str]) -> ScriptLine | None:
    """Returns where the script was when a signal ended it, by what `faulthandler` wrote.

    Args:
        log: The lines of a log.
    """
    starts = [number for number, line in enumerate(log) if line.startswith(_CRASHED)]
    if not starts:
        return None
    frames = takewhile(bool, map(_CRASH_FRAME.match, log[starts[-1] + 1 :]))
    # The innermost comes first.
    lines = (
        ScriptLine(frame["file"], int(frame["line"]), frame["function"])
        for frame in frames
        if frame
    )
    return next((line for line in lines if line.is_of_script), None)


def split_message(text: str) -> tuple[list[ScriptLine], str]:
    """Splits a message into the stack within it, outermost line first, and the rest in one line.

    A message that has nothing else is returned whole.
    """
    lines: list[ScriptLine] = []
    kept: list[str] = []
    nodes = 0
    for part, source in _with_source(text.splitlines()):
        frame = _FRAME.match(part)
        nodes += part.startswith("Detected at node")
        if frame is not None:
            # If several operations failed, the first is the cause.
            line = ScriptLine(frame["file"], int(frame["line"]), frame["function"] or "", source)
            lines += [line] if nodes <= 1 else []
        elif _KERAS_ARGUMENTS.match(part):
            break
        elif not _HEADERS.match(part):
            kept.append(" ".join(_NOISE.sub("", part).split()))
    rest = " ".join(dict.fromkeys(part for part in kept if part))
    rest = rest or " ".join(text.split())
    return lines, rest if len(rest) <= LONGEST_MESSAGE else f"{rest[:LONGEST_MESSAGE]}…"


def _with_source(parts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields parts, each line of a stack with the source that follows it, indented deeper."""
    indent: int | None = None
    for part, after in zip_longest(parts, parts[1:], fillvalue=""):
        frame = _FRAME.match(part)
        if frame is not None:
            indent = len(frame["indent"])
        elif indent is not None and _depth(part) > indent:
            continue
        else:
            indent = None
        is_source = frame is not None and _depth(after) > _depth(part)
        yield part, after.strip() if is_source else ""


def _depth(part: str) -> int:
    return len(part) - len(part.lstrip()) if part.strip() else 0


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        # An error of the script's own may fail to describe itself.
        return ""


def _lines_of(trace: TracebackType | None) -> list[ScriptLine]:
    return [
        ScriptLine(frame.f_code.co_filename, number, frame.f_code.co_name)
        for frame, number in traceback.walk_tb(trace)
    ]
