#include "strategies/hybrid/on_mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "sim/core/collective_op.h"
#include "sim/io/input_error.h"
#include "sim/mesh/check_split.h"
#include "sim/mesh/collective_times.h"
#include "sim/mesh/folded.h"
#include "sim/mesh/rank_graph.h"
#include "sim/model/stage_chain.h"
#include "sim/model/stage_exchanges.h"
#include "sim/model/update_launches.h"
#include "strategies/hybrid/built.h"

namespace plimsoll {
namespace {

std::optional<std::string> too_many(const Mesh& mesh, const Platform& platform) {
  if (mesh.ranks() <= platform.devices.size()) return std::nullopt;
  return fmt::format("{} ranks, but '{}' has {} device{}", mesh.ranks(), platform.name, platform.devices.size(),
                     platform.devices.size() == 1 ? "" : "s");
}

/// Of replicas, and of the ranks of each that share it out where it is one (HSDP).
constexpr std::string_view data_name = "data", shards_name = "shards";

bool is_summed_by_stages(Sharded sharded) {
  return sharded == Sharded::gradients || sharded == Sharded::parameters;
}

Bytes rank_share(Bytes whole, std::uint32_t ranks) {
  return Bytes{(whole.count + ranks - 1) / ranks};
}

bool saves_apart(const Graph& graph) {
  return std::ranges::any_of(graph.ops, [](const Op& op) { return op.phase == Phase::forward && op.saved.size() > 2; });
}

/// Stages whose gradients, and whose parameters if these are shared too, are exchanged beside those of their
/// neighbours.
class SharedStages {
 public:
  SharedStages(Problem problem, CollectiveTimes& times, const Axis& axis, Together how)
      : problem_(std::move(problem)), times_(times), axis_(axis), how_(std::move(how)), sharded_(how_.sharded) {}

  Problem run() {
    Chain& chain = *problem_.chain;
    std::vector<StageExchanges> exchanges;
    for (Stage& stage : chain.stages) exchanges.push_back(share(stage));
    const Chain without_waits = chain;
    if (how_.overlaps) {
      add_exchanges(chain, exchanges, how_.prefetch > 0);
    } else {
      add_exposed_exchanges(chain, exchanges);
    }
    if (sharded_ == Sharded::parameters) {
      for (Parameter& parameter : chain.parameters) {
        if (parameter.trained) parameter.bytes = rank_share(parameter.bytes, ranks());
      }
    }
    const Backward backward = problem_.index->weight.empty() ? Backward::whole : Backward::split;
    const Inner inner = saves_apart(problem_.graph) ? Inner::apart : Inner::together;
    remake_graph(problem_, backward, inner);
    state_exchanges(problem_.graph, *problem_.index, without_waits, chain, by_axis(exchanges));
    return std::move(problem_);
  }

 private:
  std::vector<PassExchanges> by_axis(std::span<const StageExchanges> exchanges) const {
    std::vector<PassExchanges> made;
    const std::string& back = how_.kept_over ? how_.kept_over->name : axis_.name;
    for (const StageExchanges& each : exchanges) {
      PassExchanges& pass = made.emplace_back();
      PassExchanges::add(pass.forward, axis_.name, each.forward_gather, how_.overlaps);
      PassExchanges::add(pass.backward, back, each.backward_gather, how_.overlaps);
      PassExchanges::add(pass.backward, axis_.name, each.sum, how_.overlaps);
    }
    return made;
  }

  std::uint32_t ranks() const { return axis_.ranks; }

  StageExchanges share(Stage& stage) const {
    Bytes parameters;
    const std::set<std::uint32_t> own(stage.parameters.begin(), stage.parameters.end());
    for (const std::uint32_t p : own) {
      if (problem_.chain->parameters[p].trained) parameters += problem_.chain->parameters[p].bytes;
    }
    const Bytes gradients = stage.parameter_gradient.value_or(parameters);
    StageExchanges made;
    made.gradients = gradients;
    if (gradients > Bytes{0}) made.sum = seconds(CollectiveKind::reduce_scatter, gradients, axis_.name);
    if (sharded_ == Sharded::parameters && parameters > Bytes{0}) {
      made.forward_gather = seconds(CollectiveKind::all_gather, parameters, axis_.name);
      made.gathered_forward = parameters;
      stage.forward_nograd_workspace += parameters;
      if (how_.reshards) {
        const std::string& over = how_.kept_over ? how_.kept_over->name : axis_.name;
        made.backward_gather = seconds(CollectiveKind::all_gather, parameters, over);
        made.gathered_backward = parameters;
        stage.forward_workspace += parameters;
        if (how_.kept_over) keep_gathered(stage, shares(own, how_.kept_over->ranks));
      } else {
        keep_gathered(stage, parameters);
      }
    }
    add_backward_workspace(stage, gradients + made.gathered_backward);
    const Bytes of_share = rank_share(gradients, ranks());
    const Bytes of_parameters = sharded_ == Sharded::parameters ? shares(own, ranks()) : parameters;
    stage.parameter_gradient.reset();
    if (of_share != of_parameters) stage.parameter_gradient = of_share;
    return made;
  }

