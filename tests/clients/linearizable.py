"""Writes and reads the same blocks of a volume through several gateways at once, and checks every answer.

    linearizable.py during STATE SEED STOP URI...   until the file STOP is there; fails on wrong data, on any error, and when
                                                    what is under way then does not come to an end
    linearizable.py load STATE SEED STOP URI...     the same, but the gateways may die meanwhile
    linearizable.py verify STATE URI [ERRORS]       reads everything back; fails on anything lost, torn or resurrected, and on
                                                    more errors of reads than ERRORS, 0 if it is not given

Each block has one writer, which numbers its writes, and is read through all gateways. So each answer can be judged exactly:
a read must not give less than was answered, to anybody, before it began (an acknowledged write, or what another read has
seen), and not more than was begun before it ended. Blocks are written once at a time.

STATE.progress holds, for each gateway, when it answered last (Unix time), rewritten several times a second; STATE.pauses
gets a line for each pause of more than 0.3 s: gateway, begin, seconds.
"""

import os
import random
import struct
import sys
import threading
import time

import nbd
from kept import Kept

BLOCK_BYTES = 4096
DEPTH = 16
PAUSE_NOTED_SECONDS = 0.3
REPORT_SECONDS = 0.2
ASLEEP_NOTED_SECONDS = 1
DURING_SECONDS_MAX = 7200
DRAIN_SECONDS_MAX = 60
READ_BLOCKS = 64


