"""What each command prints with `--json`: one frozen record for each document.

Names, types and meanings of fields. `services` and `cli` fill them in; the JSON Schema and
`docs/reference/json.md` are made from them.
"""
