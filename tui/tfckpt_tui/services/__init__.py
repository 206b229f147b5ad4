"""What every action does, without a screen or a command line.

No Textual and no click: `app` and `cli` call these. Each module is in a folder, and each folder
uses those below it in the import rules of `pyproject.toml`.
"""
