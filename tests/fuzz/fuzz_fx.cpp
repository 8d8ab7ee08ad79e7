#include "tests/fuzz/fuzz_reader.h"
#include "traces/imports/pytorch/fx_graph.h"
#include "traces/trace_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return plimsoll::try_reading(data, size, [](std::string text) {
    const plimsoll::Trace trace{plimsoll::parse_fx_graph(text, "fuzz")};
    if (plimsoll::parse_trace(plimsoll::trace_text(trace), "again") != trace) __builtin_trap();
  });
}
