"""Checkpoints in TensorFlow's V1 format are told of, kept, and never read."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from checkpoint_directory import LONG_AGO, NOW, CheckpointDirectory

from tensorflow_processes import run_with_tensorflow
from tfckpt_trainer.bundle.table import MAGIC
from tfckpt_trainer.catalog.directory.version_one import find_version_one
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.catalog.scan.diagnostics import Diagnostic
from tfckpt_trainer.catalog.scan.states import CheckpointState
from tfckpt_trainer.rundir.paths import RunDirectory

SCRIPT = Path(__file__).parent / "scripts" / "version_one.py"


def diagnostics(run: RunDirectory, now: float = NOW) -> dict[str, Diagnostic]:
    catalog = Catalog(run)
    catalog.scan(now)
    return {diagnostic.kind: diagnostic for diagnostic in catalog.diagnostics(now)}


def save(
    made: CheckpointDirectory, name: str, *, shards: int = 0, graph: bool = True
) -> list[Path]:
    """Writes files as TensorFlow does, a table where its table is, and the absolute list."""
    made.tensorflow("table", listed=False)
    table = (made.root / "table.index").read_bytes()
    for path in made.root.glob("table.*"):
        path.unlink()
    paths = [made.root / f"{name}-{n:05d}-of-{shards:05d}" for n in range(shards)]
    paths = paths or [made.root / name]
    for path in paths:
        path.write_bytes(table)
    if graph:
        paths.append(made.root / f"{name}.meta")
        paths[-1].write_bytes(b"graph")
    for path in paths:
        made.touch(path, LONG_AGO)
    latest = f"{name}-?????-of-{shards:05d}" if shards else name
    made.run.state_file.write_text(
        f'model_checkpoint_path: "{made.root}/{latest}"\n'
        f'all_model_checkpoint_paths: "{made.root}/{latest}"\n'
    )
    made.touch(made.run.state_file, LONG_AGO)
    made.touch(made.root, LONG_AGO)
    return paths


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize("shards", [0, 2])
def test_it_is_named_for_what_it_is_and_nothing_else_is_said(made, shards, graph):
    paths = save(made, "model.ckpt-100", shards=shards, graph=graph)
    found = diagnostics(made.run)
    assert list(found) == ["v1-format"]
    message = found["v1-format"].message
    assert "V1 format" in message
    assert all(path.name in message for path in paths)
    assert "elete" not in message
    assert "import_meta_graph" in message
    expected = "model.ckpt-100-?????-of-00002" if shards else "model.ckpt-100"
    assert f"{made.root}/{expected}" in message
    assert made.scan() == {}


def test_without_a_state_file_the_graph_and_the_table_tell(made):
    save(made, "model.ckpt-100")
    made.run.state_file.unlink()
    assert list(diagnostics(made.run)) == ["v1-format"]


def test_a_graph_beside_another_file_of_its_name_is_no_checkpoint(made):
    """Other programs have `.meta` files too; those are not known here, and are kept."""
    for name in ("photo", "photo.meta"):
        (made.root / name).write_bytes(b"x" * 100)
        made.touch(made.root / name, LONG_AGO)
    found = diagnostics(made.run)
    assert list(found) == ["stray"]
    assert "Keep it" in found["stray"].message or "Keep them" in found["stray"].message


def test_older_ones_of_the_other_format_are_not_made_the_newest(made):
    save(made, "model.ckpt-200")
    made.tensorflow("model.ckpt-100", listed=False)
    for path in (made.run.state_file, made.root):
        made.touch(path, LONG_AGO)
    assert set(diagnostics(made.run)) == {"v1-format"}
    made.run.state_file.unlink()
    message = diagnostics(made.run)["state-file-missing"].message
    assert "model.ckpt-200, in TensorFlow's V1 format, may be newer" in message
    assert "printf" not in message


def test_the_graph_of_one_in_both_formats_is_kept_by_both(made):
    made.tensorflow("model.ckpt-100")
    save(made, "model.ckpt-100")
    assert made.scan()["model.ckpt-100"].state is CheckpointState.COMPLETE
    assert list(diagnostics(made.run)) == ["v1-format"]


def test_it_is_opened_once_however_often_one_looks(made, monkeypatch):
    save(made, "model.ckpt-100")
    opened = []
    monkeypatch.setattr(
        "tfckpt_trainer.catalog.directory.version_one.is_table",
        lambda path: opened.append(path) or True,
    )
    catalog = Catalog(made.run)
    for _ in range(3):
        catalog.scan(NOW)
        catalog.diagnostics(NOW)
    assert len(opened) == 1


def bare(path: Path, first_value: bytes) -> None:
    """A table without state file or graph, whose first value is this."""
    head = b"\0\0" + bytes([len(first_value)]) + first_value
    path.write_bytes(head.ljust(100, b"\0") + struct.pack("<Q", MAGIC))


def test_the_content_tells_where_nothing_else_does(made):
    bare(made.root / "model.ckpt-100", b"\x0a\x04meta")
    bare(made.root / "ckpt-5.index.bak", b"\x08\x01\x1a\x02\x08\x01")
    bare(made.root / "notes", b"\x0a\x04meta")
    (made.root / "model.txt").write_text("text")
    made.touch(made.root, LONG_AGO)
    found = diagnostics(made.run)
    assert list(found) == ["v1-format"]
    assert found["v1-format"].message.startswith("model.ckpt-100 is in TensorFlow's V1 format.")
    assert [one.name for one in find_version_one(made.root)] == ["model.ckpt-100"]


@pytest.mark.parametrize("shards", [0, 2])
def test_a_catalog_lists_them_apart(made, shards):
    paths = save(made, "model.ckpt-100", shards=shards)
    catalog = Catalog(made.run)
    assert catalog.scan(NOW) == ()
    catalog.diagnostics(NOW)
    (found,) = catalog.version_one
    assert (found.name, found.files) == ("model.ckpt-100", tuple(path.name for path in paths))
    assert found.size == sum(path.stat().st_size for path in paths)


@pytest.mark.tensorflow
def test_what_tensorflow_writes(tmp_path):
    done = run_with_tensorflow(SCRIPT, tmp_path)
    assert done.returncode == 0, done.stderr
    for kind in ("plain", "sharded", "no-graph"):
        run = RunDirectory(tmp_path / kind)
        later = run.state_file.stat().st_mtime + 7200
        found = diagnostics(run, later)
        assert list(found) == ["v1-format"], kind
        assert "model.ckpt-100 and model.ckpt-200 are in" in found["v1-format"].message
        assert Catalog(run).scan(later) == ()
        # The data alone is known by its content.
        for path in [run.state_file, *run.root.glob("*.meta")]:
            path.unlink()
        names = [one.name for one in find_version_one(run.root)]
        assert names == ["model.ckpt-100", "model.ckpt-200"], kind
    for kind in ("plain-v2", "sharded-v2"):
        (converted,) = Catalog(RunDirectory(tmp_path / kind)).scan(later)
        assert converted.restorable
