"""All actions in one table: bindings, footer, palette, help and docs are made from it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Action:
    """One thing a person can do.

    Attributes:
        name: As in the command line and in the keymap of a configuration.
        key: The key that does it, as Textual names keys; empty if only the palette has it.
        footer: A word or two for the footer.
        title: A short sentence for the palette.
        help: What it does, for the help screen and the documentation.
        changes: Whether it changes the run; `--read-only` switches it off.
        needs_trainer: Whether a live trainer must answer.
        needs_checkpoint: Whether it acts on the selected checkpoint.
        for_marked: Whether it acts on the marked checkpoints instead, where there are any.
        in_footer: Whether the footer shows it where there is room.
    """

    name: str
    key: str
    footer: str
    title: str
    help: str
    changes: bool = False
    needs_trainer: bool = False
    needs_checkpoint: bool = False
    for_marked: bool = False
    in_footer: bool = True


ACTIONS = (
    Action(
        "save",
        "s",
        "save",
        "Save a checkpoint now",
        "All workers save at the same step; training goes on. The checkpoint counts once it is "
        "verified and flushed to disk.",
        changes=True,
        needs_trainer=True,
    ),
    Action(
        "restore",
        "r",
        "restore",
        "Go back to a checkpoint in place",
        "All workers take up the selected checkpoint, or one you type, without a restart. What "
        "was saved later stays: going back to an older step starts a new branch.",
        changes=True,
        needs_trainer=True,
    ),
    Action(
        "prune",
        "p",
        "prune",
        "Free disk space by a policy",
        "Shows what a policy would delete, why, and how many bytes that frees; then asks. With "
        "marked checkpoints it is exactly these. What goes is moved to the trash.",
        changes=True,
        for_marked=True,
    ),
    Action(
        "undo",
        "u",
        "undo",
        "Bring back what the last prune deleted",
        "Moves the checkpoints of the newest prune back from the trash.",
        changes=True,
    ),
    Action(
        "pin",
        "asterisk",
        "pin",
        "Pin or unpin the selected checkpoint",
        "A pinned checkpoint is never pruned. Of marked ones, all are pinned.",
        changes=True,
        needs_checkpoint=True,
        for_marked=True,
    ),
    Action(
        "inspect",
        "enter",
        "inspect",
        "Look into the selected checkpoint",
        "Its variables as a tree, with statistics; what its record says; whether it is sound; and "
        "what resuming from it would bring back and what not.",
        needs_checkpoint=True,
    ),
    Action(
        "verify",
        "v",
        "verify",
        "Verify the selected checkpoint",
        "Reads every byte and holds it against its checksum, in the background, one marked "
        "checkpoint after the other. Pressed again, it gives up. Checkpoints that come while the "
        "app is open are verified by themselves.",
        needs_checkpoint=True,
        for_marked=True,
    ),
    Action(
        "mark",
        "space",
        "mark",
        "Mark or unmark the selected checkpoint",
        "Marked checkpoints are verified, pinned, pruned and copied together; two can be "
        "compared. Esc takes the marks off.",
        needs_checkpoint=True,
        in_footer=False,
    ),
    Action(
        "mark-all",
        "M",
        "mark all",
        "Mark all checkpoints that are shown",
        "Those that the filter shows; pressed again, it takes all marks off.",
        needs_checkpoint=True,
        in_footer=False,
    ),
    Action(
        "compare",
        "d",
        "compare",
        "Compare two checkpoints",
        "The two marked ones, the marked and the selected one, or the selected one and the one "
        "before it: which tensors changed, and by how much.",
        needs_checkpoint=True,
    ),
    Action(
        "export",
        "e",
        "export",
        "Make a model file of the selected checkpoint",
        "As a Keras file, a SavedModel, or weights alone; another process loads it and compares "
        "its answers before it is there. Training goes on meanwhile.",
        changes=True,
        needs_checkpoint=True,
    ),
    Action(
        "pause",
        "z",
        "pause",
        "Pause or resume training",
        "All workers wait after the same step, and go on together.",
        changes=True,
        needs_trainer=True,
    ),
    Action(
        "stop",
        "x",
        "stop",
        "Stop the run",
        "Ends training on all workers, with a save or without; asks first.",
        changes=True,
        needs_trainer=True,
    ),
    Action(
        "launch",
        "L",
        "launch",
        "Start training here, or start it again",
        "A form with the command, the number of workers and the options of the last launch; "
        "training goes on from the newest checkpoint that can be restored.",
        changes=True,
        in_footer=False,
    ),
    Action(
        "tensorboard",
        "t",
        "tensorboard",
        "Open TensorBoard on this run",
        "Starts TensorBoard on the loopback address, and shows its address and, over SSH, the "
        "line that forwards its port.",
    ),
    Action(
        "logs",
        "l",
        "logs",
        "Read what the workers print",
        "The log of each worker and of the supervisor; follows new lines.",
    ),
    Action(
        "diagnostics",
        "o",
        "diagnostics",
        "Show diagnostics of the directory",
        "Problems of the directory, such as a state file that names a missing checkpoint, or files "
        "left by a killed save: what follows from each, and what to do.",
    ),
    Action(
        "worker",
        "w",
        "worker",
        "Look at one worker",
        "What it does and waits for, its pace against the fastest worker and its own best, what "
        "it uses, and charts since the app was opened; the arrows turn to the others.",
        in_footer=False,
    ),
    Action(
        "charts",
        "c",
        "charts",
        "Look closely at loss, metrics and pace",
        "One measurement on the whole screen: + and - zoom, the arrows move and choose what is "
        "drawn, t turns between steps and the clock.",
        in_footer=False,
    ),
    Action(
        "events",
        "J",
        "events",
        "Read the journal of the run",
        "Everything that happened, newest first, filtered by words; the event under the cursor in "
        "full, with the last lines of the log where a worker was lost.",
        in_footer=False,
    ),
    Action(
        "trash",
        "T",
        "trash",
        "Look into the trash",
        "What prunes moved away: u brings one back, E deletes all for good.",
        in_footer=False,
    ),
    Action(
        "filter",
        "slash",
        "filter",
        "Show only some of the checkpoints",
        "Words that must all hold: step>1000, size>1GB, age<2h, loss<0.5, state:verified, "
        "branch:2, why:command, pinned, marked, current, restorable, or a part of the name; a - "
        "before a word turns it round. Enter keeps it, esc shows all again.",
        in_footer=False,
    ),
    Action(
        "sort",
        "greater_than_sign",
        "sort",
        "Sort by the next column",
        "Goes through the columns, and back to the order of the history with its branches.",
        in_footer=False,
    ),
    Action(
        "sort-back",
        "less_than_sign",
        "sort back",
        "Sort by the previous column",
        "The same the other way round.",
        in_footer=False,
    ),
    Action(
        "turn-order",
        "equals_sign",
        "turn order",
        "Turn the order of the sorted column round",
        "The largest first, or the smallest.",
        in_footer=False,
    ),
    Action(
        "copy",
        "y",
        "copy",
        "Copy the path of the selected checkpoint",
        "To the clipboard of the terminal you sit at, through SSH and tmux too (OSC 52), where it "
        "allows that.",
        needs_checkpoint=True,
        for_marked=True,
        in_footer=False,
    ),
    Action(
        "copy-row",
        "Y",
        "copy row",
        "Copy all that the row of the checkpoint says",
        "Name, step, branch, state, when it was saved, bytes, why, metrics and path, with tabs "
        "between them, as a spreadsheet takes them.",
        needs_checkpoint=True,
        for_marked=True,
        in_footer=False,
    ),
    Action(
        "palette",
        "colon",
        "palette",
        "Find an action, a checkpoint or a step by typing",
        "As ctrl+p: a part of the name of an action or a checkpoint, or a step.",
        in_footer=False,
    ),
    Action(
        "settings",
        "comma",
        "settings",
        "Change colours, bell and how the directory is watched",
        "Changed with the arrows, in force at once, and kept in the configuration file.",
        in_footer=False,
    ),
    Action(
        "help",
        "question_mark",
        "help",
        "Show the keys and what the states mean",
        "Keys, states and colours.",
    ),
    Action(
        "detach",
        "q",
        "detach",
        "Leave; training goes on",
        "Closes the app. The run does not notice.",
    ),
)


def action(name: str) -> Action:
    """Returns the action called `name`."""
    return next(known for known in ACTIONS if known.name == name)
