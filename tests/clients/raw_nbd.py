"""A bare NBD client over a socket, for what well-behaved libraries refuse to send. Not a test by itself."""

import socket
import struct

OPTION_MAGIC = 0x49484156454F5054
OPTION_REPLY_MAGIC = 0x3E889045565A9
REQUEST_MAGIC = 0x25609513
SIMPLE_REPLY_MAGIC = 0x67446698
STRUCTURED_REPLY_MAGIC = 0x668E33EF
OPTION_ABORT, OPTION_LIST, OPTION_GO = 2, 3, 7
INFO_BLOCK_SIZE = 3
REPLY_ACK, REPLY_INFO, REPLY_ERROR_BIT = 1, 3, 1 << 31
READ, WRITE, DISCONNECT, FLUSH, TRIM, CACHE, WRITE_ZEROES, BLOCK_STATUS = range(8)
EPERM, EIO, ENOMEM, EINVAL, ENOSPC, EOVERFLOW, ENOTSUP, ESHUTDOWN = 1, 5, 12, 22, 28, 75, 95, 108
TIMEOUT_SECONDS = 30


class Closed(Exception):
    """The server closed the connection."""


class RawClient:
    """A connection; `go` brings it to the transmission phase with simple replies."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS)
        self.handle = 0

    def close(self):
        self.socket.close()

    def reset(self):
        """Closes with a reset, as a crashed host does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def send(self, data):
        try:
            self.socket.sendall(data)
        except (ConnectionError, BrokenPipeError) as error:
            raise Closed from error

    def receive(self, length):
        data = b""
        while len(data) < length:
            try:
                part = self.socket.recv(length - len(data))
            except ConnectionError as error:
                raise Closed from error
            if not part:
                raise Closed
            data += part
        return data

    def handshake(self, client_flags=3):
        magic, option_magic, _flags = struct.unpack(">8sQH", self.receive(18))
        assert magic == b"NBDMAGIC" and option_magic == OPTION_MAGIC
        self.send(struct.pack(">I", client_flags))

    def option(self, number, data=b""):
        """Sends an option and returns its replies as (type, data), up to the last one."""
        self.send(struct.pack(">QII", OPTION_MAGIC, number, len(data)) + data)
        replies = []
        while True:
            magic, echoed, kind, length = struct.unpack(">QIII", self.receive(20))
            assert magic == OPTION_REPLY_MAGIC and echoed == number, "malformed option reply"
            replies.append((kind, self.receive(length)))
            if kind == REPLY_ACK or kind & REPLY_ERROR_BIT:
                return replies

    def go(self, export):
        self.handshake()
        name = export.encode()
        requested = struct.pack(">HH", 1, INFO_BLOCK_SIZE)
        replies = self.option(OPTION_GO, struct.pack(">I", len(name)) + name + requested)
        assert replies[-1][0] == REPLY_ACK, f"export refused: {replies}"
        return self

    def send_request(self, command, offset=0, length=0, flags=0, payload=b"", magic=REQUEST_MAGIC):
        self.handle += 1
        self.send(struct.pack(">IHHQQI", magic, flags, command, self.handle, offset, length) + payload)

    def receive_reply(self, data_length=0):
        """The error number of a simple reply, and its data."""
        magic, error, handle = struct.unpack(">IIQ", self.receive(16))
        assert magic == SIMPLE_REPLY_MAGIC, f"reply magic {magic:#x}"
        assert handle == self.handle, "the reply is for another request"
        return error, b"" if error else self.receive(data_length)

    def request(self, command, offset=0, length=0, flags=0, payload=b""):
        self.send_request(command, offset, length, flags, payload)
        return self.receive_reply(length if command == READ else 0)[0]
