"""Values as text: units, columns, filters, trees of rows, and cleaning untrusted text.

No files, no processes, no Textual.
"""
