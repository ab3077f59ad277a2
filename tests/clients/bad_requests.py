"""Requests that a server must refuse, each with an error and without harm to the connection or the data.

    bad_requests.py PORT EXPORT
"""

import errno
import sys

import nbd
from raw_nbd import (
    BLOCK_STATUS, CACHE, EINVAL, ENOSPC, ENOTSUP, EOVERFLOW, FLUSH, READ, TRIM, WRITE, WRITE_ZEROES, Closed, RawClient,
)

PATTERN = bytes(range(256)) * 256
REFUSED = {EINVAL, ENOSPC, EOVERFLOW, ENOTSUP}
BIG_BYTES = 1 << 30


class Suite:
    def __init__(self, port, export):
        self.port, self.export, self.failures, self.checks = port, export, [], 0
        self.handle = nbd.NBD()
        self.handle.set_strict_mode(0)
        self.handle.add_meta_context("base:allocation")
        self.handle.connect_uri(f"nbd://127.0.0.1:{port}/{export}")
        self.size = self.handle.get_size()
        self.handle.pwrite(PATTERN, 0)
        self.handle.pwrite(PATTERN, self.size - len(PATTERN))

    def expect(self, name, condition, seen):
        self.checks += 1
        print(f"{'ok' if condition else 'WRONG'}: {name}: {seen}", flush=True)
        if not condition:
            self.failures.append(name)

    def refused(self, name, call, allowed=REFUSED, may_succeed=False):
        """A command through libnbd must fail with an allowed error; then the data must be as before."""
        try:
            call()
            self.expect(name, may_succeed, "accepted")
        except nbd.Error as error:
            self.expect(name, error.errnum in allowed, error.errno)
        self.intact(name)

    def intact(self, name):
        for offset in (0, self.size - len(PATTERN)):
            if bytes(self.handle.pread(len(PATTERN), offset)) != PATTERN:
                self.expect(f"{name}: data at {offset} unchanged", False, "changed")

    def past_the_end(self):
        handle, size = self.handle, self.size
        for offset in (size, size - 2048, size + 4096, 1 << 40, (1 << 63) - 4096, (1 << 64) - 4096):
            place = f"at size{offset - size:+d}"
            self.refused(f"read {place}", lambda: handle.pread(4096, offset), {EINVAL})
            self.refused(f"write {place}", lambda: handle.pwrite(PATTERN[:4096], offset), {ENOSPC, EINVAL})
            self.refused(f"trim {place}", lambda: handle.trim(4096, offset), {ENOSPC, EINVAL})
            self.refused(f"zero {place}", lambda: handle.zero(4096, offset), {ENOSPC, EINVAL})
            self.refused(f"cache {place}", lambda: handle.cache(4096, offset), {EINVAL, ENOTSUP})
            self.refused(f"block status {place}", lambda: handle.block_status(4096, offset, lambda *_: 0), {EINVAL})

    def unaligned(self):
        """Below the smallest block: refused, unless the server says that it takes single bytes."""
        handle = self.handle
        smallest = handle.get_block_size(nbd.SIZE_MINIMUM)
        any_byte = smallest in (0, 1)
        self.expect("the smallest block is 1 or 512 bytes", smallest in (0, 1, 512), smallest)
        if any_byte:
            return
        self.refused("read at 1", lambda: handle.pread(512, 1), {EINVAL})
        self.refused("read of 100", lambda: handle.pread(100, 0), {EINVAL})
        self.refused("write at 3", lambda: handle.pwrite(PATTERN[:512], 3), {EINVAL})
        self.refused("write of 7", lambda: handle.pwrite(PATTERN[:7], 0), {EINVAL})
        self.refused("trim of 511", lambda: handle.trim(511, 0), {EINVAL})
        self.refused("zero at 17", lambda: handle.zero(512, 17), {EINVAL})

    def zero_length(self):
        """The protocol leaves the outcome open; the data must not change and the connection must live."""
        handle = self.handle
        allowed = {EINVAL, ENOSPC}
        self.refused("read of 0", lambda: handle.pread(0, 0), allowed, may_succeed=True)
        self.refused("write of 0", lambda: handle.pwrite(b"", 0), allowed, may_succeed=True)
        self.refused("trim of 0", lambda: handle.trim(0, 0), allowed, may_succeed=True)
        self.refused("zero of 0", lambda: handle.zero(0, 0), allowed, may_succeed=True)
        self.refused("block status of 0", lambda: handle.block_status(0, 0, lambda *_: 0), allowed, may_succeed=True)

    def unknown_flags(self):
        handle = self.handle
        flag = 1 << 13
        self.refused("read with an unknown flag", lambda: handle.pread_structured(4096, 0, lambda *_: 0, flags=flag))
        self.refused("write with an unknown flag", lambda: handle.pwrite(bytes(4096), 0, flags=flag))
        self.refused("trim with an unknown flag", lambda: handle.trim(4096, 0, flags=flag))
        self.refused("zero with an unknown flag", lambda: handle.zero(4096, 0, flags=flag))
        self.refused("flush with an unknown flag", lambda: handle.flush(flags=flag))

    def unknown_commands(self):
        raw = RawClient(self.port).go(self.export)
        for command in (9, 100, 0xFFFF):
            error = raw.request(command, 0, 0)
            self.expect(f"command {command}", error in (EINVAL, ENOTSUP), error)
        self.expect("the connection lives on", raw.request(FLUSH) == 0, "flush")
        error = raw.request(BLOCK_STATUS, 0, 4096)
        self.expect("block status that was not negotiated", error == EINVAL, error)
        raw.close()

    def too_large(self):
        """Refused, or the connection is closed, since the payload cannot be skipped within reason."""
        for command, name in ((READ, "read"), (WRITE, "write")):
            raw = RawClient(self.port).go(self.export)
            try:
                raw.send_request(command, 0, BIG_BYTES)
                if command == WRITE:
                    raw.send(bytes(1 << 20))
                    raw.socket.settimeout(2)
                error, _ = raw.receive_reply()
                self.expect(f"{name} of 1 GiB", error in REFUSED, error)
            except (Closed, TimeoutError) as error:
                self.expect(f"{name} of 1 GiB", True, repr(error))
            raw.reset()
            self.intact(name)

    def large_without_payload(self):
        """Trim, zero and cache may be as long as the volume; past it they may not, also with the longest length."""
        raw = RawClient(self.port).go(self.export)
        for command, name in ((TRIM, "trim"), (WRITE_ZEROES, "zero"), (CACHE, "cache")):
            error = raw.request(command, 4096, 0xFFFFFE00)
            self.expect(f"{name} of 4 GiB", error in REFUSED, error)
        raw.close()
        self.intact("large without payload")

    def wrong_magic(self):
        raw = RawClient(self.port).go(self.export)
        raw.send_request(READ, 0, 4096, magic=0xDEADBEEF)
        try:
            raw.socket.settimeout(10)
            raw.receive(1)
            self.expect("wrong request magic closes the connection", False, "answered")
        except Closed:
            self.expect("wrong request magic closes the connection", True, "closed")
        except TimeoutError:
            self.expect("wrong request magic closes the connection", False, "still open after 10 s")
        raw.close()

    def unknown_export(self):
        for name in ("nothing-there", "x" * 255, "x" * 4096, "../disk", "di\0sk"):
            raw = RawClient(self.port)
            try:
                raw.go(name)
                self.expect(f"export {name[:20]!r}", False, "accepted")
            except AssertionError as error:
                self.expect(f"export {name[:20]!r}", True, "refused")
                self.expect("another option can follow", raw.option(2) is not None, "abort answered")
            except Closed:
                self.expect(f"export {name[:20]!r}", len(name) > 255, "closed")
            raw.close()

    def run(self):
        for part in (
            self.past_the_end, self.unaligned, self.zero_length, self.unknown_flags, self.unknown_commands,
            self.too_large, self.large_without_payload, self.wrong_magic, self.unknown_export,
        ):
            try:
                part()
            except Exception as error:
                self.expect(part.__name__, False, repr(error))
        print(f"{self.checks} checks, wrong: {self.failures or 'none'}")
        return 1 if self.failures else 0


if __name__ == "__main__":
    assert errno.EINVAL == EINVAL
    sys.exit(Suite(int(sys.argv[1]), sys.argv[2]).run())
