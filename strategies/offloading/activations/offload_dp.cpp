// The strategy `offload_dp`: which stages' values leave, by dynamic programming over the stages of a chain, if copies
// that end inside a stage were free to be counted at its end. Source: the second relaxation of Beaumont, Eyraud-Dubois,
// Shilova, "Optimal GPU-CPU offloading strategies for deep neural network training", Euro-Par 2020. Its text was not at
// hand; states as in the offloading half of POFO (Beaumont, Eyraud-Dubois, Shilova, NeurIPS 2021).

#include <algorithm>
#include <cmath>
#include <limits>

#include "strategies/api/strategy.h"
#include "strategies/offloading/activations/offload_levels.h"
#include "strategies/offloading/activations/offload_model.h"
#include "strategies/offloading/activations/offload_options.h"
#include "strategies/offloading/activations/offload_placement.h"
#include "strategies/offloading/activations/offload_plans.h"
#include "strategies/offloading/activations/offload_selection.h"
#include "strategies/offloading/activations/offload_store.h"

namespace plimsoll {
namespace {

// The dynamic program of `offload_dp`: stage by stage inwards, its forward and its backward together,
//   I(i, O, f, b) = least idle time of stages i.. if O bytes have been chosen to leave, of which f wait to leave when
//   forward i starts, and b must still come back, in reverse, when backward i ends.
// Stage i idles for the bytes that must move for its two memory needs,
//   f' = f - wait_f - time(F_i) * bandwidth out,  wait_f = max(0, memory(F_i) - O + f - budget) <= f,
// b' likewise with the way back; then its own value joins O, f' and b', or stays.

/// One stage: its forward and backward positions, and its values that may leave, as gaps.
struct OffloadStage {
  std::uint32_t forward = 0, backward = 0;
  std::vector<std::uint32_t> gaps;
  Bytes bytes;
};

constexpr float infinite = std::numeric_limits<float>::infinity();

class OffloadTable {
 public:
  OffloadTable(const OffloadModel& model, const std::vector<OffloadStage>& stages, Bytes budget, std::uint32_t slots)
      : model_(model), stages_(stages), budget_(budget), slots_(slots), side_(slots + 1) {
    Bytes all;
    for (const OffloadStage& stage : stages) all += stage.bytes;
    slot_ = Bytes{std::max<std::int64_t>(1, (all.count + slots - 1) / slots)};
  }

  std::optional<std::vector<bool>> solve() {
    idle_.assign(size(), infinite);
    idle_[0] = 0;
    for (const OffloadStage& stage : stages_) advance(stage);
    const auto best = std::ranges::min_element(idle_);
    if (*best == infinite) return std::nullopt;
    std::vector<bool> leaves(stages_.size());
    auto state = static_cast<std::uint32_t>(best - idle_.begin());
    for (std::size_t i = stages_.size(); i-- > 0;) {
      leaves[i] = came_[i][state].leaves;
      state = came_[i][state].from;
    }
    return leaves;
  }

 private:
  struct Came {
    std::uint32_t from = 0;
    bool leaves = false;
  };
  struct Moved {
    bool possible = false;
    float idle = 0;
    std::uint32_t left = 0;  ///< slots that still wait
  };

  std::size_t size() const { return std::size_t{side_} * side_ * side_; }

  /// One direction of a stage.
  Moved move(std::uint32_t chosen, std::uint32_t waiting, std::uint32_t position, const CopyRate& rate) const {
    const Bytes waits = std::int64_t{waiting} * slot_, away = std::int64_t{chosen} * slot_;
    const Bytes wait = std::max(Bytes{}, model_.memory[position] - away + waits - budget_);
    if (wait > waits) return {};
    const Seconds idle = wait / rate.bandwidth;
    const double moved = model_.time[position].value * rate.bandwidth.value;
    const double left = static_cast<double>((waits - wait).count) - (moved > 0 ? moved : 0);
    const double slots = left > 0 ? std::ceil(left / static_cast<double>(slot_.count)) : 0;
    return {true, static_cast<float>(idle.value), static_cast<std::uint32_t>(slots)};
  }

  void advance(const OffloadStage& stage) {
    std::vector<float> next(size(), infinite);
    std::vector<Came>& came = came_.emplace_back(size());
    const auto joins = static_cast<std::uint32_t>((stage.bytes.count + slot_.count - 1) / slot_.count);
    const auto leaves = static_cast<std::uint32_t>(stage.bytes.count / slot_.count);
    std::uint32_t state = 0;
    for (std::uint32_t chosen = 0; chosen <= slots_; ++chosen) {
      std::vector<Moved> out, in;
      for (std::uint32_t waiting = 0; waiting <= slots_; ++waiting) {
        out.push_back(move(chosen, waiting, stage.forward, model_.out));
        in.push_back(move(chosen, waiting, stage.backward, model_.in));
      }
      for (std::uint32_t f = 0; f <= slots_; ++f) {
        for (std::uint32_t b = 0; b <= slots_; ++b, ++state) {
          if (idle_[state] == infinite || !out[f].possible || !in[b].possible) continue;
          const float idle = idle_[state] + out[f].idle + in[b].idle;
          const auto reach = [&](std::uint32_t c, std::uint32_t to_leave, std::uint32_t to_return, bool goes) {
            const std::uint32_t to =
                (std::min(c, slots_) * side_ + std::min(to_leave, slots_)) * side_ + std::min(to_return, slots_);
            if (idle >= next[to]) return;
            next[to] = idle;
            came[to] = {state, goes};
          };
          reach(chosen, out[f].left, in[b].left, false);
          if (leaves > 0) reach(chosen + leaves, out[f].left + joins, in[b].left + joins, true);
        }
      }
    }
    idle_ = std::move(next);
  }

