#pragma once
// What a GPU does with its host behind its link: rates for a platform file, measured with events.

#include "validate/backend.h"
#include "validate/cuda/cuda_machine.h"

namespace plimsoll {

/// How much is measured with: enough to keep a GPU busy for some tenths of a millisecond.
struct ProbeSizes {
  Bytes copied{64 << 20}, lead{4 << 20};
  std::int64_t product = 2048;                            ///< rows of the kernel beside copies
  std::int64_t peak_product = 4096, half_product = 8192;  ///< rows for the peaks, in 32 and in 16 bits
  std::int64_t parameters = 1 << 24;
  std::int64_t summed = 1 << 25;
  std::size_t blocks = 12;  ///< that copies go through, more together than a host's cache
  std::size_t host_parameters = 1 << 24;
};

/// Of GPU 0. `proceed` is asked between measurements; where it says no, nothing is returned.
std::optional<MachineRates> measure_gpu(CudaMachine&, const Libraries&, const ProbeSizes&, std::size_t repetitions,
                                        const Proceed&);

}  // namespace plimsoll
