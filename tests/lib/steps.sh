# shellcheck shell=bash
# Steps of a check, each with a log, a time limit and an outcome that counts; and the sum of them. Whoever sources this
# sets TEST_LOGS, a folder, and stops what still runs with stop_children when it ends.

PASSED=0
FAILED=0
SKIPPED=0
REPORT=()
# What runs, by its number: its log.
declare -A CHILDREN=()
# Steps that run, by the numbers of their processes.
STEPS_AT_ONCE=1
declare -A STEP_NAME=() STEP_RERUN=() STEP_BEGIN=() STEP_PLACE=()
# Outcome of each step that has ended, by name.
declare -A OUTCOMES=()

# Starts a command with a log and a time limit: LOG SECONDS COMMAND... It gets a process group of its own, so that all of
# it can be stopped; its number is in CHILD.
start() {
    local log=$1 seconds=$2
    shift 2
    printf '$ %s\n' "$*" >>"$log"
    timeout --kill-after=20 "$seconds" "$@" >>"$log" 2>&1 </dev/null 9>&- &
    CHILD=$!
    CHILDREN[$CHILD]=$log
}

# Notes the end of a child: PID STATUS.
ended() {
    (($2 != 124 && $2 != 137)) || printf 'stopped: it took too long\n' >>"${CHILDREN[$1]}"
    unset "CHILDREN[$1]"
}

# Runs a command with a log and a time limit: LOG SECONDS COMMAND...
run() {
    local status=0
    start "$@"
    wait "$CHILD" || status=$?
    ended "$CHILD" "$status"
    return "$status"
}

stop_children() {
    ((${#CHILDREN[@]} > 0)) || return 0
    kill -TERM "${!CHILDREN[@]}" 2>/dev/null || true
    wait "${!CHILDREN[@]}" 2>/dev/null || true
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
        line+="   $(grep -h '^SKIPPED' "$4" | tail -n 1 | cut -d ' ' -f 2- || true)"
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

log_of() { printf '%s/%s.log' "$TEST_LOGS" "${1// /-}"; }

# Begins a step once fewer than STEPS_AT_ONCE run: NAME RERUN SECONDS COMMAND... Those that run at once have different TEST_PLACE,
# counted from 0.
begin_step() {
    local name=$1 rerun=$2 seconds=$3 log place=0
    shift 3
    log=$(log_of "$name")
    while ((${#STEP_NAME[@]} >= STEPS_AT_ONCE)); do end_step; done
    while [[ " ${STEP_PLACE[*]} " == *" $place "* ]]; do place=$((place + 1)); done
    : >"$log"
    TEST_PLACE=$place start "$log" "$seconds" "$@"
    STEP_NAME[$CHILD]=$name STEP_RERUN[$CHILD]=$rerun STEP_BEGIN[$CHILD]=$SECONDS STEP_PLACE[$CHILD]=$place
}

# Waits for the first step that ends. One that exits with 77 has skipped itself.
end_step() {
    local pid name result=ok status=0
    wait -n -p pid "${!STEP_NAME[@]}" || status=$?
    ended "$pid" "$status"
    name=${STEP_NAME[$pid]}
    case $status in
    0) ;;
    77) result=skipped ;;
    *) result=FAILED ;;
    esac
    # shellcheck disable=SC2034 # for who sources this
    OUTCOMES[$name]=$result
    outcome "$name" "$((SECONDS - STEP_BEGIN[$pid]))" "$result" "$(log_of "$name")" "${STEP_RERUN[$pid]}"
    unset "STEP_NAME[$pid]" "STEP_RERUN[$pid]" "STEP_BEGIN[$pid]" "STEP_PLACE[$pid]"
    # What it started may still be there.
    [[ $result != FAILED || -z ${SCRATCH:-} ]] || tests/lib/sweep.sh "$SCRATCH" "$name"
}

end_steps() { while ((${#STEP_NAME[@]} > 0)); do end_step; done; }

# A step that runs alone: NAME RERUN SECONDS COMMAND...
step() {
    end_steps
    begin_step "$@"
    end_steps
}

summary() {
    local line
    heading "summary, after $((SECONDS / 60)) min $((SECONDS % 60)) s"
    for line in "${REPORT[@]}"; do printf '%s\n' "$line"; done
    printf '%d passed, %d failed, %d skipped\n' "$PASSED" "$FAILED" "$SKIPPED"
    # Nothing at all is no success: a name may have been misspelt.
    ((FAILED == 0 && PASSED + SKIPPED > 0))
}
