#include "strategies/rematerialization/rockmate/graph_options.h"

#include <algorithm>
#include <utility>

#include "strategies/models/fullest_moment.h"
#include "strategies/models/recompute_order.h"
#include "strategies/rematerialization/policies/greedy_recompute.h"

namespace plimsoll {
namespace {

Seconds time_of(const OpModel& model, const OpSequence& sequence) {
  Seconds time;
  for (const OpRun& run : sequence) {
    const std::vector<OpWay>& ways = model.ops[run.op.index].ways;
    time += run.saving == Saving::keep ? ways.front().time : ways.back().time;
  }
  return time;
}

BlockOption cost_of(const BlockPart& part, const OpSequence& sequence) {
  const OpModel& model = part.model;
  BlockOption cost{};
  for (const ModelOp& op : model.ops) cost.extra += op.ways.front().time;
  cost.extra = std::max(Seconds{0}, time_of(model, sequence) - cost.extra);
  const std::vector<MemoryOfRun> memory = memory_of_runs(model, sequence);
  bool waited = false;
  for (std::size_t r = 0; r < sequence.size(); ++r) {
    if (part.waiting && sequence[r].op.index == *part.waiting) {
      cost.kept = memory[r].before;
      waited = true;
    }
    Bytes& most = waited ? cost.backward : cost.forward;
    most = std::max(most, memory[r].during);
  }
  if (!waited) cost.backward = cost.forward;
  cost.backward += part.passes;
  return cost;
}

/// Indices of the front of time against the memory that `bytes` says, ascending, `count` of them at most.
std::vector<std::size_t> front(const std::vector<PricedSequence>& all, std::size_t count, auto&& bytes) {
  std::vector<std::size_t> order(all.size()), kept;
  for (std::size_t k = 0; k < all.size(); ++k) order[k] = k;
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    const auto [first_a, second_a] = bytes(all[a].cost);
    const auto [first_b, second_b] = bytes(all[b].cost);
    if (first_a != first_b) return first_a < first_b;
    if (all[a].cost.extra != all[b].cost.extra) return all[a].cost.extra < all[b].cost.extra;
    return second_a < second_b;
  });
  for (const std::size_t k : order) {
    if (kept.empty() || all[k].cost.extra < all[kept.back()].cost.extra) kept.push_back(k);
  }
  if (kept.size() <= count) return kept;
  std::vector<std::size_t> some;
  for (std::size_t k = 0; k < count; ++k) {
    some.push_back(kept[count == 1 ? kept.size() - 1 : k * (kept.size() - 1) / (count - 1)]);
  }
  return some;
}

}  // namespace

OpSequence every_op(const OpModel& model) {
  OpSequence sequence;
  for (const ModelOp& op : model.ops) sequence.push_back({op.id, Saving::keep});
  return sequence;
}

std::vector<OpSequence> leaf_sequences(const OpModel& model) {
  const std::size_t turn = last_forward(model);
  Evicted evicted(model.values.size(), false);
  std::vector<std::uint32_t> choices;
  for (std::uint32_t v = 0; v < model.values.size(); ++v) {
    const ModelValue& value = model.values[v];
    if (!can_evict(model, v)) continue;
    if (value.readers.empty() || value.readers.back() <= turn) {
      evicted[v] = true;  // dies by itself; made again only for others
    } else {
      choices.push_back(v);
    }
  }
  constexpr std::size_t most_choices = 10;
  std::vector<OpSequence> sequences{every_op(model)};
  if (choices.size() > most_choices) {
    constexpr std::int64_t steps = 1'000;
    greedy_sequences(model, steps, [&](const OpSequence& sequence) { sequences.push_back(sequence); });
    return sequences;
  }
  for (std::size_t set = 0; set < (std::size_t{1} << choices.size()); ++set) {
    for (std::size_t c = 0; c < choices.size(); ++c) evicted[choices[c]] = (set >> c) % 2 == 1;
    if (std::optional<OpSequence> sequence = recompute_order(model, evicted)) sequences.push_back(std::move(*sequence));
  }
  return sequences;
}

std::vector<PricedSequence> best_options(const BlockPart& part, const std::vector<OpSequence>& sequences,
                                         std::size_t count) {
  std::vector<PricedSequence> all;
  all.reserve(sequences.size());
  for (const OpSequence& sequence : sequences) all.push_back({sequence, cost_of(part, sequence)});
  const auto need = [](const BlockOption& cost) { return std::pair(std::max(cost.forward, cost.backward), cost.kept); };
  const auto kept = [](const BlockOption& cost) { return std::pair(cost.kept, std::max(cost.forward, cost.backward)); };
  std::vector<std::size_t> chosen = front(all, count, need);
  if (part.waiting) {
    const std::vector<std::size_t> more = front(all, count, kept);
    chosen.insert(chosen.end(), more.begin(), more.end());
  }
  std::ranges::sort(chosen);
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  std::vector<PricedSequence> best;
  best.reserve(chosen.size());
  for (const std::size_t k : chosen) best.push_back(std::move(all[k]));
  return best;
}

}  // namespace plimsoll
