#pragma once
// Problems on meshes of devices, and their plans as every judge sees them.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "sim/core/chain.h"
#include "sim/core/graph.h"
#include "sim/model/problem.h"
#include "strategies/compose/plan.h"

namespace plimsoll {

/// Of a model on a shipped platform, as the transforms and splits of `spec` leave it. What cannot be made fails the
/// test.
Problem problem_on(std::variant<Chain, Graph> model, const std::string& platform, std::uint32_t micro_batches,
                   std::string_view spec, Optimizer = Optimizer::adam);
/// Of a model by formula.
Problem problem_on(const std::string& trace, const std::string& platform, std::uint32_t micro_batches,
                   std::string_view spec, Optimizer = Optimizer::adam);

/// The plan, after the judge and both engines have seen it: legal, with the promised time and peak.
Plan judged_plan(const Problem&, std::string_view spec, std::optional<Bytes> budget = std::nullopt);

}  // namespace plimsoll
