"""A server that has no file descriptors left neither spins nor dies, and takes new clients once it has some again.

    out_of_files.py PORT EXPORT SERVER_PID FILES_MAX
"""

import os
import socket
import sys
import time

from raw_nbd import FLUSH, RawClient

SECONDS = 3
# A server that asks again and again takes all of a processor.
BUSY_SECONDS_MAX = 1.0
# A bound on hanging, not on speed.
ANSWER_SECONDS_MAX = 30


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main(port, export, pid, files_max):
    polite = RawClient(port).go(export)
    # The kernel makes the connections; the server cannot take them all.
    crowd = [socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS_MAX) for _ in range(files_max)]
    time.sleep(1)
    open_files = len(os.listdir(f"/proc/{pid}/fd"))
    before = cpu_seconds(pid)
    time.sleep(SECONDS)
    busy_seconds = cpu_seconds(pid) - before
    polite.request(FLUSH)
    print(f"{open_files} files open of {files_max}; {busy_seconds:.2f} s of CPU in {SECONDS} s without any left")
    assert open_files >= files_max - 1, "it has files left: the test tests nothing"
    assert busy_seconds <= BUSY_SECONDS_MAX, "it spins"
    for one in crowd:
        one.close()
    begin = time.monotonic()
    RawClient(port).go(export).request(FLUSH)
    print(f"a new client is served {time.monotonic() - begin:.2f} s after there are files again")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
