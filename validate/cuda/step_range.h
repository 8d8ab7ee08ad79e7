#pragma once
// A range of NVTX while this lives: profilers show which step issued what. Nothing where the toolkit has no NVTX, next
// to nothing where no profiler listens.

#include <string>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define PLIMSOLL_HAS_NVTX 1
#endif

namespace plimsoll {

class StepRange {
 public:
#ifdef PLIMSOLL_HAS_NVTX
  explicit StepRange(const std::string& name) {
    nvtxRangePushA(name.c_str());
  }
  ~StepRange() {
    nvtxRangePop();
  }
#else
  explicit StepRange(const std::string&) {}
#endif
  StepRange(const StepRange&) = delete;
  StepRange& operator=(const StepRange&) = delete;
};

}  // namespace plimsoll
