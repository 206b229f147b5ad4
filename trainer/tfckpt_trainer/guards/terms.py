"""Conditions and actions as text: a name, and values by position or as `key=value`."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeVar, get_type_hints

import msgspec

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.records.command import MOST_STEPS

Metric = Annotated[str, msgspec.Meta(min_length=1, description="the name of a metric")]
Number = Annotated[float, msgspec.Meta(description="a number")]
Steps = Annotated[
    int, msgspec.Meta(ge=1, le=MOST_STEPS, description="a whole number of steps, at least 1")
]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(?P<number>\d+(\.\d+)?(e[-+]?\d+)?)(?P<unit>[smhd])")
_WORD = re.compile(
    r"""(?P<quoted>"(?:[^"\\]|\\.)*")|(?P<mark>[:,;])|(?P<plain>[^\s:,;"]+)|(?P<wrong>\S)"""
)
_SAFE = re.compile(r"[^\s:,;\"=]+")


class Duration(float):
    """Seconds, as text such as `30m` or `2h`."""

    @classmethod
    def of(cls, value: object) -> Self:
        """Returns the duration for a text, or for a number of seconds.

        Raises:
            ValueError: It is no duration above 0.
        """
        if isinstance(value, str):
            match = _DURATION.fullmatch(value)
            seconds = float(match["number"]) * _UNITS[match["unit"]] if match else math.nan
        else:
            seconds = value if isinstance(value, (int, float)) else math.nan
        if not 0 < seconds < math.inf:
            raise ValueError(value)
        return cls(seconds)

    def __str__(self) -> str:
        unit = next((u for u in ("d", "h", "m") if self % _UNITS[u] == 0), "s")
        return f"{number_text(float(self) / _UNITS[unit])}{unit}"


Within = Annotated[Duration, msgspec.Meta(description="a duration, such as 30m or 2h")]


class Word(NamedTuple):
    """A word of a text: a name or a value in quotes, `:`, `,` or `;`, or something else."""

    kind: Literal["quoted", "mark", "plain"]
    text: str


def split_words(text: str) -> list[Word]:
    """Returns the words of a text.

    Raises:
        UsageError: A quote has no end, or has a wrong escape.
    """
    words = []
    for match in _WORD.finditer(text):
        kind, word = match.lastgroup, match.group()
        if kind == "quoted":
            try:
                words.append(Word("quoted", json.loads(word, strict=False)))
                continue
            except ValueError:
                kind = "wrong"
        if kind == "wrong":
            raise UsageError(f"{word[:60]} is no text in quotes. Write quotes as in JSON.")
        words.append(Word("mark" if kind == "mark" else "plain", word))
    return words


def number_text(value: float) -> str:
    """Returns a number as the shortest text that reads back to it: `8`, `0.5`, `3e-05`."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))


@dataclasses.dataclass
class Term:
    """A condition or an action.

    A subclass is a dataclass. Each of its fields has an `Annotated` type with a description. A
    field with a default is left out of the text while it has it.

    Attributes:
        name: Its name in texts; by default the name of the class, as in `no_checkpoint`.
        example: A text of it.
    """

    name: ClassVar[str] = ""
    example: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        cls.name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()

    def __post_init__(self) -> None:
        for field in type(self).parameters():
            given = getattr(self, field.name)
            value = _converted(f"{self.name}: {field.name}", given, self._kinds()[field.name])
            object.__setattr__(self, field.name, value)

    @classmethod
    def parameters(cls) -> list[dataclasses.Field[Any]]:
        """Returns the fields that its text has."""
        return [field for field in dataclasses.fields(cls) if field.init]

    @classmethod
    def usage(cls) -> str:
        """Returns its text with the names of its values: `spike METRIC deviations=8 window=200`."""
        words = [cls.name]
        for field in cls.parameters():
            if field.default is dataclasses.MISSING:
                words.append(field.name.upper())
            else:
                is_only = len(cls.parameters()) == 1
                default = f"{field.name}={_text(field.default)}"
                words.append(f"[{field.name.upper()}]" if is_only else default)
        return " ".join(words)

    @classmethod
    def parse_values(cls, words: Sequence[Word]) -> Self:
        """Returns the term for the words after its name.

        Raises:
            UsageError: A value is missing, unknown, given twice, or invalid.
        """
        names = [field.name for field in cls.parameters()]
        values: dict[str, str] = {}
        for word in words:
            key, sign, value = word.text.partition("=")
            if word.kind == "quoted" or not sign:
                left = [name for name in names if name not in values]
                key, value = left[0] if left else "", word.text
            if key not in names or key in values:
                raise UsageError(f"{word.text!r} does not fit. {cls._expected()}")
            values[key] = value
        for field in cls.parameters():
            if field.name not in values and field.default is dataclasses.MISSING:
                raise UsageError(f"{cls.name} has no {field.name.upper()}. {cls._expected()}")
        return cls(**values)

    @classmethod
    def _expected(cls) -> str:
        return f"Write {cls.usage()}, such as {cls.example}."

    @classmethod
    def _kinds(cls) -> Mapping[str, Any]:
        return get_type_hints(cls, include_extras=True)

    def __str__(self) -> str:
        words = [self.name]
        for field in self.parameters():
            text, is_required = (
                _text(getattr(self, field.name)),
                field.default is dataclasses.MISSING,
            )
            if is_required or getattr(self, field.name) != field.default:
                is_bare = is_required or len(self.parameters()) == 1
                words.append(text if is_bare else f"{field.name}={text}")
        return " ".join(words)


TermT = TypeVar("TermT", bound=Term)


def parse_term(what: str, words: Sequence[Word], known: Iterable[type[TermT]]) -> TermT:
    """Returns a condition or an action for its words.

    Args:
        what: What is expected, such as `condition`.
        words: Its name and its values.
        known: The classes that there are.

    Raises:
        UsageError: There is none of that name, or a value is invalid.
    """
    by_name = {term.name: term for term in known}
    name = words[0].text if words else ""
    if name not in by_name:
        found = (
            f"{name!r} is no {what}"
            if words
            else f"A{'n' * (what[0] in 'aeiou')} {what} is missing"
        )
        raise UsageError(f"{found}. Write one of: {', '.join(by_name)}.")
    return by_name[name].parse_values(words[1:])


def _text(value: object) -> str:
    """Returns a value as its word in a text."""
    if isinstance(value, Duration):
        return str(value)
    if isinstance(value, (int, float)):
        return number_text(value)
    text = str(value)
    return text if _SAFE.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _converted(name: str, value: object, kind: Any) -> Any:
    """Returns a value of Python or of a text with the type of its field.

    Raises:
        UsageError: It has another type, or is out of bounds.
    """
    try:
        converted = msgspec.convert(
            value, kind, strict=False, dec_hook=lambda _, given: Duration.of(given)
        )
        if isinstance(converted, float) and not math.isfinite(converted):
            raise ValueError(value)
    except (msgspec.ValidationError, ValueError):
        # A class of a script may have plain types.
        described = getattr(kind, "__metadata__", ())
        expected = described[-1].description if described else f"a value of type {kind.__name__}"
        raise UsageError(f"{name} is {value!r:.80}; it must be {expected}.") from None
    return converted
