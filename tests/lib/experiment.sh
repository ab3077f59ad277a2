# shellcheck shell=bash
# Small experiments of `coquina bench run`, and their reports. Sourced by tests after tests/lib/server.sh.

# A scenario for `experiment`: a volume with one copy.
# shellcheck disable=SC2034
SCENARIO='name = "one volume"
volume_size = "1GiB"
copies = 1'

# experiment NAME ROUNDS RUNTIME_S SCENARIO OPERATIONS DEPTHS : writes NAME.toml with one scenario, all modes alike. SCENARIO is lines of
# TOML; OPERATIONS and DEPTHS are lists of it.
experiment() {
    local mode="{ rounds = $2, runtime_s = $3, warmup_s = 0, volume_bytes_max = \"32MiB\" }"
    cat >"$1.toml" <<TOML
format = 1
name = "$1"
title = "A small one"
targets = ["plain-file"]
[modes]
quick = $mode
default = $mode
full = $mode
[[scenario]]
$4
[[scenario.sweep]]
operation = [$5]
block = "4KiB"
depth = [$6]
TOML
}

# of_report FOLDER EXPRESSION : fails unless the Python expression of the report `r` in that folder is true
of_report() {
    "$PYTHON" -c "import json, sys; r = json.load(open(sys.argv[1])); sys.exit(not ($2))" "$1/report.json" ||
        fail "not so in $1/report.json: $2"
}

bench() { "$COQUINA" bench "$@"; }

# Fails if a run left files in the folder `files`, or processes that use it.
nothing_is_left() {
    [[ -z $(ls -A files) ]] || fail "files are left: $(ls -A files)"
    if processes_with "$SCRATCH/files" >&2; then fail "processes are left"; fi
}
