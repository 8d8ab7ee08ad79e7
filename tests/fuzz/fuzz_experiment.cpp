#include "experiments/sweep/experiment_file.h"
#include "tests/fuzz/fuzz_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return plimsoll::try_reading(data, size, [](const std::string& text) { plimsoll::parse_experiment(text, "fuzz"); });
}
