#!/usr/bin/env bash
# A server without file descriptors does not spin, goes on for those who are connected, and takes new clients later.
source "$(dirname "$0")/../lib/server.sh"
needs_coquina
needs prlimit

FILES_MAX=128
server_with_volume disk 128M
prlimit --pid "$SERVER_PID" --nofile="$FILES_MAX:$FILES_MAX"
"$PYTHON" "$CLIENTS/out_of_files.py" "$NBD_PORT" disk "$SERVER_PID" "$FILES_MAX"
server_is_alive
told=$(grep -c 'cannot accept connections' "$SCRATCH/server.log") || fail "nothing was said of it"
((told <= 3)) || fail "it was said $told times"
