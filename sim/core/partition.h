#pragma once
// Which part of the graph runs on which device, and in which order a device works on (part, micro-batch, piece).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/graph.h"
#include "sim/core/ids.h"
#include "sim/core/updates.h"

namespace plimsoll {

/// What a piece of a tape does; every tape begins with its forward piece. Of one that is cut, others follow in this
/// order as far as it has them.
enum class PieceName : std::uint8_t {
  forward,
  backward,  ///< all of the backward or, where it is split, what the part before waits for
  weights,   ///< the weight gradients
  leave,     ///< between forward and backward, for some micro-batches: what they keep leaves the device
  arrive,    ///< between forward and backward: what left comes back
};
inline constexpr std::size_t piece_names = 5;
constexpr std::uint32_t number_of(PieceName name) {
  return static_cast<std::uint32_t>(name);
}

/// What an op of one part makes and ops of another one read, where parts are of a graph: sent right behind its maker,
/// received right before its first reader. Those of a chain follow from its stages.
struct Crossing {
  OpId op;  ///< of the part at hand: the maker or the reader
  TensorId tensor;
  PartId peer;  ///< the other part
};

/// Parts with the same ops are copies of each other, on different devices: each micro-batch goes through one of them,
/// each has its own parameters and updates them with the gradients of all.
struct Part {
  std::vector<OpId> ops;  ///< in a valid order, updates excluded
  DeviceId device;
  bool cut_before_backward = false;       ///< its tape is cut there, also where it holds the loss and need not wait
  bool cut_before_weights = false;        ///< of a split backward: weight gradients are a piece of their own
  std::optional<MemoryId> waits_at = {};  ///< where what a micro-batch keeps for its backward is from its turn `leave`
                                          ///< to its turn `arrive`, if the order gives it these
  std::vector<Crossing> sends = {}, receives = {};  ///< in the order of `ops`
};

/// One piece of a part's tape for one micro-batch.
struct Turn {
  PartId part;
  std::uint32_t micro_batch = 0;
  std::uint32_t piece = number_of(PieceName::forward);
};

/// What one part sends another, of one micro-batch, where an order says when.
struct PartExchange {
  PartId from, to;
  std::uint32_t micro_batch = 0;
  std::optional<Turn> behind = {};  ///< of the device's turns: the last one that stands before it

  bool is_of(PartId sender, PartId receiver, std::uint32_t number) const {
    return from == sender && to == receiver && micro_batch == number;
  }
};

struct Partition {
  std::vector<Part> parts;
  std::vector<std::vector<Turn>> order;  ///< by device
  std::string note = {};                 ///< how the order was found, where a search says more than its name
  Updates updates = {};                  ///< of each part, where it has made the gradients of the micro-batches of one
  Bytes bucket = {};  ///< of gradients of parts with copies: those that become complete one after the other are summed
                      ///< together as soon as they have so many bytes; 0: each alone
  std::vector<std::vector<PartExchange>> exchanges =
      {};                            ///< by device, in the order in which it sends and receives, one
                                     ///< after the other; empty: as they come, each way by itself
  bool sends_block = false;          ///< a device computes on when what it has sent has arrived
  bool each_updates_shared = false;  ///< of different parts that share a parameter each has its states and updates it
                                     ///< with the sum of all gradients; else the first one does, and hands it out
};

/// The whole graph on the platform's first device, micro-batches one after the other.
Partition one_device(const Graph&, std::uint32_t micro_batches, std::size_t devices);

}  // namespace plimsoll
