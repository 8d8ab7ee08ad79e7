#include "strategies/offloading/parameters/demand_layering.h"

#include <algorithm>

#include "strategies/api/front.h"
#include "strategies/api/strategy.h"
#include "strategies/offloading/activations/offload_options.h"
#include "strategies/offloading/updates/placed_updates.h"

namespace plimsoll {
namespace {

/// The places of a tape's computes among its actions.
std::vector<std::size_t> computes_of(const Tape& tape) {
  std::vector<std::size_t> places;
  for (std::size_t a = 0; a < tape.actions.size(); ++a) {
    if (tape.actions[a].kind == ActionKind::run) places.push_back(a);
  }
  return places;
}

class StreamingTape {
 public:
  StreamingTape(const Problem& problem, const Tape& tape, const StreamedParameters& streamed)
      : graph_(problem.graph),
        streamed_(streamed),
        computes_(computes_of(tape)),
        uses_(graph_.storages),
        before_(computes_.size()),
        after_(computes_.size()) {
    for (std::size_t p = 0; p < computes_.size(); ++p) {
      for (const TensorId t : graph_[tape.actions[computes_[p]].op].inputs) {
        std::vector<std::size_t>& uses = uses_[graph_[t].storage.index];
        if (graph_[t].kind == TensorKind::parameter && (uses.empty() || uses.back() != p)) uses.push_back(p);
      }
    }
  }

  Tape made(Tape tape) && {
    for (const TensorId t : streamed_.parameters) {
      tape.homes.push_back({t, {streamed_.from_disk ? place::disk : place::host}});
      stream(t);
    }
    std::vector<Action> actions;
    std::size_t p = 0;
    for (std::size_t a = 0; a < tape.actions.size(); ++a) {
      const bool is_compute = p < computes_.size() && computes_[p] == a;
      if (is_compute) append(actions, std::move(before_[p]));
      actions.push_back(tape.actions[a]);
      if (is_compute) append(actions, std::move(after_[p++]));
    }
    tape.actions = std::move(actions);
    return tape;
  }

 private:
  /// A copy before a compute, for the compute that reads it.
  struct Arrival {
    std::size_t use;
    Action action;
  };

  static void append(std::vector<Action>& actions, std::vector<Arrival> arrivals) {
    std::ranges::stable_sort(arrivals, {}, &Arrival::use);
    for (const Arrival& arrival : arrivals) actions.push_back(arrival.action);
  }

  void stream(TensorId t) {
    const std::vector<std::size_t>& uses = uses_[graph_[t].storage.index];
    std::size_t free_from = 0;  // the first position at which the last copy is gone
    for (std::size_t u = 0; u < uses.size(); ++u) {
      const bool is_there = u > 0 && uses[u] <= uses[u - 1] + 1 + streamed_.lead;
      if (!is_there) {
        const std::size_t copy = ahead(uses[u], free_from);
        const ActionKind kind = streamed_.from_disk ? ActionKind::move : ActionKind::copy;
        before_[copy].push_back({uses[u], along(way::host_to_device, kind, t)});
        if (streamed_.from_disk) read(t, uses[u], ahead(copy, free_from));
      }
      const bool stays = u + 1 < uses.size() && uses[u + 1] <= uses[u] + 1 + streamed_.lead;
      if (stays) continue;
      after_[uses[u]].push_back({uses[u], on_tensor(ActionKind::drop, t)});
      free_from = uses[u] + 1;
    }
  }

  std::size_t ahead(std::size_t position, std::size_t free_from) const {
    const std::size_t lead = streamed_.lead;
    return std::max(free_from, position - std::min(position, lead));
  }

  /// Among the copies that begin there it comes first, so that they need not wait for a later compute.
  void read(TensorId t, std::size_t use, std::size_t position) {
    std::vector<Arrival>& arrivals = before_[position];
    arrivals.insert(arrivals.begin(), {use, along(way::disk_to_host, ActionKind::copy, t)});
  }

