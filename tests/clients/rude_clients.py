"""Clients that flood, stall, lie and break off, beside one that behaves: that one must not be hurt.

    rude_clients.py PORT EXPORT SERVER_PID
"""

import os
import random
import struct
import sys
import threading
import time

import nbd
from raw_nbd import FLUSH, OPTION_GO, OPTION_LIST, OPTION_MAGIC, READ, WRITE, Closed, RawClient

BLOCK_BYTES = 4096
POLITE_BLOCKS = 1024
RUDE_OFFSET = 32 << 20
# A bound on hanging, not on speed.
ANSWER_SECONDS_MAX = 30
# Of all who are rude together, and stay connected: 34 connections hold up to 16 MiB of a request that has not come whole, 64 MiB of
# replies that nobody takes, or 64 MiB of writes (and a request more).
GROWTH_BYTES_MAX = 1536 << 20


class Polite(threading.Thread):
    """Writes, reads and compares its own part of the volume until told to stop."""

    def __init__(self, port, export):
        super().__init__(daemon=True)
        self.uri = f"nbd://127.0.0.1:{port}/{export}"
        self.stop = threading.Event()
        self.rounds = 0
        self.slowest_seconds = 0.0
        self.failure = None

    def run(self):
        try:
            self.work()
        except BaseException as error:
            self.failure = error

    def work(self):
        handle = nbd.NBD()
        handle.connect_uri(self.uri)
        expected, chance = {}, random.Random(1)
        while not self.stop.is_set():
            begin = time.monotonic()
            block = chance.randrange(POLITE_BLOCKS)
            expected[block] = struct.pack("<QQ", block, self.rounds) * (BLOCK_BYTES // 16)
            handle.pwrite(expected[block], block * BLOCK_BYTES)
            check = chance.choice(list(expected))
            found = bytes(handle.pread(BLOCK_BYTES, check * BLOCK_BYTES))
            assert found == expected[check], f"block {check} holds something else"
            self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - begin)
            self.rounds += 1
        handle.shutdown()


def memory_bytes(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def say_nothing(port, _export):
    """Connects and is silent."""
    return [RawClient(port) for _ in range(60)]


def stop_in_the_handshake(port, export):
    """Sends half of an option."""
    clients = []
    for _ in range(20):
        client = RawClient(port)
        client.handshake()
        client.send(struct.pack(">QII", OPTION_MAGIC, OPTION_GO, 100) + b"\0\0")
        clients.append(client)
    return clients


def lie_about_option_length(port, _export):
    """Announces an option of 4 GiB and begins to send it."""
    clients = []
    for _ in range(10):
        client = RawClient(port)
        client.handshake()
        client.send(struct.pack(">QII", OPTION_MAGIC, OPTION_LIST, 0xFFFFFFFF))
        try:
            client.send(bytes(1 << 20))
        except (Closed, OSError):
            pass
        clients.append(client)
    return clients


def announce_writes_without_data(port, export):
    """Says that 16 MiB follow and sends ten bytes."""
    clients = [RawClient(port).go(export) for _ in range(20)]
    for client in clients:
        client.send_request(WRITE, RUDE_OFFSET, 16 << 20, payload=bytes(10))
    return clients


def read_without_taking_replies(port, export):
    """Asks for hundreds of MiB on each connection and takes none of it."""
    clients = [RawClient(port).go(export) for _ in range(10)]
    for client in clients:
        client.socket.settimeout(0.5)
        try:
            for _ in range(500):
                client.send_request(READ, RUDE_OFFSET, 1 << 20)
        except (Closed, OSError):
            pass
    return clients


def flood_with_small_requests(port, export):
    """Thousands of requests in one go, replies ignored."""
    clients = [RawClient(port).go(export) for _ in range(5)]
    for client in clients:
        client.socket.settimeout(0.5)
        flush = struct.pack(">IHHQQI", 0x25609513, 0, FLUSH, 1, 0, 0)
        try:
            client.socket.sendall(flush * 20000)
        except (Closed, OSError):
            pass
    return clients


def flood_with_large_writes(port, export):
    """Whole writes without end, replies ignored: each waits in memory for the drive."""
    clients, payload = [RawClient(port).go(export) for _ in range(4)], bytes(8 << 20)
    for client in clients:
        client.socket.settimeout(0.5)
        try:
            for _ in range(200):
                client.send_request(WRITE, RUDE_OFFSET, len(payload), payload=payload)
        except (Closed, OSError):
            pass
    return clients


def break_off_in_a_write(port, export):
    """Resets the connection in the middle of a payload, again and again."""
    for _ in range(50):
        client = RawClient(port).go(export)
        client.send_request(WRITE, RUDE_OFFSET, 1 << 20, payload=bytes(random.randrange(1 << 20)))
        client.reset()
    return []


def send_garbage(port, export):
    """Noise in the handshake and in the transmission phase."""
    chance, clients = random.Random(2), []
    for index in range(40):
        client = RawClient(port)
        if index % 2:
            client.go(export)
        try:
            client.send(chance.randbytes(chance.randrange(1, 5000)))
        except (Closed, OSError):
            pass
        clients.append(client)
    return clients


RUDE = (
    say_nothing, stop_in_the_handshake, lie_about_option_length, announce_writes_without_data,
    read_without_taking_replies, flood_with_small_requests, flood_with_large_writes,
    break_off_in_a_write, send_garbage,
)


def wait_for(condition, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def main(port, export, pid):
    polite = Polite(port, export)
    polite.start()
    assert wait_for(lambda: polite.rounds > 50, ANSWER_SECONDS_MAX), f"no service at all: {polite.failure}"
    failures, clients = [], []
    memory_before, descriptors_before = memory_bytes(pid), descriptors(pid)
    for rude in RUDE:
        clients += rude(port, export)
        target = polite.rounds + 20
        served = wait_for(lambda: polite.rounds >= target or polite.failure, ANSWER_SECONDS_MAX)
        growth = memory_bytes(pid) - memory_before
        print(f"{rude.__name__}: {polite.rounds} polite rounds, memory {growth >> 20:+} MiB", flush=True)
        if not served or polite.failure:
            failures.append(f"{rude.__name__} hurt another client: {polite.failure or 'no answer'}")
        if growth > GROWTH_BYTES_MAX:
            failures.append(f"{rude.__name__} made the server take {growth >> 20} MiB")
    try:
        RawClient(port).go(export).request(FLUSH)
    except Exception as error:
        failures.append(f"no new client is served: {error!r}")
    for client in clients:
        client.reset()
    if not wait_for(lambda: descriptors(pid) <= descriptors_before + 4, ANSWER_SECONDS_MAX):
        failures.append(f"{descriptors(pid)} descriptors open after the clients left, {descriptors_before} before")
    polite.stop.set()
    polite.join(ANSWER_SECONDS_MAX)
    if polite.failure:
        failures.append(f"the polite client failed: {polite.failure}")
    print(f"slowest polite round {polite.slowest_seconds:.3f} s; wrong: {failures or 'none'}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
