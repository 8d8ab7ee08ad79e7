#include "strategies/pipelining/orders/v_shape_search.h"

#include <algorithm>
#include <array>
#include <deque>
#include <limits>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

/// Passes of a micro-batch: the forwards of the rank's two parts, then the backwards of the second and of the first.
enum PassOfV : std::size_t { down, up, back_down, back_up };

/// What the variants do differently.
struct VFlags {
  bool fill_forwards, fill_backwards;  ///< weight gradients also into gaps that are shorter than they
  bool leave_room;                     ///< for the rank's second part before its first one takes another micro-batch
};

class VShape {
 public:
  /// `allowed`: for how long each rank was idle in a run before; empty in the first run.
  VShape(const PartCosts& costs, std::uint32_t m, std::span<const std::int64_t> limits, VFlags flags,
         std::vector<double> allowed)
      : costs_(costs), m_(m), limits_(limits), flags_(flags), allowed_(std::move(allowed)), ranks_(costs.parts() / 2) {
    if (!allowed_.empty()) most_allowed_ = *std::ranges::max_element(allowed_);
    for (Rank& rank : ranks_) {
      for (std::vector<double>& ends : rank.end) ends.reserve(m);
      rank.turns.reserve(std::size_t{6} * m);
    }
  }

  /// False where a limit is too small, or a rank is idle for as long as `enough`.
  bool run(double enough) {
    if (!warm_up()) return false;
    while (std::ranges::any_of(ranks_, [&](const Rank& rank) { return rank.done(back_up) < m_; })) {
      if (most_idle_ >= enough) return false;
      const bool any_backward = backwards(), any_forward = forwards();
      if (!any_backward && !any_forward) return false;
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      while (!ranks_[r].waiting.empty()) put_weights(r);
    }
    return true;
  }

  double most_idle() const { return most_idle_; }

  std::vector<double> idle() const {
    std::vector<double> idle;
    for (const Rank& rank : ranks_) idle.push_back(rank.idle);
    return idle;
  }

  std::vector<std::vector<Turn>> turns() {
    std::vector<std::vector<Turn>> turns;
    for (Rank& rank : ranks_) turns.push_back(std::move(rank.turns));
    return turns;
  }

 private:
  struct Rank {
    std::array<std::vector<double>, 4> end;  // by pass: of each micro-batch that is done
    std::deque<Turn> waiting;                // for their weight gradients
    double clock = 0, idle = 0;
    std::int64_t memory = 0;
    std::vector<Turn> turns;

    std::size_t done(PassOfV pass) const { return end[pass].size(); }
  };

  std::size_t last() const { return ranks_.size() - 1; }
  std::size_t part(std::size_t r, PassOfV pass) const {
    return pass == down || pass == back_up ? r : costs_.parts() - 1 - r;
  }

  /// Whether the pass's next micro-batch can start on the rank: what it reads has been made.
  bool is_ready(std::size_t r, PassOfV pass) const {
    const std::size_t next = ranks_[r].done(pass);
    if (next >= m_) return false;
    const bool goes_down = pass == down || pass == back_down;
    if (r == (goes_down ? 0 : last())) {
      return pass == down || ranks_[r].done(static_cast<PassOfV>(pass - 1)) > next;
    }
    return ranks_[goes_down ? r - 1 : r + 1].done(pass) > next &&
           (pass == down || pass == up || ranks_[r].done(pass == back_down ? up : down) > next);
  }

  /// When that has arrived.
  double arrives(std::size_t r, PassOfV pass) const {
    const std::size_t next = ranks_[r].done(pass), g = part(r, pass);
    const bool goes_down = pass == down || pass == back_down;
    if (r == (goes_down ? 0 : last())) return pass == down ? 0 : ranks_[r].end[pass - 1][next];
    const std::size_t boundary = pass == down || pass == up ? g - 1 : g;
    return ranks_[goes_down ? r - 1 : r + 1].end[pass][next] + costs_.sent[boundary];
  }

  void spend(Rank& rank, double cost, double from) {
    const double start = std::max(rank.clock, from);
    if (rank.done(down) > 0) rank.idle += start - rank.clock;
    most_idle_ = std::max(most_idle_, rank.idle);
    rank.clock = start + cost;
  }

