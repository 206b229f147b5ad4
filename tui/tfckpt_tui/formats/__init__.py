"""Values as text: units, filters, sort orders, rows. One function cleans text from outside.

No files, no processes, no Textual.
"""
