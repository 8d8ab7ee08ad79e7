#include "tests/strategies/compression/compress_plan_oracle.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <set>

#include "sim/codec/predicted_error.h"
#include "sim/core/codec.h"
#include "sim/lower/lowering.h"
#include "strategies/compression/packing.h"
#include "strategies/list.h"
#include "strategies/models/chain_part.h"
#include "strategies/models/op_sequence.h"
#include "strategies/models/recompute_order.h"
#include "strategies/offloading/activations/offload_bound.h"
#include "strategies/offloading/activations/offload_moves.h"

namespace plimsoll {
namespace {

constexpr Codec signs{.kind = CodecKind::mask, .bits = 1};

Codec in_bits(std::uint32_t bits) {
  return {.kind = CodecKind::quantize, .bits = bits, .group = 256, .group_bytes = 8};
}

/// Of a saved value: for uses that can do with signs, and for the others.
struct Way {
  std::optional<Codec> of_signs, of_values;
};

bool can_do_with_signs(const Graph& graph, const SavedUse& use) {
  const Op& op = graph[use.op];
  if (op.phase == Phase::forward) return false;
  return op.uses.empty() ? reads_packed(op, signs) : serves(signs, use.layer_use());
}

std::vector<Way> ways_of(const Graph& graph, const std::vector<SavedUse>& uses, TensorId t) {
  std::vector<Way> ways(1);
  std::size_t by_signs = 0, by_values = 0;
  for (const SavedUse& use : uses) {
    if (use.by == SavedBy::checkpoint) continue;
    ++(can_do_with_signs(graph, use) ? by_signs : by_values);
  }
  const std::optional<Codec> some =
      by_signs > 0 && !cannot_pack(signs, graph, graph[t]) ? std::optional(signs) : std::nullopt;
  if (some) ways.push_back({some, std::nullopt});
  for (const std::uint32_t bits : {8U, 4U, 2U}) {
    const Codec codec = in_bits(bits);
    if (by_values == 0 || cannot_pack(codec, graph, graph[t])) continue;
    if (packed_bytes(codec, graph, graph[t]) < graph[t].bytes) ways.push_back({some, codec});
  }
  return ways;
}

/// A tape in which values are made again or not, and what it saves.
struct Base {
  OffloadModel model;
  std::vector<SavedTensor> saved;
  std::vector<StorageId> values;       // distinct among the saved ones
  std::vector<std::vector<Way>> ways;  // by value

  Base(const PartTask& task, const Tape& tape) : model(std::get<OffloadModel>(offload_model(task, &tape))) {
    const Graph& graph = task.problem.graph;
    saved = saved_tensors(graph, model);
    std::map<StorageId, std::vector<SavedUse>> uses;
    for (const SavedTensor& each : saved) {
      std::vector<SavedUse>& all = uses[graph[each.tensor].storage];
      if (all.empty()) values.push_back(graph[each.tensor].storage);
      all.insert(all.end(), each.uses.begin(), each.uses.end());
    }
    for (const StorageId value : values) {
      const auto first = std::ranges::find(saved, value, [&](const SavedTensor& s) { return graph[s.tensor].storage; });
      ways.push_back(ways_of(graph, uses[value], first->tensor));
    }
  }

