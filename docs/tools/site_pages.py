"""Makes the site from the pages that GitHub shows: `mkdocs.yml` names this file as a hook."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./\.\./[^)]+\)")
CODE = re.compile(r"`[^`\n]+`")
OUTSIDE_FROM_README = re.compile(r"(?<!!)\[([^\]]+)\]\((?!docs/(?!tools/)|https?:|#)[^)]+\)")


def on_files(files: Files, config: Any) -> Files:
    """Adds the README as the first page of the site."""
    text = (ROOT / "README.md").read_text()
    text = OUTSIDE_FROM_README.sub(r"\1", text).replace("](docs/", "](")
    files.append(File.generated(config, "index.md", content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Turns what GitHub reads differently into what MkDocs expects.

    Links to source files, which the site does not have, become plain text. GitHub wants `|` escaped
    in the code of a table; MkDocs would show the backslash.
    """
    markdown = OUTSIDE.sub(r"\1", markdown)
    return CODE.sub(lambda code: code[0].replace(r"\|", "|"), markdown)
