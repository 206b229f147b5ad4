"""Creates the strategy of the name it is given."""

from __future__ import annotations

import sys

from tfckpt_trainer.training import create_strategy

create_strategy(sys.argv[1])