  double count() const {
    double count = 1;
    for (const auto& each : ways) count *= static_cast<double>(each.size());
    return count;
  }
};

/// All rows of steps in which what a sweep stores stays until its backward.
std::vector<ChainSequence> persistent(const ChainModel& model, std::size_t i, std::size_t l) {
  using Kind = ChainStep::Kind;
  std::vector<ChainSequence> all;
  for (ChainSequence& inner : i < l ? persistent(model, i + 1, l) : std::vector<ChainSequence>(1)) {
    inner.insert(inner.begin(), {Kind::forward_saving, i});
    inner.push_back({Kind::backward, i});
    all.push_back(std::move(inner));
  }
  for (std::size_t j = i + 1; j <= l && model.recomputable[j - 1]; ++j) {
    for (const ChainSequence& late : persistent(model, j, l)) {
      for (const ChainSequence& early : persistent(model, i, j - 1)) {
        ChainSequence& made = all.emplace_back();
        for (std::size_t k = i; k < j; ++k) made.push_back({Kind::forward, k});
        made.insert(made.end(), late.begin(), late.end());
        made.insert(made.end(), early.begin(), early.end());
      }
    }
  }
  return all;
}

std::vector<Base> bases(const PartTask& task, bool again, std::size_t most_values) {
  std::vector<Base> all;
  all.emplace_back(task, tape_of_ops(task.problem.graph, store_all_ops(task)));
  if (all[0].values.empty() || all[0].values.size() > most_values) return {};
  if (!again) return all;
  const OpModel model = op_model(task);
  const std::size_t turn = last_forward(model);
  Evicted dies(model.values.size(), false);
  std::vector<std::uint32_t> waiting;
  for (std::uint32_t v = 0; v < dies.size(); ++v) {
    if (!can_evict(model, v)) continue;
    dies[v] = model.values[v].readers.empty() || model.values[v].readers.back() <= turn;
    if (!dies[v]) waiting.push_back(v);
  }
  if (waiting.size() > most_values) return {};
  std::set<std::vector<std::pair<OpId, Saving>>> known;
  for (std::uint32_t subset = 1; subset < 1U << waiting.size(); ++subset) {
    Evicted evicted = dies;
    for (std::size_t k = 0; k < waiting.size(); ++k) evicted[waiting[k]] = (subset >> k & 1U) != 0;
    const std::optional<OpSequence> sequence = recompute_order(model, evicted);
    if (!sequence) continue;
    std::vector<std::pair<OpId, Saving>> runs;
    for (const OpRun& run : *sequence) runs.emplace_back(run.op, run.saving);
    if (known.insert(std::move(runs)).second) all.emplace_back(task, tape_of_ops(task.problem.graph, *sequence));
  }
  if (!task.problem.chain) return all;
  const ChainPart part = chain_part(task.problem, task.part());
  const ChainModel chain = chain_model(task.problem, part);
  for (const ChainSequence& sequence : persistent(chain, 0, chain.stages() - 1)) {
    all.emplace_back(task, chain_tape(task.problem, task.partition, task.id, part, sequence));
  }
  return all;
}

/// The tape with what dies after a run dropped before what is packed after it: so lowering frees it, and so the models
/// of what can be offloaded count it.
Tape with_drops_first(Tape tape) {
  const auto is_run = [](const Action& action) { return action.kind == ActionKind::run; };
  for (auto begin = tape.actions.begin(); begin != tape.actions.end();) {
    const auto end = std::find_if(begin, tape.actions.end(), is_run);
    std::set<TensorId> packed;
    for (auto a = begin; a != end; ++a) {
      if (a->kind == ActionKind::pack || a->kind == ActionKind::unpack) packed.insert(a->tensor);
    }
    std::stable_partition(begin, end, [&](const Action& action) {
      return action.kind == ActionKind::drop && !packed.contains(action.tensor);
    });
    begin = end == tape.actions.end() ? end : std::next(end);
  }
  return tape;
}

using TakeTape = std::function<void(const Base&, Tape, double error)>;

bool for_every_way(const PartTask& task, bool again, std::size_t most_values, std::size_t most_ways,
                   const TakeTape& take) {
  const std::vector<Base> all = bases(task, again, most_values);
  double count = 0;
  for (const Base& base : all) count += base.count();
  if (all.empty() || count > static_cast<double>(most_ways)) return false;
  const Graph& graph = task.problem.graph;
  for (const Base& base : all) {
    std::vector<std::size_t> chosen(base.values.size(), 0);
    for (bool more = true; more;) {
      const auto codec_of = [&](const SavedTensor& saved, const SavedUse& use) -> std::optional<Codec> {
        if (use.by == SavedBy::checkpoint) return std::nullopt;
        const auto v =
            static_cast<std::size_t>(std::ranges::find(base.values, graph[saved.tensor].storage) - base.values.begin());
        const Way& way = base.ways[v][chosen[v]];
        return can_do_with_signs(graph, use) ? way.of_signs : way.of_values;
      };
      Tape tape = with_drops_first(packed_tape(graph, base.model, base.saved, codec_of));
      const auto schedule = std::get<Schedule>(lower(task.problem, task.partition, std::span<const Tape>(&tape, 1)));
      take(base, std::move(tape), predicted_errors(schedule, graph).whole);
      more = false;
      for (std::size_t v = 0; v < chosen.size() && !more; ++v) {
        chosen[v] = (chosen[v] + 1) % base.ways[v].size();
        more = chosen[v] > 0;
      }
    }
  }
  return true;
}

}  // namespace

std::optional<std::vector<TriedWay>> every_way(const Problem& problem, bool again, std::size_t most_values,
                                               std::size_t most_ways) {
  const Partition partition = one_device(problem.graph, problem.micro_batches, 1);
  const PartTask task{problem, partition, PartId{0}};
  std::vector<TriedWay> tried;
  const bool all = for_every_way(task, again, most_values, most_ways, [&](const Base& base, Tape tape, double error) {
    const PlannedTape planned = *simulated_tape(task, base.model, std::move(tape));
    tried.push_back({planned.peak, planned.makespan, error});
  });
  return all ? std::optional(std::move(tried)) : std::nullopt;
}

std::optional<BestWithHost> best_with_host(const Problem& problem, Bytes budget, double error, std::size_t most_ways) {
  const Partition partition = one_device(problem.graph, problem.micro_batches, 1);
  const PartTask task{problem, partition, PartId{0}};
  BestWithHost best{std::nullopt, Seconds{std::numeric_limits<double>::infinity()}};
  const Options options(offload_exact_strategy.options, {});
  const std::optional<Bytes> limit = budget;
  const bool all = for_every_way(task, true, 6, most_ways, [&](const Base&, const Tape& tape, double lost) {
    if (lost > error) return;
    const auto model = std::get<OffloadModel>(offload_model(task, &tape));
    const std::optional<Seconds> bound = fluid_bound(model, budget);
    if (!bound) return;
    Seconds computing, converting;  // chunks are converted one by one, which copies may overlap
    for (std::size_t p = 0; p < model.positions(); ++p) {
      computing += model.time[p];
      if (model.computes[p].kind != ActionKind::run) converting += model.time[p];
    }
    best.bound = std::min(best.bound, std::max(computing, *bound - converting) + updates(task));
    if (best.found && *bound - converting + updates(task) >= *best.found) return;
    const TapeOutcome made =
        std::move(offload_exact_strategy.tapes(task, options, std::span(&limit, 1), &tape).front());
    const PlannedTape* planned = std::get_if<PlannedTape>(&made);
    if (planned != nullptr && (!best.found || planned->makespan < *best.found)) best.found = planned->makespan;
  });
  return all ? std::optional(best) : std::nullopt;
}

}  // namespace plimsoll
