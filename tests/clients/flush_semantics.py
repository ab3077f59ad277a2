"""Several connections to one volume: each sees what the others were told is done, and a flush covers them all.

    flush_semantics.py write URI     leaves acknowledged and flushed data behind, for `verify` after a crash
    flush_semantics.py verify URI
"""

import random
import sys

import nbd

CONNECTIONS = 4
BLOCK_BYTES = 4096
BLOCKS = 512


def content(block, generation):
    return bytes([(block * 7 + generation * 13 + 1) & 0xFF]) * BLOCK_BYTES


def connect(uri):
    handle = nbd.NBD()
    handle.connect_uri(uri)
    return handle


def write(uri):
    handles = [connect(uri) for _ in range(CONNECTIONS)]
    assert all(handle.can_multi_conn() for handle in handles), "MULTI_CONN is not offered"
    chance = random.Random(3)
    for generation in range(3):
        for block in range(BLOCKS):
            writer, reader = chance.sample(handles, 2)
            writer.pwrite(content(block, generation), block * BLOCK_BYTES)
            found = bytes(reader.pread(BLOCK_BYTES, block * BLOCK_BYTES))
            assert found == content(block, generation), f"block {block}: another connection sees an older write"
    # Blocks that are zeroed on one connection read as zeroes on the others.
    for block in range(0, BLOCKS, 16):
        chance.choice(handles).zero(BLOCK_BYTES, block * BLOCK_BYTES)
        assert not any(chance.choice(handles).pread(BLOCK_BYTES, block * BLOCK_BYTES))
    # The flush comes from a connection that wrote nothing of its own since.
    connect(uri).flush()
    print(f"{BLOCKS} blocks written over {CONNECTIONS} connections and flushed by another")


def verify(uri):
    handle = connect(uri)
    for block in range(BLOCKS):
        wanted = bytes(BLOCK_BYTES) if block % 16 == 0 else content(block, 2)
        found = bytes(handle.pread(BLOCK_BYTES, block * BLOCK_BYTES))
        assert found == wanted, f"block {block} lost what was flushed on another connection"
    print(f"{BLOCKS} blocks verified")


if __name__ == "__main__":
    {"write": write, "verify": verify}[sys.argv[1]](sys.argv[2])
