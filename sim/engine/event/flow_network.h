#pragma once
// Flows that share links max-min fairly: the rate of the flow that gets least is as large as can be, then the next, and
// so on. Only what is connected to a change is computed anew.
// Source: Bertsekas, Gallager, "Data Networks", 2nd edition, 1992, section 6.5.2 (progressive filling).

#include <cstdint>
#include <span>
#include <vector>

#include "sim/engine/program.h"

namespace plimsoll {

class FlowNetwork {
 public:
  struct Rate {
    std::uint32_t stream;
    double bytes_per_second;
  };

  explicit FlowNetwork(const Program&);

  /// A flow of this stream (it has one at most) over the links of the route.
  void add(std::uint32_t stream, std::uint32_t route);
  void remove(std::uint32_t stream);

  /// The rates of all flows connected to those added and removed since the last call; they need not have changed.
  std::span<const Rate> share() { return changed_.empty() ? std::span<const Rate>{} : share_changed(); }

 private:
  /// A flow on a link, in the link's doubly linked list; node `stream * hops_ + hop`.
  struct Node {
    std::uint32_t next, previous, stream;
  };

  struct LinkState {
    double left = 0;  ///< bandwidth not yet given away
    std::uint32_t first = none;
    std::uint32_t flows = 0;
    std::uint32_t open = 0;   ///< flows without a rate
    std::uint32_t seen = 0;   ///< the search that found it
    std::uint32_t place = 0;  ///< in component_ and offers_
  };

  struct FlowState {
    std::uint32_t route = none;
    std::uint32_t seen = 0;
    std::uint32_t rate = 0;  ///< index into rates_
  };

  std::span<const Rate> share_changed();
  void mark(std::uint32_t link);
  bool share_one(std::uint32_t link);
  void collect(std::uint32_t start);
  void fill();
  void give(std::uint32_t link, double rate);

  const Program& program_;
  std::uint32_t hops_;
  std::uint32_t search_ = 1;
  std::vector<Node> nodes_;
  std::vector<LinkState> links_;
  std::vector<FlowState> flows_;
  std::vector<std::uint32_t> changed_;    ///< links
  std::vector<std::uint8_t> is_changed_;  ///< per link: is it among changed_
  std::vector<std::uint32_t> component_;  ///< links
  std::vector<double> offers_;            ///< by place: what each has left for each of its open flows
  std::vector<Rate> rates_;
};

}  // namespace plimsoll
