"""Files that only their owner can read, replaced as a whole."""

import os
import secrets
from pathlib import Path


def write(path: Path, text: str) -> None:
    """Write a file with mode 0600; a reader sees the old text or the new, never a part."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def generated(path: Path) -> str:
    """The secret in this file; made at the first call."""
    if not path.exists():
        write(path, secrets.token_urlsafe(32) + "\n")
    return path.read_text().strip()
