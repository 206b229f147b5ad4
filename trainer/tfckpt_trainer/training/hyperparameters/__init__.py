"""Values of a run that can be changed between steps, without tracing the steps anew.

`training.commands` changes them on request. What a command may contain is in `rundir.records`.
"""
