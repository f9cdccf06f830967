"""Processes that outlive the command that started them.

Most are in the command's process group and are ended with it. One that made itself a session of its
own lives on, and keeps the files that its command wrote to. A worker that runs nothing but commands
adopts such orphans from the kernel. Then it knows when there are none, and only then may the next
command write to the same files; and it does not leave the dead ones to an init process that may not
be there.

A handler may have children of its own, which are the handler's to wait for. So from its first
handler on, a worker adopts nobody and assumes that somebody may be left.
"""

import ctypes
import os

_PR_SET_CHILD_SUBREAPER = 36
_LOOK = os.WEXITED | os.WNOHANG


class Orphans:
    def __init__(self) -> None:
        self._adopting: bool | None = None

    def adopt(self) -> None:
        if self._adopting is None:
            self._adopting = _set_subreaper(True)

    def renounce(self) -> None:
        if self._adopting:
            _set_subreaper(False)
        self._adopting = False

    def are_gone(self) -> bool:
        """Whether nothing that any command started is alive. To be asked between commands."""
        if not self._adopting:
            return False
        try:
            while os.waitid(os.P_ALL, 0, _LOOK) is not None:
                continue
        except ChildProcessError:
            return True
        return False


def _set_subreaper(value: bool) -> bool:
    """Whether it worked: a kernel that refuses only costs some speed."""
    return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(value), 0, 0, 0) == 0)
