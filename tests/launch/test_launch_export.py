"""An export has what its script wrote, whatever others put beside it meanwhile."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from requirements import needs
from tfckpt_trainer.errors import LaunchError
from tfckpt_trainer.launch.export import Script, export
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.export import ExportFormat

SCRIPT = """
import os
from pathlib import Path
from tfckpt_trainer.rundir.records.export import ExportRequest, ExportResult
from tfckpt_trainer.rundir.storage.documents import load, store

place = Path(os.environ["TFCKPT_EXPORT"])
request = load(place, ExportRequest)
place.with_name(request.file_name).write_text("written")
store(place.with_name(f"report-{request.phase.value}.json"), ExportResult())
"""


@needs("Linux")
@pytest.mark.parametrize("when", ["during the check", "after it"])
def test_a_model_that_others_put_in_its_place_is_not_exported(tmp_path: Path, when: str) -> None:
    run, target = RunDirectory(tmp_path / "run"), tmp_path / "exports" / "model"
    run.create()
    target.parent.mkdir()
    wanted = "report-write.json" if when == "during the check" else "report-check.json"
    watcher = f"""
import os, pathlib, time
parent = pathlib.Path({str(target.parent)!r})
for place in parent.glob(".model.*"):
    if (place / {wanted!r}).exists():
        place.rename(parent / "moved")
        place.mkdir()
        (place / "model").write_text("of others")
        (place / "request.json").write_bytes((parent / "moved" / "request.json").read_bytes())
"""
    before, after = (watcher, "") if when == "during the check" else ("", watcher)
    script = Script([sys.executable, "-c", before + SCRIPT + after], tmp_path, {})
    if when == "during the check":
        with pytest.raises(LaunchError, match="before its training loop"):
            export(run, script, "ckpt-1", ExportFormat.KERAS, target)
        assert not target.exists()
    else:
        exported = export(run, script, "ckpt-1", ExportFormat.KERAS, target)
        assert exported.path.read_text() == "written"
    assert (target.parent / "moved").exists()
