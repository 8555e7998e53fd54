#!/bin/sh
# Runs the fuzzers in FOLDER/bin one after another: tests/fuzz/run.sh SECONDS FOLDER [NAME...]
#
# Inputs that reach new code are kept in FOLDER/corpus/NAME/, what a fuzzer stops at in FOLDER/findings/.
set -u

seconds=$1 folder=$2
shift 2
[ $# -gt 0 ] || set -- $(ls tests/fuzz/test_*.c | sed 's/.*test_//; s/\.c$//')
mkdir -p "$folder/findings" "$folder/logs"
failed=0

for name; do
    seeds=$(sed -n 's/^const char fuzz_corpus.* "\(.*\)";$/\1/p' "tests/fuzz/test_$name.c")
    log=$folder/logs/$name.txt
    mkdir -p "$folder/corpus/$name"
    if "$folder/bin/$name" -max_total_time="$seconds" -max_len=16384 -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 \
        -artifact_prefix="$folder/findings/$name-" "$folder/corpus/$name" "$seeds" >"$log" 2>&1; then
        printf 'ok      %-12s %s runs\n' "$name" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")"
    else
        printf 'FAILED  %-12s see %s\n' "$name" "$log"
        grep -E 'does not hold|ERROR:|runtime error:|^cleanslate:|Test unit written' "$log" | sed 's/^/    /'
        failed=1
    fi
done
exit $failed
