#!/bin/sh
# Starts the program with the libraries that came with it, the C library and its loader among them: any Linux will do.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "$0")")/.." && pwd)
export PLIMSOLL_DATA="${PLIMSOLL_DATA:-$here/share/plimsoll}" PLIMSOLL_STARTED_AS="$here/bin/plimsoll"
for loader in "$here"/lib/plimsoll/ld-linux*.so.*; do
  exec "$loader" --argv0 plimsoll --library-path "$here/lib/plimsoll" "$here/lib/plimsoll/plimsoll" "$@"
done
