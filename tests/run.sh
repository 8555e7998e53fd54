#!/bin/sh
# Runs test programs one after another: tests/run.sh PROGRAM...
#
# Prints a line for each program, the reasons of skipped tests, the whole output of a program that fails, and at the end
# "N passed, N failed" (", N skipped"). A program may take TEST_TIMEOUT seconds (300).
set -u

limit=${TEST_TIMEOUT:-300}
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive} # threads that wait by spinning starve each other on a busy machine
total_passed=0 total_failed=0 total_skipped=0
output=$(mktemp) || exit 1
trap 'rm -f "$output"' EXIT
trap 'exit 1' INT TERM

# The sum of the numbers that an expression finds in cmocka's summaries: a program may have several groups of tests.
count() {
    sed -n "s/$1/\\1/p" "$output" | awk '{ sum += $1 } END { print sum + 0 }'
}

run_program() {
    name=${1##*/bin/}
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
    if [ "$failed" -gt 0 ]; then
        printf 'FAILED  %-40s %d passed, %d failed%s\n' "$name" "$passed" "$failed" "$reason"
        sed 's/^/    /' "$output"
    else
        printf 'ok      %-40s %d passed\n' "$name" "$passed"
        sed -n 's/^SKIPPED:/    SKIPPED:/p' "$output"
    fi
    total_passed=$((total_passed + passed))
    total_failed=$((total_failed + failed))
    total_skipped=$((total_skipped + skipped))
}

for program; do
    run_program "$program"
done

line="$total_passed passed, $total_failed failed"
[ "$total_skipped" -eq 0 ] || line="$line, $total_skipped skipped"
echo "$line"
[ "$total_failed" -eq 0 ] && [ "$total_passed" -gt 0 ]
