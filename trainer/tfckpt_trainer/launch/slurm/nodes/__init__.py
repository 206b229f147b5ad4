"""The nodes of a Slurm job: checks them, and chooses those of the next start.

What runs on the nodes after the checks is a job step of the folder above.
"""
