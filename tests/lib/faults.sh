# shellcheck shell=bash
# Faults under a load that is checked for linearizability, and how long I/O paused in each. A test sources this file after
# tests/lib/cluster.sh (and tests/lib/network.sh, if it cuts networks).

declare -A GATEWAY_PIDS
WATCHED_PID=
GATEWAY_NAMES=()
# How long a fault is held, in seconds: longer than any pause that is allowed.
HOLD=${HOLD:-5}
# How long I/O may wait once a network is mended, in seconds: 1 to 2 are usual.
MENDED_PAUSE_MAX=${MENDED_PAUSE_MAX:-4}

end_watched() {
    local pid
    for pid in $WATCHED_PID "${GATEWAY_PIDS[@]}"; do
        kill -CONT "$pid" 2>/dev/null
        kill -9 "$pid" 2>/dev/null && wait "$pid" 2>/dev/null
    done
}
at_exit end_watched

# Another gateway: NAME.
gateway_add() {
    local port
    port=$(free_ports 1)
    # shellcheck disable=SC2046,SC2086 # several words are meant
    background "$1.log" ${WITHIN[$1]:-} "$COQUINA" nbd --dir "$SCRATCH/$1" --listen "unix:$SOCKET_FOLDER/$1.sock" \
        --http "$(host_of "$1"):$port" $(insecure "$1") $(etcd_options)
    GATEWAY_PIDS[$1]=$STARTED_PID
    GATEWAY_NAMES+=("$1")
    wait_until 30 test -S "$SOCKET_FOLDER/$1.sock" || fail "gateway $1 does not answer: $(tail -n 5 "$SCRATCH/$1.log")"
}

# URIs of a volume through all gateways.
all_uris() {
    local name
    unix_uri "$1"
    for name in "${GATEWAY_NAMES[@]}"; do printf ' nbd+unix:///%s?socket=%s' "$1" "$SOCKET_FOLDER/$name.sock"; done
}

# Starts the load through all gateways: VOLUME SEED [during|load], the last if the gateways may die.
watched_start() {
    rm -f "$SCRATCH/stop-watched" "$SCRATCH/watched.progress"
    # shellcheck disable=SC2046 # several words are meant
    background watched.log "$PYTHON" "$CLIENTS/linearizable.py" "${3:-during}" "$SCRATCH/watched" "$2" "$SCRATCH/stop-watched" \
        $(all_uris "$1")
    WATCHED_PID=$STARTED_PID
    wait_until 20 test -s "$SCRATCH/watched.progress" || fail "the load does not start: $(cat "$SCRATCH/watched.log")"
}

watched_lives() {
    if [[ ! -e $SCRATCH/stop-watched ]] && kill -0 "$WATCHED_PID" 2>/dev/null; then return; fi
    fail "the load ended: $(tail -n 5 "$SCRATCH/watched.log")"
}

# Ends the load, which must have gone well, and reads everything back: VOLUME.
watched_stop() {
    touch "$SCRATCH/stop-watched"
    watched_ended
    watched_verify "$1"
}

watched_ended() {
    local status=0
    wait "$WATCHED_PID" || status=$?
    WATCHED_PID=
    tail -n 2 "$SCRATCH/watched.log"
    ((status == 0)) || fail "the load failed"
}

# Reads everything back: VOLUME [ERRORS-THAT-ARE-ALLOWED].
watched_verify() {
    "$PYTHON" "$CLIENTS/linearizable.py" verify "$SCRATCH/watched" "$(unix_uri "$1")" "${2:-0}" || fail "data lost"
}

# Loads a volume for some seconds: VOLUME SEED SECONDS.
watched_for() {
    watched_start "$1" "$2"
    sleep "$3"
    watched_stop "$1"
}

now() { date +%s.%N; }

# The longest pause that ended since then or goes on, in seconds: SINCE [GATEWAY], gateways counted from 0.
longest_pause() {
    # What the load says is up to a moment old.
    sleep 0.5
    awk -v since="$1" -v now="$(now)" -v only="${2:-}" '
        function look(gateway, seconds) { if ((only == "" || gateway == only) && seconds > longest) longest = seconds }
        FILENAME ~ /pauses$/ { if ($2 + $3 >= since) look($1, $3); next }
        { for (i = 1; i <= NF; i++) look(i - 1, now - $i) }
        END { printf "%.2f\n", longest }' "$SCRATCH/watched.pauses" "$SCRATCH/watched.progress"
}

