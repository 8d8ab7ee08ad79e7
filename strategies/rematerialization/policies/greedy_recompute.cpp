#include "strategies/rematerialization/policies/greedy_recompute.h"

#include <algorithm>

#include "strategies/api/strategy.h"
#include "strategies/models/chain_pass.h"
#include "strategies/models/fullest_moment.h"
#include "strategies/models/op_sequence.h"

namespace plimsoll {
namespace {

/// A value that is there but idle while memory is fullest.
struct IdleValue {
  std::uint32_t value = 0;
  Bytes bytes;
  double cost = 0;  ///< seconds
};

class Greedy {
 public:
  explicit Greedy(const OpModel& model)
      : model_(model),
        evicted_(model.values.size(), false),
        next_use_(model.values.size(), model.ops.size()),
        last_use_(model.values.size(), 0),
        mark_(model.ops.size(), 0) {
    const std::size_t turn = last_forward(model);
    for (std::uint32_t v = 0; v < model.values.size(); ++v) {
      if (!can_evict(model, v)) continue;
      last_use_[v] = *model.values[v].maker;
      for (const std::uint32_t reader : model.values[v].readers) {
        if (reader <= turn) last_use_[v] = reader;
      }
      const auto after = std::ranges::upper_bound(model.values[v].readers, static_cast<std::uint32_t>(turn));
      if (after != model.values[v].readers.end()) next_use_[v] = *after;
      evicted_[v] = next_use_[v] == model.ops.size();  // dies by itself; made again only for others
    }
  }

  void plans(std::int64_t steps, const std::function<void(const OpSequence&)>& take) {
    std::optional<Bytes> step;
    for (std::size_t round = 0; round <= model_.values.size(); ++round) {
      const std::optional<OpSequence> sequence = recompute_order(model_, evicted_);
      if (!sequence) return;
      take(*sequence);
      const FullestMoment moment = fullest_moment(model_, *sequence);
      if (!step) step = Bytes{(moment.peak - model_.resident).count / steps};
      if (!evict_some(moment, *step)) return;
    }
  }

 private:
  /// The best candidates until more than `enough` bytes are gone; false if there are none.
  bool evict_some(const FullestMoment& moment, Bytes enough) {
    std::vector<IdleValue> candidates;
    for (std::uint32_t v = 0; v < model_.values.size(); ++v) {
      const std::uint32_t storage = model_.values[v].storage;
      if (evicted_[v] || !can_evict(model_, v) || !moment.there[storage]) continue;
      if (last_use_[v] >= moment.turn || next_use_[v] <= moment.turn || model_.storages[storage] == Bytes{0}) continue;
      candidates.push_back({v, model_.storages[storage], cost_of(v, moment)});
    }
    std::ranges::stable_sort(candidates, [](const IdleValue& a, const IdleValue& b) {
      return static_cast<double>(a.bytes.count) * b.cost > static_cast<double>(b.bytes.count) * a.cost;
    });
    Bytes freed;
    for (const IdleValue& candidate : candidates) {
      evicted_[candidate.value] = true;
      freed += candidate.bytes;
      if (freed > enough) break;
    }
    return !candidates.empty();
  }

  /// Time of the ops that run once so far and would run again: the maker, and what makes its evicted inputs.
  double cost_of(std::uint32_t value, const FullestMoment& moment) {
    ++marks_;
    double cost = 0;
    std::vector<std::uint32_t> open{*model_.values[value].maker};
    while (!open.empty()) {
      const std::uint32_t o = open.back();
      open.pop_back();
      if (mark_[o] == marks_ || moment.runs[o] > 1) continue;
      mark_[o] = marks_;
      cost += model_.ops[o].ways.back().time.value;
      for (const std::uint32_t v : model_.ops[o].reads) {
        if (evicted_[v]) open.push_back(*model_.values[v].maker);
      }
    }
    return cost;
  }

  const OpModel& model_;
  Evicted evicted_;
  std::vector<std::size_t> next_use_, last_use_;  // by value: ops; in the backward, in the forward
  std::vector<std::uint64_t> mark_;               // by op: the last walk that met it
  std::uint64_t marks_ = 0;
};

PlanPool greedy_recompute_plans(const PartTask& task) {
  PlanPool pool(task);
  pool.add(store_all_ops(task));
  add_greedy_recompute(pool, op_model(task));
  return pool;
}

}  // namespace

void greedy_sequences(const OpModel& model, std::int64_t steps, const std::function<void(const OpSequence&)>& take) {
  Greedy(model).plans(steps, take);
}

void add_greedy_recompute(PlanPool& pool, const OpModel& model) {
  constexpr std::int64_t steps = 200;
  greedy_sequences(model, steps, [&](const OpSequence& sequence) { pool.add(sequence); });
}

namespace {

std::vector<TapeOutcome> greedy_recompute_tapes(const PartTask& task, const Options&,
                                                std::span<const std::optional<Bytes>> budgets, const Tape*) {
  if (const std::optional<std::string> why = not_one_part(task)) return refused(*why, budgets);
  return or_plain_training(task, budgets,
                           greedy_recompute_plans(task).outcomes(budgets, "nothing more can be evicted"));
}

std::vector<Bytes> greedy_recompute_candidates(const PartTask& task, const Options&) {
  std::vector<Bytes> budgets = greedy_recompute_plans(task).budgets();
  budgets.push_back(plain_training_peak(task));
  return budgets;
}

}  // namespace

extern constinit const StrategyInfo greedy_recompute_strategy{
    .name = "greedy_recompute",
    .family = Family::rematerialization,
    .summary = "where memory is fullest, evicts the values that free the most bytes per second of recomputation",
    .source = "own; the measure (memory saved per second) is Capuchin's, Peng et al., ASPLOS 2020",
    .kind = TapeStrategy{.tapes = greedy_recompute_tapes, .candidates = greedy_recompute_candidates},
};

}  // namespace plimsoll
