"""Makes the description of the package page from the README: `pyproject.toml` names this hook."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:)([^)\s]+)\)")


class DescriptionHook(MetadataHookInterface):
    """Gives the package its description."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Sets the description, with links to the repository whose workflow builds the package."""
        names = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_SHA")
        found = [os.environ.get(name, "") for name in names]
        text = (Path(self.root) / "README.md").read_text()
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": describe(text, *found) if all(found) else describe(text),
        }


def describe(readme: str, server: str = "", repository: str = "", commit: str = "") -> str:
    """Returns the README with absolute links; without a repository, they become plain text."""

    def absolute(link: re.Match[str]) -> str:
        image, words, target = link.groups()
        if not repository:
            return words
        path = f"README.md{target}" if target.startswith("#") else target
        kind = "raw" if image else "blob"
        return f"{image}[{words}]({server}/{repository}/{kind}/{commit}/{path})"

    # A picture within the words of a link would need a second pass; the README has none.
    return RELATIVE_LINK.sub(absolute, readme)
