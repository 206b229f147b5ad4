"""Damaged bytes for each reader: a value or an error that says so, in bounded memory.

A case is `READER NUMBER`: the number makes as many inputs as `INPUTS` says, of a healthy one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

from child_processes import in_child, limit_memory
from readers import READERS, problem_of

from .areas import Outcome

INPUTS = 200
MEMORY_BYTES = 300 << 20
_NUMBERS = (
    b"0", b"-1", b"1e999", b"NaN", b"null", b"[]", b"{}", b'""', b"9" * 400, b"1" + b"0" * 30,
)  # fmt: skip


class HostileInput:
    """Damaged bytes for each reader."""

    name = "input"

    def __init__(self, place: Path) -> None:
        """Checks that each reader reads what it is damaged from."""
        for name, reader in READERS.items():
            path = place / name
            path.mkdir()
            (path / reader.file).write_bytes(reader.wrap(reader.healthy))
            if name not in {"keras", "verify"}:
                reader.read(path / reader.file)

    def cases(self, chance: Random) -> Iterator[str]:
        """Yields a number for each reader in turn, without end."""
        while True:
            for name in READERS:
                yield f"{name} {chance.randrange(10**9)}"

    def run(self, case: str, place: Path) -> Outcome:
        """Reads damaged inputs in a process with little memory."""
        name, _ = case.split()
        reader, chance = READERS[name], Random(case)

        def act() -> int:
            limit_memory(MEMORY_BYTES)
            for number in range(INPUTS):
                damaged = damage(reader.healthy, chance)
                problem = problem_of(reader, damaged, place)
                if problem:
                    print(f"input {number}: {damaged[:200]!r}: {problem}")
            return 0

        code, words = in_child(act)
        violations = [words] if words else []
        return Outcome(INPUTS, (*violations, *([f"it ended with {code}"] if code else [])))


def damage(healthy: bytes, chance: Random) -> bytes:
    """Changes bytes in one to four places."""
    data = bytearray(healthy)
    for _ in range(chance.randint(1, 4)):
        at, length = chance.randrange(len(data) + 1), chance.choice((1, 1, 2, 4, 9, 40))
        part = data[at : at + length]
        new = chance.choice(
            [
                b"",
                chance.randbytes(length),
                bytes([chance.choice((0, 1, 0x7F, 0x80, 0xFF))]) * length,
                part * chance.choice((2, 3, 200)),
                chance.choice(_NUMBERS),
                bytes(b ^ (1 << chance.randrange(8)) for b in part),
                bytes(data[chance.randrange(len(data) + 1) :][:length]),
            ]
        )
        data[at : at + length] = new
        if not data:
            data = bytearray(b"\0")
    return bytes(data)
