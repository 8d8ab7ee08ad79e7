#pragma once
// Problems of one rank of a mesh.

#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "sim/core/names.h"
#include "sim/mesh/layout.h"
#include "sim/model/problem.h"
#include "strategies/api/strategy.h"

namespace plimsoll {

/// With an axis around those that the mesh has, or right within another one of it. Of an axis whose ranks each have
/// their own micro-batches a rank has its share of them. Or in one sentence why not.
std::variant<Problem, std::string> with_outer_axis(Problem, const Axis&, std::optional<std::string_view> within = {});

/// Why what cuts operators may not follow another hybrid strategy.
inline constexpr std::string_view cuts_first =
    "it cuts operators, and stands before what trains several replicas of them";

/// The problem of one rank where ops are cut so; the plan's mesh becomes the problem's. Or in one sentence why not.
std::variant<Problem, std::string> on_mesh(Problem, SplitPlan);

/// Of strategies whose ranks exchange something.
struct MeshOptions {
  CollectiveWay collectives = CollectiveWay::ring;
};

inline constexpr auto collectives_option = option_of<&MeshOptions::collectives>({
    .name = "collectives",
    .words = "ring halving trees levels fastest",
    .help = "the way in which these ranks exchange, where it can do that",
});

/// Of the platform's devices, for each rank of the problem's mesh.
std::uint32_t devices_left(const Problem&);

/// What planners see: one device of the platform stands for all ranks of the mesh, collectives have their times and,
/// where a strategy plans by stages, the graph is a chain of its stages. Throws InputError where that cannot be.
Problem for_planners(Problem, bool plans_stages, Backward, std::string_view strategy);

}  // namespace plimsoll
