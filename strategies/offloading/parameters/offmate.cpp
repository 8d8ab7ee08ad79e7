// The strategy `offmate`: some parameters live on the host and stream to the device around their uses, some optimizer
// states live there and the host updates their parameters, the rest stays on the device; which, and how far ahead, by
// simulation of many choices. Source: Zhao, Eyraud-Dubois, Le Hellard, Gusak, Beaumont, "OffMate: full fine-tuning of
// LLMs on a single GPU by re-materialization and offloading", 2024, whose continuous program is the bound here.

#include <algorithm>
#include <set>
#include <tuple>

#include "strategies/api/strategy.h"
#include "strategies/offloading/activations/tape_pool.h"
#include "strategies/offloading/parameters/offmate_bound.h"
#include "strategies/offloading/parameters/streamed_parameters.h"
#include "strategies/offloading/updates/placed_updates.h"

namespace plimsoll {
namespace {

struct OffmateOptions {
  std::optional<std::uint32_t> lead;
  std::int64_t steps = 8;
  bool overlap = true;
};

/// Parameters that share a fate: those of an update, or one that is not trained.
struct Group {
  std::optional<OpId> update;
  std::vector<TensorId> parameters;
  Bytes bytes;
};

/// Which of the groups that may be streamed are, for a share of their bytes.
enum class Order : std::uint8_t { spread, largest_first, last_used_first };

/// What is chosen: the first updates of this share of the bytes on the host, and of what may then be streamed this
/// share.
struct Choice {
  std::int64_t on_host = 0, streamed = 0;  ///< steps
  Order order = Order::spread;
  std::uint32_t lead = 1;
};

class Offmate {
 public:
  Offmate(const PartTask& task, const OffmateOptions& options, const Tape* before)
      : task_(task),
        graph_(task.problem.graph),
        tape_(tape_to_update(task, before, "offmate", false)),
        copies_{.overlaps_backward = options.overlap},
        steps_(options.steps) {
    std::set<TensorId> trained;
    for (const OpId op : updates_by_gradient(task.problem, tape_)) {
      Group& group = updated_.emplace_back(Group{op, {}, {}});
      for (const TensorId t : graph_[op].mutates) {
        if (graph_[t].kind != TensorKind::parameter) continue;
        add(group, t);
        trained.insert(t);
      }
    }
    read_ = parameters_read(task.problem, tape_);
    for (const TensorId t : read_) {
      if (!trained.contains(t)) add(frozen_.emplace_back(), t);
    }
    add_plans(options);
  }

  const TapePool& pool() const { return pool_; }
  const Tape& tape() const { return tape_; }

 private:
  void add(Group& group, TensorId t) const {
    group.parameters.push_back(t);
    group.bytes += graph_[t].bytes;
  }

  void add_plans(const OffmateOptions& options) {
    std::vector<std::uint32_t> leads{1, 2, 4};
    if (options.lead) leads = {*options.lead};
    const std::int64_t most = updated_.empty() ? 0 : steps_;
    for (std::int64_t on_host = 0; on_host <= most; ++on_host) {
      add_plan({on_host, 0, Order::spread, 0});
      for (std::int64_t streamed = 1; streamed <= steps_; ++streamed) {
        for (const Order order : {Order::spread, Order::largest_first, Order::last_used_first}) {
          for (const std::uint32_t lead : leads) add_plan({on_host, streamed, order, lead});
        }
      }
    }
  }

  /// Of each group, in order, whether it is in a share of the bytes: the first ones, or evenly spread.
  std::vector<bool> share_of(std::span<const Group* const> groups, std::int64_t share, bool spread) const {
    double all = 0, passed = 0, taken = 0;
    for (const Group* group : groups) all += static_cast<double>(group->bytes.count);
    const double part = static_cast<double>(share) / static_cast<double>(steps_);
    std::vector<bool> chosen;
    for (const Group* group : groups) {
      const auto bytes = static_cast<double>(group->bytes.count);
      passed += bytes;
      // As many as bring what is taken nearest to the share of what has passed, or to that of all.
      const double wanted = spread ? part * passed : part * all;
      chosen.push_back(share > 0 && taken + bytes / 2 <= wanted);
      if (share == steps_) chosen.back() = true;
      if (chosen.back()) taken += bytes;
    }
    return chosen;
  }

