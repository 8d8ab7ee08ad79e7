#include "strategies/pipelining/orders/order_circle.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

namespace plimsoll {
namespace {

/// Goes through an order as far as it comes.
class TurnWalk {
 public:
  explicit TurnWalk(const OrderFile& file)
      : file_(file), order_(file.order), turn_(ranks(), 0), exchange_(file.exchanges.size(), 0) {}

  std::string circle() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < ranks(); ++r) {
        while (turn_[r] < order_.turns[r].size() && waits_for(order_.turns[r][turn_[r]]) == std::nullopt) {
          const Turn& turn = order_.turns[r][turn_[r]++];
          done_.insert(key(turn));
          moved = true;
        }
        while (exchanged(r)) moved = true;
      }
    }
    for (std::size_t r = 0; r < ranks(); ++r) {
      if (turn_[r] < order_.turns[r].size()) return text(order_.turns[r][turn_[r]]);
    }
    return "";
  }

 private:
  using Key = std::tuple<PartId, std::uint32_t, std::uint32_t>;
  static Key key(const Turn& turn) { return {turn.part, turn.micro_batch, turn.piece}; }

  std::size_t ranks() const { return order_.turns.size(); }

  /// The turn of another part that makes what this one reads, if it has not come.
  std::optional<Turn> waits_for(const Turn& turn) const {
    const std::uint32_t last = static_cast<std::uint32_t>(order_.rank_of.size()) - 1, g = turn.part.index;
    if (turn.piece == piece::weights || g == (turn.piece == piece::forward ? 0 : last)) return std::nullopt;
    const PartId maker{turn.piece == piece::forward ? g - 1 : g + 1};
    const bool crosses = !file_.exchanges.empty() && order_.rank_of[maker.index] != order_.rank_of[g];
    const Turn made{maker, turn.micro_batch, turn.piece};
    const bool is_here = crosses ? arrived_.contains({maker, turn.part, turn.micro_batch}) : done_.contains(key(made));
    return is_here ? std::nullopt : std::optional(made);
  }

  /// Whether a rank's next exchange has come about: what it sends does not wait for the receiver.
  bool exchanged(std::size_t r) {
    if (file_.exchanges.empty() || exchange_[r] == file_.exchanges[r].size()) return false;
    const PartExchange& next = file_.exchanges[r][exchange_[r]];
    const std::tuple value{next.from, next.to, next.micro_batch};
    const bool sends = order_.rank_of[next.from.index] == r;
    if ((next.behind && !done_.contains(key(*next.behind))) || (!sends && !sent_.contains(value))) return false;
    (sends ? sent_ : arrived_).insert(value);
    ++exchange_[r];
    return true;
  }

  static std::string name(const Turn& turn) {
    return fmt::format("{}{}{}", turn.part.index, turn.piece == piece::forward ? 'F' : 'B', turn.micro_batch);
  }

  /// Names two turns of the circle, into which the first turn's waiting leads.
  std::string text(Turn turn) const {
    const auto next_of = [&](const Turn& waiting) -> std::optional<Turn> {
      const std::optional<Turn> maker = waits_for(waiting);
      if (!maker) return std::nullopt;
      const std::uint32_t rank = order_.rank_of[maker->part.index];
      if (turn_[rank] == order_.turns[rank].size()) return std::nullopt;  // it has made it, and cannot send it
      return order_.turns[rank][turn_[rank]];
    };
    std::optional<Turn> other = next_of(turn);
    for (std::size_t k = 0; k < ranks() && other; ++k) {  // until it is in the circle
      turn = *other;
      other = next_of(turn);
    }
    const std::uint32_t rank = order_.rank_of[turn.part.index];
    if (other && done_.contains(key(*waits_for(turn)))) other = std::nullopt;
    if (!other) {
      return fmt::format(
          "ranks wait in a circle: {} of part {} on rank {} waits for an exchange that stands behind "
          "others which cannot begin",
          name(turn), turn.part.index, rank);
    }
    return fmt::format(
        "ranks wait in a circle: {} of part {} on rank {} waits for rank {}, whose next is {} of part {}", name(turn),
        turn.part.index, rank, order_.rank_of[other->part.index], name(*other), other->part.index);
  }

  const OrderFile& file_;
  const PipelineOrder& order_;
  std::vector<std::size_t> turn_, exchange_;  // by rank: how many are over
  std::set<Key> done_;
  std::set<std::tuple<PartId, PartId, std::uint32_t>> sent_, arrived_;
};

}  // namespace

std::string circle_in(const OrderFile& file) {
  return TurnWalk(file).circle();
}

}  // namespace plimsoll
