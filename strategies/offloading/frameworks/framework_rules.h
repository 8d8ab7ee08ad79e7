#pragma once
// The rules by which frameworks choose what stays for the backward, as policies by ops.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "strategies/offloading/frameworks/decoder_ops.h"
#include "strategies/offloading/frameworks/op_policy.h"

namespace plimsoll {

struct RuleTask {
  const PartTask& task;
  const OpModel& model;
  std::optional<Bytes> budget;  ///< of rules that plan for one; unset: unlimited
};

/// The policies among which a user of the framework chooses; or in one sentence why there are none.
using RulePolicies = std::variant<std::vector<OpPolicy>, std::string>;

struct FrameworkRule {
  std::string_view name;  ///< framework.rule
  std::string_view what;  ///< what it does, in one line
  RulePolicies (*policies)(const RuleTask&);
  bool by_budget = false;
};

std::span<const FrameworkRule> framework_rules();

/// What no rule can change: an op that cannot run again saves what it makes.
OpPolicy with_repeatable_only(const Graph&, OpPolicy);

/// torchtitan's solver: how much of a layer is kept, run again or moved, by a linear program over layers; then a
/// greedy choice in each layer.
RulePolicies torchtitan_solver(const RuleTask&);

/// DeepCompile: all that the backward reads is moved, then what has room comes back, the largest first.
RulePolicies deepcompile_offload(const RuleTask&);

}  // namespace plimsoll
