#include "sim/io/schedule/schedule_file.h"
#include "tests/fuzz/fuzz_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return plimsoll::try_reading(data, size, [](std::string text) { plimsoll::parse_schedule(std::move(text), "fuzz"); });
}
