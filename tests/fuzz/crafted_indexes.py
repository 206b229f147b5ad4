"""Indexes with right checksums and wrong content, each made from the number that seeds it."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import cramjam
import google_crc32c

from bundle_writing import array, in_parts, masked, rows, strings, write
from tfckpt_trainer.bundle.table import MAGIC, IndexTable

Entry = tuple[bytes, bytes]

INTERESTING = [
    0, 1, 2, 3, 5, 7, 8, 9, 14, 19, 20, 21, 23, 29, 33, 34, 63, 64, 101, 127, 128, 254, 255, 256,
    (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 32) + 1, (1 << 63) - 1, 1 << 63,
    (1 << 64) - 1,
]  # fmt: skip
NAMES = [b"a", b"b", b"cut", b"\xff", b"\xc3\xbc", b"\xed\xa0\x80", b"a\0b", b"\0", b"z" * 300]


@dataclass
class Layout:
    """How a table is written; the defaults are TensorFlow's.

    Attributes:
        sizes: Entries of each block; the last block has all that remain.
        interval: Keys between restart points.
        compressed: Whether blocks are compressed with Snappy.
        change_restarts: Changes the restart points of a block.
        change_limits: Changes the keys of the index block.
        change_block: Changes the content of a block before its checksum.
        kind: The kind of compression that blocks state; None for the true one.
    """

    sizes: Sequence[int] = ()
    interval: int = 16
    compressed: bool = False
    change_restarts: Callable[[list[int]], list[int]] = field(default=lambda points: points)
    change_limits: Callable[[list[bytes]], list[bytes]] = field(default=lambda limits: limits)
    change_block: Callable[[bytes], bytes] = field(default=lambda content: content)
    kind: int | None = None


def write_sound(prefix: Path) -> list[Entry]:
    """Writes a checkpoint with every kind of tensor; returns the entries of its index."""
    tensors = {
        "a": array([1.0, 2.0, 3.0]),
        "b": array([[1, 2], [3, 4]], shard=1),
        "cut": in_parts([[float(n), 0.5] for n in range(6)], rows(6, 2, 4, 2)),
        "deep/name/of/a": array(1.5),
        "deep/name/of/b": array([True, False]),
        "empty": array([[], []]),
        "text": strings([b"", b"abc", b"d" * 200], shape=(3, 1)),
    }
    index = write(prefix, tensors, shards=2)[-1]
    return list(IndexTable(index).entries())


def crafted(entries: Sequence[Entry], seed: int) -> bytes:
    """Returns the index that belongs to `seed`."""
    chance = random.Random(seed)
    changed = list(entries)
    layout = Layout()
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        kind = chance.random()
        if kind < 0.6:
            place = chance.randrange(len(changed))
            key, value = changed[place]
            changed[place] = key, change_message(value, chance)
        elif kind < 0.8:
            change_entries(changed, chance)
        else:
            change_layout(layout, chance)
    return table(changed, layout)


def table(entries: Sequence[Entry], layout: Layout) -> bytes:
    """Returns a table with right checksums."""
    data, limits, handles = b"", [], []
    start = 0
    for size in [*layout.sizes, len(entries)]:
        part = entries[start : start + size]
        start += size
        if part:
            block = layout.change_block(_block(part, layout.interval, layout.change_restarts))
            limits.append(part[-1][0])
            handles.append(_handle(data, block, layout))
            data += _closed(block, layout)
    meta = _handle(data, _block((), 1), Layout())
    data += _closed(_block((), 1), Layout())
    limits = layout.change_limits(limits)
    index = _block(list(zip(limits, handles, strict=True)), 1)
    footer = meta + _handle(data, index, layout)
    data += _closed(index, layout)
    return data + footer.ljust(40, b"\0") + struct.pack("<Q", MAGIC)


def change_layout(layout: Layout, chance: random.Random) -> None:
    """Changes how a table is written, or breaks it."""
    kind = chance.randrange(7)
    if kind == 0:
        layout.sizes = [chance.randint(0, 4) for _ in range(chance.randint(1, 4))]
    elif kind == 1:
        layout.interval = chance.randint(1, 5)
    elif kind == 2:
        layout.compressed = True
    elif kind == 3:
        layout.change_restarts = lambda points: _changed_list(
            points, lambda: chance.choice([*points, chance.randint(0, 400), 1 << 31]), chance
        )
    elif kind == 4:
        names = [*NAMES, b"", b"zzz", b"deep/name/of/a"]
        layout.change_limits = lambda limits: [
            chance.choice(names) if chance.random() < 0.5 else limit for limit in limits
        ]
        layout.sizes = [chance.randint(1, 4)]
    elif kind == 5:
        layout.change_block = lambda content: change_bytes(content, chance)
    else:
        layout.kind = chance.choice([0, 1, 2, 255])


def change_entries(entries: list[Entry], chance: random.Random) -> None:
    """Drops, doubles, renames or swaps entries."""
    place = chance.randrange(len(entries))
    key, value = entries[place]
    kind = chance.randrange(6)
    if kind == 0:
        del entries[place]
        entries[:] = entries or [(key, value)]
    elif kind == 1:
        entries.insert(place, (key, value))
    elif kind == 2:
        entries[place] = change_bytes(key, chance), value
    elif kind == 3:
        entries[place] = chance.choice(NAMES), value
    elif kind == 4:
        other = chance.randrange(len(entries))
        entries[place], entries[other] = (key, entries[other][1]), (entries[other][0], value)
    else:
        entries.insert(place + 1, (chance.choice(NAMES), value))
    if chance.random() < 0.8:
        entries.sort(key=lambda entry: entry[0])


def change_message(data: bytes, chance: random.Random, depth: int = 0) -> bytes:
    """Changes one field of a protocol buffer."""
    found = _fields(data)
    if not found or chance.random() < 0.1:
        return change_bytes(data, chance)
    place = chance.randrange(len(found))
    tag, content = found[place]
    kind = chance.randrange(8)
    if kind == 0:
        del found[place]
    elif kind == 1:
        found.insert(chance.randrange(len(found) + 1), found[place])
    elif kind == 2:
        found.append(found.pop(place))
    elif kind == 3:
        wire = chance.choice([0, 1, 2, 5, 3, 4, 6])
        found[place] = tag & ~7 | wire, _content(wire, chance)
    elif kind == 4:
        number = chance.choice([0, 1, 2, 3, 4, 5, 6, 7, 8, 100, 1 << 29])
        found.append((number << 3, _content(0, chance)))
    elif tag & 7 == 2 and depth < 3:
        found[place] = tag, change_message(content, chance, depth + 1)
    else:
        found[place] = tag, _content(tag & 7, chance)
    return b"".join(_encoded(tag, content, chance) for tag, content in found)


def change_bytes(data: bytes, chance: random.Random) -> bytes:
    """Overwrites, removes or inserts some bytes."""
    place = chance.randint(0, len(data))
    piece = bytes(chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)]) for _ in "12")
    piece = piece[: chance.randint(1, 2)]
    kind = chance.randrange(3)
    if kind == 0:
        return data[:place] + piece + data[place + len(piece) :]
    return data[:place] + (piece if kind == 1 else b"") + data[place + (kind == 2) * len(piece) :]


def _changed_list(points: list[int], made: Callable[[], int], chance: random.Random) -> list[int]:
    points = list(points)
    kind = chance.randrange(4)
    if kind == 0:
        points[chance.randrange(len(points))] = made()
    elif kind == 1:
        points.insert(chance.randint(0, len(points)), made())
    elif kind == 2:
        del points[chance.randrange(len(points))]
    else:
        chance.shuffle(points)
    return points


def _fields(data: bytes) -> list[tuple[int, bytes]]:
    """Splits a sound message into tags and contents; returns what was found before damage."""
    found = []
    position = 0
    while position < len(data):
        tag, position = _read(data, position)
        kind = tag & 7
        start = position
        if kind == 2:
            size, start = _read(data, position)
            position = start + size
        elif kind == 0:
            _, position = _read(data, position)
        else:
            position += 4 if kind == 5 else 8
        found.append((tag, data[start:position]))
    return found


def _read(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return value, position


def _content(wire: int, chance: random.Random) -> bytes:
    if wire == 0:
        value = _number(chance.choice(INTERESTING))
        # Sometimes longer than needed.
        return value if chance.random() < 0.9 else value[:-1] + bytes([value[-1] | 0x80, 0])
    if wire in (1, 5):
        return chance.randbytes(8 if wire == 1 else 4)
    return chance.choice([b"", b"\x08\x01", b"\x12\x02\x08\x03", chance.randbytes(3)])


def _encoded(tag: int, content: bytes, chance: random.Random) -> bytes:
    head = _number(tag)
    if chance.random() < 0.01:
        head = head[:-1] + bytes([head[-1] | 0x80, 0])
    return head + (_number(len(content)) if tag & 7 == 2 else b"") + content


def _block(
    entries: Sequence[Entry],
    interval: int,
    change: Callable[[list[int]], list[int]] = lambda points: points,
) -> bytes:
    data, points, last = b"", [0], b""
    for place, (key, value) in enumerate(entries):
        shared = 0
        if place % interval:
            while shared < min(len(key), len(last)) and key[shared] == last[shared]:
                shared += 1
        elif place:
            points.append(len(data))
        data += _number(shared) + _number(len(key) - shared) + _number(len(value))
        data += key[shared:] + value
        last = key
    points = change(points)
    return data + struct.pack(f"<{len(points) + 1}I", *points, len(points))


def _handle(data: bytes, block: bytes, layout: Layout) -> bytes:
    return _number(len(data)) + _number(len(_closed(block, layout)) - 5)


def _closed(block: bytes, layout: Layout) -> bytes:
    kind = int(layout.compressed)
    content = bytes(cramjam.snappy.compress_raw(block)) if layout.compressed else block
    content += bytes([kind if layout.kind is None else layout.kind])
    return content + struct.pack("<I", masked(google_crc32c.value(content)))


def _number(value: int) -> bytes:
    encoded = b""
    while value >= 0x80:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])