def content(block, sequence):
    """Sequence 0 stands for zeroes: never written."""
    return bytes(BLOCK_BYTES) if sequence == 0 else struct.pack("<QQ", block, sequence) * (BLOCK_BYTES // 16)


def sequence_of(block, data):
    """Which write this is."""
    found, sequence = struct.unpack_from("<QQ", data)
    if data == content(block, sequence) and (sequence == 0 or found == block):
        return sequence
    if data == content(found, sequence):
        raise AssertionError(f"block {block}: found write {sequence} of block {found}")
    raise AssertionError(f"block {block}: torn or foreign data: {data[:32].hex()}...")


class State(Kept):
    """What each block may hold. One lock for all: what is compared must not change between begin and end of a look."""

    def __init__(self, blocks):
        self.floor = [0] * blocks  # acknowledged, or seen by a read that has ended
        self.issued = [0] * blocks
        self.operations = 0
        self.reads_checked = 0

    def judge(self, block, floor, data, how):
        sequence = sequence_of(block, data)
        if sequence < floor:
            raise AssertionError(f"block {block}: {how} gave write {sequence}, {floor} was there before")
        if sequence > self.issued[block]:
            raise AssertionError(f"block {block}: {how} gave write {sequence}, which nobody made")
        self.floor[block] = max(self.floor[block], sequence)


class Operation:
    """One command in flight."""

    def __init__(self, cookie, first, count, buffer, floors=None, sequence=None):
        self.cookie, self.first, self.count, self.buffer = cookie, first, count, buffer
        self.floors, self.sequence = floors, sequence


class Visitor(threading.Thread):
    """One connection to one gateway."""

    def __init__(self, number, count, uri, state, lock, seed, stop, may_die):
        super().__init__()
        self.may_die = may_die
        self.number, self.count, self.uri, self.state, self.lock, self.stop = number, count, uri, state, lock, stop
        self.random = random.Random(seed)
        self.flying, self.writing = [], set()
        self.operations, self.reads = 0, 0
        self.progressed = time.time()
        self.pauses = []
        self.failure = None

    def run(self):
        handle = nbd.NBD()
        try:
            handle.connect_uri(self.uri)
            self.load(handle)
        except nbd.Error as error:
            gone = handle.aio_is_dead() or handle.aio_is_closed()
            self.failure = None if gone and self.may_die else error
        except BaseException as error:
            self.failure = error

    def load(self, handle):
        self.progressed = time.time()
        stopped = None
        while not (stopped and not self.flying):
            if stopped is None and os.path.exists(self.stop):
                stopped = time.time()
            if stopped and time.time() - stopped > DRAIN_SECONDS_MAX:
                raise AssertionError(f"{len(self.flying)} commands have no answer {DRAIN_SECONDS_MAX} s after the end")
            while len(self.flying) < DEPTH and stopped is None:
                self.issue(handle)
            handle.poll(100)
            for operation in list(self.flying):
                if handle.aio_command_completed(operation.cookie):
                    self.complete(operation)

    def issue(self, handle):
        blocks = len(self.state.floor)
        # Some blocks are visited often, by writers and readers alike.
        block = self.random.randrange(64 if self.random.random() < 0.4 else blocks)
        if self.random.random() < 0.5:
            block = block - block % self.count + self.number
            if block < blocks and block not in self.writing:
                self.issue_write(handle, block)
            return
        count = min(self.random.choice((1, 1, 1, 4, 16)), blocks - block)
        buffer = bytearray(count * BLOCK_BYTES)
        with self.lock:
            floors = self.state.floor[block : block + count]
        cookie = handle.aio_pread(buffer, block * BLOCK_BYTES)
        self.flying.append(Operation(cookie, block, count, buffer, floors=floors))

    def issue_write(self, handle, block):
        with self.lock:
            self.state.issued[block] += 1
            sequence = self.state.issued[block]
        buffer = content(block, sequence)
        self.writing.add(block)
        cookie = handle.aio_pwrite(buffer, block * BLOCK_BYTES)
        self.flying.append(Operation(cookie, block, 1, buffer, sequence=sequence))

    def complete(self, operation):
        self.flying.remove(operation)
        self.operations += 1
        now = time.time()
        if now - self.progressed > PAUSE_NOTED_SECONDS:
            self.pauses.append((self.progressed, now - self.progressed))
        self.progressed = now
        if operation.sequence is not None:
            self.writing.remove(operation.first)
            with self.lock:
                floor = self.state.floor[operation.first]
                self.state.floor[operation.first] = max(floor, operation.sequence)
            return
        self.reads += 1
        data = bytes(operation.buffer)
        with self.lock:
            for index in range(operation.count):
                one = data[index * BLOCK_BYTES : (index + 1) * BLOCK_BYTES]
                block = operation.first + index
                self.state.judge(block, operation.floors[index], one, f"a read through gateway {self.number}")


def blocks_of(uri):
    handle = nbd.NBD()
    handle.connect_uri(uri)
    return handle.get_size() // BLOCK_BYTES


def report(path, visitors):
    """Tells whoever watches how it goes."""
    with open(path + ".pauses", "a") as file:
        for visitor in visitors:
            pauses, visitor.pauses = visitor.pauses, []
            for begin, seconds in pauses:
                print(f"{visitor.number} {begin:.2f} {seconds:.2f}", file=file)
    with open(path + ".progress.new", "w") as file:
        print(*(f"{visitor.progressed:.2f}" for visitor in visitors), file=file)
    os.replace(path + ".progress.new", path + ".progress")


def load(path, seed, stop, *uris, may_die=True):
    blocks = blocks_of(uris[0])
    state, lock = State.read(path, blocks), threading.Lock()
    visitors = [
        Visitor(number, len(uris), uri, state, lock, int(seed) * len(uris) + number, stop, may_die)
        for number, uri in enumerate(uris)
    ]
    end = time.monotonic() + DURING_SECONDS_MAX
    for visitor in visitors:
        visitor.start()
    while any(visitor.is_alive() for visitor in visitors):
        looked = time.time()
        time.sleep(REPORT_SECONDS)
        asleep = time.time() - looked - REPORT_SECONDS
        if asleep > ASLEEP_NOTED_SECONDS:
            # All of the test was stopped: that is no pause of I/O.
            for visitor in visitors:
                visitor.progressed += asleep
        report(path, visitors)
        failed = any(visitor.failure for visitor in visitors)
        if (failed or time.monotonic() > end) and not os.path.exists(stop):
            open(stop, "w").close()
    report(path, visitors)
    failures = [visitor.failure for visitor in visitors if visitor.failure]
    done, reads = (sum(getattr(one, what) for one in visitors) for what in ("operations", "reads"))
    state.operations += done
    state.reads_checked += reads
    state.save(path)
    print(f"{done - reads} writes acknowledged, {reads} reads checked; {failures or 'no failure'}")
    return 1 if failures or done == 0 else 0


def during(*arguments):
    return load(*arguments, may_die=False)


def read_one(handle, block):
    try:
        return bytes(handle.pread(BLOCK_BYTES, block * BLOCK_BYTES))
    except nbd.Error:
        return None


def read_blocks(handle, first, count):
    """The data of each block, or None where a read fails."""
    try:
        data = bytes(handle.pread(count * BLOCK_BYTES, first * BLOCK_BYTES))
    except nbd.Error:
        return [read_one(handle, block) for block in range(first, first + count)]
    return [data[index * BLOCK_BYTES : (index + 1) * BLOCK_BYTES] for index in range(count)]


def verify(path, uri, errors_max="0"):
    blocks = blocks_of(uri)
    state = State.read(path, blocks)
    handle = nbd.NBD()
    handle.connect_uri(uri)
    errors = 0
    for first in range(0, blocks, READ_BLOCKS):
        for index, data in enumerate(read_blocks(handle, first, min(READ_BLOCKS, blocks - first))):
            block = first + index
            if data is None:
                errors += 1
            else:
                state.judge(block, state.floor[block], data, "the last read")
    state.save(path)
    written = sum(1 for sequence in state.floor if sequence)
    print(
        f"{blocks} blocks verified, {written} of them written, {errors} could not be read,"
        f" after {state.operations} operations"
    )
    return 0 if errors <= int(errors_max) else 1


if __name__ == "__main__":
    sys.exit({"load": load, "during": during, "verify": verify}[sys.argv[1]](*sys.argv[2:]))
