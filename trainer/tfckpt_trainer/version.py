"""The release of this installation, which documents and reports name."""

from __future__ import annotations

__version__ = "0.1.0"
