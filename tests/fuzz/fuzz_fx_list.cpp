#include "tests/fuzz/fuzz_reader.h"
#include "traces/imports/pytorch/fx_graph.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return plimsoll::try_reading(data, size, [](const std::string& text) {
    plimsoll::ImportNumbers layers({"layers=3"});
    plimsoll::parse_fx_list(text, "fuzz", layers);
  });
}
