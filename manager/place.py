"""The directory of a manager's sockets: short, stable across restarts, for its user alone."""

import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

from penstock.errors import Rejected
from penstock.events.worker_protocol import Place

_LONGEST_SOCKET_PATH = 107


def open_place(data: Path, manager_id: str) -> Place:
    digest = hashlib.blake2b(f"{data.resolve()}\0{manager_id}".encode(), digest_size=6).hexdigest()
    name = f"penstock-{os.getuid()}-{digest}"
    directory = os.path.join(tempfile.gettempdir(), name)
    if len(Place(directory).control) > _LONGEST_SOCKET_PATH:
        directory = f"/tmp/{name}"
    os.makedirs(directory, mode=0o700, exist_ok=True)
    facts = os.lstat(directory)
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
        raise Rejected(
            f"{directory} exists and is not ours alone, so workers cannot be trusted there. "
            "Find out who made it, and remove it."
        )
    return Place(directory)


def remove_place(place: Place) -> None:
    shutil.rmtree(place.directory, ignore_errors=True)