  void add_plan(const Choice& choice) {
    std::vector<const Group*> trained, streamable;
    for (const Group& group : updated_) trained.push_back(&group);
    const std::vector<bool> on_host = share_of(trained, choice.on_host, false);
    std::vector<UpdateGroup> placed{{{}, UpdateSite::host}, {{}, UpdateSite::device}};
    for (std::size_t g = 0; g < updated_.size(); ++g) {
      placed[on_host[g] ? 0 : 1].ops.push_back(*updated_[g].update);
      if (on_host[g]) streamable.push_back(&updated_[g]);
    }
    for (const Group& group : frozen_) streamable.push_back(&group);
    if (choice.streamed > 0 && streamable.empty()) return;
    const auto first_use = [&](const Group* group) {
      return std::ranges::find(read_, group->parameters.front()) - read_.begin();
    };
    if (choice.order == Order::last_used_first) {
      std::ranges::stable_sort(streamable, std::ranges::greater(), first_use);
    } else {
      std::ranges::stable_sort(streamable, {}, first_use);
    }
    if (choice.order == Order::largest_first)
      std::ranges::stable_sort(streamable, std::ranges::greater(), &Group::bytes);
    const std::vector<bool> streams = share_of(streamable, choice.streamed, choice.order == Order::spread);
    std::set<TensorId> chosen;
    for (std::size_t g = 0; g < streamable.size(); ++g) {
      if (streams[g]) chosen.insert(streamable[g]->parameters.begin(), streamable[g]->parameters.end());
    }
    StreamedParameters streamed{.parameters = {}, .lead = choice.lead};
    for (const TensorId t : read_) {
      if (chosen.contains(t)) streamed.parameters.push_back(t);
    }
    if (!made_.insert({choice.lead, streamed.parameters, placed[0].ops}).second) return;
    Tape tape = with_streamed_parameters(task_.problem, tape_, streamed);
    pool_.add(simulated(task_, with_updates(task_.problem, std::move(tape), placed, copies_)));
  }

  const PartTask& task_;
  const Graph& graph_;
  Tape tape_;
  UpdateCopies copies_;
  std::int64_t steps_;
  std::vector<TensorId> read_;  // parameters, by first use
  std::vector<Group> updated_;  // in the order in which their gradients are complete
  std::vector<Group> frozen_;   // by first use
  std::set<std::tuple<std::uint32_t, std::vector<TensorId>, std::vector<OpId>>> made_;  // what has been simulated
  TapePool pool_;
};

constexpr auto offmate_options = options_of<OffmateOptions>(
    option_of<&OffmateOptions::lead>({
        .name = "lead",
        .least = 0,
        .most = 1'000'000,
        .values = "auto or a whole number",
        .help = "how many layers ahead copying of streamed parameters starts: 0 only when needed, 1 double buffering, "
                "2 triple; auto: 1, 2 or 4, whichever is the fastest within the budget",
    }),
    option_of<&OffmateOptions::steps>({
        .name = "steps",
        .least = 1,
        .most = 100,
        .help = "resolution of the shares of updates on the host and of streamed parameters: both are tried in steps "
                "of 1/steps",
    }),
    option_of<&OffmateOptions::overlap>({
        .name = "overlap",
        .words = "off on",
        .values = "on or off",
        .help = "on: an update on the host begins as soon as its gradient has arrived; off: after the whole backward",
    }));

std::vector<TapeOutcome> offmate_tapes(const PartTask& task, const OffmateOptions& options,
                                       std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const Offmate offmate(task, options, before);
  std::vector<TapeOutcome> outcomes =
      offmate.pool().outcomes(budgets, "every choice of shares on the host needs more memory");
  if (before != nullptr) return outcomes;  // the passes together have no bound
  const OffmateBound bound(task, offmate.tape(), options.overlap);
  for (std::size_t b = 0; b < budgets.size(); ++b) {
    PlannedTape* made = std::get_if<PlannedTape>(&outcomes[b]);
    if (made != nullptr) made->gap = bound.gap(budgets[b], made->makespan);
  }
  return outcomes;
}

std::vector<Bytes> offmate_candidates(const PartTask& task, const OffmateOptions& options) {
  return Offmate(task, options, nullptr).pool().peaks();
}

}  // namespace

extern constinit const StrategyInfo offmate_strategy{
    .name = "offmate",
    .family = Family::offloading,
    .summary = "streams a share of the parameters to the device and updates a share on the host, during the iteration",
    .source =
        "Zhao et al., 'OffMate: full fine-tuning of LLMs on a single GPU by re-materialization and offloading', 2024",
    .options = offmate_options,
    .kind =
        TapeStrategy{
            .tapes = by_options<offmate_tapes>,
            .candidates = by_options<offmate_candidates>,
            .moves_parameters = true,
        },
};

}  // namespace plimsoll
