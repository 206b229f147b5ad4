"""What repeated steps that differ mean: the first difference and its likely cause.

What is recorded of each step belongs in `training.check`. The trainer and the check of a script
compare it here.
"""