is_at_most() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a <= b) }'; }

# What was just done at SINCE must not stop I/O for longer than PAUSE_MAX: WHAT SINCE [GATEWAY].
pause_is_short() {
    local pause
    sleep "$HOLD"
    watched_lives
    pause=$(longest_pause "$2" "${3:-}")
    say "$1: I/O paused for $pause s"
    is_at_most "$pause" "$PAUSE_MAX" || fail "$1: I/O paused for $pause s, at most $PAUSE_MAX are allowed"
}

# The longest time without I/O since then, in seconds, whenever the pause began: SINCE.
longest_wait() {
    sleep 0.5
    awk -v since="$1" -v now="$(now)" '
        function look(begin, end) { if (begin < since) begin = since; if (end - begin > longest) longest = end - begin }
        FILENAME ~ /pauses$/ { look($2, $2 + $3); next }
        { for (i = 1; i <= NF; i++) look($i, now) }
        END { printf "%.2f\n", longest }' "$SCRATCH/watched.pauses" "$SCRATCH/watched.progress"
}

# Once the network is mended, at SINCE, I/O must not wait for long, not even when nodes get back what they had: WHAT SINCE.
goes_on_after() {
    local wait
    sleep 3
    watched_lives
    wait=$(longest_wait "$2")
    say "after the end of $1: I/O waited for $wait s at most"
    is_at_most "$wait" "$MENDED_PAUSE_MAX" ||
        fail "after the end of $1: I/O waited for $wait s, at most $MENDED_PAUSE_MAX are allowed"
}

# I/O goes on through all gateways.
io_goes_on() { watched_lives && is_at_most "$(longest_pause "$(now)")" 1; }

# All copies are there again, and I/O goes on: WHAT SECONDS.
heals() {
    wait_until "$2" io_goes_on || fail "no I/O $2 s after the end of: $1; $(ask gateway status 2>&1)"
    cluster_heals "$2"
    watched_lives
}

# The node whose process leads.
leader_name() { ask gateway node list --json | "$PYTHON" -c '
import json, sys
nodes = json.load(sys.stdin)
nodes = nodes.get("nodes", nodes) if isinstance(nodes, dict) else nodes
print(*(node["name"] for node in nodes if node.get("leads")))'; }

# Lets a node run for 50 ms of each 350: NAME SECONDS.
pulses() {
    local pid=${NODE_PIDS[$1]} end=$((SECONDS + $2))
    while ((SECONDS < end)); do
        kill -STOP "$pid"
        sleep 0.3
        kill -CONT "$pid"
        sleep 0.05
    done
    watched_lives
}

# Lets a node's drive take 1 MiB/s: NAME SECONDS. Where there is no such control group, nothing is done.
slow_drive() {
    local group device
    SLOW_GROUP=/sys/fs/cgroup/blkio/coquina-test-$$
    group=$SLOW_GROUP
    device=$(stat --format '%Hd:%Ld' "$SCRATCH")
    if ! mkdir "$group" 2>/dev/null; then
        say "no control group can be made: the drive of $1 stays as fast as it is"
        return
    fi
    if printf '%s 1048576\n' "$device" >"$group/blkio.throttle.write_bps_device" 2>/dev/null; then
        printf '%s\n' "${NODE_PIDS[$1]}" >"$group/cgroup.procs"
        sleep "$2"
    else
        say "$device cannot be throttled: the drive of $1 stays as fast as it is"
    fi
    end_slow_drive
    watched_lives
}

# Its processes go back to where all are, and the group away.
end_slow_drive() {
    local process
    [[ -d ${SLOW_GROUP:-/nowhere} ]] || return 0
    while read -r process; do
        printf '%s\n' "$process" >"${SLOW_GROUP%/*}/cgroup.procs" 2>/dev/null || true
    done <"$SLOW_GROUP/cgroup.procs"
    rmdir "$SLOW_GROUP"
}
at_exit end_slow_drive
