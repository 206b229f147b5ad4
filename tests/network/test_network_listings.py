"""What a machine says of a run directory while its caches show an old state."""

from __future__ import annotations

import time
from pathlib import Path

import checkpoint_directory
import pytest
from checkpoint_directory import LONG_AGO, CheckpointDirectory
from network_disks import CACHE_SECONDS

from faulty_file_system import FaultyMount
from tfckpt_trainer.catalog.directory.checkpoints import CheckpointState
from tfckpt_trainer.catalog.scan.catalog import Catalog
from tfckpt_trainer.rundir.paths import RunDirectory

GONE = {CheckpointState.WRITING, CheckpointState.COMPLETE, CheckpointState.VERIFIED}


@pytest.fixture(params=["kernel", "client", "sshfs"])
def roots(request):
    """Two clients; the second one keeps names, times or listings for some seconds."""
    if request.param != "client":
        yield request.getfixturevalue("cached" if request.param == "kernel" else "by_ssh")
        return
    here, there = request.getfixturevalue("mounts")
    there.set_faults(stale=CACHE_SECONDS)
    yield here.root, there.root
    there.clear()


def trained_here(root: Path) -> CheckpointDirectory:
    made = CheckpointDirectory(root)
    made.tensorflow("ckpt-1")
    for path in (made.root, made.run.state_file):
        made.touch(path, LONG_AGO)
    return made


def warnings_of(catalog: Catalog) -> list[str]:
    found = catalog.scan(time.time())
    assert {one.state for one in found} <= GONE, [(one.name, one.problem) for one in found]
    diagnostics = catalog.diagnostics(time.time())
    return [one.message for one in diagnostics if one.severity == "warning"]


@pytest.mark.e2e
def test_a_save_elsewhere_causes_no_wrong_advice(roots, monkeypatch, request):
    monkeypatch.setattr(checkpoint_directory, "NOW", time.time())
    name = request.node.name.replace("[", "-").rstrip("]")
    made = trained_here(roots[0] / name)
    watching = Catalog(RunDirectory(roots[1] / name))
    assert warnings_of(watching) == []
    # A manager that keeps one checkpoint saves, and deletes the older one.
    made.tensorflow("ckpt-2", age=0)
    for path in made.root.glob("ckpt-1.*"):
        path.unlink()
    for catalog in (watching, Catalog(RunDirectory(roots[1] / name))):
        assert warnings_of(catalog) == []


@pytest.mark.e2e
def test_a_missing_newest_is_no_reason_to_act_before_caches_expire(mounts, monkeypatch):
    """The server's own time of the directory decides, not a remembered one."""
    here, there = mounts
    assert isinstance(there, FaultyMount)
    monkeypatch.setattr(checkpoint_directory, "NOW", time.time())
    made = trained_here(here.root / "acting")
    made.tensorflow("ckpt-2")
    for path in made.root.glob("ckpt-2.*"):
        path.unlink()
    catalog = Catalog(RunDirectory(there.root / "acting"))
    now = time.time()
    catalog.scan(now)
    messages = [catalog.diagnostics(now + later)[0].message for later in (0, 6, 59, 61)]
    assert ["printf" in message for message in messages] == [False, False, False, True]