  const OffloadModel& model_;
  const std::vector<OffloadStage>& stages_;
  Bytes budget_, slot_;
  std::uint32_t slots_, side_;
  std::vector<float> idle_;              // by state: chosen, waiting to leave, waiting to come back
  std::vector<std::vector<Came>> came_;  // by stage and state
};

/// By stage whether its value leaves; nothing where that is never enough. Sizes are rounded up to a slot where they
/// wait, down where they have left.
std::optional<std::vector<bool>> choose_stages(const OffloadModel& model, const std::vector<OffloadStage>& stages,
                                               Bytes budget, std::uint32_t slots) {
  return OffloadTable(model, stages, budget, slots).solve();
}

struct OffloadDpOptions : OffloadOptions {
  std::uint32_t slots = 24;
};

/// A stage's first forward and last backward position on the tape, and what its first forward leaves for the backward.
std::vector<OffloadStage> stages_of(const PartTask& task, const OffloadModel& model) {
  std::vector<OffloadStage> stages(task.problem.chain->stages.size());
  std::vector<bool> ran(stages.size(), false);
  for (std::uint32_t p = 0; p < model.positions(); ++p) {
    const Op& op = task.problem.graph[model.computes[p].op];
    if (op.phase == Phase::forward && !ran[op.stage]) stages[op.stage].forward = p;
    if (op.phase == Phase::forward) ran[op.stage] = true;
    if (op.phase != Phase::forward) stages[op.stage].backward = p;
  }
  for (const std::uint32_t g : saved_gaps(model)) {
    const OffloadGap& gap = model.gaps[g];
    if (!gap.holds_positions()) continue;
    OffloadStage& stage = stages[task.problem.graph[model.computes[gap.made].op].stage];
    stage.gaps.push_back(g);
    stage.bytes += gap.bytes;
  }
  return stages;
}

TapePool offload_dp_plans(const PartTask& task, const OffloadDpOptions& options, const OffloadModel& model) {
  TapePool pool;
  pool.add(planned_moves(task, model, {}));
  if (!model.has_host) return pool;
  const std::uint32_t chunks = options.chunks;
  const auto slots = options.slots;
  const Selection all = select_items(model, offload_items(model, 1), SelectionRule::first_made);
  const std::vector<OffloadStage> stages = stages_of(task, model);
  for (const Bytes budget : memory_levels(all.peaks.back(), all.peaks.front(), options.levels, model.positions())) {
    const std::optional<std::vector<bool>> leaves = choose_stages(model, stages, budget, slots);
    std::vector<bool> chosen(model.gaps.size(), false);
    for (std::size_t i = 0; leaves && i < stages.size(); ++i) {
      for (const std::uint32_t g : stages[i].gaps) chosen[g] = (*leaves)[i];
    }
    if (const std::optional<PlacedCopies> made = place_chosen(model, chosen, chunks, budget)) {
      pool.add(planned_moves(task, model, made->moves));
    }
  }
  return pool;
}

constexpr auto offload_dp_options = options_of<OffloadDpOptions>(
    option_of<&OffloadDpOptions::slots>({
        .name = "slots",
        .least = 2,
        .most = 100,
        .help = "resolution of the choice: sizes are rounded to 1/slots of the bytes that can be offloaded; the plan "
                "itself is exact",
    }),
    copy_chunks_option, levels_option, store_option);

std::vector<TapeOutcome> offload_dp_tapes(const PartTask& task, const OffloadDpOptions& options,
                                          std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  return best_plans(task, options, budgets, before,
                    [&](const OffloadModel& model) { return offload_dp_plans(task, options, model); });
}

std::vector<Bytes> offload_dp_candidates(const PartTask& task, const OffloadDpOptions& options) {
  return peaks_of_plans(task, options,
                        [&](const OffloadModel& model) { return offload_dp_plans(task, options, model); });
}

}  // namespace

extern constinit const StrategyInfo offload_dp_strategy{
    .name = "offload_dp",
    .family = Family::offloading,
    .summary = "chooses the stages to offload by dynamic programming over the bytes that wait to leave and to return",
    .source = "Beaumont, Eyraud-Dubois, Shilova, \"Optimal GPU-CPU offloading strategies\", Euro-Par 2020",
    .chains_only = true,
    .options = offload_dp_options,
    .kind = TapeStrategy{.tapes = by_options<offload_dp_tapes>, .candidates = by_options<offload_dp_candidates>},
    .effort = {.stages = 300},
};

}  // namespace plimsoll
