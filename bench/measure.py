"""What the scripts of this folder share: their command line, a server under test, the load generator, and rounds in
which those that are compared take turns."""
import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
TARGET = os.path.join(HERE, "..", "target")
# The first of the ports that servers are given.
PORT = 23809
START_SECONDS_MAX = 120


def say(text):
    print(text, flush=True)


def parser(script, doc, seconds):
    """The command line of a script, to which it may add its own options."""
    made = argparse.ArgumentParser(prog=script, description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--folder", default=os.path.join(TARGET, f"bench-{script}"), help="on the disk in question")
    made.add_argument("--coquina", default=os.path.join(TARGET, "release", "coquina"), help="the program")
    made.add_argument("--rounds", type=int, default=3, help="of each case [%(default)s]")
    made.add_argument("--seconds", type=int, default=seconds, help="of each measurement [%(default)s]")
    made.add_argument("sections", nargs="*", metavar="SECTION")
    return made


def settings(made, sections):
    """What the command line says, with absolute paths and all sections unless some are named."""
    found = made.parse_args()
    unknown = set(found.sections) - set(sections)
    if unknown:
        made.error(f"no such section: {', '.join(sorted(unknown))}; there are {' '.join(sections)}")
    if found.rounds < 1 or found.seconds < 1:
        made.error("--rounds and --seconds are at least 1")
    found.sections = found.sections or list(sections)
    found.folder = os.path.abspath(found.folder)
    found.coquina = os.path.abspath(found.coquina)
    found.raw = os.path.join(found.folder, "raw")
    return found


def run(settings, sections):
    """Runs the sections that were asked for, functions by name, in a folder that is removed in the end."""
    if not os.path.exists(settings.coquina):
        sys.exit("build first: cargo build --release")
    if os.path.exists(settings.folder) and not is_ours(settings.folder):
        sys.exit(f"{settings.folder} holds something else; it would be emptied: name a folder that does not exist")
    shutil.rmtree(settings.folder, ignore_errors=True)
    os.makedirs(settings.folder)
    open(marker(settings.folder), "w").close()
    # Servers are stopped on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    try:
        for section in settings.sections:
            sections[section]()
    except KeyboardInterrupt:
        sys.exit("stopped")
    finally:
        shutil.rmtree(settings.folder, ignore_errors=True)


def marker(folder):
    return os.path.join(folder, "made-by-bench")


def is_ours(folder):
    return os.path.exists(marker(folder)) or not os.listdir(folder)


class Server:
    """A server for as long as the `with` block, on ports of its own: `first_port` and the two behind it."""

    def __init__(self, settings, name, *options, first_port=PORT):
        self.settings = settings
        self.folder = os.path.join(settings.folder, name)
        self.options = options
        self.port = first_port

    def __enter__(self):
        command = [self.settings.coquina, "up", "--dir", self.folder, *self.options]
        ports = {"--nbd": self.port, "--http": self.port + 1, "--listen": self.port + 2}
        for option, port in ports.items():
            command += [option, f"127.0.0.1:{port}"]
        self.log = open(self.folder + ".log", "a")
        begin = time.monotonic()
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        while subprocess.run(self.command("status"), capture_output=True).returncode:
            if self.process.poll() is not None or time.monotonic() - begin > START_SECONDS_MAX:
                self.stop()
                sys.exit(f"the server did not start:\n{open(self.folder + '.log').read()}")
            time.sleep(0.01)
        self.start_s = time.monotonic() - begin
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def command(self, *arguments):
        return [self.settings.coquina, *arguments, "--dir", self.folder]

    def ask(self, *arguments):
        """What a command says as JSON."""
        return self.finish(self.begin(*arguments, "--json"))

    def begin(self, *arguments):
        """Starts a command without waiting for it."""
        command = self.command(*arguments)
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self, process):
        out, err = process.communicate()
        if process.returncode:
            sys.exit(f"{' '.join(process.args)}: {err}")
        return json.loads(out)

    def status(self):
        return self.ask("status", "--interval", "0")

    def volume(self, name, size, *options):
        self.ask("volume", "create", name, "--size", size, *options)

    def bench(self, target, *arguments, fill=False, seconds=None):
        return self.finish(self.begin_bench(target, *arguments, fill=fill, seconds=seconds))

    def begin_bench(self, target, *arguments, fill=False, seconds=None):
        target = f"volume:{target}" if ":" not in target else target
        command = ["bench", "io", "--json", "--target", target, "--runtime", str(seconds or self.settings.seconds)]
        # The plain file of the run before may be overwritten.
        command += ["--yes"] if target.startswith("file:") else []
        return self.begin(*command, *arguments, *(["--fill"] if fill else []))

    def fill(self, volume, seconds=1):
        """Writes a volume full, and goes on for some seconds."""
        self.bench(volume, "--rw", "write", "--bs", "512k", "--depth", "8", fill=True, seconds=seconds)

    def metrics(self, pattern, http=None):
        """The sums of all series whose lines match."""
        text = urllib.request.urlopen(f"http://{http or f'127.0.0.1:{self.port + 1}'}/metrics").read().decode()
        sums = {}
        for line in text.splitlines():
            if line[0] != "#" and re.search(pattern, line):
                name = re.split(r"[{ ]", line)[0]
                sums[name] = sums.get(name, 0) + float(line.split()[-1])
        return sums


def fill_raw(server):
    """Writes the plain file once, to be compared with."""
    arguments = ["--size", "1G", "--rw", "write", "--bs", "512k", "--durable"]
    server.bench(f"file:{server.settings.raw}", *arguments, fill=True, seconds=1)


def figures(result):
    """What the load generator has measured, by the names used in tables."""
    latency = result["total"]
    return {
        "iops": latency["iops"],
        "MiB/s": latency["bytes_per_s"] / (1 << 20),
        "MB/s": latency["bytes_per_s"] / 1e6,
        "mean us": latency["latency_ns_mean"] / 1e3,
        "p50 us": latency["latency_ns_p50"] / 1e3,
        "p99.9 us": latency["latency_ns_p99_9"] / 1e3,
        "max s": latency["latency_ns_max"] / 1e9,
        # Nothing is left of it if the machine was busier before.
        "CPU us": result["cpu"]["machine_us_per_io"] or float("nan"),
    }


def turns(rounds, sides):
    """Calls each side, functions by name, once per round, in changing order; gives a list of results for each."""
    results = {name: [] for name in sides}
    names = list(sides)
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            results[name].append(sides[name]())
    return results


def median(results, field):
    return statistics.median(one[field] for one in results)


def ratios(field, below, above):
    """The ratios of single rounds. A round in which the lower figure is not positive has none: the machine did less than
    when it was idle, so something else ran before."""
    pairs = zip(below, above)
    return [two[field] / one[field] for one, two in pairs if one[field] > 0]


def ratio_of(field, below, above):
    """The ratio of the medians as text, with the range of single rounds; empty if it is not known."""
    plain = median(below, field)
    text = f"{median(above, field) / plain:.2f}" if plain > 0 else "not known"
    each = ratios(field, below, above)
    return text + (f" ({min(each):.2f} to {max(each):.2f}, median {statistics.median(each):.2f})" if each else "")


def busy_seconds(pid):
    """CPU time of a process so far."""
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid):
    status = open(f"/proc/{pid}/status").read()
    return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024


def idle(pids, seconds):
    """For each process: part of a core that it takes while nothing happens, and MiB resident."""
    before = {pid: busy_seconds(pid) for pid in pids}
    time.sleep(seconds)
    return {pid: ((busy_seconds(pid) - before[pid]) / seconds, resident_mib(pid)) for pid in pids}
