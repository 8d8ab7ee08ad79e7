#pragma once
// Devices that send and receive in an order that is given, one after the other, as a communicator's stream does: a
// receive that stands early holds up all behind it until its value has come. What is sent goes into a buffer: it does
// not wait for the receiver.

#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "sim/core/partition.h"

namespace plimsoll {

class ExchangeOrder {
 public:
  explicit ExchangeOrder(const Partition&);

  /// Whether all that stands before it in the sender's order has been sent or received. Always where the partition has
  /// no order, or does not name it.
  bool may_send(PartId from, PartId to, std::uint32_t micro_batch);
  /// A step sends such a value: the steps that it waits for.
  std::vector<StepId> send(PartId from, PartId to, std::uint32_t micro_batch, TensorId, StepId);

  /// The same of the receiver, of what has been sent.
  bool may_receive(PartId to, std::uint32_t micro_batch, TensorId);
  /// What the receiver's next compute waits for.
  std::vector<StepId> receive(PartId to, std::uint32_t micro_batch, TensorId);

 private:
  using Key = std::tuple<PartId, PartId, std::uint32_t>;
  struct Device {
    std::size_t at = 0;          ///< the next exchange
    std::vector<StepId> before;  ///< what the next one that is sent waits for
    std::vector<StepId> come;    ///< since the device's compute has waited last
  };

  static Key key(const PartExchange& exchange) { return {exchange.from, exchange.to, exchange.micro_batch}; }
  std::size_t device(PartId part) const { return partition_.parts[part.index].device.index; }
  bool is_past(std::size_t device, const Key&);

  const Partition& partition_;
  std::map<Key, std::pair<std::size_t, std::size_t>> places_;          // in the sender's order, in the receiver's
  std::map<Key, std::vector<StepId>> sent_;                            // so far
  std::map<std::tuple<PartId, std::uint32_t, TensorId>, Key> values_;  // by receiver: of which exchange
  std::vector<Device> devices_;
};

}  // namespace plimsoll
