#!/usr/bin/env bash
# copy_libraries.sh FOLDER FILE...: every library that these programs and libraries need, stripped, with the C library, its
# loader, and the parts of it that libraries of another machine (a driver's) may be linked with.
set -euo pipefail
folder=$1
shift
needed=$(mktemp)
trap 'rm -f "$needed"' EXIT

for file in "$@"; do # "NAME => FILE (ADDRESS)" of each library, and the loader's own line; one that is missing ends this
  if ldd "$file" | grep 'not found' >&2; then exit 1; fi
  ldd "$file" | awk '$2 == "=>" {print $3} $1 ~ /^\// {print $1}' >>"$needed"
done
libc=$(awk '/\/libc\.so\.6$/ {print; exit}' "$needed")
for part in libdl.so.2 libpthread.so.0 librt.so.1 libutil.so.1 libm.so.6 libresolv.so.2 libnss_files.so.2; do
  [ ! -e "$(dirname "$libc")/$part" ] || echo "$(dirname "$libc")/$part" >>"$needed"
done
sort -u "$needed" | while read -r library; do
  cp -L "$library" "$folder/$(basename "$library")"
  strip --strip-unneeded "$folder/$(basename "$library")" 2>/dev/null || true
done
