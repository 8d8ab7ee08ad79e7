#pragma once
// What an importer has made is a trace that a file can hold.

#include "sim/io/input_error.h"
#include "traces/trace_file.h"

namespace plimsoll {

inline void must_read_again(const Trace& trace) {
  try {
    if (parse_trace(trace_text(trace), "again") == trace) return;
  } catch (const InputError&) {
  }
  __builtin_trap();
}

}  // namespace plimsoll
