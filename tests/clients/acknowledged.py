"""Writes to a volume and remembers what was acknowledged; checks after a crash that nothing of it is lost.

    acknowledged.py load STATE SEED URI      until the server dies, then notes what was acknowledged; fails on wrong data
    acknowledged.py during STATE SEED URI STOP [PAUSE]
                                             until the file STOP is there; fails on wrong data, on any error, and on a
                                             pause of more than PAUSE seconds without an answer on a connection
    acknowledged.py verify STATE URI         reads everything back; fails on anything lost, torn or resurrected

Each 512-byte sector carries its number and the sequence number of its write, repeated. A sector must hold its last
acknowledged write, or the one that was in flight when the server died.
"""

import os
import random
import struct
import sys
import threading
import time

import nbd
from kept import Kept

SECTOR_BYTES = 512
BLOCK_SECTORS = 8
CONNECTIONS = 3
DEPTH = 24
LOAD_SECONDS_MAX = 60
DURING_SECONDS_MAX = 600
READ_SECTORS = 2048


def sector_content(sector, sequence):
    """Sequence 0 stands for zeroes: never written, trimmed or zeroed."""
    return bytes(SECTOR_BYTES) if sequence == 0 else struct.pack("<QQ", sector, sequence) * 32


class State(Kept):
    """What each sector may hold: the acknowledged sequence number, and that of the write in flight or None."""

    def __init__(self, sectors):
        self.acknowledged = [0] * sectors
        self.in_flight = [None] * sectors
        self.sequence_last = 0
        self.operations = 0

    def check(self, first, data):
        """Compares what was read; what is found becomes what is expected from now on."""
        for index in range(len(data) // SECTOR_BYTES):
            sector = first + index
            found = data[index * SECTOR_BYTES : (index + 1) * SECTOR_BYTES]
            allowed = {self.acknowledged[sector], self.in_flight[sector]} - {None}
            matching = [sequence for sequence in allowed if found == sector_content(sector, sequence)]
            if not matching:
                raise AssertionError(
                    f"sector {sector}: expected one of writes {sorted(allowed)}, found {describe(found)}"
                )
            self.acknowledged[sector] = matching[0]
            self.in_flight[sector] = None


def describe(found):
    first, sequence = struct.unpack_from("<QQ", found)
    if found == sector_content(first, sequence):
        return f"write {sequence} of sector {first}"
    return "zeroes" if not any(found) else f"torn or foreign data: {found[:32].hex()}..."


class Operation:
    """One command in flight."""

    def __init__(self, kind, first, count, sequence):
        self.kind, self.first, self.count, self.sequence = kind, first, count, sequence
        self.cookie = None
        self.buffer = None

    def sectors(self):
        return range(self.first, self.first + self.count)


class Worker(threading.Thread):
    """One connection with its own range of sectors. No two commands in flight touch the same sector."""

    def __init__(self, state, uri, bounds, seed, stop=None):
        super().__init__()
        self.state, self.uri, self.bounds, self.stop = state, uri, bounds, stop
        self.pause_max, self.paused_at = 0.0, 0.0
        self.random = random.Random(seed)
        self.sequence = state.sequence_last
        self.flying = []
        self.busy = set()
        self.operations = 0
        self.failure = None

    def run(self):
        handle = nbd.NBD()
        try:
            handle.connect_uri(self.uri)
            self.load(handle)
        except nbd.Error as error:
            # That the server is gone is what the test waits for; that it refuses a command is not.
            gone = handle.aio_is_dead() or handle.aio_is_closed()
            self.failure = None if gone and not self.stop else error
        except BaseException as error:
            self.failure = error

    def load(self, handle):
        begin = progressed = time.monotonic()
        end = begin + (DURING_SECONDS_MAX if self.stop else LOAD_SECONDS_MAX)
        while (now := time.monotonic()) < end:
            stopping = self.stop and os.path.exists(self.stop)
            if stopping and not self.flying:
                return
            while len(self.flying) < DEPTH and not stopping:
                self.issue(handle)
            handle.poll(100)
            if now - progressed > self.pause_max:
                self.pause_max, self.paused_at = now - progressed, progressed - begin
            # A retired command leaves the list before its effect is noted, so a failure in between counts as in flight.
            for operation in list(self.flying):
                if handle.aio_command_completed(operation.cookie):
                    self.complete(operation)
                    progressed = time.monotonic()
        raise AssertionError(f"the load went on for {end - begin:.0f} s, {len(self.flying)} in flight")

    def issue(self, handle):
        operation = self.pick()
        if not self.busy.isdisjoint(operation.sectors()):
            return
        offset, length = operation.first * SECTOR_BYTES, operation.count * SECTOR_BYTES
        self.busy.update(operation.sectors())
        if operation.kind != "read":
            for sector in operation.sectors():
                self.state.in_flight[sector] = operation.sequence
        if operation.kind == "write":
            content = b"".join(sector_content(sector, operation.sequence) for sector in operation.sectors())
            operation.buffer = nbd.Buffer.from_bytearray(bytearray(content))
            flags = nbd.CMD_FLAG_FUA if self.random.random() < 0.2 else 0
            operation.cookie = handle.aio_pwrite(operation.buffer, offset, flags=flags)
        elif operation.kind == "read":
            operation.buffer = nbd.Buffer(length)
            operation.cookie = handle.aio_pread(operation.buffer, offset)
        elif operation.kind == "trim":
            operation.cookie = handle.aio_trim(length, offset)
        else:
            operation.cookie = handle.aio_zero(length, offset)
        self.flying.append(operation)

    def pick(self):
        kind = self.random.choices(("write", "read", "trim", "zero"), (70, 15, 5, 10))[0]
        unit = 1 if kind != "trim" and self.random.random() < 0.2 else BLOCK_SECTORS
        start, stop = (bound // unit for bound in self.bounds)
        count = self.random.choice((1, 1, 1, 2, 4, 16))
        # One address in four is in a small hot range, so that blocks are overwritten often.
        hot = self.random.random() < 0.25
        first = self.random.randrange(start, start + 64 if hot else stop - count)
        sequence = 0
        if kind == "write":
            self.sequence += CONNECTIONS
            sequence = self.sequence
        return Operation(kind, first * unit, count * unit, sequence)

    def complete(self, operation):
        self.flying.remove(operation)
        self.busy.difference_update(operation.sectors())
        self.operations += 1
        if operation.kind == "read":
            self.state.check(operation.first, bytes(operation.buffer.to_bytearray()))
            return
        for sector in operation.sectors():
            self.state.acknowledged[sector] = operation.sequence
            self.state.in_flight[sector] = None


def sectors_of(uri):
    handle = nbd.NBD()
    handle.connect_uri(uri)
    return handle.get_size() // SECTOR_BYTES


def load(path, seed, uri, stop=None):
    sectors = sectors_of(uri)
    state = State.read(path, sectors)
    share = sectors // CONNECTIONS // BLOCK_SECTORS * BLOCK_SECTORS
    workers = []
    for index in range(CONNECTIONS):
        worker = Worker(state, uri, (index * share, (index + 1) * share), int(seed) * CONNECTIONS + index, stop)
        worker.sequence += index + 1
        workers.append(worker)
    for worker in workers:
        worker.start()
    while any(worker.is_alive() and worker.operations == 0 for worker in workers):
        time.sleep(0.01)
    # Who waits for this may kill the server: there is something to lose.
    open(f"{path}.begun", "w").close()
    for worker in workers:
        worker.join()
    state.sequence_last = max(worker.sequence for worker in workers)
    done = sum(worker.operations for worker in workers)
    state.operations += done
    state.save(path)
    failures = [worker.failure for worker in workers if worker.failure]
    in_flight = sum(len(worker.flying) for worker in workers)
    print(f"{done} operations acknowledged, {in_flight} in flight at the end; {failures or 'no failure'}")
    worst = max(workers, key=lambda worker: worker.pause_max)
    print(f"longest pause {worst.pause_max:.2f} s, {worst.paused_at:.1f} s after the start")
    return worst.pause_max if not failures and done > 0 else None


def during(path, seed, uri, stop, pause_max="3"):
    pause = load(path, seed, uri, stop)
    if pause is not None and pause > float(pause_max):
        print(f"that is longer than {pause_max} s")
        return 1
    return 1 if pause is None else 0


def verify(path, uri):
    sectors = sectors_of(uri)
    state = State.read(path, sectors)
    handle = nbd.NBD()
    handle.connect_uri(uri)
    for first in range(0, sectors, READ_SECTORS):
        count = min(READ_SECTORS, sectors - first)
        state.check(first, bytes(handle.pread(count * SECTOR_BYTES, first * SECTOR_BYTES)))
    state.save(path)
    written = sum(1 for sequence in state.acknowledged if sequence)
    print(f"{sectors} sectors verified, {written} of them written, after {state.operations} operations")
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "load":
        sys.exit(1 if load(*sys.argv[2:]) is None else 0)
    sys.exit({"during": during, "verify": verify}[sys.argv[1]](*sys.argv[2:]))
