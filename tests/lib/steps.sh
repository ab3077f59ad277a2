# shellcheck shell=bash
# Steps of a check, each with a log, a time limit and an outcome that counts; and the sum of them. Whoever sources this
# sets TEST_LOGS, a folder, and stops what still runs with stop_child when it ends.

PASSED=0
FAILED=0
SKIPPED=0
REPORT=()
CHILD=

# Runs a command with a log and a time limit: LOG SECONDS COMMAND... It gets a process group of its own, so that all of
# it can be stopped.
run() {
    local log=$1 seconds=$2 status=0
    shift 2
    printf '$ %s\n' "$*" >>"$log"
    timeout --kill-after=20 "$seconds" "$@" >>"$log" 2>&1 </dev/null 9>&- &
    CHILD=$!
    wait "$CHILD" || status=$?
    CHILD=
    ((status != 124 && status != 137)) || printf 'stopped after %s s\n' "$seconds" >>"$log"
    return "$status"
}

stop_child() {
    [[ -n $CHILD ]] || return 0
    kill -TERM "$CHILD" 2>/dev/null || true
    wait "$CHILD" 2>/dev/null || true
}

heading() { printf '\n== %s\n' "$1"; }

# What a log says of failed tests: what each printed, and their names. They may stand far from its end.
show_failures() {
    grep -q '^failures:$' "$1" || return 0
    printf -- '--- failures in %s\n' "$1"
    awk '/^failures:$/ {left = 60} left > 0 {print; left--}' "$1" | head -n 200
}

# Counts the outcome of a step and shows it: NAME SECONDS OUTCOME LOG RERUN. OUTCOME is ok, skipped or FAILED.
outcome() {
    local line
    line=$(printf '%-8s %-28s %4d s' "$3" "$1" "$2")
    case $3 in
    ok) PASSED=$((PASSED + 1)) ;;
    skipped)
        SKIPPED=$((SKIPPED + 1))
        line+="   $(grep -h '^SKIPPED' "$4" | tail -n 1 | cut -d ' ' -f 2-)"
        ;;
    FAILED) FAILED=$((FAILED + 1)) ;;
    esac
    printf '%s\n' "$line"
    if [[ $3 == FAILED ]]; then
        REPORT+=("$1: rerun with: $5   (log: $4)")
        show_failures "$4"
        printf -- '--- end of %s\n' "$4"
        tail -n 40 "$4"
        printf -- '--- rerun with: %s\n' "$5"
    fi
}

# A step that is one command: NAME RERUN SECONDS COMMAND...
step() {
    local name=$1 rerun=$2 seconds=$3 log=$TEST_LOGS/${1// /-}.log begin=$SECONDS result=ok
    shift 3
    : >"$log"
    run "$log" "$seconds" "$@" || result=FAILED
    outcome "$name" "$((SECONDS - begin))" "$result" "$log" "$rerun"
}

summary() {
    local line
    heading "summary, after $((SECONDS / 60)) min $((SECONDS % 60)) s"
    for line in "${REPORT[@]}"; do printf '%s\n' "$line"; done
    printf '%d passed, %d failed, %d skipped\n' "$PASSED" "$FAILED" "$SKIPPED"
    ((FAILED == 0))
}
