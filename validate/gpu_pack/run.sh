#!/usr/bin/env bash
# Parts, each ended after eight minutes at the latest; everything that they find goes to one folder, which
# `plimsoll` reads wherever it was built.
#
#   ./run.sh [a] [b] [c] [d] [e] [-o DIR]     all where none is named; DIR is plimsoll-gpu-results where not given
#   ./run.sh --prepare [-o DIR]               what needs no measuring: loads everything once, and plans for PyTorch
#   ./run.sh --minutes M [--dry-run] [-o DIR] what teaches most a minute first, as much as M minutes hold
#
# DIR.tar.gz has all results, written anew behind each part: what is cut leaves those before.
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
most_bytes=${RESULTS_BYTES:-16000000} # of DIR.tar.gz
out=plimsoll-gpu-results
parts=()
minutes='' dry='' prepare=''
while [ $# -gt 0 ]; do
  case $1 in
    a | b | c | d | e) parts+=("$1") ;;
    -o) out=${2:?run.sh: -o needs a folder} && shift ;;
    --minutes)
      [[ ${2:-} =~ ^[1-9][0-9]{0,3}$ ]] || { echo "run.sh: --minutes: expected a whole number from 1 to 9999, found '${2:-}'" >&2 && exit 2; }
      minutes=$2 && shift
      ;;
    --dry-run) dry=yes ;;
    --prepare) prepare=yes ;;
    *) sed -n '2,18s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2 && exit 2 ;;
  esac
  shift
