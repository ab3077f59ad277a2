#!/usr/bin/env bash
# A Linux guest with a volume as its disk, by the kernel's own NBD client: sizes, flush, FUA, discard, ext4 and XFS; a power cut of guest
# and server together, after which all that was synced is there.
source "$(dirname "$0")/../lib/server.sh"
needs_coquina
source "$(dirname "$0")/../lib/guest.sh"

# Files that the guest must have told durable before the cut.
FILES=${FILES:-30}

guest_prepare
server_with_volume disk 512M

guest_start use
guest_ends 120

for ((round = 1; round <= ${ROUNDS:-1}; round++)); do
    say "== power cut $round"
    guest_start load
    guest_says 90 "DONE f$((FILES + RANDOM % 20)) "
    # In either order, as it comes.
    if ((RANDOM % 2)); then server_crash && guest_kill; else guest_kill && server_crash; fi
    # What was told, but for what was told to be removed, and the one that may just have been.
    tr -d '\r' <"$CONSOLE" | "$PYTHON" -c '
import sys
told, gone = {}, set()
for line in sys.stdin:
    words = line.split()
    if words[:2] == ["guest:", "DONE"] and len(words) > 3 and len(words[3]) == 64: told[words[2]] = words[3]
    if words[:2] == ["guest:", "GONE"] and len(words) > 3: gone.add(words[2])
last = max(int(name[1:]) for name in told)
gone |= {f"f{last - 20}", f"f{last - 19}"}
for name, sum in told.items():
    if name not in gone: print(name, sum)' >"$SCRATCH/told"
    [[ -s $SCRATCH/told ]] || fail 'the guest has told nothing'
    server_start
    guest_start check "$SCRATCH/told"
    guest_ends 90
done
