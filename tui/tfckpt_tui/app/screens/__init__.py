"""Full-screen views.

Questions to the user belong in `app.dialogs`, reusable parts in `app.widgets`.
A module is imported when its name, as in `screens.help.HelpScreen`, is first used: the first frame
does not wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfckpt_trainer.late import late_modules

if TYPE_CHECKING:
    from tfckpt_tui.app.screens import (
        action_runs,
        answers,
        chart_page,
        charts,
        checkpoint,
        compare,
        diagnostics,
        event_log,
        guards,
        help,
        hyperparameters,
        logs,
        page,
        processes,
        profile,
        runs_compare,
        settings,
        stacks,
        tensor_pages,
        track,
        trash,
        worker,
    )
else:
    __getattr__ = late_modules(__name__)
