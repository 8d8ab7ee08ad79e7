#!/usr/bin/env bash
# bundle.sh BUILD ARCHIVE.tar.gz: what cmake --install installs, with every library that it needs, to unpack into any folder
# of any Linux of this kind of processor. Without MPI, of which a cluster has its own, and without the Python module, since
# Python brings a C library that may be older.
set -euo pipefail
build=$1 archive=$2
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/$(basename "$archive" .tar.gz)

cmake --install "$build" --prefix "$root" >/dev/null
rm -f "$root/lib/plimsoll/libplimsoll_mpi.so" "$root"/lib/plimsoll/libplimsoll_*.a "$root"/lib/python*/*/plimsoll/_core.*.so
rm -rf "$root/include" "$root/lib/cmake"
"$source/cmake/copy_libraries.sh" "$root/lib/plimsoll" "$root/bin/plimsoll" "$root"/lib/plimsoll/libplimsoll_*.so
mv "$root/bin/plimsoll" "$root/lib/plimsoll/plimsoll"
strip "$root/lib/plimsoll/plimsoll" "$root"/lib/plimsoll/libplimsoll_*.so
cp "$source/cmake/start.sh" "$root/bin/plimsoll"
mkdir -p "$(dirname "$archive")"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner -czf "$archive" "$(basename "$root")"
echo "$archive: $(stat -c %s "$archive") bytes"
