"""Maps a function over many items on all cores."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import TypeVar

_BLOCK = 32
"""Items whose results are sent together."""

_NICENESS = 5
"""Training on this machine goes before."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def parallel_map(act: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Yields the results of `act` in the order of the items.

    Forks a process for each core. What a process leaves undone because of an error, or because it
    was killed, is done here; then an error is raised here.

    Args:
        act: Called in one of the processes. Its result can be pickled.
        items: What to call it with.
    """
    blocks = [items[start : start + _BLOCK] for start in range(0, len(items), _BLOCK)]
    count = min(usable_cores(), len(blocks))
    if count < 2:
        yield from map(act, items)
        return
    context = multiprocessing.get_context("fork")
    processes: list[BaseProcess] = []
    pipes: list[Connection] = []
    try:
        for number in range(count):
            receive, send = context.Pipe(duplex=False)
            pipes.append(receive)
            process = context.Process(target=_work, args=(act, blocks[number::count], send, pipes))
            process.start()
            processes.append(process)
            send.close()
        for number, block in enumerate(blocks):
            yield from _received(pipes[number % count]) or map(act, block)
    finally:
        for begun in processes:
            begun.terminate()
            begun.join()
        for receive in pipes:
            receive.close()


def _received(receive: Connection) -> list[Result]:
    """Returns the next results of a process; none if it has ended."""
    try:
        results: list[Result] = receive.recv()
    except (EOFError, OSError):
        return []
    return results


def _work(
    act: Callable[[Item], Result],
    blocks: Sequence[Sequence[Item]],
    send: Connection,
    pipes: Sequence[Connection],
) -> None:
    # The parent gets the signal too, and ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.nice(_NICENESS)
    # If only the parent can read, this process notices that it was killed.
    for receive in pipes:
        receive.close()
    # Whatever the error is: the parent meets it again. It may also have ended.
    with send, suppress(Exception):
        for block in blocks:
            send.send(list(map(act, block)))


def usable_cores() -> int:
    """Returns the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
