#!/usr/bin/env bash
# The CUDA backend's kernels under compute-sanitizer, in cases that are few enough to be watched: a line for each tool and
# program. What each said is left in the folder OUT. Status 1 if anything was found or did not end.
#   tests/gpu/sanitize.sh OUT [PROGRAMS]     PROGRAMS: out/bin
# Variables: TOOLS (memcheck racecheck), LIMIT (seconds for each, 300), JOBS (2 at a time)
set -u
out=${1:?a folder for what the sanitizer says} programs=${2:-out/bin}
mkdir -p "$out" && out=$(realpath "$out") && programs=$(realpath "$programs") || exit 1
cd "$(dirname "$0")/../.." || exit 1
command -v compute-sanitizer >/dev/null || { echo "no compute-sanitizer: it comes with the CUDA Toolkit"; exit 1; }

# Programs with the tests to run, if not all: those that call the kernels by themselves, and the backend as it is used.
cases=("engine/test_hybrid bfloat16_stays_near" "gpu/test_choose the_likeliest_*" "gpu/test_choose choices_*"
    "gpu/test_choose nan_*" "gpu/test_recurrence some_*" "gpu/test_products some_*" "gpu/test_attention some_*"
    "gpu/test_attention_rows some_*" "gpu/test_halves some_*" "gpu/test_rows")

# How products are computed is timed beforehand: under a sanitizer that takes minutes.
export CLEANSLATE_BACKEND=cuda CLEANSLATE_ALGORITHMS=$out/algorithms
mkdir -p "$CLEANSLATE_ALGORITHMS"
if ! "$programs/tests/engine/test_hybrid" >"$out/before.txt" 2>&1 || grep -q SKIPPED "$out/before.txt"; then
    tail -n 20 "$out/before.txt"
    exit 1
fi

# examine TOOL PROGRAM [TESTS]
examine() {
    local begin=$SECONDS name=$1-${2##*/}${3:+-${3%%\*}} status
    timeout -k 5 "${LIMIT:-300}" compute-sanitizer --tool "$1" --error-exitcode 9 "$programs/tests/$2" ${3:+"$3"} \
        >"$out/$name.txt" 2>&1 </dev/null
    status=$?
    [[ $status -ne 0 ]] || grep -q SUMMARY "$out/$name.txt" || status=1 # the sanitizer says so where it watched
    case $status in
    0) echo "clean   $name, $((SECONDS - begin)) s" ;;
    124 | 137) echo "NO END  $name in ${LIMIT:-300} s: $out/$name.txt" ;;
    *) echo "FOUND   $name, status $status: $out/$name.txt" ;;
    esac
    return $status
}
export -f examine
export programs out LIMIT

for tool in ${TOOLS:-memcheck racecheck}; do
    for case in "${cases[@]}"; do
        echo "$tool $case"
    done
done | xargs -P "${JOBS:-2}" -I {} bash -fc 'examine {}' || exit 1
