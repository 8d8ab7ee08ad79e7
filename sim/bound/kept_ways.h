#pragma once
// In which ways a value may be there at an instant, for the ops that read it later: as it is, as a ReLU's signs, or
// packed, with what each takes in bytes, seconds and error (sim/bound/README.md).

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/bound/snapshot_model.h"

namespace plimsoll {

struct KeptWay {
  Bytes bytes;
  Seconds pack, unpack;             ///< each at least once
  double square = 0;                ///< what it adds at least to the squared error of all gradients
  double likely = 0;                ///< the same where all that read it read it after the instant
  std::optional<Codec> codec = {};  ///< of what is not read as signs; nothing: as it is, or by signs alone
  bool signs = false;               ///< beside, for those that can do with them
};

/// Of a value at an instant. Forwards read values as they are, and so do not add to these.
struct KeptValue {
  std::vector<KeptWay> ways;   ///< for the backward ops that it is kept for, the first: as it is
  bool is_read_after = false;  ///< some op after the instant reads it: then the ways are for all such ops
  bool forward_after = false;  ///< one of these is a forward: it is kept as it is
};

struct KeptWays {
  std::vector<KeptValue> values;  ///< by value of the model
  bool errors_add_up = true;      ///< no schedule's squared error is less than the sum of these squares
};

/// With codecs that lose something, and, if `signs`, with a bit for each value of what ReLUs read. Packing runs on the
/// device's stream of kernels.
KeptWays kept_ways(const SnapshotModel&, const Instant&, DeviceId, std::span<const Codec> codecs);

}  // namespace plimsoll
