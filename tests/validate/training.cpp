#include "tests/validate/training.h"

#include <catch2/catch.hpp>

#include "tests/generate/problems.h"
#include "validate/network_model.h"
#include "validate/networks/networks.h"

namespace plimsoll {

Training training_of(const std::string& reference, Platform platform, const ProblemOptions& options) {
  std::optional<Optimizer> updates;
  if (options.optimizer != Optimizer::none) updates = options.optimizer;
  return {problem_of(network_model(reference), std::move(platform), options),
          with_kernels(named_network(reference, updates).network)};
}

Platform one_gpu() {
  constexpr BytesPerSecond fast{20e9};
  return gpus({.to_host = fast, .adam = fast, .to_disk = fast});
}

PlanOutcome planned(const Problem& problem, const std::string& spec, std::optional<Bytes> budget) {
  return std::move(plan(problem, parse_spec(spec, "test"), std::span(&budget, 1)).front());
}

Replayed replayed(const Training& training, const Schedule& schedule) {
  BlockPool pool;
  std::variant<Replayed, ReplayFailure> outcome =
      replay(training.problem, schedule, training.network, pool, {.poisons = true, .keeps_values = true});
  if (const auto* failure = std::get_if<ReplayFailure>(&outcome)) FAIL(failure->what);
  return std::move(std::get<Replayed>(outcome));
}

std::vector<std::string> differences(const Replayed& a, const Replayed& b) {
  std::vector<std::string> names;
  for (const auto& [name, value] : a.values) {
    const auto other = b.values.find(name);
    if (other == b.values.end() || other->second != value) names.push_back(name);
  }
  for (const auto& [name, value] : b.values) {
    if (!a.values.contains(name)) names.push_back(name);
  }
  return names;
}

}  // namespace plimsoll
