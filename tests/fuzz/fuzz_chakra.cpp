#include "tests/fuzz/fuzz_reader.h"
#include "traces/imports/chakra/chakra_graph.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return plimsoll::try_reading(data, size,
                               [](const std::string& bytes) { plimsoll::parse_chakra_graph(bytes, "fuzz"); });
}
