#!/usr/bin/env bash
# Parts, each ended after eight minutes at the latest; everything that they find goes to one folder, which
# `plimsoll` reads wherever it was built.
#
#   ./run.sh [a] [b] [c] [d] [e] [-o DIR]     all where none is named; DIR is plimsoll-gpu-results where not given
#
#   a  tests of the CUDA backend, compute-sanitizer where it is installed, calibration
#   b  validation with few rounds: one network first, then all
#   c  the trace exporter on GPT-2 small (fp32, bf16) and ResNet-50, and their training: plain, checkpointed, offloaded
#   d  plans run by PyTorch against their predictions: GPT-2 small and medium by bf16 autocast, ResNet-50
#   e  the same: a Llama-like stack by bf16 autocast, an LSTM, a U-Net
#
# PYTHON names a python3 that has PyTorch (parts c to e); PART_SECONDS another limit.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}
limit=${PART_SECONDS:-470}
out=plimsoll-gpu-results
parts=()
while [ $# -gt 0 ]; do
  case $1 in
    a | b | c | d | e) parts+=("$1") ;;
    -o) out=${2:?run.sh: -o needs a folder} && shift ;;
    *) sed -n '2,14s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2 && exit 2 ;;
  esac
  shift
done
[ ${#parts[@]} -gt 0 ] || parts=(a b c d e)

# PyTorch's packages may be the only ones here that have CUDA's libraries.
if command -v "$python" >/dev/null; then
  found=$("$python" -c 'import glob, os, sys
print(":".join(d for p in sys.path for d in sorted(glob.glob(os.path.join(p, "nvidia", "*", "lib")))))' || true)
  export PLIMSOLL_CUDA_LIBRARIES=${PLIMSOLL_CUDA_LIBRARIES:+$PLIMSOLL_CUDA_LIBRARIES:}$found
fi

# The program's own word decides: it needs a GPU and a driver that its runtime gets on with, and says 77 without one. Other
# codes below 126 are the number of tests that are listed.
code=0
why=$("$here/test_cuda" --list-tests 2>&1) || code=$?
if [ "$code" -eq 77 ] || [ "$code" -ge 126 ]; then
  printf 'run.sh: this machine has no GPU that can be used, nothing was run:\n%s\n' "$why" >&2
  exit 1
fi
mkdir -p "$out"
out=$(cd "$out" && pwd)

watcher=
stop_watching() {
  [ -z "$watcher" ] || kill "$watcher" 2>/dev/null || true
  watcher=
}
trap stop_watching EXIT

watch_clocks() { # FOLDER: power, clocks and temperature while the part runs
  command -v nvidia-smi >/dev/null || { echo "no nvidia-smi: clocks are not recorded" >"$1/clocks.csv"; return; }
  nvidia-smi --query-gpu=timestamp,name,driver_version,clocks.sm,clocks.mem,power.draw,temperature.gpu,utilization.gpu \
    --format=csv -lms 500 >"$1/clocks.csv" 2>&1 &
  watcher=$!
}

# step NAME MOST COMMAND...: runs it for at most MOST seconds and what is left of the part. Ctrl-C is how plimsoll is asked
# to keep what is finished. What it says is kept, and how it ended; the part goes on either way.
step() {
  local name=$1 left=$((ends - SECONDS)) code=0
  [ "$2" -lt "$left" ] && left=$2
  shift 2
  if [ "$left" -lt 5 ]; then
    echo "$name: left out, the part's time is over" | tee -a "$folder/steps.txt"
    return
  fi
  local began=$SECONDS
  timeout -s INT -k 10 "$left" "$@" >"$folder/$name.txt" 2>&1 || code=$?
  case $code in
    0) ;;
    124 | 130 | 137) code="$code (stopped: its time was over)" ;;
  esac
  echo "$name: exit code $code, $((SECONDS - began)) s" | tee -a "$folder/steps.txt"
}

part_a() {
  step test_cuda 150 "$here/test_cuda"
  local sanitizer
  for sanitizer in compute-sanitizer /usr/local/cuda/bin/compute-sanitizer; do
    command -v "$sanitizer" >/dev/null || continue
    for tool in memcheck racecheck; do
      step "$tool" 110 "$sanitizer" --target-processes all --tool "$tool" "$here/test_cuda" "every k*"
    done
    break
  done
  step calibrate 120 "$here/plimsoll" calibrate "$here/validate/gpu_link.yaml" --backend cuda -o "$folder/this_gpu.yaml" \
    --trace gpt:layers=6,width=1024,heads=16,sequence=512,batch=8,vocabulary=1024,kernels=cuda --trace-out "$folder/gpt.json"
}

part_b() {
  local validate=("$here/plimsoll" validate "$here/validate/validate_gpu.yaml" --backend cuda)
  step validate_one 150 "${validate[@]}" --first 1 --rounds 3 -o "$folder/one"
  step validate_all 400 "${validate[@]}" --rounds 5 -o "$folder/all"
}

part_c() {
  local gpt=(--model gpt --layers 12 --width 768 --heads 12 --sequence 1024 --batch 8)
  local export=("$python" "$here/traces/export_pytorch.py" --device cuda --repetitions 5)
  local train=("$python" "$here/traces/measure_training.py" --device cuda)
  step export_gpt2_fp32 100 "${export[@]}" "${gpt[@]}" -o "$folder/gpt2_fp32.json"
  step train_gpt2_fp32 60 "${train[@]}" "${gpt[@]}" -o "$folder/gpt2_fp32.training.json"
  step export_resnet50 100 "${export[@]}" --model resnet50 --batch 64 -o "$folder/resnet50.json"
  step train_resnet50 60 "${train[@]}" --model resnet50 --batch 64 -o "$folder/resnet50.training.json"
  step export_gpt2_bf16 100 "${export[@]}" "${gpt[@]}" --dtype bf16 -o "$folder/gpt2_bf16.json"
  step train_gpt2_bf16 60 "${train[@]}" "${gpt[@]}" --dtype bf16 -o "$folder/gpt2_bf16.training.json"
}

# plans MODEL SECONDS OPTION...: predictions against PyTorch; `plimsoll compare --pytorch` reads plans_MODEL/measurement.json
plans() {
  local model=$1 most=$2
  shift 2
  step "plans_$model" "$most" "$python" "$here/validate/pytorch/measure.py" "$here/validate/pytorch/gpu_models.py:$model" --device cuda --program "$here/plimsoll" \
    --plans 3 --strategies "save_on_cpu,rotor|offload_greedy(chunks=1),pofo(chunks=1)" --rounds 5 -o "$folder/plans_$model" "$@"
}

part_d() {
  plans gpt2_small 170 --batch 8 --amp bf16
  plans resnet50 150 --batch 64
  plans gpt2_medium 170 --batch 8 --amp bf16
}

part_e() {
  plans llama 170 --batch 4 --amp bf16
  plans unet 150 --batch 16
  plans lstm 150 --batch 64
}

for part in "${parts[@]}"; do
  folder=$out/$part
  mkdir -p "$folder"
  : >"$folder/steps.txt"
  echo "== part $part, at most $limit s"
  ends=$((SECONDS + limit))
  watch_clocks "$folder"
  "part_$part"
  stop_watching
done
echo "results are in $out"