done
if [ -n "$minutes" ] && [ ${#parts[@]} -gt 0 ]; then echo "run.sh: --minutes chooses the parts itself" >&2 && exit 2; fi
if [ -n "$dry" ] && [ -z "$minutes" ]; then echo "run.sh: --dry-run goes with --minutes" >&2 && exit 2; fi
[ ${#parts[@]} -gt 0 ] || parts=(a b c d e)

now() { # seconds; KIT_CLOCK: a file that has them, for tests
  if [ -n "${KIT_CLOCK:-}" ]; then cat "$KIT_CLOCK"; else echo "$SECONDS"; fi
}

# What a loan of some minutes is for. seconds: as seen on an H100 with 16 cores; most: when it is stopped; least: with less
# it is not begun, since it leaves nothing; teaches: figures that nothing before it gives, weighed by hand.
#         name      seconds most least teaches
timetable="test            8   60    10      20
           calibrate       8   40    15      10
           kernels        32   45    20      38
           replays        87  150    30     100
           gpt2_small     60  130    70      60
           resnet50       60   90    60      40
           memcheck       12   60    15       8
           training       45   90    45      20
           gpt2_medium    90  130    90      30"
closing=10 # seconds kept for a step that does not end at once, and for packing

# The names, those first that teach most a second; of equal ones the shorter.
in_order() { awk '{ printf "%.6f %s %s %s %s\n", $5 / $2, $2, $1, $3, $4 }' <<<"$timetable" | sort -k1,1gr -k2,2n; }

if [ -n "$dry" ]; then
  left=$((60 * minutes))
  while read -r _ seconds name most least; do
    [ "$least" -le $((left - closing)) ] || { echo "$name: left out, needs $least s, $((left - closing)) are left" && continue; }
    most=$((most < left - closing ? most : left - closing))
    expected=$((seconds < most ? seconds : most))
    echo "$name: at $((60 * minutes - left)) s, about $expected s, at most $most s"
    left=$((left - expected))
  done < <(in_order)
  exit 0
fi
clock_began=$(now)

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

# pack_results: DIR.tar.gz, whole at any time. The largest files stay out where all are too large together.
pack_results() {
  local left_out=$out/left_out.txt names
  : >"$left_out"
  names=$(cd "$out" && find . -type f -printf '%s %p\n' | sort -rn | cut -d' ' -f2-)
  while :; do
    tar -C "$out" -czf "$out.tar.gz.new" -T - <<<"$names"
    [ "$(stat -c %s "$out.tar.gz.new")" -gt "$most_bytes" ] && [ "$(wc -l <<<"$names")" -gt 1 ] || break
    head -n 1 <<<"$names" >>"$left_out"
    names=$(tail -n +2 <<<"$names")
  done
  mv "$out.tar.gz.new" "$out.tar.gz"
}

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
  local name=$1 left=$((ends - $(now))) code=0
  [ "$2" -lt "$left" ] && left=$2
  shift 2
  if [ "$left" -lt 5 ]; then
    echo "$name: left out, the part's time is over" | tee -a "$folder/steps.txt"
    return
  fi
  local began
  began=$(now)
  timeout -s INT -k 5 "$left" "$@" </dev/null >"$folder/$name.txt" 2>&1 || code=$?
  case $code in
    0) ;;
    124 | 130 | 137) code="$code (stopped: its time was over)" ;;
  esac
  echo "$name: exit code $code, $(($(now) - began)) s" | tee -a "$folder/steps.txt"
}

sanitize() { # SECONDS TOOL...: by compute-sanitizer, where it is installed
  local most=$1 sanitizer tool
  shift
  for sanitizer in compute-sanitizer /usr/local/cuda/bin/compute-sanitizer; do
    command -v "$sanitizer" >/dev/null || continue
    for tool in "$@"; do
      step "$tool" "$most" "$sanitizer" --target-processes all --tool "$tool" "$here/test_cuda" "every k*"
    done
    break
  done
}

calibrate() {
  step calibrate "$1" "$here/plimsoll" calibrate "$here/validate/gpu_link.yaml" --backend cuda -o "$folder/this_gpu.yaml" \
    --trace gpt:layers=6,width=1024,heads=16,sequence=512,batch=8,vocabulary=1024,kernels=cuda --trace-out "$folder/gpt.json"
}

part_a() {
  step test_cuda 150 "$here/test_cuda"
  sanitize 110 memcheck racecheck
  calibrate 120
}

part_b() {
  local validate=("$here/plimsoll" validate "$here/validate/validate_gpu.yaml" --backend cuda)
  step validate_one 150 "${validate[@]}" --first 1 --rounds 3 -o "$folder/one"
  step validate_all 400 "${validate[@]}" --rounds 5 -o "$folder/all"
}

gpt=(--model gpt --layers 12 --width 768 --heads 12 --sequence 1024 --batch 8)

part_c() {
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

# The parts of --minutes. Their plans are those that --prepare made, or are made then by planners that take a second.
measured() { # MODEL SECONDS OPTION...
  local model=$1 most=$2
  shift 2
  step "plans_$model" "$most" "$python" "$here/validate/pytorch/measure.py" "$here/validate/pytorch/gpu_models.py:$model" --device cuda --program "$here/plimsoll" \
    --plans 2 --strategies "save_on_cpu,rotor|offload_greedy(chunks=1)" --rounds 5 --prepared "$out/prepared" -o "$folder/plans_$model" "$@"
}

part_test() { step test_cuda "$1" "$here/test_cuda" -d yes; }
part_calibrate() { calibrate "$1"; }
part_kernels() { step kernels "$1" "$python" "$here/validate/pytorch/measure_kernels.py" --device cuda --dtype bf16 --seconds 25 -o "$folder/kernels"; }
part_replays() { step replays "$1" "$here/plimsoll" validate "$here/validate/validate_gpu.yaml" --backend cuda --rounds 3 -o "$folder/replays"; }
part_gpt2_small() { measured gpt2_small "$1" --batch 8 --amp bf16; }
part_resnet50() { measured resnet50 "$1" --batch 64; }
part_gpt2_medium() { measured gpt2_medium "$1" --batch 8 --amp bf16; }
part_memcheck() { sanitize "$1" memcheck; }
part_training() {
  step train_gpt2_bf16 "$1" "$python" "$here/traces/measure_training.py" --device cuda "${gpt[@]}" --dtype bf16 -o "$folder/gpt2_bf16.training.json"
}

run_part() { # NAME SECONDS
  folder=$out/$1
  mkdir -p "$folder"
  : >"$folder/steps.txt"
  echo "== part $1, at most $2 s"
  ends=$(($(now) + $2))
  watch_clocks "$folder"
  "part_$1" "$2"
  stop_watching
  pack_results
}

if [ -n "$prepare" ]; then
  folder=$out/prepared
  mkdir -p "$folder"
  : >"$folder/steps.txt"
  ends=$(($(now) + 3600))
  for model in "gpt2_small --batch 8 --amp bf16" "resnet50 --batch 64" "gpt2_medium --batch 8 --amp bf16"; do
    read -r -a words <<<"$model"
    step "plan_${words[0]}" 900 "$python" "$here/validate/pytorch/measure.py" "$here/validate/pytorch/gpu_models.py:${words[0]}" --device cuda --program "$here/plimsoll" \
      --plans 2 --strategies "save_on_cpu,rotor|offload_greedy(chunks=1)" --rounds 5 --prepare -o "$folder" "${words[@]:1}"
  done
  exit 0
fi

if [ -n "$minutes" ]; then
  over=$((clock_began + 60 * minutes - closing))
  while read -r _ _ name most least; do
    left=$((over - $(now)))
    if [ "$left" -lt "$least" ]; then
      echo "$name: left out, needs $least s, $left are left" | tee -a "$out/left_out_parts.txt"
      continue
    fi
    run_part "$name" "$((most < left ? most : left))"
  done < <(in_order)
else
  for part in "${parts[@]}"; do run_part "$part" "$limit"; done
fi
echo "results are in $out and $out.tar.gz"
