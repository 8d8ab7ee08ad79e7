#!/usr/bin/env bash
# Every header compiles alone: those that a source of their name includes first have shown it when that was built, the
# others are compiled here. Usage: headers_alone.sh SOURCE_DIR COMPILER [CUDA_INCLUDE_DIR]; without the last, those of
# the CUDA backend are left out.
set -euo pipefail
cd "$1"
compiler=$2
cuda=${3:+-isystem $3}
export compiler cuda
compile() {
  # -include instead of a wrapper file: the header is the first thing that is read.
  # shellcheck disable=SC2086  # two words, or none
  "$compiler" -std=c++20 -fsyntax-only -I. $cuda -DPLIMSOLL_VERSION='"0"' -DPLIMSOLL_SOURCE_DIR='"."' -Wall -Wextra -Werror \
    -Wno-missing-field-initializers -include "$1" -x c++ /dev/null || { echo "$1 does not compile alone"; exit 1; }
}
export -f compile
shown_by_its_source() {
  [ -f "${1%.h}.cpp" ] && [ "$(grep -m1 '^#include' "${1%.h}.cpp")" = "#include \"$1\"" ]
}
headers=$(find sim traces platforms strategies validate experiments -name '*.h' | sort)
[ -n "$cuda" ] || headers=$(grep -v '^validate/cuda/' <<<"$headers")
others=$(while read -r header; do shown_by_its_source "$header" || echo "$header"; done <<<"$headers")
echo "$others" | xargs -P 2 -I{} bash -c 'compile {}'
echo "$(wc -l <<<"$headers") headers compile alone, $(wc -l <<<"$others") of them compiled here"