  const Graph& graph_;
  const StreamedParameters& streamed_;
  std::vector<std::size_t> computes_;                 // places among the tape's actions
  std::vector<std::vector<std::size_t>> uses_;        // by storage: positions that read it
  std::vector<std::vector<Arrival>> before_, after_;  // by position
};

struct DemandLayeringOptions : HostUpdateOptions {
  std::optional<std::uint32_t> lead;
  bool from_disk = false;
};

constexpr std::uint32_t buffers_on_host = 2;  // of updates by way of a disk

std::size_t computes(const Tape& tape) {
  return static_cast<std::size_t>(std::ranges::count(tape.actions, ActionKind::run, &Action::kind));
}

/// 0, 1, 2, 4, .. until everything is there from the start.
std::vector<std::uint32_t> leads(const DemandLayeringOptions& options, std::size_t positions) {
  if (options.lead) return {*options.lead};
  std::vector<std::uint32_t> list{0};
  for (std::uint32_t lead = 1; lead < 2 * positions; lead *= 2) list.push_back(lead);
  return list;
}

Plans demand_layering_plans(const PartTask& task, const DemandLayeringOptions& options, const Tape* before) {
  const bool from_disk = options.from_disk;
  const Tape tape = tape_to_update(task, before, "demand_layering", from_disk);
  const UpdateGroup all{updates_by_gradient(task.problem, tape), from_disk ? UpdateSite::disk : UpdateSite::host};
  const UpdateCopies copies{.overlaps_backward = options.overlap, .on_host_at_once = buffers_on_host};
  Front pool;
  for (const std::uint32_t lead : leads(options, computes(tape))) {
    Tape made = with_streamed_parameters(
        task.problem, tape, {.parameters = parameters_read(task.problem, tape), .lead = lead, .from_disk = from_disk});
    made = all.ops.empty() ? with_gradients_on_host(task.problem, std::move(made))
                           : with_updates(task.problem, std::move(made), std::span(&all, 1), copies);
    pool.add(simulated(task, std::move(made)));
  }
  return {std::move(pool), "not even one layer's parameters at a time fit"};
}

constexpr auto demand_layering_options = options_of<DemandLayeringOptions>(
    option_of<&DemandLayeringOptions::lead>({
        .name = "lead",
        .least = 0,
        .most = 1'000'000,
        .values = "auto or a whole number",
        .help = "how many layers ahead copying starts: 0 only when needed, 1 double buffering, 2 triple; auto: the "
                "lead that is the fastest within the budget",
    }),
    option_of<&DemandLayeringOptions::from_disk>({
        .name = "from",
        .words = "host disk",
        .help = "memory where parameters and optimizer states live between iterations; from a disk they are copied to "
                "the host first, with the same lead",
    }),
    overlap_option);

}  // namespace

Tape with_streamed_parameters(const Problem& problem, Tape tape, const StreamedParameters& streamed) {
  StreamingTape streaming(problem, tape, streamed);
  return std::move(streaming).made(std::move(tape));
}

std::vector<TensorId> parameters_read(const Problem& problem, const Tape& tape) {
  const Graph& graph = problem.graph;
  std::vector<bool> seen(graph.storages, false);
  std::vector<TensorId> parameters;
  for (const std::size_t a : computes_of(tape)) {
    for (const TensorId t : graph[tape.actions[a].op].inputs) {
      if (graph[t].kind != TensorKind::parameter || seen[graph[t].storage.index]) continue;
      seen[graph[t].storage.index] = true;
      parameters.push_back(t);
    }
  }
  return parameters;
}

// The strategy `demand_layering`: parameters live on the host or a disk and stream to the device layer by layer, ahead
// of their use in the forward and again in the backward. Source: Ji, Lee, Kim, Kim, Ahn, Kim, Kim, "Demand Layering for
// real-time DNN inference with minimized memory usage", RTSS 2022; the backward and the updates are own.
extern constinit const StrategyInfo demand_layering_strategy{
    .name = "demand_layering",
    .family = Family::offloading,
    .summary = "streams parameters to the device layer by layer and updates them on the host",
    .source = "Ji et al., 'Demand Layering for real-time DNN inference with minimized memory usage', RTSS 2022",
    .options = demand_layering_options,
    .kind = planned_at_once<DemandLayeringOptions, demand_layering_plans>({.moves_parameters = true}),
};

}  // namespace plimsoll
