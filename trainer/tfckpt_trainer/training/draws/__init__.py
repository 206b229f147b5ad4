"""Random draws that are a function of a seed, the step and the replica.

Nothing imports this package from outside but `TrainingRun`.
"""
