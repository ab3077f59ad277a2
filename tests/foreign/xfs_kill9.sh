#!/usr/bin/env bash
# XFS on a volume under a database-like load: after kill -9 of the server everything synced is there, xfs_repair is clean.
source "$(dirname "$0")/../lib/server.sh"
source "$(dirname "$0")/../lib/filesystem.sh"

file_system_survives_kill xfs
