#include "tests/fuzz/fuzz_reader.h"
#include "tests/fuzz/same_trace.h"
#include "traces/imports/chakra/chakra_graph.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return plimsoll::try_reading(data, size, [](const std::string& bytes) {
    const plimsoll::Trace trace{plimsoll::parse_chakra_graph(bytes, "fuzz")};
    plimsoll::must_read_again(trace);
  });
}
