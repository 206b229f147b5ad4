"""What every action does, without a screen or a command line.

No Textual and no click: `app` and `cli` call these.
"""
