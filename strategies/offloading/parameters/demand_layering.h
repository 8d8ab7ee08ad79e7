#pragma once
// Parameters that live on the host or on a disk and are on the device only around their uses: each is copied there
// ahead of an op that reads it and dropped after it.

#include <cstdint>
#include <vector>

#include "sim/core/tape.h"
#include "sim/model/problem.h"

namespace plimsoll {

struct StreamedParameters {
  std::vector<TensorId> parameters;  ///< others stay where they are
  std::uint32_t lead = 1;            ///< computes between the one after which the copy may begin and the one that reads
  bool from_disk = false;            ///< by way of the host, which reads as many computes ahead of the copy
};

/// The tape with these parameters streamed. One that is read again within the lead stays till then.
Tape with_streamed_parameters(const Problem&, Tape, const StreamedParameters&);

/// All parameters that some op of the tape reads, each storage once, in the order of their first use.
std::vector<TensorId> parameters_read(const Problem&, const Tape&);

}  // namespace plimsoll
