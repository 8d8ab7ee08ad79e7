// What a profiler is told of a step, by a profiler of our own.

#include "validate/cuda/step_range.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#ifdef PLIMSOLL_HAS_NVTX

namespace plimsoll {
namespace {

std::vector<std::string>& told() {
  static std::vector<std::string> all;
  return all;
}

int push(const char* name) {
  told().emplace_back(name);
  return 0;
}
int pop() {
  told().emplace_back("end");
  return 0;
}

int listen(NvtxGetExportTableFunc_t table_of) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(table_of(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned int count = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, &count) == 0) return 0;
  *functions[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(push);
  *functions[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}

/// NVTX asks when it is first used, whichever test that is in.
const bool listening = [] {
  InitializeInjectionNvtx2_fnptr = listen;
  return true;
}();

TEST_CASE("a step's range begins with its name and ends with it", "[fake_cuda]") {
  REQUIRE(listening);
  told().clear();
  {
    const StepRange step("step 3 ('layer0')");
    CHECK(told() == std::vector<std::string>{"step 3 ('layer0')"});
  }
  CHECK(told().back() == "end");
}

}  // namespace
}  // namespace plimsoll

#endif
