"""Trains as `live_training.py` with faults at file calls; says how many it made.

LD_PRELOAD=file_calls.so python faulty_training.py FAULT FIRST LAST OF_READS ...
"""

from __future__ import annotations

import atexit
import os
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]
from file_calls import Fault, begin, counted  # noqa: E402

what, first, last, of_reads = map(int, sys.argv[1:5])
begin(Path(os.environ["TFCKPT_RUN_DIR"]), Fault(what, first, last, bool(of_reads)))
atexit.register(lambda: print("calls", *counted()))
sys.argv[1:5] = []
runpy.run_path(str(HERE / "live_training.py"), run_name="__main__")
