#include "strategies/pipelining/orders/zero_bubble_search.h"

#include <algorithm>
#include <limits>

namespace plimsoll {
namespace {

/// What the variants do differently.
struct Flags {
  bool idle_before_first_backward, backward_first, fill_all_gaps;
};

class SearchVariant {
 public:
  SearchVariant(const PartCosts& costs, std::uint32_t m, std::span<const std::int64_t> limits, Flags flags)
      : costs_(costs), m_(m), limits_(limits), flags_(flags), ranks_(costs.parts()) {
    for (Rank& rank : ranks_) {
      rank.forward_end.reserve(m);
      rank.backward_end.reserve(m);
    }
  }

  /// False where a limit is too small.
  bool run() {
    if (!warm_up()) return false;
    for (std::uint32_t i = 1; i < m_; ++i) {
      if (!forwards()) return false;
      backwards();
    }
    for (std::size_t j = 0; j < ranks_.size(); ++j) {
      while (has_weights(j)) put_weights(j);
    }
    return true;
  }

  double longest() const {
    double longest = 0;
    for (std::size_t j = 0; j < ranks_.size(); ++j) {
      longest = std::max(longest, ranks_[j].clock - (ranks_[j].forward_end[0] - costs_.f[j]));
    }
    return longest;
  }

  std::vector<std::vector<Turn>> turns() {
    std::vector<std::vector<Turn>> turns;
    for (Rank& rank : ranks_) turns.push_back(std::move(rank.turns));
    return turns;
  }

 private:
  struct Rank {
    std::uint32_t f = 0, b = 0, w = 0;  // done
    double clock = 0, idle = 0;         // idle: since its first forward
    std::int64_t memory = 0;
    std::vector<double> forward_end, backward_end;
    std::vector<Turn> turns;
  };

  std::size_t count() const { return ranks_.size(); }
  bool has_weights(std::size_t j) const { return ranks_[j].w < ranks_[j].b; }
  bool has_room(std::size_t j) const { return ranks_[j].memory + costs_.kept[j] <= limits_[j]; }

  double forward_arrives(std::size_t j) const {
    return j == 0 ? 0 : ranks_[j - 1].forward_end[ranks_[j].f] + costs_.sent[j - 1];
  }
  double backward_arrives(std::size_t j) const {
    return j + 1 == count() ? 0 : ranks_[j + 1].backward_end[ranks_[j].b] + costs_.sent[j];
  }

  void put(std::size_t j, std::uint32_t kind, std::uint32_t micro_batch, double cost, double arrives) {
    Rank& rank = ranks_[j];
    const double start = std::max(rank.clock, arrives);
    if (rank.f > 0) rank.idle += start - rank.clock;
    rank.clock = start + cost;
    rank.turns.push_back({id_at<PartId>(j), micro_batch, kind});
  }

  void put_forward(std::size_t j) {
    Rank& rank = ranks_[j];
    put(j, piece::forward, rank.f, costs_.f[j], forward_arrives(j));
    rank.forward_end.push_back(rank.clock);
    rank.memory += costs_.kept[j];
    ++rank.f;
  }

  void put_backward(std::size_t j) {
    Rank& rank = ranks_[j];
    put(j, piece::backward, rank.b, costs_.b[j], backward_arrives(j));
    rank.backward_end.push_back(rank.clock);
    rank.memory += costs_.kept_for_weights[j] - costs_.kept[j];
    ++rank.b;
  }

  void put_weights(std::size_t j) {
    Rank& rank = ranks_[j];
    put(j, piece::weights, rank.w, costs_.w[j], 0);
    rank.memory -= costs_.kept_for_weights[j];
    ++rank.w;
  }

  double most_idle() const { return std::ranges::max_element(ranks_, {}, &Rank::idle)->idle; }

  /// Weight gradients that end before something arrives, and one more where the rank would otherwise be idle for more
  /// than the worst of all is.
  void fill_until(std::size_t j, double arrives) {
    while (has_weights(j) && ranks_[j].clock + costs_.w[j] <= arrives) put_weights(j);
    const double gap = arrives - ranks_[j].clock;
    if (gap > 0 && has_weights(j) && (flags_.fill_all_gaps || gap > most_idle() - ranks_[j].idle)) put_weights(j);
  }

