"""Symbolic links in the place of checkpoint files: read inside one directory, never out of it."""

from __future__ import annotations

import errno
import itertools
import os
import struct
from pathlib import Path

import pytest

from bundle_writing import array, write
from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.bundle.links import LinkEnd, follow_link, open_inside, stat_inside
from tfckpt_trainer.bundle.tensors import read_tensor_bytes
from tfckpt_trainer.bundle.verify import verify
from tfckpt_trainer.errors import DamagedFileError

CONTENT = b"of the file at the end"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / "file").write_bytes(CONTENT)
    (tmp_path / "file").write_bytes(b"precious")
    return directory


def link(place: Path, name: str, target: str | Path) -> Path:
    path = place / name
    path.symlink_to(target)
    return path


@pytest.mark.parametrize("target", ["file", "./file", ".//file", "../run/file", "{}/file"])
def test_every_way_to_name_a_file_of_the_same_directory(place: Path, target: str) -> None:
    path = link(place, "link", target.format(place))
    found, facts = follow_link(os.fspath(place), "link")
    assert (found.end, found.file) == (LinkEnd.FILE, "file")
    assert facts is not None
    assert facts.st_ino == (place / "file").stat().st_ino == stat_inside(path).st_ino
    with open_inside(path) as file:
        assert file.read() == CONTENT


@pytest.mark.parametrize("steps", [2, 3, 40])
def test_a_chain_of_links(place: Path, steps: int) -> None:
    names = ["file", *(f"link-{step}" for step in range(steps))]
    for before, name in itertools.pairwise(names):
        link(place, name, before)
    with open_inside(place / names[-1]) as file:
        assert file.read() == CONTENT
    assert follow_link(os.fspath(place), names[-1])[0].file == "file"


@pytest.mark.parametrize("through", ["directory", "link"])
def test_a_directory_that_has_another_path(place: Path, through: str) -> None:
    """As home directories have on many clusters."""
    other = place.with_name("other")
    other.symlink_to(place)
    path = link(place, "link", other / "file")
    seen_from = other if through == "link" else place
    with open_inside(seen_from / path.name) as file:
        assert file.read() == CONTENT


@pytest.mark.parametrize(
    "target",
    [
        "../gone",
        "/etc/passwd",
        "..",
        ".",
        "sub/gone",
        "sub/",
        "sub/absolute",
        "sub/other/file",
        "/",
    ],
)
def test_what_leads_out_is_never_opened(place: Path, target: str) -> None:
    (place / "sub").mkdir()
    (place / "sub" / "absolute").symlink_to("/etc/passwd")
    (place / "sub" / "etc").symlink_to("/etc")
    path = link(place, "link", target)
    found, facts = follow_link(os.fspath(place), "link")
    assert (found.end, found.file, facts) == (LinkEnd.OUTSIDE, "", None)
    with pytest.raises(OSError, match="out of the directory") as raised:
        open_inside(path)
    assert raised.value.errno == errno.ELOOP
    with pytest.raises(FileNotFoundError):
        stat_inside(path)


@pytest.mark.parametrize("target", ["../blobs/file", "sub/file", "sub/link"])
def test_a_file_of_another_directory_is_read_by_relative_paths(place: Path, target: str) -> None:
    """As the caches of model hubs have them."""
    for directory in (place / "sub", place.parent / "blobs"):
        directory.mkdir()
        (directory / "file").write_bytes(b"elsewhere")
    (place / "sub" / "link").symlink_to("../../blobs/file")
    path = link(place, "link", target)
    found, facts = follow_link(os.fspath(place), "link")
    assert (found.end, found.file) == (LinkEnd.ELSEWHERE, "")
    assert facts is not None and facts.st_size == 9
    with open_inside(path) as file:
        assert file.read() == b"elsewhere"


