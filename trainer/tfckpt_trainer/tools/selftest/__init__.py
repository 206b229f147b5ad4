"""The training that `tfckpt-tui selftest` runs, and what it measures inside the process.

Only workers of a self-test import this. What they record is judged in
`tfckpt_tui.tools.selftest`.
"""
