"""Stops one thread of a process for a while, as if it hung in the kernel; the others go on.

stop_thread.py PID NAME SECONDS: the first thread of that name.
"""

import ctypes
import os
import sys
import time

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WALL = 0x40000000


def main():
    pid, name, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    threads = os.listdir(f"/proc/{pid}/task")
    named = [int(tid) for tid in threads if open(f"/proc/{pid}/task/{tid}/comm").read().strip() == name]
    if not named:
        sys.exit(f"no thread {name} in process {pid}")
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long

    def ptrace(request):
        if libc.ptrace(request, named[0], None, None) < 0:
            sys.exit(f"ptrace {request:#x} of thread {named[0]}: {os.strerror(ctypes.get_errno())}")

    ptrace(PTRACE_SEIZE)
    ptrace(PTRACE_INTERRUPT)
    os.waitpid(named[0], WALL)
    time.sleep(seconds)
    ptrace(PTRACE_DETACH)


main()
