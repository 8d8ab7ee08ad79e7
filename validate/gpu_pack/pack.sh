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

list_libraries() { # FILE: "NAME => FILE (ADDRESS)" of each library, and the loader's own line; one that is missing ends this
  if ldd "$1" | grep 'not found' >&2; then exit 1; fi
  ldd "$1" | awk '$2 == "=>" {print $3} $1 ~ /^\// {print $1}' >>"$work/libraries"
}

programs=(plimsoll test_cuda)
for program in "${programs[@]}"; do
  file=$build/$program
  [ -x "$file" ] || file=$build/tests/$program
  strip -o "$root/bin/$program" "$file"
  list_libraries "$file"
  cp "$source/validate/gpu_pack/start.sh" "$root/$program"
done
for library in "$build"/libplimsoll_*.so; do # what the program loads when it first needs it
  echo "$library" >>"$work/libraries"
  list_libraries "$library"
done
# The C library's parts that programs of another machine may be linked with: the driver and CUDA's libraries.
libc=$(awk '/\/libc\.so\.6$/ {print; exit}' "$work/libraries")
for part in libdl.so.2 libpthread.so.0 librt.so.1 libutil.so.1 libm.so.6 libresolv.so.2 libnss_files.so.2; do
  [ -e "$(dirname "$libc")/$part" ] && echo "$(dirname "$libc")/$part" >>"$work/libraries"
done
sort -u "$work/libraries" | while read -r library; do
  cp -L "$library" "$root/lib/$(basename "$library")"
  strip --strip-unneeded "$root/lib/$(basename "$library")" 2>/dev/null || true
done

"$source/validate/gpu_pack/copy_sources.sh" "$source" "$root"

mkdir -p "$(dirname "$archive")"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner -cf - plimsoll-gpu | xz -6 -T1 >"$archive"
size=$(stat -c %s "$archive")
echo "$archive: $size bytes"
if [ "$size" -gt "$most" ]; then
  echo "pack.sh: the archive is larger than $most bytes" >&2
  exit 1
fi
