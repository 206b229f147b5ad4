"""One module per command, and how results are printed.

What a command does belongs in `services`.
"""
