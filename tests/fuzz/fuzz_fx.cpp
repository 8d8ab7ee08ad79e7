#include "tests/fuzz/fuzz_reader.h"
#include "tests/fuzz/same_trace.h"
#include "traces/imports/pytorch/fx_graph.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return plimsoll::try_reading(data, size, [](std::string text) {
    plimsoll::ImportNumbers none;
    const plimsoll::Trace trace{plimsoll::parse_fx_graph(text, "fuzz", none)};
    plimsoll::must_read_again(trace);
  });
}
