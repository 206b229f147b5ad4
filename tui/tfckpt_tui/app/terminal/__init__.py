"""Between Textual and the terminal: what Textual does not do, or does otherwise.

Each module is of a defect or a limit that `docs/how-it-works/terminals.md` describes, with what
would make it superfluous. What is drawn belongs in `app.widgets`.
"""
