"""Flips bits in the file of a drive, as rot does, also while a node uses it.

    flip_bits.py PATH SEED COUNT [FROM_BYTES]     each in another 4 KiB block that is not all zeroes
"""

import os
import random
import sys

BLOCK_BYTES = 4096
LOOKS_MAX = 200000


def main(path, seed, count, from_bytes="0"):
    chance = random.Random(int(seed))
    file = os.open(path, os.O_RDWR)
    first = int(from_bytes) // BLOCK_BYTES
    blocks = os.fstat(file).st_size // BLOCK_BYTES
    spoilt = set()
    for _ in range(LOOKS_MAX):
        if len(spoilt) == int(count):
            break
        block = chance.randrange(first, blocks)
        # What is in memory may be older than what the node has written past it.
        os.posix_fadvise(file, block * BLOCK_BYTES, BLOCK_BYTES, os.POSIX_FADV_DONTNEED)
        data = os.pread(file, BLOCK_BYTES, block * BLOCK_BYTES)
        if block in spoilt or not any(data):
            continue
        offset = chance.randrange(BLOCK_BYTES)
        os.pwrite(file, bytes([data[offset] ^ 1 << chance.randrange(8)]), block * BLOCK_BYTES + offset)
        os.fsync(file)
        os.posix_fadvise(file, block * BLOCK_BYTES, BLOCK_BYTES, os.POSIX_FADV_DONTNEED)
        spoilt.add(block)
    print(f"flipped a bit in {len(spoilt)} of {blocks - first} blocks of {path}")
    return 0 if spoilt else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
