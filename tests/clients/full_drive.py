"""Fills a thin volume until the drive is full, frees some of it, and writes again.

    full_drive.py fill STATE URI       until ENOSPC; notes how many blocks were acknowledged
    full_drive.py verify STATE URI     every acknowledged block is there
    full_drive.py recover STATE URI    trims half, writes as much again
"""

import errno
import sys
import time

import nbd

PIECE_BYTES = 64 << 10
# How long the cleaner may take to make trimmed space usable.
RECOVERY_SECONDS_MAX = 60


def piece(number, generation):
    return (number * 2 + 1).to_bytes(8, "little") * (PIECE_BYTES // 16) + bytes([generation]) * (PIECE_BYTES // 2)


def connect(uri):
    handle = nbd.NBD()
    handle.connect_uri(uri)
    return handle


def is_full(error):
    if error.errnum != errno.ENOSPC:
        raise AssertionError(f"a full drive answered {error.errno} instead of ENOSPC") from error
    return True


def read_state(path):
    with open(path) as file:
        acknowledged, generation = map(int, file.read().split())
    return acknowledged, generation


def write_state(path, acknowledged, generation):
    with open(path, "w") as file:
        file.write(f"{acknowledged} {generation}")


def fill(path, uri):
    handle = connect(uri)
    number, limit = 0, handle.get_size() // PIECE_BYTES
    while number < limit:
        try:
            handle.pwrite(piece(number, 1), number * PIECE_BYTES)
        except nbd.Error as error:
            assert is_full(error)
            break
        number += 1
    assert number < limit, "the volume is larger than the drive, and yet all of it could be written"
    write_state(path, number, 1)
    print(f"full after {number * PIECE_BYTES >> 20} MiB")
    handle.flush()
    for attempt in range(20):
        try:
            handle.pwrite(piece(number, 1), number * PIECE_BYTES)
            write_state(path, number + 1, 1)
            number += 1
        except nbd.Error as error:
            assert is_full(error)
    verify(path, uri)


def verify(path, uri):
    handle = connect(uri)
    acknowledged, generation = read_state(path)
    for number in range(acknowledged):
        wanted = piece(number, generation if number < acknowledged // 2 else 1)
        found = bytes(handle.pread(PIECE_BYTES, number * PIECE_BYTES))
        assert found == wanted, f"piece {number} of {acknowledged} lost its data"
    print(f"{acknowledged} pieces verified")


def recover(path, uri):
    """A trim works on the full drive, and writes do again soon after."""
    handle = connect(uri)
    acknowledged, generation = read_state(path)
    half = acknowledged // 2
    for number in range(half):
        handle.trim(PIECE_BYTES, number * PIECE_BYTES)
    end, refused = time.monotonic() + RECOVERY_SECONDS_MAX, 0
    for number in range(half):
        while True:
            try:
                handle.pwrite(piece(number, generation + 1), number * PIECE_BYTES)
                break
            except nbd.Error as error:
                assert is_full(error)
                refused += 1
                assert time.monotonic() < end, f"no space {RECOVERY_SECONDS_MAX} s after half was trimmed ({number})"
                time.sleep(0.05)
    write_state(path, acknowledged, generation + 1)
    print(f"{half} pieces written again, {refused} refusals in between")
    verify(path, uri)


if __name__ == "__main__":
    {"fill": fill, "verify": verify, "recover": recover}[sys.argv[1]](*sys.argv[2:])