  /// Until the stage's backward is over.
  static void keep_gathered(Stage& stage, Bytes parameters) {
    stage.saved += parameters;
    if (stage.weight_saved) *stage.weight_saved += parameters;
    if (!stage.inner.empty()) stage.inner.push_back({.name = "gathered parameters", .bytes = parameters});
  }

  Bytes shares(const std::set<std::uint32_t>& own, std::uint32_t ranks) const {
    Bytes sum;
    for (const std::uint32_t p : own) {
      const Parameter& parameter = problem_.chain->parameters[p];
      if (parameter.trained) sum += rank_share(parameter.bytes, ranks);
    }
    return sum;
  }

  Seconds seconds(CollectiveKind kind, Bytes bytes, std::string_view over) const {
    std::vector<std::uint32_t> axes;
    for (const std::size_t a : problem_.mesh->axes_named(over)) axes.push_back(static_cast<std::uint32_t>(a));
    return times_.seconds(kind, bytes, axes);
  }

  Problem problem_;
  CollectiveTimes& times_;
  const Axis& axis_;
  Together how_;
  Sharded sharded_;
};

std::variant<Problem, std::string> by_stages(Problem problem, const Axis& axis, const Together& how) {
  if (problem.optimizer == Optimizer::none) {
    return "there are no updates whose states could be shared out: give an optimizer";
  }
  if (has_own_states(problem)) {
    return "on a chain it makes the updates of shares anew, and a transform before it has changed their states";
  }
  const Platform platform = problem.platform;  // which the times look at while the problem is moved
  std::variant<CollectiveTimes, std::string> times = CollectiveTimes::on(platform, *problem.mesh);
  if (std::string* why = std::get_if<std::string>(&times)) return std::move(*why);
  problem = SharedStages(std::move(problem), std::get<CollectiveTimes>(times), axis, how).run();
  return problem;
}

/// Whether whole replicas sum their gradients over the axis `data`, and nothing else is done along it.
bool are_replicas(const Problem& problem) {
  bool any = false;
  for (const Op& op : problem.graph.ops) {
    const std::optional<OpCollective> exchange = collective_of(op);
    if (!exchange || exchange->axis != data_name) continue;
    if (exchange->kind != CollectiveKind::all_reduce) return false;
    any = true;
  }
  return any;
}

/// Sums what stages keep of their gradients over the replicas again, their graph being a new one.
std::variant<Problem, std::string> over_replicas(Problem problem) {
  const Axis replicas = problem.mesh->axes[*problem.mesh->axis(data_name)];
  std::variant<Graph, std::string> graph =
      trained_together(std::move(problem.graph), replicas, {.sharded = Sharded::nothing, .bucket = usual_bucket});
  if (std::string* why = std::get_if<std::string>(&graph)) return std::move(*why);
  problem.graph = std::get<Graph>(std::move(graph));
  return problem;
}

void index_updates(Problem& problem) {
  if (!problem.index) return;
  problem.index->updates.clear();
  for (std::size_t o = 0; o < problem.graph.ops.size(); ++o) {
    if (problem.graph.ops[o].phase == Phase::update) problem.index->updates.push_back(id_at<OpId>(o));
  }
}

}  // namespace

std::variant<Problem, std::string> with_outer_axis(Problem problem, const Axis& axis,
                                                   std::optional<std::string_view> within) {
  if (!problem.mesh) problem.mesh = Mesh{};
  if (problem.mesh->axis(axis.name)) {
    return fmt::format("the ranks of an axis '{}' train together already", axis.name);
  }
  const std::ptrdiff_t place = within ? *problem.mesh->axis(*within) + std::ptrdiff_t{1} : 0;
  problem.mesh->axes.insert(problem.mesh->axes.begin() + place, axis);
  if (std::optional<std::string> why = too_many(*problem.mesh, problem.platform)) return std::move(*why);
  if (axis.shares_micro_batches) {
    if (problem.micro_batches % axis.ranks != 0) {
      return fmt::format("{} ranks cannot share out {} micro-batch{} equally; give a multiple of {}", axis.ranks,
                         problem.micro_batches, problem.micro_batches == 1 ? "" : "es", axis.ranks);
    }
    problem.micro_batches /= axis.ranks;
  }
  return problem;
}

std::variant<Problem, std::string> on_mesh(Problem problem, SplitPlan plan) {
  if (problem.chain) return no_operators(*problem.chain);
  if (problem.mesh) return std::string(cuts_first);
  if (std::optional<std::string> why = too_many(plan.mesh, problem.platform)) return std::move(*why);
  std::variant<Graph, std::string> made = rank_graph(problem.graph, plan);
  if (std::string* why = std::get_if<std::string>(&made)) return std::move(*why);
  const std::vector<std::string> wrong = check_split(problem.graph, std::get<Graph>(made), plan.mesh);
  if (!wrong.empty()) throw std::logic_error("a split that is none: " + wrong.front());
  problem.graph = std::get<Graph>(std::move(made));
  problem.mesh = std::move(plan.mesh);
  return problem;
}

std::variant<bool, std::string> overlaps(const DataOptions& options, Sharded sharded) {
  const bool shares_gradients = is_summed_by_stages(sharded);
  switch (options.overlap) {
    case ExchangeOverlap::yes:
      return true;
    case ExchangeOverlap::no:
    case ExchangeOverlap::none:
      return false;
    case ExchangeOverlap::ddp:
      if (sharded == Sharded::nothing) return true;
      return "overlap=ddp: PyTorch's DistributedDataParallel shares nothing out, as data_parallel does";
    case ExchangeOverlap::megatron:
      if (!shares_gradients) return false;
      return "overlap=megatron: Megatron's distributed optimizer shares states out, as zero1 does, and no more";
    case ExchangeOverlap::fsdp2:
      if (shares_gradients) return true;
      return "overlap=fsdp2: FSDP2 shares gradients out, as zero2 and zero3 do";
  }
  return true;
}

std::uint32_t devices_left(const Problem& problem) {
  const std::uint32_t ranks = problem.mesh ? problem.mesh->ranks() : 1;
  return std::max<std::uint32_t>(static_cast<std::uint32_t>(problem.platform.devices.size()) / ranks, 1);
}

Problem for_planners(Problem problem, bool plans_stages, Backward backward, std::string_view strategy, Inner inner) {
  const auto or_throw = [&]<class Value>(std::variant<Value, std::string> made) {
    if (const std::string* why = std::get_if<std::string>(&made)) {
      throw InputError(fmt::format("{}: {}", strategy, *why));
    }
    return std::get<Value>(std::move(made));
  };
  CollectiveTimes times = or_throw(CollectiveTimes::on(problem.platform, *problem.mesh));
  set_collective_seconds(problem.graph, *problem.mesh, times);
  for (std::string& note : times.unequal_axes()) problem.notes.push_back(std::move(note));
  if (problem.states) keep_own_roots(problem.graph, problem.optimizers(), problem.update_kernels);
  problem.platform = or_throw(folded(problem.platform, *problem.mesh));
  if (plans_stages && !problem.chain) problem = or_throw(as_chain(std::move(problem), backward, inner));
  return problem;
}

std::variant<Problem, std::string> on_data_axis(const Problem& of, const DataOptions& options, Together how) {
  const bool is_within = is_summed_by_stages(how.sharded) && of.mesh && are_replicas(of);
  const std::string name(is_within ? shards_name : data_name);
  const Axis axis{name, replicas(options, devices_left(of)), true, options.collectives};
  if (axis.ranks == 1 && of.mesh && !options.ranks) {
    return fmt::format("no device is left for a second replica: each takes {} devices, and '{}' has {}",
                       of.mesh->ranks(), of.platform.name, of.platform.devices.size());
  }
  return on_axis(of, axis, how);
}

namespace {

/// Of a problem whose mesh has the axis, or both of `name+name`.
std::variant<Problem, std::string> shared_out(Problem problem, const Axis& axis, Together how) {
  const Sharded sharded = how.sharded;
  const bool is_within = std::string_view(axis.name).substr(0, axis.name.find('+')) == shards_name;
  const bool has_chain = problem.chain.has_value();
  std::variant<Problem, std::string> made = std::move(problem);
  if (has_chain && is_summed_by_stages(sharded)) {
    made = by_stages(std::get<Problem>(std::move(made)), axis, how);
    if (std::holds_alternative<std::string>(made)) return made;
  }
  Problem& last = std::get<Problem>(made);
  if (!has_chain || sharded != Sharded::parameters) {
    how.are_summed = has_chain && sharded == Sharded::gradients;
    std::variant<Graph, std::string> graph = trained_together(std::move(last.graph), axis, how);
    if (std::string* why = std::get_if<std::string>(&graph)) return std::move(*why);
    last.graph = std::get<Graph>(std::move(graph));
  } else if (!is_within) {
    return made;
  }
  if (has_chain && is_within) made = over_replicas(std::move(last));
  if (Problem* done = std::get_if<Problem>(&made)) index_updates(*done);
  return made;
}

}  // namespace

std::variant<Problem, std::string> on_axis(const Problem& of, const Axis& axis, Together how) {
  const auto within = axis.name == shards_name ? std::optional(data_name) : std::nullopt;
  std::variant<Problem, std::string> made = with_outer_axis(of, axis, within);
  if (std::holds_alternative<std::string>(made)) return made;
  Problem problem = std::get<Problem>(std::move(made));
  if (!how.kept_over) return shared_out(std::move(problem), axis, how);
  // The ranks as two axes, over the inner one of which shares stay between passes.
  std::vector<Axis>& axes = problem.mesh->axes;
  const auto place = static_cast<std::ptrdiff_t>(*problem.mesh->axis(axis.name));
  axes[static_cast<std::size_t>(place)].ranks /= how.kept_over->ranks;
  axes.insert(axes.begin() + place + 1, *how.kept_over);
  Axis both = axis;
  both.name += "+" + how.kept_over->name;
  return shared_out(std::move(problem), both, how);
}

}  // namespace plimsoll
