"""The bound for command tasks: how fast this machine spawns /bin/true and waits for it.

Runs as a script of its own that imports nothing of Penstock: `spawn_loop.py COUNT`. It says when
it is ready, begins when it is told to, and then prints when it began and ended. The clock is the
same in all processes.
"""

import os
import sys
import time


def main(count: int) -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    began = time.monotonic()
    for _ in range(count):
        pid = os.posix_spawn("/bin/true", ["/bin/true"], {})
        _, status = os.waitpid(pid, 0)
        if status != 0:
            sys.exit(f"/bin/true ended with status {status}")
    sys.stdout.write(f"{began} {time.monotonic()}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
