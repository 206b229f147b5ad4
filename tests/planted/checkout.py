"""A copy of a checkout, with a virtual environment of its own, in which bugs are planted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import psutil

from .bugs import Bug

PACKAGES = {"tfckpt_trainer": "trainer", "tfckpt_tui": "tui"}
"""Each package of the product with its directory."""

TEST_SECONDS = 300
"""A test that takes longer hangs."""
RUN_SECONDS = 3600

_PASSED, _FAILED, _NONE_SELECTED = 0, 1, 5


class BrokenError(Exception):
    """The copy does not start, or tests cannot be collected in it."""


@dataclass(frozen=True)
class Copy:
    """A copy of a checkout.

    Attributes:
        root: The directory of the copy.
        environment: The virtual environment that imports the packages of the copy.
        cache: Where pytest notes what failed.
    """

    root: Path
    environment: Path
    cache: Path

    @classmethod
    def of(cls, checkout: Path, place: Path) -> Copy:
        """Copies the files of a checkout that Git knows or would add."""
        copy = cls(place / "checkout", place / "environment", place / "cache")
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=checkout,
            stdout=subprocess.PIPE,
            check=True,
        )
        for name in listed.stdout.decode().split("\0")[:-1]:
            if (checkout / name).is_file():
                (copy.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(checkout / name, copy.root / name)
        # Tests look for the files that Git knows, and for ignored ones beside it.
        (copy.root / ".venv").symlink_to(copy.environment)
        for words in (["init", "--quiet"], ["add", "--all"]):
            subprocess.run(["git", *words], cwd=copy.root, check=True)
        _make_environment(copy.environment, copy.root)
        copy.check()
        return copy

    @property
    def python(self) -> Path:
        """The interpreter of its virtual environment."""
        return self.environment / "bin" / "python"

    @contextmanager
    def with_bug(self, bug: Bug) -> Iterator[None]:
        """Plants a bug, and takes it out again.

        Raises:
            StaleBugError: The text is not in the file.
        """
        path = self.root / bug.path
        right = path.read_text(encoding="utf-8")
        _rewrite(path, bug.applied_to(right))
        try:
            yield
        finally:
            _rewrite(path, right)

    def check(self) -> None:
        """Checks that commands run what is in the copy, and that the app can be imported.

        Raises:
            BrokenError: They do not.
        """
        modules = [*PACKAGES, "tfckpt_tui.app.app", "tfckpt_tui.cli.main"]
        program = f"import {', '.join(modules)}\n" + "\n".join(
            f"print({name}.__path__[0])" for name in PACKAGES
        )
        ended = subprocess.run(
            [self.python, "-c", program], env={}, capture_output=True, text=True, check=False
        )
        expected = [str(self.root / PACKAGES[name] / name) for name in PACKAGES]
        if ended.stdout.split() != expected:
            raise BrokenError(f"{ended.stderr}Imported {ended.stdout!r}, not {expected}.")

    def first_failure(self, *words: str) -> str | None:
        """Runs tests until one fails; returns which one, or None if all pass.

        Args:
            words: Arguments of pytest.

        Raises:
            BrokenError: Tests could not be collected, or do not end.
        """
        shutil.rmtree(self.cache, ignore_errors=True)
        options = ["-x", "-q", "--tb=no", f"--timeout={TEST_SECONDS}", f"-ocache_dir={self.cache}"]
        command = [self.python, "-m", "pytest", *options, *words]
        tests = subprocess.Popen(
            command,
            cwd=self.root,
            env=self._variables(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = tests.communicate(timeout=RUN_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise BrokenError(f"The tests did not end within {RUN_SECONDS} s.") from error
        finally:
            self._end_processes()
        if tests.returncode in {_PASSED, _NONE_SELECTED}:
            return None
        if tests.returncode == _FAILED:
            failed = json.loads((self.cache / "v/cache/lastfailed").read_bytes())
            return str(next(iter(failed)))
        raise BrokenError(said[-2000:])

    def _variables(self) -> dict[str, str]:
        left_out = {"VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME"}
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in left_out and not name.startswith("PYTEST_")
        }
        return {**kept, "PATH": f"{self.environment / 'bin'}{os.pathsep}{os.environ['PATH']}"}

    def _end_processes(self) -> None:
        """Ends what failed tests left running: it was started by the interpreter of the copy."""
        own = str(self.environment)
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if any(own in word for word in process.cmdline()[:2]):
                    process.kill()


_times = count(1)


def _rewrite(path: Path, text: str) -> None:
    """Writes a module with a new time: Python keeps what it compiled while time and size stay."""
    time = path.stat().st_mtime + next(_times)
    path.write_text(text, encoding="utf-8")
    os.utime(path, (time, time))


def _make_environment(environment: Path, root: Path) -> None:
    """Makes a virtual environment with the packages of this one, but the product of the copy.

    A path that is named in a `.pth` file is searched, but its own `.pth` files are not read. So
    this checkout, of which the installation is editable, is not found.
    """
    venv.create(environment, symlinks=True, with_pip=False)
    own = Path(sysconfig.get_path("purelib"))
    (packages,) = environment.glob("lib/python*/site-packages")
    found = [*(root / name for name in PACKAGES.values()), own]
    (packages / "copy.pth").write_text("\n".join(map(str, found)), encoding="utf-8")
    for script in Path(sys.executable).parent.iterdir():
        target = environment / "bin" / script.name
        if not target.exists():
            _copy_script(script, target, environment / "bin" / "python")


def _copy_script(script: Path, target: Path, python: Path) -> None:
    content = script.read_bytes()
    if content.startswith(b"#!") and b"python" in content.split(b"\n", 1)[0]:
        target.write_bytes(b"#!" + os.fsencode(python) + b"\n" + content.split(b"\n", 1)[1])
        target.chmod(0o755)
    else:
        target.symlink_to(script)


def last_words(error: BrokenError, lines: int = 15) -> Sequence[str]:
    """Returns the end of what a broken copy said."""
    return str(error).splitlines()[-lines:]
