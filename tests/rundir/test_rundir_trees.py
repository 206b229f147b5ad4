"""Directory trees that others made."""

from __future__ import annotations

from pathlib import Path

import pytest

from deep_trees import make_deep
from tfckpt_trainer.rundir.storage.files import delete_if_without_files, delete_tree
from tfckpt_trainer.rundir.storage.trees import walk


def test_a_tree_of_any_depth_is_walked_and_deleted(tmp_path: Path) -> None:
    make_deep(tmp_path / "tree")
    places = [place for place, _ in walk(tmp_path / "tree")]
    assert len(places) > 500
    assert places == sorted(places, key=len)
    delete_tree(tmp_path / "tree")
    assert list(tmp_path.iterdir()) == []


def test_no_link_is_followed(tmp_path: Path) -> None:
    outside, tree = tmp_path / "outside", tmp_path / "tree"
    (tree / "inner" / "more").mkdir(parents=True)
    outside.mkdir()
    (outside / "kept").write_text("of others")
    for place in (tree, tree / "inner", tree / "inner" / "more"):
        (place / "file").write_text("")
        (place / "link").symlink_to(outside)
    found = {place: set(names) for place, names in walk(tree)}
    assert set(found) == {str(tree), str(tree / "inner"), str(tree / "inner" / "more")}
    assert all(names == {"file", "link"} for names in found.values())
    delete_tree(tree)
    assert not tree.exists()
    assert (outside / "kept").read_text() == "of others"
    (tmp_path / "to-outside").symlink_to(outside)
    with pytest.raises(OSError, match="to-outside"):
        delete_tree(tmp_path / "to-outside")
    assert next(iter(walk(tmp_path / "to-outside")))[1] == ["kept"]


def test_a_tree_is_deleted_only_if_nothing_but_directories_is_in_it(tmp_path: Path) -> None:
    make_deep(tmp_path / "deep")
    # Its end is too deep to be seen.
    assert not delete_if_without_files(tmp_path / "deep")
    delete_tree(tmp_path / "deep")
    place = tmp_path / "tree" / "a" / "b"
    place.mkdir(parents=True)
    (tmp_path / "tree" / "c").mkdir()
    (place / "link").symlink_to("nowhere")
    assert not delete_if_without_files(tmp_path / "tree")
    assert (place / "link").is_symlink() and (tmp_path / "tree" / "c").is_dir()
    (place / "link").unlink()
    assert delete_if_without_files(tmp_path / "tree")
    assert list(tmp_path.iterdir()) == []
