#pragma once
// When values arrive where a processor has one channel for all that it sends and receives, one transfer at a time.

#include <vector>

#include "strategies/placement/op_dag.h"

namespace plimsoll {

/// A transfer's sending begins when the value is made and the sender's channel is free, its receiving when the sending
/// has begun and the receiver's channel is free; each takes the time of the transfer. All that a node reads of one
/// maker is one transfer. A value is sent once to each processor.
class Channels {
 public:
  Channels(const OpDag&, const Machine&);

  /// When all that the node waits for would be on the processor, were it sent now.
  Nanoseconds arrival(std::uint32_t node, std::uint32_t processor, const std::vector<std::uint32_t>& on);
  /// Sends it there. Returns the values that came.
  std::vector<std::uint32_t> receive(std::uint32_t node, std::uint32_t processor, const std::vector<std::uint32_t>& on);
  void made(std::uint32_t node, Nanoseconds finish) { finish_[node] = finish; }

 private:
  struct There {
    std::uint32_t processor;
    Nanoseconds time;
  };
  struct Read {
    std::uint32_t maker, value;
  };

  const There* there(std::uint32_t value, std::uint32_t processor) const;
  Nanoseconds send_all(std::uint32_t node, std::uint32_t processor, const std::vector<std::uint32_t>& on,
                       std::vector<std::uint32_t>* came);

  const OpDag& dag_;
  const Machine& machine_;
  Rows<Read> reads_;                       // by node, by maker
  std::vector<Nanoseconds> finish_;        // by node
  std::vector<Nanoseconds> free_;          // by processor: its channel
  std::vector<std::vector<There>> there_;  // by value: where it has been sent
  struct Taken {
    std::uint32_t processor;
    Nanoseconds free;
  };
  std::vector<Taken> before_;  // channels as they were before what is only asked
};

}  // namespace plimsoll
