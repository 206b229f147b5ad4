"""Into a changed model: refused with the list of what differs, or restored as far as it fits."""

from __future__ import annotations

import pytest
from steered import SteeredRun
from training_cluster import Cluster

from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.records.command import CommandKind, CommandState
from weekly import weekly

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize(
    ("strategy", "workers"),
    [("mirrored", 1), *weekly(("multi-worker", 2))],
)
def test_a_changed_model_takes_what_fits_only_if_told_to(tmp_path, strategy, workers):
    def cluster(*arguments):
        return Cluster(tmp_path / "run", "steered.py", list(arguments), workers, strategy)

    with cluster("--steps", "10", "--save-every", "5") as first:
        assert first.wait() == [0] * workers, first.output()

    with cluster("--outputs", "3") as refused:
        assert refused.wait() == [1] * workers
        assert "float32 16×1 in the checkpoint and float32 16×3 in the model" in refused.output()
        assert "The start could not restore ckpt-10: " in refused.output()
        assert "1 other checkpoint was not tried." in refused.output()
        assert "--name ckpt-5 --next-start` and start again" in refused.output()

    with cluster("--outputs", "3", "--partial") as changed:
        run = SteeredRun(changed)
        run.wait_for_step(15)
        start = [entry for entry in read_entries(run.run) if entry.kind.value == "start"][-1]
        assert start.step == 10
        assert any("float32 16×1" in line for line in start.details["left_out"])

        whole = run.ask(CommandKind.RESTORE, name="ckpt-10")
        assert whole.state is CommandState.REFUSED
        assert "Nothing was changed" in whole.message
        assert "--name ckpt-10 --partial`" in str(whole.advice)
        part = run.ask(CommandKind.RESTORE, name="ckpt-10", partial=True)
        assert part.state is CommandState.DONE, part.message
        assert part.result["step"] == 10
        assert part.result["variables"] >= 4
        assert any("float32 16×1" in line for line in part.result["left_out"])
        run.progress()
        stopped = run.ask(CommandKind.STOP)
        assert stopped.state is CommandState.DONE
        assert changed.wait() == [0] * workers, changed.output()
