# shellcheck shell=bash
# The server under test: a foreign test sources this file, starts a server, kills it, starts it again.
#
# Invariants:
# - everything lies below one folder that goes away when the test ends, however it ends;
# - only processes that this test started are ended, each by its id.
#
# COQUINA           the binary, target/ci/coquina if not set
# SERVER_UNDER_TEST coquina; or nbdkit, a stand-in to develop tests with (volumes are files in a folder)

set -euo pipefail

REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
TARGET=${CARGO_TARGET_DIR:-$REPOSITORY/target}
COQUINA=${COQUINA:-$TARGET/ci/coquina}
SERVER_UNDER_TEST=${SERVER_UNDER_TEST:-coquina}
export CLIENTS=$REPOSITORY/tests/clients
LOGS=${TEST_LOGS:-$TARGET/test-logs}
# Debian's Python has the libnbd module; another one that is first in PATH may not.
PYTHON=/usr/bin/python3
export PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
DRIVE_SIZE=${DRIVE_SIZE:-2G}
EXIT_SKIPPED=77

SERVER_PID=
LOAD_PID=
CLEANUP_STEPS=()
UNEXPECTED=()
NAME=$(basename "$0" .sh)
mkdir -p "$TARGET/test-scratch" "$LOGS"
SCRATCH=$(mktemp -d "$TARGET/test-scratch/$NAME.XXXXXX")
# The path of a Unix socket has at most 107 bytes, so it cannot lie in SCRATCH.
SOCKET_FOLDER=$(mktemp -d /tmp/coquina-test.XXXXXX)
# Notes what tests/lib/sweep.sh has to end or remove if this test itself is killed.
note() { printf '%s\n' "$2" >>"$SCRATCH/$1"; }
note sweep-folders "$SOCKET_FOLDER"
SOCKET=$SOCKET_FOLDER/nbd.sock
DATA=$SCRATCH/data

say() { printf '%s\n' "$*"; }

fail() {
    say "FAILED: $*" >&2
    if [[ -s $SCRATCH/server.log ]]; then
        say "--- end of the server's log, all of it is in $LOGS/$NAME.server.log" >&2
        tail -n 40 "$SCRATCH/server.log" >&2
    fi
    exit 1
}

skip() {
    say "SKIPPED: $*"
    exit "$EXIT_SKIPPED"
}

# Skips the test where the server under test is a stand-in.
needs_coquina() { [[ $SERVER_UNDER_TEST == coquina ]] || skip "only Coquina itself can do this"; }

# Skips the test where a program is missing.
needs() {
    local program
    for program in "$@"; do command -v "$program" >/dev/null || skip "$program is not installed"; done
}

needs_libnbd() { "$PYTHON" -c 'import nbd' 2>/dev/null || skip "python3-libnbd is not installed"; }

needs_root() { [[ $(id -u) == 0 ]] || skip "needs root, to mount file systems"; }

# The processes that have TEXT in their command line, a line each; false if there are none. What grep found counts, not its status:
# that says failure as soon as one process, whichever, has ended since the shell listed them. TEXT is no argument of grep, which would
# find itself.
processes_with() {
    local processes
    # shellcheck disable=SC2062 # `--file=-` is no pattern
    processes=$(grep -lsz --fixed-strings --file=- /proc/[0-9]*/cmdline <<<"$1" || true)
    [[ -n $processes ]] && say "$processes"
}

# Chooses the seed of a test, unless SEED says it, and shows it, so that a failure can be repeated.
choose_seed() {
    SEED=${SEED:-$((RANDOM * 32768 + RANDOM))}
    say "SEED=$SEED"
}

# Registers a function to run when the test ends; the last one registered runs first.
at_exit() { CLEANUP_STEPS=("$1" "${CLEANUP_STEPS[@]}"); }

