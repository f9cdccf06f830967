"""Processes that outlive the command that started them.

Most are in the command's process group and are ended with it. One that made itself a session of its
own lives on, and keeps the files that its command wrote to. While a worker runs commands it adopts
such orphans from the kernel. Then it knows when there are none, and only then may the next command
write to the same files; and it does not leave the dead ones to an init process that may not be
there.

A handler may have children of its own, which are the handler's to wait for. So a worker adopts
nobody while it runs handlers, and a worker whose handlers left children never adopts again: it
assumes that somebody may be left.
"""

import ctypes
import os

_PR_SET_CHILD_SUBREAPER = 36
_LOOK = os.WEXITED | os.WNOHANG


class Orphans:
    def __init__(self) -> None:
        self.adopting = False
        self._never = False

    def adopt(self) -> None:
        """Before a command."""
        if self.adopting or self._never:
            return
        if _has_children() or not _set_subreaper(True):
            self._never = True
        else:
            self.adopting = True

    def renounce(self) -> None:
        """Before a handler."""
        self.adopting = False
        _set_subreaper(False)

    def are_gone(self) -> bool:
        """Whether nothing that any command started is alive. To be asked after a command."""
        if not self.adopting:
            return False
        try:
            while os.waitid(os.P_ALL, 0, _LOOK) is not None:
                continue
        except ChildProcessError:
            return True
        return False


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, _LOOK | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _set_subreaper(value: bool) -> bool:
    """Whether it worked: a kernel that refuses only costs some speed."""
    return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(value), 0, 0, 0) == 0)
