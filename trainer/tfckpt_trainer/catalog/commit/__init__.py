"""How a checkpoint comes into a run: by a save, or back from another directory.

Its files are written elsewhere, by the trainer or by `bundle`; here they become one of the run.
"""
