#pragma once
// What an importer has made is a trace that a file can hold. Texts are compared: bytes that are no UTF-8 are written as
// words for them.

#include "sim/io/input_error.h"
#include "traces/trace_file.h"

namespace plimsoll {

inline void must_read_again(const Trace& trace) {
  try {
    const std::string text = trace_text(trace);
    if (trace_text(parse_trace(text, "again")) == text) return;
  } catch (const InputError&) {
  }
  __builtin_trap();
}

}  // namespace plimsoll
