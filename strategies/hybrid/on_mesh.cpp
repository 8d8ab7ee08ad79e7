#include "strategies/hybrid/on_mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "sim/io/input_error.h"
#include "sim/mesh/check_split.h"
#include "sim/mesh/collective_times.h"
#include "sim/mesh/folded.h"
#include "sim/mesh/rank_graph.h"
#include "sim/model/stage_chain.h"
#include "strategies/hybrid/built.h"

namespace plimsoll {
namespace {

std::optional<std::string> too_many(const Mesh& mesh, const Platform& platform) {
  if (mesh.ranks() <= platform.devices.size()) return std::nullopt;
  return fmt::format("{} ranks, but '{}' has {} device{}", mesh.ranks(), platform.name, platform.devices.size(),
                     platform.devices.size() == 1 ? "" : "s");
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

std::uint32_t devices_left(const Problem& problem) {
  const std::uint32_t ranks = problem.mesh ? problem.mesh->ranks() : 1;
  return std::max<std::uint32_t>(static_cast<std::uint32_t>(problem.platform.devices.size()) / ranks, 1);
}

Problem for_planners(Problem problem, bool plans_stages, Backward backward, std::string_view strategy) {
  const auto or_throw = [&]<class Value>(std::variant<Value, std::string> made) {
    if (const std::string* why = std::get_if<std::string>(&made)) {
      throw InputError(fmt::format("{}: {}", strategy, *why));
    }
    return std::get<Value>(std::move(made));
  };
  CollectiveTimes times = or_throw(CollectiveTimes::on(problem.platform, *problem.mesh));
  set_collective_seconds(problem.graph, *problem.mesh, times);
  for (std::string& note : times.unequal_axes()) problem.notes.push_back(std::move(note));
  problem.platform = or_throw(folded(problem.platform, *problem.mesh));
  if (plans_stages && !problem.chain) problem = or_throw(as_chain(std::move(problem), backward));
  return problem;
}

}  // namespace plimsoll
