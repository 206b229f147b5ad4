"""What a command has written for somebody outlasts a power cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaign.power_cuts import content_below
from campaign.storage_faults import OUT, RUN, do, healthy_run
from real_file_systems import power_cut_disk

pytestmark = pytest.mark.faults

WORDS = (
    ("extract", RUN, "ckpt-100", "--output", f"{OUT}/t.npz"),
    ("extract", RUN, "ckpt-100", "--output", f"{OUT}/t.safetensors"),
    ("extract", RUN, "ckpt-100", "--to", "npy", "--output", f"{OUT}/arrays"),
    ("report", RUN, "--output", f"{OUT}/run.html"),
)


def test_files_of_a_command_that_has_ended_outlast_a_power_cut(tmp_path: Path) -> None:
    with power_cut_disk(tmp_path / "disk") as disk:
        healthy_run(disk.root / "run")
        out = disk.root / "out"
        out.mkdir()
        disk.flush()
        for words in WORDS:
            assert do(words, disk.root)[0] == 0
        written = content_below(out)
        disk.cut_power()
        disk.restore_power()
        left = content_below(out)
    assert left == written
    assert {Path(name).suffix for name in left} == {"", ".npz", ".safetensors", ".npy", ".html"}
