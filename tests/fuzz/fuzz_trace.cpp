#include "tests/fuzz/fuzz_reader.h"
#include "tests/fuzz/same_trace.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return plimsoll::try_reading(data, size, [](std::string text) {
    const plimsoll::Trace trace = plimsoll::parse_trace(std::move(text), "fuzz");
    plimsoll::must_read_again(trace);
  });
}
