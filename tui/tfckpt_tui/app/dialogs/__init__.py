"""Dialogs: one question each, with what follows from the answer.

What the answer does belongs in `services`.
A module is imported when its name, as in `dialogs.prune.PruneDialog`, is first used: the first
frame does not wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfckpt_trainer.late import late_modules

if TYPE_CHECKING:
    from tfckpt_tui.app.dialogs import (
        batch_job,
        check_run,
        dialog,
        export,
        guard_rule,
        launch,
        many,
        prune,
        prune_questions,
        reference,
        restore,
        set,
        stop,
        tensorboard,
        trace,
        undo,
    )
else:
    __getattr__ = late_modules(__name__)
