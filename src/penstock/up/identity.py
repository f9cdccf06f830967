"""Whom Postgres runs as: it refuses root, and initdb refuses a user without a name.

An ordinary user starts it as himself. Root first tries a user namespace: the server then is not
root in its own eyes and has no capabilities, while all files stay root's, below whatever directory.
Where namespaces are forbidden (many containers), the server becomes the user nobody, owns the
database directory, and keeps only the capability to reach it.
"""

import os
import pwd
import shutil
import signal
from pathlib import Path

from penstock.errors import Unavailable
from penstock.up import process

SAME = "same"


def candidates() -> list[str]:
    """The identities to try, best first, in the notation of `launch`."""
    if os.geteuid() != 0 and _has_name(os.geteuid()):
        return [SAME]
    nobody = _nobody()
    if nobody is None:
        return []
    found = [f"namespace:{nobody.pw_uid}"]
    if os.geteuid() == 0:
        found.append(f"user:{nobody.pw_uid}:{nobody.pw_gid}")
    return found


async def choose(initdb: Path, directory: Path, log: Path) -> str:
    """The first identity that Postgres accepts and that reaches its programs and the directory."""
    allowed = candidates()
    if allowed == [SAME]:
        return SAME
    for candidate in allowed:
        own(directory, candidate)
        probe = process.start(
            "identity",
            [str(initdb), "--show", f"--pgdata={directory}"],
            log=log,
            directory=directory,
            identity=candidate,
            signal_when_orphaned=signal.SIGKILL,
        )
        if await probe.wait() == 0:
            return candidate
    raise Unavailable(
        "Postgres refuses to run as root, and neither a user namespace nor another user could be"
        f" used here (see {log}). Run Penstock as an ordinary user, or set PENSTOCK_DATABASE_URL"
        " to a Postgres of your own."
    )


def own(directory: Path, identity: str) -> None:
    """Give the directory to whom the identity is on disk; Postgres insists on owning its data."""
    if os.geteuid() != 0:
        return
    uid, gid = 0, 0
    if identity.startswith("user:"):
        uid, gid = (int(number) for number in identity.split(":")[1:])
    if directory.stat().st_uid == uid:
        return
    for parent, directories, files in os.walk(directory):
        for name in (*directories, *files):
            shutil.chown(Path(parent, name), uid, gid)
    # The top last: its owner says that all below it was done.
    shutil.chown(directory, uid, gid)


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _nobody() -> pwd.struct_passwd | None:
    """The user nobody, else any user that is not root."""
    others = [entry for entry in pwd.getpwall() if entry.pw_uid != 0]
    return min(others, key=lambda entry: entry.pw_name != "nobody", default=None)
