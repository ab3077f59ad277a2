#!/usr/bin/env bash
# fsx compares long random sequences of operations on a volume, shown as a file by nbdfuse, with its own model.
source "$(dirname "$0")/../lib/server.sh"
source "$(dirname "$0")/../lib/filesystem.sh"

FSX=${FSX:-$(command -v fsx || true)}
[[ -x $FSX ]] || FSX=$TARGET/tools/bin/fsx
[[ -x $FSX ]] || skip "fsx is not installed: cargo install fsx --version '~0.3' --root target/tools"
needs_root
needs nbdfuse nbdkit

# fadvise drops pages from the kernel's cache, which would answer reads in the server's place.
cat >"$SCRATCH/fsx.toml" <<'TOML'
flen = 4194304
blockmode = true
nomsyncafterwrite = true
[opsize]
align = 512
max = 131072
[weights]
invalidate = 1
read = 10
write = 10
mapread = 0
mapwrite = 0
truncate = 0
fsync = 2
fdatasync = 1
posix_fadvise = 10
TOML

server_with_volume disk 4M
fuse_attach_unaligned disk
choose_seed
"$FSX" -f "$SCRATCH/fsx.toml" -P "$SCRATCH" -S "$SEED" -N 5000 "$FUSE_FOLDER/nbd"
