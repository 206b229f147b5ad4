"""Directories of a newer release: they are read, nothing is changed, the release is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from checkpoint_directory import contents
from rundir_factory import RunFactory, two_branches, without_heartbeats

from command_running import Tool
from tfckpt_trainer.catalog.directory.history import refuse_newer_release
from tfckpt_trainer.errors import RefusedError
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.rundir.records.checkpoint import SaveManifest, SavePhase
from tfckpt_trainer.rundir.records.run import Head
from tfckpt_trainer.rundir.storage.documents import store

LAUNCH = {
    "run_directory": "/run",
    "command": ("true",),
    "working_directory": "/",
    "workers": 1,
    "max_restarts": 0,
}


@pytest.fixture
def made(tmp_path: Path, tool: Tool) -> RunFactory:
    made = without_heartbeats(two_branches(tmp_path / "run"))
    run = made.run
    assert tool("prune", run.root, "ckpt-200", "--yes").code == 0
    store(run.head_file, Head(checkpoint="ckpt-300", step=300, branch=1, sequence=6))
    store(run.launch_file, LaunchOptions(**LAUNCH))
    store(run.save_manifest("ckpt-b1-500"), SaveManifest(name="x", phase=SavePhase.WRITING))
    made.worker(0, updated_at=1e9)
    return made


DOCUMENTS = [
    "run.json", "launch.json", "head.json", "trash.json", "status/worker-0.json",
    "saving/ckpt-b1-500.json", "trash/*/manifest.json", "records/ckpt-b1-400.json",
]  # fmt: skip

CHANGES = [
    ["prune", "RUN", "--keep-last", "1", "--yes"],
    ["prune", "RUN", "ckpt-100", "--yes"],
    ["prune", "RUN", "ckpt-100", "--delete", "--yes"],
    ["restore", "RUN", "--name", "ckpt-100", "--next-start"],
    ["launch", "RUN", "--detach", "--", "true"],
]

CHANGES_OF_RUN = [
    ["undo", "RUN"],
    ["pin", "RUN", "ckpt-100"],
    ["average", "RUN", "ckpt-100", "ckpt-300"],
]


def make_newer(made: RunFactory, pattern: str) -> None:
    (path,) = made.run.control.glob(pattern)
    for one in path.parent.glob(f"{path.name}*"):
        fields = json.loads(one.read_bytes())
        one.write_bytes(json.dumps({**fields, "schema": 99, "written_by": "9.8.7"}).encode())


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_newer_document_is_named_and_nothing_is_changed(
    tool: Tool, made: RunFactory, document: str
) -> None:
    root = made.run.root
    make_newer(made, document)
    before = contents(root)
    listed = tool("ls", root)
    assert "was written by tfckpt-tui 9.8.7: it has schema 99" in listed.words
    assert "pip install --upgrade 'tfckpt-tui>=9.8.7'" in listed.words
    assert "ckpt-b1-400" in listed.data
    is_record = document.startswith("records")
    status = tool("status", root)
    assert "pip install --upgrade 'tfckpt-tui>=9.8.7'" in (
        status.data if is_record else status.words
    )
    for words in CHANGES if is_record else [*CHANGES, *CHANGES_OF_RUN]:
        said = tool(*(word.replace("RUN", str(root)) for word in words))
        assert (said.code, "tfckpt-tui>=9.8.7" in said.words) == (4, True), (words, said)
    with pytest.raises(RefusedError, match="tfckpt-tui>=9"):
        refuse_newer_release(made.run)
    now = contents(root)
    assert {name: now[name] for name in before} == before
    assert tool("inspect", root, "ckpt-300").code == 0
