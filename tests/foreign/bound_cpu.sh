#!/usr/bin/env bash
# A server under load by NBD stays on the processor that its drive interrupts, if it is one, and only for that long; it stays away
# from it if it is told to, or has no right to run there.
source "$(dirname "$0")/../lib/server.sh"
needs_coquina
needs fio taskset

# The only processor that the device below a folder interrupts, if this test may run there, or nothing.
interrupted_cpu() {
    "$PYTHON" - "$1" <<'PYTHON'
import os, pathlib, sys
number = os.stat(sys.argv[1]).st_dev
place = pathlib.Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
if place.exists() and not list(place.glob("slaves/*")):
    place = place.resolve()
    controller = next((one for one in [place, *place.parents] if (one / "msi_irqs").is_dir() or (one / "irq").exists()), None)
    if controller:
        folder = controller / "msi_irqs"
        irqs = os.listdir(folder) if folder.is_dir() else [(controller / "irq").read_text().strip()]
        counts = {irq: sum(map(int, pathlib.Path(f"/sys/kernel/irq/{irq}/per_cpu_count").read_text().split(","))) for irq in irqs if irq != "0"}
        if 0 < len(counts) <= 4 and max(counts.values()) > 0.8 * sum(counts.values()):
            cpus = pathlib.Path(f"/proc/irq/{max(counts, key=counts.get)}/effective_affinity_list").read_text().strip()
            print(cpus if cpus.isdigit() and int(cpus) in os.sched_getaffinity(0) else "")
PYTHON
}

# Every processor on which the reactor was bound while a load ran, and after it: -1 is none.
bound_under_load() {
    fio --name=load --ioengine=nbd --uri="$(uri disk)" --rw=randwrite --bs=4k --size=64M --iodepth=64 --time_based \
        --runtime=4 --output-format=terse >/dev/null &
    LOAD_PID=$!
    "$PYTHON" - "$LOAD_PID" "http://127.0.0.1:$HTTP_PORT/metrics" <<'PYTHON'
import os, re, sys, time, urllib.request
def bound():
    text = urllib.request.urlopen(sys.argv[2], timeout=20).read().decode()
    return int(re.search(r'^coquina_reactor_bound_cpu\{reactor="0"\} (\S+)$', text, re.M)[1])
seen, end = set(), time.monotonic() + 3.5
while time.monotonic() < end:
    seen.add(bound())
    time.sleep(0.02)
end = time.monotonic() + 30
while bound() != -1 and time.monotonic() < end:
    time.sleep(0.1)
print(*sorted(seen), "then", bound())
PYTHON
    wait "$LOAD_PID" || fail "the load failed"
    LOAD_PID=
}

cpu=$(interrupted_cpu "$SCRATCH")
server_with_volume disk 64M
seen=$(bound_under_load)
say "the drive interrupts processor: ${cpu:-many or none}; bound to: $seen"
if [[ -n $cpu ]] && (($(nproc) > 1)); then
    [[ $seen == "-1 $cpu then -1" || $seen == "$cpu then -1" ]] || fail "not bound to processor $cpu, or for ever"
    # Whoever has taken that processor away is obeyed.
    others=$("$PYTHON" -c 'import os, sys; print(*(os.sched_getaffinity(0) - {int(sys.argv[1])}), sep=",")' "$cpu")
    taskset --all-tasks --cpu-list --pid "$others" "$SERVER_PID" >/dev/null
    seen=$(bound_under_load)
    say "without that processor: $seen"
    [[ $seen == "-1 then -1" ]] || fail "bound to a processor that was taken away"
    now=$(taskset --all-tasks --cpu-list --pid "$SERVER_PID" | sed 's/.*: //' | sort -u)
    wanted=$(taskset --cpu-list "$others" bash -c 'taskset --cpu-list --pid $$' | sed 's/.*: //')
    [[ $now == "$wanted" ]] || fail "threads may run on $now instead of $wanted"
else
    [[ $seen == "-1 then -1" ]] || fail "bound, although interrupts arrive everywhere"
fi
server_stop
server_start --bind-cpu never
seen=$(bound_under_load)
say "with --bind-cpu never: $seen"
[[ $seen == "-1 then -1" ]] || fail "bound, although it must not"
# One that is named is taken while many requests are under way.
server_stop
last=$("$PYTHON" -c 'import os; print(max(os.sched_getaffinity(0)))')
server_start --bind-cpu "$last"
seen=$(bound_under_load)
say "with --bind-cpu $last: $seen"
if (($(nproc) > 1)); then
    [[ $seen == "-1 $last then -1" || $seen == "$last then -1" ]] || fail "not bound to processor $last, or for ever"
else
    [[ $seen == "-1 then -1" ]] || fail "bound, although there is nothing to choose"
fi
