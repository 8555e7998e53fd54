#!/usr/bin/env bash
# How the engine scales over this host's GPUs, in one go: sums between GPUs, golden outputs with meetings and with NCCL,
# rounds of shapes at 1, 2, 4 and 8 ranks, GPUs that hang, and the demo plan at all of these, killed in its middle once.
# Leaves what each said (NAME.txt), SHAPE-tpN.json and runs/demo-scaling in the folder OUT; of the last, analyze and
# render make the report, here where the machine has what they need. Goes on behind a step that fails, and says at the
# end which did.
#   tests/gpu/scaling.sh OUT [PROGRAMS]     PROGRAMS: out/bin
# Variables: SHAPES (qwen3-8b qwen3.6-27b), ROUNDS (16), STEPS (all of: golden nccl bench meeting hang demo report)
set -u
out=${1:?a folder for what is measured} programs=${2:-out/bin}
shapes=${SHAPES:-qwen3-8b qwen3.6-27b} steps=${STEPS:-golden nccl bench meeting hang demo report}
mkdir -p "$out" && out=$(realpath "$out") || exit 1
cd "$(dirname "$0")/../.." || exit 1

gpus=$(nvidia-smi --list-gpus | wc -l)
ranks=()
for count in 1 2 4 8; do
    [[ $count -le $gpus ]] && ranks+=("$count")
done
most=${ranks[-1]:-0}
[[ $most -gt 0 ]] || { echo "no GPU is here"; exit 1; }
echo "$gpus GPUs: ranks ${ranks[*]}"
failed=()

# step NAME SECONDS COMMAND...: runs it, keeps what it says, shows the end of that, and notes whether it failed.
step() {
    local name=$1 limit=$2 begin=$SECONDS status
    shift 2
    timeout -k 5 "$limit" "$@" >"$out/$name.txt" 2>&1 </dev/null
    status=$?
    [[ $status -eq 0 ]] || failed+=("$name")
    echo "== $name: status $status, $((SECONDS - begin)) s"
    tail -n "${SHOWN:-12}" "$out/$name.txt"
}

wants() {
    [[ " $steps " == *" $1 "* ]]
}

devices=cuda:$(seq -s, 0 $((most - 1)))
wants golden && CLEANSLATE_BACKEND=$devices step golden 90 "$programs/tests/engine/test_golden"
wants nccl && CLEANSLATE_PEERS=0 CLEANSLATE_BACKEND=$devices step golden-nccl 90 "$programs/tests/engine/test_golden"

for shape in $shapes; do
    for count in "${ranks[@]}"; do
        wants bench && SHOWN=40 step "$shape-tp$count" 150 "$programs/collect" bench --shape "$shape" --tp "$count" \
            --device cuda --budgets 16,64 --context 512 --rounds "${ROUNDS:-16}" --json "$out/$shape-tp$count.json"
    done
done

wants meeting && step meeting 90 "$programs/tests/gpu/test_meeting"
wants meeting && SHOWN=40 step meeting-bench 60 "$programs/tests/gpu/test_meeting" bench
wants hang && step hang 120 "$programs/tests/gpu/test_lost_gpu"

# The demo plan. It is killed when its third attempt has begun, and given again.
make_plan() {
    local list
    list=$(IFS=,; echo "${ranks[*]}")
    sed -e 's/"name": "demo"/"name": "demo-scaling"/' \
        -e 's/"title": ".*",/"title": "The demo model on one and more GPUs",/' \
        -e 's/"device": "auto"/"device": "cuda"/' \
        -e "s/\"tensor_parallel\": \[1\]/\"tensor_parallel\": [$list]/" \
        -e 's/"budgets": \[[0-9, ]*\]/"budgets": [16, 64]/' -e 's/"blocks": 6/"blocks": 3/' \
        -e 's/"comparisons": .*\], "alpha"/"comparisons": [["b16", "auto"]], "alpha"/' data/plans/demo.json
}

run_killed() {
    "$programs/collect" run --plan "$out/plan.json" --runs "$out/runs" &
    local run=$! count=0
    for ((i = 0; i < 600 && count < 3; i++)); do
        sleep 0.1
        count=$(find "$out/runs" -path '*/attempts/*' -name '*.jsonl' 2>/dev/null | wc -l)
    done
    kill -KILL "$run"
    wait "$run"
    "$programs/collect" status "$out/runs/demo-scaling" | grep INCOMPLETE || { echo "no attempt was cut off"; return 1; }
}

if wants demo; then
    make_plan >"$out/plan.json"
    export programs out
    export -f run_killed
    step demo-killed 90 bash -c run_killed
    step demo 150 "$programs/collect" run --plan "$out/plan.json" --runs "$out/runs"
    step demo-status 20 "$programs/collect" status "$out/runs/demo-scaling" --verify
fi
if wants report; then
    step analyze 60 "$programs/analyze" "$out/runs/demo-scaling" --out "$out/summary.json"
    step render 120 "$programs/render" "$out/summary.json" --out "$out/report"
fi

echo "in $SECONDS s; failed: ${failed[*]:-none}"
[[ ${#failed[@]} -eq 0 ]]
