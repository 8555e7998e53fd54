#!/usr/bin/env bash
# How the engine scales over this host's GPUs, in one go: golden outputs on as many ranks as there are GPUs, rounds at
# Qwen3-8B's shape and the demo plan at 1, 2, 4 and 8 ranks. Leaves tp1.json, tp2.json, ... and runs/demo-scaling in the
# folder OUT; the report is made of that by analyze and render.
#   tests/gpu/scaling.sh OUT [PROGRAMS]     PROGRAMS: out/bin
set -u
out=${1:?a folder for what is measured} programs=${2:-out/bin}
cd "$(dirname "$0")/../.." || exit 1
mkdir -p "$out"

gpus=$(nvidia-smi --list-gpus | wc -l)
ranks=()
for count in 1 2 4 8; do
    [[ $count -le $gpus ]] && ranks+=("$count")
done
echo "$gpus GPUs: ranks ${ranks[*]}"

CLEANSLATE_BACKEND=cuda:$(seq -s, 0 $((${ranks[-1]} - 1))) timeout 120 "$programs/tests/engine/test_golden" || exit 1

for count in "${ranks[@]}"; do
    timeout 120 "$programs/collect" bench --shape qwen3-8b --tp "$count" --device cuda --budgets 16,64 --context 512 \
        --rounds 16 --json "$out/tp$count.json" || exit 1
done

python3 - "$out/plan.json" "${ranks[@]}" <<'PLAN'
import json, sys
plan = json.load(open("data/plans/demo.json"))
plan.update(name="demo-scaling", title="The demo model on one and more GPUs", blocks=3, budgets=[16, 64],
            tensor_parallel=[int(count) for count in sys.argv[2:]])
plan["source"]["device"] = "cuda"
plan["headline"] = {"comparisons": [["b16", "auto"]], "alpha": 0.05}
json.dump(plan, open(sys.argv[1], "w"), indent=1)
PLAN
timeout 200 "$programs/collect" run --plan "$out/plan.json" --runs "$out/runs"