  void put(std::size_t r, PassOfV pass) {
    EXPECTS(is_ready(r, pass));
    Rank& rank = ranks_[r];
    const std::size_t g = part(r, pass);
    const auto micro_batch = static_cast<std::uint32_t>(rank.done(pass));
    const bool is_forward = pass == down || pass == up;
    spend(rank, is_forward ? costs_.f[g] : costs_.b[g], arrives(r, pass));
    rank.end[pass].push_back(rank.clock);
    rank.memory += is_forward ? costs_.kept[g] : costs_.kept_for_weights[g] - costs_.kept[g];
    rank.turns.push_back({id_at<PartId>(g), micro_batch, is_forward ? piece::forward : piece::backward});
    if (!is_forward) rank.waiting.push_back({id_at<PartId>(g), micro_batch, piece::weights});
  }

  void put_weights(std::size_t r) {
    Rank& rank = ranks_[r];
    const Turn turn = rank.waiting.front();
    rank.waiting.pop_front();
    spend(rank, costs_.w[turn.part.index], 0);
    rank.memory -= costs_.kept_for_weights[turn.part.index];
    rank.turns.push_back(turn);
  }

  double next_weights(std::size_t r) const { return costs_.w[ranks_[r].waiting.front().part.index]; }

  /// How long the rank may be idle without being the worst.
  double idle_allowed(std::size_t r) const {
    const double most = allowed_.empty() ? most_idle_ : std::max(most_idle_, most_allowed_ - allowed_[r]);
    return most - ranks_[r].idle;
  }

  /// Weight gradients that end before something arrives and, if asked, one more where the rank would otherwise be idle
  /// for longer than it may be.
  void fill_until(std::size_t r, double arrives, bool also_longer) {
    Rank& rank = ranks_[r];
    while (!rank.waiting.empty() && rank.clock + next_weights(r) <= arrives) put_weights(r);
    if (also_longer && !rank.waiting.empty() && arrives - rank.clock > idle_allowed(r)) put_weights(r);
  }

  /// False: weight gradients do not make room enough.
  bool make_room(std::size_t r, std::int64_t bytes) {
    Rank& rank = ranks_[r];
    while (rank.memory + bytes > limits_[r] && !rank.waiting.empty()) put_weights(r);
    return rank.memory + bytes <= limits_[r];
  }

  /// The first micro-batch down and up; more go down while they fit and have ended when it comes up. Then every rank
  /// gets as many forwards as the one before it.
  bool warm_up() {
    for (std::size_t r = 0; r <= last(); ++r) {
      if (!make_room(r, costs_.kept[part(r, down)] + costs_.kept[part(r, up)])) return false;
      put(r, down);
    }
    put(last(), up);
    for (std::size_t r = last(); r-- > 0;) {
      const double comes_up = arrives(r, up);
      const auto rows = static_cast<std::int64_t>(2 + 2 * r);
      while (ranks_[r].memory + rows * costs_.kept[r] <= limits_[r] && ranks_[r].clock + costs_.f[r] <= comes_up &&
             ranks_[r].done(down) < m_ && !flags_.leave_room) {
        for (std::size_t above = 0; above <= r; ++above) put(above, down);
      }
      put(r, up);
    }
    PassOfV next = down;
    for (std::size_t r = 1; !flags_.leave_room && r <= last(); ++r) {
      const auto forwards = [&](std::size_t of) { return ranks_[of].done(down) + ranks_[of].done(up); };
      while (forwards(r) < forwards(r - 1) ||
             (ranks_[r].done(up) <= ranks_[r - 1].done(up) && ranks_[r - 1].done(up) < m_)) {
        if (!row_of_forwards(r, next)) return false;
        next = next == down ? up : down;
      }
    }
    return true;
  }

  /// One more forward of this pass on each rank from r on, where there is one.
  bool row_of_forwards(std::size_t r, PassOfV pass) {
    bool any = false;
    for (std::size_t i = 0; i + r <= last(); ++i) {
      const std::size_t rank = pass == down ? r + i : last() - i;
      if (!is_ready(rank, pass)) continue;
      put(rank, pass);
      any = true;
    }
    idle_rows_ = any ? 0 : idle_rows_ + 1;
    return idle_rows_ < 2;
  }

