#pragma once
// The next event of each stream, and the earliest of all: a tournament between neighbours, and between the winners. A
// heap does the same in fewer comparisons, but the processor cannot foresee them; here it need not.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace plimsoll {

class EventTree {
 public:
  struct Event {
    double date;  ///< infinite: none
    std::uint32_t stream;
  };

  explicit EventTree(std::size_t streams)
      : leaves_(std::bit_ceil(std::max<std::size_t>(streams, 1))), nodes_(2 * leaves_, Event{never, 0}) {
    for (std::size_t s = 0; s < leaves_; ++s) nodes_[leaves_ + s].stream = static_cast<std::uint32_t>(s);
  }

  bool empty() const { return nodes_[1].date == never; }
  Event earliest() const { return nodes_[1]; }

  /// The stream's event is due at `date`, whether or not it had one before.
  void set(std::uint32_t stream, double date) {
    std::size_t node = leaves_ + stream;
    Event winner{date, stream};
    nodes_[node] = winner;
    while (node > 1) {
      const Event other = nodes_[node ^ 1];
      const std::uint32_t other_wins = 0 - static_cast<std::uint32_t>(other.date < winner.date);  // all bits or none
      winner.stream ^= (winner.stream ^ other.stream) & other_wins;
      winner.date = std::min(winner.date, other.date);
      node /= 2;
      if (nodes_[node].stream == winner.stream && winner.stream != stream) break;  // as it was, and so all above
      nodes_[node] = winner;
    }
  }

  void remove(std::uint32_t stream) { set(stream, never); }

 private:
  static constexpr double never = std::numeric_limits<double>::infinity();

  std::size_t leaves_;
  std::vector<Event> nodes_;  ///< children of i are 2i and 2i + 1; streams are at leaves_ + stream
};

}  // namespace plimsoll
