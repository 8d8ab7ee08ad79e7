#!/usr/bin/env bash
# copy_sources.sh SOURCE ROOT: what the kit has beside programs and libraries: inputs, run.sh, and the Python part.
set -euo pipefail
source=$1 root=$2
mkdir -p "$root"/traces "$root"/validate/pytorch
cp "$source/validate/gpu_pack/run.sh" "$root/run.sh"
cp "$source"/validate/*.yaml "$root/validate/"
cp -r "$source/platforms" "$root/platforms"
cp -r "$source/traces/data" "$source/traces/export_pytorch.py" "$source/traces/measure_training.py" "$root/traces/"
(cd "$source" && cp --parents traces/python/plimsoll/*.py traces/python/plimsoll/*/*.{py,c} "$root/")
cp -P "$source/traces/plimsoll" "$root/traces/" # links to the package, beside the scripts that import it
cp "$source"/validate/pytorch/{measure,measure_kernels,models,gpu_models,beside_checkpoint}.py "$root/validate/pytorch/"
cp -P "$source/validate/pytorch/plimsoll" "$root/validate/pytorch/"
find "$root/platforms" -name '*.cpp' -delete -o -name '*.h' -delete
