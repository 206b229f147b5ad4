"""The typed records of the run directory, one module for each subject."""
