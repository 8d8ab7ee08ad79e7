#include "tests/fuzz/fuzz_reader.h"
#include "traces/imports/onnx/onnx_graph.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return plimsoll::try_reading(data, size, [](const std::string& bytes) {
    plimsoll::ImportNumbers batch({"batch=2"});
    plimsoll::parse_onnx(bytes, "fuzz", batch);
  });
}
