#!/bin/sh
# Runs test programs, up to 4 at a time, one more than there are processors, since some wait: tests/run.sh PROGRAM...
#
# Prints a line for each program that ends, the reasons of skipped tests, the whole output of a program that fails, and
# at the end "N passed, N failed" (", N skipped"). A program may take TEST_TIMEOUT seconds (600); TEST_JOBS says how many
# run at a time.
set -u

limit=${TEST_TIMEOUT:-600}
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive} # threads that wait by spinning starve each other on a busy machine

# The sum of the numbers that an expression finds in cmocka's summaries: a program may have several groups of tests.
count() {
    sed -n "s/$1/\\1/p" "$output" | awk '{ sum += $1 } END { print sum + 0 }'
}

tell() {
    if [ "$failed" -gt 0 ]; then
        printf 'FAILED  %-40s %d passed, %d failed%s\n' "$name" "$passed" "$failed" "$reason"
        sed 's/^/    /' "$output"
    else
        printf 'ok      %-40s %d passed\n' "$name" "$passed"
        sed -n 's/^SKIPPED:/    SKIPPED:/p' "$output"
    fi
    echo "$passed $failed $skipped" >>"$folder/counts"
}

run_program() {
    name=${1##*/bin/}
    output=$(mktemp "$folder/output.XXXXXX") || exit 1
    timeout -k 10 "$limit" "$1" >"$output" 2>&1 </dev/null
    status=$?
    passed=$(count '^\[  PASSED  \] \([0-9]*\) test(s)\.$')
    failed=$(count '^ *\([0-9]*\) FAILED TEST(S)$')
    skipped=$(count '^ *\([0-9]*\) SKIPPED TEST(S)$')
    reason=
    if [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then
        reason=" (stopped after $limit s)"
    elif [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then
        reason=" (exit status $status)"
    elif [ $((passed + failed + skipped)) -eq 0 ]; then
        reason=" (no test ran)"
    fi
    # A program that dies, or ends well but leaks, has failed once more than its tests say.
    [ -z "$reason" ] || failed=$((failed + 1))
    { flock 9 && tell; } 9>"$folder/lock"
}

if [ "$1" = --one ]; then
    folder=$2
    run_program "$3"
    exit 0
fi

folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
processors=$(nproc)
jobs=${TEST_JOBS:-$((processors < 4 ? processors + 1 : 4))}
for program; do printf '%s\0' "$program"; done | xargs -0 -n 1 -P "$jobs" "$0" --one "$folder"
awk '{ passed += $1; failed += $2; skipped += $3 }
     END { printf "%d passed, %d failed", passed, failed
           if (skipped) printf ", %d skipped", skipped
           print ""
           exit failed || !passed || NR != programs }' programs=$# "$folder/counts"
