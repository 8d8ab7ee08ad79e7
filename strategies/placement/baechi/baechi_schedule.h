#pragma once
// Baechi's list scheduling within memory: its favourite children, and one channel a processor for all that it
// sends and receives.

#include <optional>
#include <span>
#include <vector>

#include "strategies/placement/lists/list_schedulers.h"
#include "strategies/placement/op_dag.h"

namespace plimsoll {

/// How much of each processor's memory a schedule has taken at most, by its own account.
struct BaechiSchedule {
  ListSchedule made;
  std::vector<std::int64_t> peak;  ///< by processor
};

/// Of all ops that are ready and all processors with room for them the pair that starts first, of equals the op of the
/// smallest number. `favourite` is empty, or by node the reader that its processor waits for, or no_node. Nothing where
/// at some time no processor has room for any op and none is running.
std::optional<BaechiSchedule> baechi_schedule(const OpDag&, const Machine&, std::span<const std::uint32_t> favourite);

// Which reader of each op should run on the op's own processor right after it: its favourite child.

/// The largest graph, in nodes and edges that send together, that the linear program is asked about.
inline constexpr std::size_t largest_favourite_program = 10'000;

/// By node: its favourite child, or no_node. None is the favourite of two.
struct Favourites {
  std::vector<std::uint32_t> child;
  bool by_program = false;  ///< by the linear program; else the readers with the largest transfers
};

Favourites favourite_children(const OpDag&, const Machine&);

/// The relaxation of the choice on unlimited processors, rounded; empty where the solver does not end in `seconds`.
std::vector<std::uint32_t> favourites_by_program(const OpDag&, const Machine&, double seconds);
/// Edges by their transfers, the longest first, as long as neither end has one.
std::vector<std::uint32_t> favourites_by_transfer(const OpDag&, const Machine&);

// When values arrive where a processor has one channel for all that it sends and receives, one transfer at a time.

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
