"""What changes a run: by its trainer if one answers, otherwise by this process or by the scheduler.

What only reads a run belongs in `services.runs`.
"""
