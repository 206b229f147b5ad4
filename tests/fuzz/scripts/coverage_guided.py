"""Compares inputs that coverage guides with inputs by chance, for each reader in the same time.

    pip install atheris
    python tests/fuzz/scripts/coverage_guided.py [READER ...] [--seconds N]

Both begin with the healthy input. What the inputs by chance reach is counted as the others are, by
a run of atheris that only reads them. A violation is printed with its input.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

TESTS = Path(__file__).parents[2]
sys.path[:0] = [str(TESTS), str(TESTS / "tui"), str(TESTS / "catalog"), str(TESTS / "bundle")]
LARGEST = 4096
"""Bytes of an input: atheris makes none that is longer."""
_REACHED = re.compile(r"cov: (\d+)")
_COUNTED = re.compile(r"^#(\d+)", re.MULTILINE)


def main() -> None:
    from readers import READERS

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("readers", nargs="*", metavar="READER", help=f"of {', '.join(READERS)}")
    parser.add_argument("--seconds", type=int, default=20)
    options = parser.parse_args()
    heads = ("reader", "guided: edges", "inputs", "chance: edges", "inputs")
    print("{:<12}{:>15}{:>10}{:>15}{:>10}".format(*heads))
    for name in options.readers or READERS:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
            guided, by_chance = Path(directory, "guided"), Path(directory, "chance")
            guided.mkdir()
            (guided / "healthy").write_bytes(READERS[name].healthy)
            edges, inputs = fuzzed(name, guided, f"-max_total_time={options.seconds}")
            count = write_by_chance(name, by_chance, options.seconds)
            others, _ = fuzzed(name, by_chance, "-runs=0")
        print(f"{name:<12}{edges:>15,}{inputs:>10,}{others:>15,}{count:>10,}", flush=True)


def fuzzed(name: str, corpus: Path, option: str) -> tuple[int, int]:
    """Runs atheris; returns how many edges of the product's code it reached, and its inputs."""
    words = [sys.executable, "-P", __file__, "--fuzz", name, option, f"-max_len={LARGEST}"]
    done = subprocess.run(
        [*words, f"-artifact_prefix={corpus.parent}/", corpus], capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{name}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return int(_REACHED.findall(done.stderr)[-1]), int(
        re.findall(r"^#(\d+)", done.stderr, re.MULTILINE)[-1]
    )


def write_by_chance(name: str, corpus: Path, seconds: float) -> int:
    """Reads damaged inputs for a while, and writes them; returns how many."""
    from campaign.hostile_input import damage
    from readers import READERS, problem_of

    corpus.mkdir()
    reader, chance, place = READERS[name], Random(name), corpus.with_name("place")
    place.mkdir(exist_ok=True)
    deadline, count = time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        damaged = damage(reader.healthy, chance)[:LARGEST]
        if problem := problem_of(reader, damaged, place):
            sys.exit(f"{name}: {damaged!r}: {problem}")
        (corpus / str(count)).write_bytes(damaged)
        count += 1
    return count


def fuzz(name: str) -> None:
    """Has atheris make inputs for a reader, in this process."""
    import atheris

    with atheris.instrument_imports(include=["tfckpt_trainer", "tfckpt_tui"]):
        from readers import READERS, problem_of

    reader, place = READERS[name], Path(sys.argv[-1]).with_name("place")
    place.mkdir(exist_ok=True)

    def read(damaged: bytes) -> None:
        if problem := problem_of(reader, damaged, place):
            raise AssertionError(problem)

    atheris.Setup([sys.argv[0], *sys.argv[3:]], read)
    atheris.Fuzz()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fuzz"]:
        fuzz(sys.argv[2])
    else:
        main()
