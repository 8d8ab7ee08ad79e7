// The transform `chain`: a graph of ops becomes a chain of stages, cut where one value alone goes on, so that planners
// of chains take it. Source: our own; the places are those at which rematerialization of chains is applied to networks
// by Beaumont et al., "Optimal checkpointing for heterogeneous chains", 2019.

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "sim/model/stage_chain.h"
#include "strategies/api/strategy.h"

namespace plimsoll {
namespace {

/// Ops of a graph by the stages between its narrow places.
class NarrowStages {
 public:
  explicit NarrowStages(const Graph& graph)
      : graph_(graph), maker_(graph.storages), last_reader_(graph.storages), stage_of_(graph.ops.size()) {
    find_uses();
    cut_forward();
    sort_backward();
  }

  /// By op; an update's says nothing.
  const std::vector<std::uint32_t>& stage_of() const { return stage_of_; }
  std::uint32_t count() const { return stages_; }

 private:
  bool is_forward(std::size_t o) const { return graph_.ops[o].phase == Phase::forward; }

  /// Of what forwards make: by storage, the first op that makes it and the last forward that reads it.
  void find_uses() {
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (!is_forward(o)) continue;
      for (const TensorId t : graph_.ops[o].inputs) last_reader_[graph_[t].storage.index] = o;
      for (const TensorId t : graph_.ops[o].outputs) {
        std::optional<std::size_t>& maker = maker_[graph_[t].storage.index];
        if (!is_given(graph_[t].kind) && !maker) maker = o;
      }
    }
  }

  /// What makes a value and what overwrites it run again together, or not at all.
  void cut_forward() {
    const std::vector<std::size_t> overwritten = last_overwritten();
    std::size_t going_on = 0, whole_from = 0;
    bool is_cut = false;
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (!is_forward(o)) continue;
      stage_of_[o] = stages_;
      going_on += ends(o, maker_) - ends(o, last_reader_);
      for (const TensorId t : graph_.ops[o].outputs) {
        whole_from = std::max(whole_from, overwritten[graph_[t].storage.index]);
      }
      is_cut = going_on == 1 && o >= whole_from;
      if (is_cut) ++stages_;
    }
    if (!is_cut) ++stages_;
  }

  /// By storage: the last forward that overwrites it, where one does.
  std::vector<std::size_t> last_overwritten() const {
    std::vector<std::size_t> last(graph_.storages, 0);
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (!is_forward(o)) continue;
      for (const TensorId t : graph_.ops[o].mutates) last[graph_[t].storage.index] = o;
    }
    return last;
  }

  /// Storages made by forwards and read by later ones, whose `at` is this op.
  std::size_t ends(std::size_t o, const std::vector<std::optional<std::size_t>>& at) const {
    std::vector<StorageId> seen;
    for (const auto* list : {&graph_.ops[o].inputs, &graph_.ops[o].outputs}) {
      for (const TensorId t : *list) {
        const std::size_t s = graph_[t].storage.index;
        if (!maker_[s] || !last_reader_[s] || *last_reader_[s] <= *maker_[s] || at[s] != o) continue;
        if (std::ranges::find(seen, graph_[t].storage) == seen.end()) seen.push_back(graph_[t].storage);
      }
    }
    return seen.size();
  }

  /// A backward op is of the earliest stage whose values one up to it has read. What goes on is the last reader's.
  void sort_backward() {
    std::uint32_t now = stages_ - 1;
    std::vector<bool> ends(stages_, false);  // by stage: whether the next one is another
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (!is_backward(graph_.ops[o].phase)) continue;
      for_values(o, [&](std::size_t s) { now = std::min(now, stage_of_[goes_on(s) ? *last_reader_[s] : *maker_[s]]); });
      stage_of_[o] = now;
      ends[now] = true;
    }
    join_stages(std::move(ends));
  }

  /// A stage without a backward is one with the next. So are all between an op and a later stage whose values it reads.
  void join_stages(std::vector<bool> ends) {
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (!is_backward(graph_.ops[o].phase)) continue;
      for_values(o, [&](std::size_t s) {
        for (std::uint32_t i = stage_of_[o]; i < stage_of_[*maker_[s]]; ++i) ends[i] = false;
      });
    }
    ends.back() = false;
    std::vector<std::uint32_t> number{0};
    for (std::uint32_t i = 0; i + 1 < stages_; ++i) number.push_back(number.back() + (ends[i] ? 1 : 0));
    stages_ = number.back() + 1;
    for (std::uint32_t& stage : stage_of_) stage = number[stage];
  }

  /// Storages that a forward has made, of an op's inputs.
  template <class Use>
  void for_values(std::size_t o, Use use) const {
    for (const TensorId t : graph_.ops[o].inputs) {
      if (maker_[graph_[t].storage.index]) use(graph_[t].storage.index);
    }
  }

  /// Whether a later stage's forward reads it.
  bool goes_on(std::size_t storage) const {
    return last_reader_[storage] && stage_of_[*last_reader_[storage]] > stage_of_[*maker_[storage]];
  }

  const Graph& graph_;
  std::vector<std::optional<std::size_t>> maker_, last_reader_;  // by storage, among forwards
  std::vector<std::uint32_t> stage_of_;
  std::uint32_t stages_ = 0;
};

std::variant<Problem, std::string> as_narrow_chain(const Problem& problem, const Options&) {
  if (problem.chain) return problem;
  const NarrowStages stages(problem.graph);
  const std::string& name = problem.graph.name;
  if (stages.count() < 2) return fmt::format("'{}' has no place in its forward where one value alone goes on", name);
  Problem staged = problem;
  for (std::size_t o = 0; o < staged.graph.ops.size(); ++o) staged.graph.ops[o].stage = stages.stage_of()[o];
  std::variant<Problem, std::string> made = as_chain(std::move(staged), Backward::whole, Inner::together, Unread::stay);
  if (Problem* chain = std::get_if<Problem>(&made)) {
    chain->notes.push_back(
        fmt::format("'{}' is planned as a chain of {} stages: within a stage all ops run again, or none", name,
                    chain->chain->stages.size()));
  }
  return made;
}

}  // namespace

extern constinit const StrategyInfo chain_strategy{
    .name = "chain",
    .family = Family::transform,
    .summary = "makes a graph a chain of stages, cut where one value alone goes on, for planners of chains",
    .source = "own",
    .kind = TransformStrategy{.transform = as_narrow_chain},
};

}  // namespace plimsoll
