"""Parts of screens. They show what a snapshot says and hold no state of their own.

Nothing here reads files or sends commands.
"""