def test_a_link_to_a_link_that_leads_out(place: Path) -> None:
    link(place, "second", "/etc/passwd")
    path = link(place, "first", "second")
    with pytest.raises(OSError, match="out of the directory"):
        open_inside(path)


@pytest.mark.parametrize("targets", [["a"], ["b", "a"], ["b", "c", "a"]])
def test_a_loop(place: Path, targets: list[str]) -> None:
    for name, target in zip("abc", targets, strict=False):
        link(place, name, target)
    assert follow_link(os.fspath(place), "a")[0].end is LinkEnd.LOOP
    with pytest.raises(DamagedFileError, match="does not lead to a file"):
        open_inside(place / "a")


@pytest.mark.parametrize("target", ["nothing", "n" * 300, "file/"])
def test_a_link_to_nothing(place: Path, target: str) -> None:
    path = link(place, "link", target)
    with pytest.raises((FileNotFoundError, OSError)):
        open_inside(path)
    with pytest.raises(FileNotFoundError):
        stat_inside(path)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_a_link_to_what_is_no_file_is_not_waited_for(place: Path, make) -> None:
    make(place / "other")
    path = link(place, "link", "other")
    assert follow_link(os.fspath(place), "link")[0].end is LinkEnd.NOT_A_FILE
    with pytest.raises(DamagedFileError, match="does not lead to a file"):
        open_inside(path)


class TestCheckpoint:
    """One that is made of links reads as what it links to."""

    @pytest.fixture
    def prefix(self, place: Path) -> Path:
        write(place / "ckpt-300", {"v": array([1.0, 2.0])})
        return place / "ckpt-300"

    @pytest.mark.parametrize("linked", [("index",), ("data",), ("index", "data")])
    def test_it_verifies_and_reads(self, prefix: Path, linked: tuple[str, ...]) -> None:
        best = prefix.with_name("best")
        for path in prefix.parent.glob("ckpt-300.*"):
            own = best.with_name(path.name.replace("ckpt-300", "best"))
            if path.suffix.split("-")[0][1:] in linked:
                own.symlink_to(path.name)
            else:
                own.write_bytes(path.read_bytes())
        found, expected = verify(best, digests=True), verify(prefix, digests=True)
        assert found.findings == ()
        assert found.bytes == expected.bytes
        assert list(found.file_checksums.values()) == list(expected.file_checksums.values())
        assert read_index(best) == read_index(prefix)
        assert read_tensor_bytes(best, read_index(best).entries["v"]) == struct.pack(
            "<2d", 1.0, 2.0
        )

    def test_damage_behind_a_link_is_found(self, prefix: Path) -> None:
        best = prefix.with_name("best")
        for path in prefix.parent.glob("ckpt-300.*"):
            best.with_name(path.name.replace("ckpt-300", "best")).symlink_to(path.name)
        data = prefix.with_name("ckpt-300.data-00000-of-00001")
        data.write_bytes(data.read_bytes()[:-1])
        kinds = {finding.kind for finding in verify(best).findings}
        assert {"shard-short", "tensor-cut"} <= kinds

    @pytest.mark.parametrize("file", ["index", "data-00000-of-00001"])
    @pytest.mark.parametrize(
        ("target", "kind"),
        [
            ("/etc/passwd", "unreadable"),
            ("../gone", "unreadable"),
            ("nothing", "missing"),
            ("self", "not-plain"),
        ],
    )
    def test_a_link_to_no_file_of_the_directory(
        self, prefix: Path, file: str, target: str, kind: str
    ) -> None:
        path = prefix.with_name(f"ckpt-300.{file}")
        path.unlink()
        path.symlink_to(path.name if target == "self" else target)
        (found, *_) = verify(prefix).findings
        expected = {
            ("missing", True): "index-missing",
            ("missing", False): "shard-missing",
            ("not-plain", True): "index-missing",
            ("not-plain", False): "shard-not-plain",
        }.get((kind, file == "index"), kind)
        assert (found.severity, found.kind) == ("error", expected)
