"""`tfckpt-tui`, whose demo trains a smaller model and pauses after each step.

The real one would take the processor from the tests beside it, for as long as a person, here a
test, reads the screen. The pauses are longer once the checkpoints of the tour are there. All else
is the program of the demo. Workers begin with TensorFlow imported.
"""

from __future__ import annotations

import importlib
import os
import shlex
import sys
import time
from functools import partial
from pathlib import Path

from tfckpt_tui.cli import main
from tfckpt_tui.cli.run import launch

STEP_SECONDS = 0.05
LATER_STEP_SECONDS = 0.25
LAST_NEEDED_STEP = 200
SIZES = {"CONTEXT": 16, "WIDTH": 32, "BLOCKS": 1, "BATCH": 4}


def train() -> None:
    """Runs the program of the demo in this process."""
    demo = importlib.import_module(launch.DEMO_MODULE)

    class PacedRun(demo.TrainingRun):
        def __iter__(self):
            for batch in super().__iter__():
                time.sleep(STEP_SECONDS if self.step < LAST_NEEDED_STEP else LATER_STEP_SECONDS)
                yield batch

    assert SIZES.keys() <= vars(demo).keys()
    vars(demo).update(SIZES, TrainingRun=PacedRun)
    demo.main()


if __name__ == "__main__":
    # Workers get options of the demo alone, but no command of the tool.
    if not sys.argv[1].startswith("-"):
        launch.DEMO_MODULE = Path(__file__).stem
        # A standby process would import it again.
        launch.LaunchOptions = partial(launch.LaunchOptions, standby=False)
        main.main()
    elif "tensorflow" in sys.modules:
        train()
    else:
        python = shlex.split(os.environ["PYTHON_WITH_TENSORFLOW"])
        os.execv(python[0], [*python, __file__, *sys.argv[1:]])
