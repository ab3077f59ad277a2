"""A database-like load on a mounted file system, and the check after a crash.

    database.py load FOLDER WITNESS ROUND     until the device fails; then ends with status 0
    database.py verify FOLDER WITNESS         fails if anything that was synced is missing

What was synced is noted in files that start with WITNESS, outside of the file system under test.
"""

import os
import sqlite3
import struct
import sys
import threading
import time
import zlib

RECORD_BYTES = 3000
LOAD_SECONDS_MAX = 60


def record(number):
    body = struct.pack("<Q", number) + bytes((number * 31 + index) & 0xFF for index in range(RECORD_BYTES - 12))
    return body + struct.pack("<I", zlib.crc32(body))


class Witness:
    """The highest number that was synced, kept where the crash does not reach. Zero: none."""

    def __init__(self, path):
        self.path = path
        self.value = int(open(path).read()) if os.path.exists(path) else 0

    def note(self, value):
        with open(self.path + ".new", "w") as file:
            file.write(str(value))
        os.replace(self.path + ".new", self.path)
        self.value = value


class AppendLog:
    """Records appended to a file, each followed by fsync: a write-ahead log."""

    def __init__(self, folder, witness):
        self.path = os.path.join(folder, "log")
        self.witness = Witness(witness + ".log")

    def load(self, stop):
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(descriptor, self.witness.value * RECORD_BYTES)
        number = self.witness.value
        while not stop.is_set():
            os.pwrite(descriptor, record(number), number * RECORD_BYTES)
            os.fsync(descriptor)
            number += 1
            self.witness.note(number)

    def verify(self):
        if self.witness.value == 0:
            return 0
        with open(self.path, "rb") as file:
            for number in range(self.witness.value):
                found = file.read(RECORD_BYTES)
                assert found == record(number), f"record {number} of {self.witness.value} of the log is wrong"
        return self.witness.value


class Checkpoint:
    """A file replaced by rename, file and folder synced."""

    def __init__(self, folder, witness):
        self.folder = folder
        self.path = os.path.join(folder, "checkpoint")
        self.witness = Witness(witness + ".checkpoint")

    def load(self, stop):
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        number = self.witness.value
        while not stop.is_set():
            number += 1
            with open(self.path + ".new", "wb") as file:
                file.write(record(number) * (1 + number % 20))
                file.flush()
                os.fsync(file.fileno())
            os.rename(self.path + ".new", self.path)
            os.fsync(folder)
            self.witness.note(number)

    def verify(self):
        if self.witness.value == 0:
            return 0
        with open(self.path, "rb") as file:
            content = file.read()
        (number,) = struct.unpack_from("<Q", content)
        assert number >= self.witness.value, f"checkpoint {number} is older than {self.witness.value}"
        assert content == record(number) * (1 + number % 20), f"checkpoint {number} is torn"
        return self.witness.value


class Transactions:
    """SQLite with a rollback journal; in WAL mode its shared memory would fault when the device fails.

    synchronous=EXTRA: with FULL a commit may be rolled back, since the journal's removal is not synced.
    """

    def __init__(self, folder, witness):
        self.path = os.path.join(folder, "database.sqlite")
        self.witness = Witness(witness + ".sqlite")

    def connect(self):
        connection = sqlite3.connect(self.path, isolation_level=None)
        connection.execute("pragma journal_mode = delete")
        connection.execute("pragma synchronous = extra")
        connection.execute("create table if not exists entry (number integer primary key, content blob)")
        return connection

    def load(self, stop):
        connection = self.connect()
        connection.execute("delete from entry where number > ?", (self.witness.value,))
        number = self.witness.value
        while not stop.is_set():
            connection.execute("begin immediate")
            for _ in range(3):
                number += 1
                connection.execute("insert into entry values (?, ?)", (number, record(number)))
            connection.execute("commit")
            self.witness.note(number)

    def verify(self):
        if self.witness.value == 0:
            return 0
        connection = self.connect()
        (integrity,) = connection.execute("pragma integrity_check").fetchone()
        assert integrity == "ok", f"SQLite: {integrity}"
        rows = dict(connection.execute("select number, content from entry"))
        for number in range(1, self.witness.value + 1):
            assert rows.get(number) == record(number), f"row {number} of {self.witness.value} is missing or wrong"
        connection.close()
        return self.witness.value


PARTS = (AppendLog, Checkpoint, Transactions)


def load_part(part, stop, failures):
    try:
        part.load(stop)
    except (OSError, sqlite3.Error) as error:
        # The device is gone: this is what the test waits for.
        print(f"{type(part).__name__}: {error}", flush=True)
    except BaseException as error:
        failures.append(error)
        raise


def load(folder, witness, round_number):
    stop, failures = threading.Event(), []
    parts = [part(folder, witness) for part in PARTS]
    threads = [threading.Thread(target=load_part, args=(part, stop, failures)) for part in parts]
    for thread in threads:
        thread.start()
    end = time.monotonic() + LOAD_SECONDS_MAX
    while any(thread.is_alive() for thread in threads) and time.monotonic() < end:
        time.sleep(0.05)
    survived = any(thread.is_alive() for thread in threads)
    stop.set()
    for thread in threads:
        thread.join()
    synced = {type(part).__name__: part.witness.value for part in parts}
    print(f"round {round_number}: synced so far {synced}")
    return 1 if failures or survived else 0


def verify(folder, witness):
    for part in PARTS:
        print(f"{part.__name__}: {part(folder, witness).verify()} verified")
    return 0


if __name__ == "__main__":
    sys.exit({"load": load, "verify": verify}[sys.argv[1]](*sys.argv[2:]))
