#!/usr/bin/env bash
# Every header compiles alone. Usage: headers_alone.sh SOURCE_DIR COMPILER
set -euo pipefail
cd "$1"
compiler=$2
export compiler
compile() {
  # -include instead of a wrapper file: the header is the first thing that is read.
  "$compiler" -std=c++20 -fsyntax-only -I. -DPLIMSOLL_VERSION='"0"' -DPLIMSOLL_SOURCE_DIR='"."' -Wall -Wextra -Werror \
    -Wno-missing-field-initializers -include "$1" -x c++ /dev/null || { echo "$1 does not compile alone"; exit 1; }
}
export -f compile
headers=$(find sim traces platforms strategies validate experiments -name '*.h' | sort)
echo "$headers" | xargs -P 2 -I{} bash -c 'compile {}'
echo "$(echo "$headers" | wc -l) headers compile alone"
