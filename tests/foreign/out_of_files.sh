#!/usr/bin/env bash
# A server without file descriptors does not spin, goes on for those who are connected, and takes new clients later.
source "$(dirname "$0")/../lib/server.sh"
needs_coquina

FILES_MAX=128
# Set from the start on: an accept that runs keeps the limit that it began with.
printf '#!/bin/sh\nulimit -n %s && exec %q "$@"\n' "$FILES_MAX" "$COQUINA" >"$SCRATCH/limited"
chmod +x "$SCRATCH/limited"
COQUINA=$SCRATCH/limited
server_with_volume disk 128M
"$PYTHON" "$CLIENTS/out_of_files.py" "$NBD_PORT" disk "$SERVER_PID" "$FILES_MAX"
server_is_alive
told=$(grep -c 'cannot accept connections' "$SCRATCH/server.log") || fail "nothing was said of it"
((told <= 3)) || fail "it was said $told times"