  /// One backward on each rank that has one; whether there was any.
  bool backwards() {
    std::vector<std::size_t> upward, downward;
    for (std::size_t r = 0; r <= last(); ++r) {
      const Rank& rank = ranks_[r];
      if (rank.done(back_up) >= m_) continue;
      const bool takes_down =
          rank.done(back_up) >= rank.done(back_down) ||
          (r < last() && rank.done(back_down) < m_ && ranks_[r + 1].done(back_up) <= rank.done(back_up));
      (takes_down ? downward : upward).push_back(r);
    }
    bool any = false;
    const auto take = [&](std::size_t r, PassOfV pass) {
      const std::size_t g = part(r, pass);
      if (!is_ready(r, pass)) return;
      make_room(r, costs_.kept_for_weights[g] - costs_.kept[g]);  // where it needs more all the same, W follows
      const bool from_another = r != (pass == back_down ? 0 : last());
      if (from_another) fill_until(r, arrives(r, pass), pass == back_up || flags_.fill_backwards);
      put(r, pass);
      any = true;
    };
    for (std::size_t k = upward.size(); k-- > 0;) take(upward[k], back_up);
    for (const std::size_t r : downward) take(r, back_down);
    return any;
  }

  /// The same for forwards.
  bool forwards() {
    bool any = false;
    for (std::size_t r = 0; r <= last(); ++r) {
      const Rank& rank = ranks_[r];
      if (rank.done(up) >= m_) continue;
      std::optional<PassOfV> pass;
      if (rank.done(up) >= rank.done(down)) {
        pass = down;
      } else if (r == last() || ranks_[r + 1].done(up) > rank.done(up)) {
        pass = up;
      } else if (is_ready(r, down)) {
        pass = down;
      }
      if (!pass || !is_ready(r, *pass)) continue;
      const bool also_up = *pass == down && flags_.leave_room;
      if (!make_room(r, costs_.kept[part(r, *pass)] + (also_up ? costs_.kept[part(r, up)] : 0))) continue;
      const bool from_another = r != (*pass == down ? 0 : last());
      if (from_another) fill_until(r, arrives(r, *pass), flags_.fill_forwards);
      put(r, *pass);
      any = true;
    }
    return any;
  }

  const PartCosts& costs_;
  std::uint32_t m_;
  std::span<const std::int64_t> limits_;
  VFlags flags_;
  std::vector<double> allowed_;
  double most_allowed_ = 0, most_idle_ = 0;  // of all ranks; idle times only grow
  std::vector<Rank> ranks_;
  int idle_rows_ = 0;
};

}  // namespace

std::vector<std::uint32_t> v_shape(std::uint32_t p) {
  std::vector<std::uint32_t> rank_of;
  for (std::uint32_t g = 0; g < 2 * p; ++g) rank_of.push_back(g < p ? g : 2 * p - 1 - g);
  return rank_of;
}

std::optional<PipelineOrder> v_shape_search(const PartCosts& given, std::uint32_t micro_batches,
                                            std::span<const std::int64_t> limits) {
  const PartCosts costs = in_ticks(given);
  const auto p = static_cast<std::uint32_t>(costs.parts() / 2);
  std::optional<PipelineOrder> best;
  double least = std::numeric_limits<double>::infinity();
  for (unsigned flags = 0; flags < 8; ++flags) {
    const bool leave_room = (flags & 4U) != 0;
    if (leave_room && best) break;  // parts of unequal sizes got into each other's way
    std::vector<double> allowed;
    double before = std::numeric_limits<double>::infinity();
    while (true) {  // again with what the last run's ranks were idle for, while that helps
      VShape run(costs, micro_batches, limits, {(flags & 1U) != 0, (flags & 2U) != 0, leave_room}, allowed);
      if (!run.run(before) || !(run.most_idle() < before)) break;
      before = run.most_idle();
      allowed = run.idle();
      if (!(before < least)) continue;
      least = before;
      best.emplace(PipelineOrder{v_shape(p), run.turns(), true});
    }
  }
  return best;
}

}  // namespace plimsoll
