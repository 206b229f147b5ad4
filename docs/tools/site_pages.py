"""Makes the site from the pages that GitHub shows: `mkdocs.yml` names this file as a hook."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
LINK_UPWARDS = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+)[^)]+\)")
CODE = re.compile(r"`[^`\n]+`")
OUTSIDE_FROM_README = re.compile(r"(?<!!)\[([^\]]+)\]\((?!docs/(?!tools/)|https?:|#)[^)]+\)")


def on_files(files: Files, config: Any) -> Files:
    """Adds the README as the first page of the site."""
    text = (ROOT / "README.md").read_text()
    text = OUTSIDE_FROM_README.sub(r"\1", text).replace("](docs/", "](")
    files.append(File.generated(config, "index.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Turns what GitHub reads differently into what MkDocs expects.

    Links to source files, which the site does not have, become plain text. GitHub wants `|` escaped
    in the code of a table; MkDocs would show the backslash.
    """
    depth = page.file.src_uri.count("/")

    def inside(link: re.Match[str]) -> str:
        return link[1] if link[2].count("../") > depth else link[0]

    markdown = LINK_UPWARDS.sub(inside, markdown)
    return CODE.sub(lambda code: code[0].replace(r"\|", "|"), markdown)
