"""Refuses URLs of object storage, such as `gs://bucket/run`, as directories."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tfckpt_trainer.errors import UsageError

_URL = r"(?s)(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<slashes>/{1,3})(?P<rest>.*)"

_SCHEMES = {
    "abfs", "abfss", "adl", "az", "azure", "cos", "dbfs", "file", "ftp", "gcs", "gs", "hdfs", "hf",
    "http", "https", "oss", "r2", "ram", "s3", "s3a", "s3n", "sftp", "viewfs", "wasb", "wasbs",
    "webhdfs",
}  # fmt: skip
"""Schemes that are recognized with one slash, because `Path` turns `gs://b` into `gs:/b`."""


def refuse_url(directory: str | Path, purpose: str = "a run directory") -> None:
    """Raises an error if `directory` is a URL instead of a path.

    Args:
        directory: The directory, as the user wrote it.
        purpose: What the directory is for, with an article.

    Raises:
        UsageError: It is a URL.
    """
    path = os.fsdecode(directory)
    # To compile the pattern takes longer than all else that is done with most paths.
    match = re.fullmatch(_URL, path) if ":" in path else None
    if match is None:
        return
    scheme, rest = match["scheme"].lower(), match["rest"]
    if match["slashes"] == "/" and scheme not in _SCHEMES:
        return
    if scheme == "file":
        raise UsageError(
            f"{scheme}:///{rest} cannot be {purpose}; expected a path. Use /{rest} instead."
        )
    raise UsageError(
        f"{scheme}://{rest} cannot be {purpose}; expected a path on a local or network disk. "
        "Checkpoints need atomic renames and file locks, which object storage does not have. Use "
        "a directory on a disk that all workers share, and copy finished checkpoints to "
        f"{scheme}://{rest} after training."
    )