clean_up() {
    local status=$? step
    trap - EXIT
    set +e
    [[ -z $LOAD_PID ]] || { kill -9 "$LOAD_PID" && wait "$LOAD_PID"; } 2>/dev/null
    for step in "${CLEANUP_STEPS[@]}"; do "$step"; done
    server_kill
    for step in "${UNEXPECTED[@]}"; do status=1 && say "UNEXPECTED: $step"; done
    # Whoever panicked, and whatever became of it.
    if grep -F 'panicked at' "$SCRATCH"/*.log 2>/dev/null; then status=1 && say "UNEXPECTED: a panic in a log"; fi
    ((status == 0)) || cp "$SCRATCH/server.log" "$LOGS/$NAME.server.log" 2>/dev/null
    rm -rf "$SCRATCH" "$SOCKET_FOLDER"
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# A number of TCP ports that nobody listens on, below those that the kernel gives to clients: a client could take one of
# those while the server is down, and one that tries to reach it could even connect to itself. Tests that run at once
# take them from ranges of their own, and none is given twice: who has one may listen on it later only.
free_ports() {
    "$PYTHON" - "$1" "${TEST_PLACE:-0}" "$SCRATCH/ports" <<'PYTHON'
import random, socket, sys
first = 15000 + 4000 * (int(sys.argv[2]) % 4)
with open(sys.argv[3], "a+") as given:
    given.seek(0)
    taken = set(map(int, given.read().split()))
    found = []
    while len(found) < int(sys.argv[1]):
        port = random.randrange(first, first + 4000)
        if port in taken:
            continue
        try:
            found.append(socket.create_server(("127.0.0.1", port)))
        except OSError:
            continue
        taken.add(port)
        print(port, file=given)
print(*(each.getsockname()[1] for each in found))
PYTHON
}

read -r NBD_PORT HTTP_PORT NATIVE_PORT <<<"$(free_ports 3)"

# fio writes a file of its state into the current folder otherwise.
fio() { command fio --aux-path="$SCRATCH" "$@"; }

coquina() { "$COQUINA" --dir "$DATA" "$@"; }

# URI of a volume over TCP, and over the Unix socket.
uri() { printf 'nbd://127.0.0.1:%s/%s' "$NBD_PORT" "$1"; }
unix_uri() { printf 'nbd+unix:///%s?socket=%s' "$1" "$SOCKET"; }

# The stand-in listens on TCP only.
unix_or_tcp_uri() { if [[ $SERVER_UNDER_TEST == coquina ]]; then unix_uri "$1"; else uri "$1"; fi; }

# Starts the server on the test's folder and waits until it answers. Arguments go to `coquina up`.
server_start() {
    case $SERVER_UNDER_TEST in
    coquina)
        [[ -x $COQUINA ]] || fail "$COQUINA is missing; build it with: cargo build --profile ci"
        "$COQUINA" up --dir "$DATA" --drive "$SCRATCH/drive0:$DRIVE_SIZE" \
            --nbd "127.0.0.1:$NBD_PORT" --nbd "unix:$SOCKET" --http "127.0.0.1:$HTTP_PORT" \
            --listen "127.0.0.1:$NATIVE_PORT" "$@" >>"$SCRATCH/server.log" 2>&1 &
        ;;
    nbdkit)
        mkdir -p "$DATA"
        nbdkit --foreground --ipaddr 127.0.0.1 --port "$NBD_PORT" file dir="$DATA" fadvise=normal \
            >>"$SCRATCH/server.log" 2>&1 &
        ;;
    *) fail "no such server under test: $SERVER_UNDER_TEST" ;;
    esac
    SERVER_PID=$!
    note sweep-processes "$SERVER_PID"
    wait_until 60 server_answers || fail "the server does not answer"
}

server_answers() {
    kill -0 "$SERVER_PID" 2>/dev/null || fail "the server ended at its start"
    port_answers "$NBD_PORT" || return 1
    [[ $SERVER_UNDER_TEST != coquina ]] || coquina status --json >/dev/null 2>&1
}

port_answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Runs a command again and again until it succeeds; fails after a number of seconds.
wait_until() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        ((SECONDS < end)) || return 1
        sleep 0.05
    done
}

# kill -9: what a crash of the process leaves behind. KILL_PAUSE_SECONDS is for servers that cannot start again at once,
# while the kernel still takes the old one's io_uring down.
server_kill() {
    [[ -n $SERVER_PID ]] || return 0
    kill -9 "$SERVER_PID" 2>/dev/null || true
    wait "$SERVER_PID" 2>/dev/null || true
    SERVER_PID=
    sleep "${KILL_PAUSE_SECONDS:-0}"
}

# The same of a server that must have lived until now. One that ended by itself leaves the same behind as one that was killed.
server_crash() {
    server_is_alive
    server_kill
}

# A clean stop, as by Ctrl-C; it must end by itself with status 0.
server_stop() {
    local status=0
    kill -TERM "$SERVER_PID"
    wait "$SERVER_PID" || status=$?
    SERVER_PID=
    ((status == 0)) || fail "the server stopped with status $status"
}

# Starts writes whose acknowledgements are noted, in the background, until the server of the volume goes away: VOLUME
# SEED. The load is LOAD_PID then, and has begun: on a busy machine its start takes longer than a server may have.
acknowledged_load_start() {
    rm -f "$SCRATCH/state.begun"
    "$PYTHON" "$CLIENTS/acknowledged.py" load "$SCRATCH/state" "$2" "$(uri "$1")" &
    LOAD_PID=$!
    wait_until 30 test -e "$SCRATCH/state.begun" || fail "the load does not begin"
}

# A load whose server was killed must have gone well until then: PROCESS WHEN.
load_went_well() {
    local status=0
    wait "$1" || status=$?
    LOAD_PID=
    ((status == 0)) || fail "$2: wrong data before the kill, or no operation at all (status $status)"
}

# Every acknowledged write must be there: VOLUME WHEN.
acknowledged_verify() {
    "$PYTHON" "$CLIENTS/acknowledged.py" verify "$SCRATCH/state" "$(uri "$1")" || fail "$2: data lost"
}

server_is_alive() { kill -0 "$SERVER_PID" 2>/dev/null || fail "the server has died"; }

# Makes a volume: NAME SIZE.
volume_create() {
    case $SERVER_UNDER_TEST in
    coquina) coquina volume create "$1" --size "$2" ;;
    nbdkit) truncate --size "$2" "$DATA/$1" ;;
    esac
}

# Starts the server with one volume: NAME SIZE.
server_with_volume() {
    server_start
    volume_create "$1" "$2"
}

# A command must end with a status and its output hold a text: STATUS TEXT COMMAND... The test goes on in any case, and
# fails at its end if one did not.
expect() {
    local status=0 wanted=$1 text=$2 output
    shift 2
    output=$("$@" 2>&1 </dev/null) || status=$?
    say "\$ $* -> $status: $output"
    [[ $status == "$wanted" ]] || UNEXPECTED+=("status $status instead of $wanted from: $*")
    grep -qiE -- "$text" <<<"$output" || UNEXPECTED+=("no \"$text\" in the output of: $*: $output")
    # A panic is never the answer, whatever the status.
    if grep -qF 'panicked at' <<<"$output"; then UNEXPECTED+=("a panic from: $*: $output"); fi
}
