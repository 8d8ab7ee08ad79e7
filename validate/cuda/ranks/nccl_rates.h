#pragma once
// How long NCCL takes between this machine's GPUs.

#include "sim/core/schedule.h"
#include "validate/cuda/cuda_machine.h"
#include "validate/cuda/ranks/communicators.h"
#include "validate/measured_rates.h"

namespace plimsoll {

/// Seconds of an all_reduce, reduce_scatter or all_gather in place, between GPUs 0 to ranks - 1, of a value of so many
/// bytes, a multiple of 4 bytes a rank: several in a row between two events of GPU 0. Throws CudaError.
MeasuredRate nccl_exchange_seconds(CudaMachine&, Communicators&, CollectiveKind, std::uint32_t ranks, Bytes,
                                   std::size_t repetitions);

}  // namespace plimsoll
