#!/bin/sh
# Starts the program of this name in bin/ with the libraries that came with it, the C library and its loader among them.
# The driver's and CUDA's own libraries are this machine's.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
name=$(basename -- "$0")
path=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
for folder in /usr/lib64 /usr/lib/x86_64-linux-gnu /usr/local/nvidia/lib64 /usr/lib/wsl/lib; do
  [ -e "$folder/libcuda.so.1" ] && path=$path:$folder
done
export PLIMSOLL_DATA="$here"
exec "$here/lib/ld-linux-x86-64.so.2" --argv0 "$name" --library-path "$path" "$here/bin/$name" "$@"
