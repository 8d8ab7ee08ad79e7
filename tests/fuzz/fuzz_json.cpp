#include <cstdio>

#include "tests/fuzz/same_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::optional<std::string> found =
      plimsoll::json_disagreement(std::string(reinterpret_cast<const char*>(data), size));
  if (!found) return 0;
  std::fprintf(stderr, "%s\n", found->c_str());
  __builtin_trap();
}