  /// The first micro-batch, and the forwards that fit before its backward comes back.
  bool warm_up() {
    for (std::size_t j = 0; j < count(); ++j) {
      if (!has_room(j)) return false;
      put_forward(j);
    }
    std::vector<std::uint32_t> ahead(count(), 0);
    double backward = ranks_.back().clock + costs_.b.back();
    for (std::size_t j = count() - 1; j-- > 0;) {
      std::int64_t memory = ranks_[j].memory;
      double clock = ranks_[j].clock;
      const double arrives = backward + costs_.sent[j];
      while (1 + ahead[j] < m_ && memory + costs_.kept[j] <= limits_[j] &&
             (flags_.idle_before_first_backward ? clock + costs_.f[j] <= arrives : clock < arrives)) {
        memory += costs_.kept[j];
        clock += costs_.f[j];
        ++ahead[j];
      }
      backward = std::max(clock, arrives) + costs_.b[j];
    }
    for (std::size_t j = 1; j < count(); ++j) {
      ahead[j] = std::min(ahead[j], ahead[j - 1]);
      while (ahead[j] > 0 && ahead[j] >= ahead[j - 1] && 1 + ahead[j] < m_) --ahead[j];
    }
    for (std::size_t j = 0; j < count(); ++j) {
      for (std::uint32_t k = 0; k < ahead[j]; ++k) put_forward(j);
    }
    for (std::size_t j = count(); j-- > 0;) put_backward(j);
    return true;
  }

  /// Whether the next rank, which is two forwards behind, is better served by a backward first.
  bool waits_for_backward(std::size_t j) const {
    if (!flags_.backward_first || j + 1 == count() || ranks_[j].f < ranks_[j + 1].f + 2) return false;
    const double next = ranks_[j + 1].clock + costs_.f[j + 1] + costs_.b[j + 1] + costs_.sent[j];
    if (ranks_[j].clock >= next) return true;
    double weights = 0;
    std::int64_t memory = ranks_[j].memory;
    for (std::uint32_t w = ranks_[j].w; w < ranks_[j].b && memory + costs_.kept[j] > limits_[j]; ++w) {
      weights += costs_.w[j];
      memory -= costs_.kept_for_weights[j];
    }
    if (ranks_[j].clock + costs_.f[j] + weights <= next) return false;
    return next - ranks_[j].clock <= most_idle() - ranks_[j].idle;
  }

  bool forwards() {
    std::vector<bool> takes(count());
    for (std::size_t j = 0; j < count(); ++j) takes[j] = ranks_[j].f < m_ && !waits_for_backward(j);
    for (std::size_t j = count() - 1; j-- > 0;) takes[j] = takes[j] && takes[j + 1];
    for (std::size_t j = 0; j < count(); ++j) {
      if (!takes[j]) continue;
      while (!has_room(j) && has_weights(j)) put_weights(j);
      if (!has_room(j)) return false;
      if (j > 0) fill_until(j, forward_arrives(j));
      put_forward(j);
    }
    return true;
  }

  void backwards() {
    for (std::size_t j = count(); j-- > 0;) {
      if (j + 1 < count()) fill_until(j, backward_arrives(j));
      while (j == 0 && ranks_[j].f == m_ && has_weights(j)) put_weights(j);
      put_backward(j);
    }
  }

  const PartCosts& costs_;
  std::uint32_t m_;
  std::span<const std::int64_t> limits_;
  Flags flags_;
  std::vector<Rank> ranks_;
};

}  // namespace

std::optional<PipelineOrder> zero_bubble_search(const PartCosts& given, std::uint32_t micro_batches,
                                                std::span<const std::int64_t> limits) {
  const PartCosts costs = in_ticks(given);
  std::optional<PipelineOrder> best;
  double least = std::numeric_limits<double>::infinity();
  for (unsigned flags = 0; flags < 8; ++flags) {
    SearchVariant variant(costs, micro_batches, limits, {(flags & 4U) != 0, (flags & 2U) != 0, (flags & 1U) != 0});
    if (!variant.run() || !(variant.longest() < least)) continue;
    least = variant.longest();
    best.emplace();
    for (std::uint32_t g = 0; g < costs.parts(); ++g) best->rank_of.push_back(g);
    best->turns = variant.turns();
    best->weights_apart = true;
  }
  return best;
}

}  // namespace plimsoll
