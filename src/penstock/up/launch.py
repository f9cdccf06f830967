"""Becomes another program: python launch.py PARENT SIGNAL IDENTITY DIRECTORY COMMAND...

Three things can only be done by the child itself, between its birth and the program:

- It asks the kernel for SIGNAL when PARENT dies. A supervisor that is killed with -9 cannot stop
  its servers; this way it leaves none behind.
- It stops being root, because Postgres refuses root. `namespace:UID` moves it to a user namespace
  of its own, in which it is called UID while its files stay ours. `user:UID:GID` makes it that
  user, and keeps the one capability it needs to reach files below directories of root. `same`
  changes nothing.
- It changes to DIRECTORY as the one it then is, so that a directory it cannot reach is noticed.

It runs as a script of its own and imports nothing of Penstock: forking a process that has threads
and running Python before the exec is not safe, starting a small program is.
"""

import ctypes
import os
import sys

CANNOT_BECOME = 125
"""Exit code: the identity or the directory is out of reach."""

_CLONE_NEWUSER = 0x10000000
_PR_SET_PDEATHSIG = 1
_PR_SET_SECUREBITS = 28
_SECBIT_NO_SETUID_FIXUP = 1 << 2
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_CAP_DAC_OVERRIDE = 1
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def main(arguments: list[str]) -> None:
    parent, signal, identity, directory = arguments[:4]
    command = arguments[4:]
    try:
        become(identity)
        if directory:
            os.chdir(directory)
    except OSError as error:
        print(f"cannot start {command[0]} as {identity}: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(CANNOT_BECOME)
    # After the change of identity, which would reset it.
    if int(signal):
        _call(_libc.prctl(_PR_SET_PDEATHSIG, int(signal), 0, 0, 0))
        if os.getppid() != int(parent):
            sys.exit(CANNOT_BECOME)
    os.execv(command[0], command)


def become(identity: str) -> None:
    kind, *numbers = identity.split(":")
    if kind == "namespace":
        _enter_namespace(int(numbers[0]))
    elif kind == "user":
        _become_user(int(numbers[0]), int(numbers[1]))


def _enter_namespace(inside: int) -> None:
    uid, gid = os.geteuid(), os.getegid()
    _call(_libc.unshare(_CLONE_NEWUSER))
    _write("/proc/self/uid_map", f"{inside} {uid} 1")
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/gid_map", f"{inside} {gid} 1")


def _become_user(uid: int, gid: int) -> None:
    # Without this bit, access(2), by which Postgres checks its own files, ignores capabilities.
    _call(_libc.prctl(_PR_SET_SECUREBITS, _SECBIT_NO_SETUID_FIXUP, 0, 0, 0))
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    bit = 1 << _CAP_DAC_OVERRIDE
    sets = (ctypes.c_uint32 * 6)(bit, bit, bit, 0, 0, 0)
    _call(_libc.capset(header, sets))
    _call(_libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_OVERRIDE, 0, 0))


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _call(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    main(sys.argv[1:])
