#!/usr/bin/env bash
# pack.sh BUILD ARCHIVE.tar.xz: program and GPU tests with everything that they need but a driver, CUDA's libraries and, for
# the exporter, Python with PyTorch. Called by ./dev pack-gpu.
set -euo pipefail
build=$1 archive=$2
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
most=$((40 * 1000 * 1000))
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/plimsoll-gpu
mkdir -p "$root"/{bin,lib}

programs=(plimsoll test_cuda)
files=()
for program in "${programs[@]}"; do
  file=$build/$program
  [ -x "$file" ] || file=$build/tests/$program
  strip -o "$root/bin/$program" "$file"
  files+=("$file")
  cp "$source/validate/gpu_pack/start.sh" "$root/$program"
done
for library in "$build"/libplimsoll_*.so; do # what the program loads when it first needs it
  [ "$(basename "$library")" != libplimsoll_mpi.so ] || continue
  strip --strip-unneeded -o "$root/lib/$(basename "$library")" "$library"
  files+=("$library")
done
"$source/cmake/copy_libraries.sh" "$root/lib" "${files[@]}"

"$source/validate/gpu_pack/copy_sources.sh" "$source" "$root"

mkdir -p "$(dirname "$archive")"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner -cf - plimsoll-gpu | xz -6 -T1 >"$archive"
size=$(stat -c %s "$archive")
echo "$archive: $size bytes"
if [ "$size" -gt "$most" ]; then
  echo "pack.sh: the archive is larger than $most bytes" >&2
  exit 1
fi
