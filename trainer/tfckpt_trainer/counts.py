"""Numbers with their noun, the same in messages of the trainer and on screens."""

from __future__ import annotations


def count(number: int, singular: str, plural: str = "") -> str:
    """Returns a number with its noun: `1 checkpoint`, `3 checkpoints`."""
    return f"{number:,} {noun(number, singular, plural)}"


def all_of(number: int, singular: str, plural: str = "") -> str:
    """Returns the beginning of a sentence on all things: `The only worker`, `All 2 workers`."""
    return f"The only {singular}" if number == 1 else f"All {count(number, singular, plural)}"


def all_are(number: int, singular: str) -> str:
    """Returns the same with its verb: `The only restart is`, `All 3 restarts are`."""
    return f"{all_of(number, singular)} {noun(number, 'is', 'are')}"


def noun(number: int, singular: str, plural: str = "") -> str:
    """Returns the noun for a number: `checkpoint`, `checkpoints`."""
    return singular if number == 1 else plural or f"{singular}s"
