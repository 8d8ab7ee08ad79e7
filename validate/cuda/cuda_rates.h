#pragma once
// What a GPU does with its host behind its link: rates for a platform file, measured with events.

#include "validate/backend.h"
#include "validate/cuda/cuda_machine.h"

namespace plimsoll {

/// Of GPU 0. `proceed` is asked between measurements; where it says no, nothing is returned.
std::optional<MachineRates> measure_gpu(CudaMachine&, const Libraries&, std::size_t repetitions, const Proceed&);

}  // namespace plimsoll
