#pragma once
// Which part of the graph runs on which device, and in which order a device works on (part, micro-batch, piece).

#include <cstdint>
#include <string>
#include <vector>

#include "sim/core/graph.h"
#include "sim/core/ids.h"
#include "sim/core/updates.h"

namespace plimsoll {

/// Parts with the same ops are copies of each other, on different devices: each micro-batch goes through one of them,
/// each has its own parameters and updates them with the gradients of all.
struct Part {
  std::vector<OpId> ops;  ///< in a valid order, updates excluded
  DeviceId device;
  bool cut_before_backward = false;  ///< its tape is cut there, also where it holds the loss and need not wait
  bool cut_before_weights = false;   ///< of a split backward: weight gradients are a piece of their own
};

/// One piece of a part's tape for one micro-batch. Pieces are numbered along the tape.
struct Turn {
  PartId part;
  std::uint32_t micro_batch = 0, piece = 0;
};

struct Partition {
  std::vector<Part> parts;
  std::vector<std::vector<Turn>> order;  ///< by device
  std::string note = {};                 ///< how the order was found, where a search says more than its name
  Updates updates = {};                  ///< of each part, where it has made the gradients of the micro-batches of one
};

/// The whole graph on the platform's first device, micro-batches one after the other.
Partition one_device(const Graph&, std::uint32_t micro_batches, std::size_t devices);

}  // namespace plimsoll
