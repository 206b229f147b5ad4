"""Commands to a run that trains: one class for each kind, and one way to carry out all.

When a command is due is decided in `loop`. Front ends send commands by `services.control.request`.
"""
