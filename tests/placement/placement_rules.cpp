#include "tests/placement/placement_rules.h"

#include <catch2/catch.hpp>

#include "tests/generate/random.h"
#include "tests/placement/op_dags.h"

namespace plimsoll {

PlacementCase random_placement_case(std::uint64_t seed, std::uint32_t nodes) {
  constexpr std::uint32_t classes = 3, host = 2;
  PlacementCase made{random_dag(seed, nodes, classes, true), {}};
  Random random(seed ^ 0x9e3779b97f4a7c15u);
  const std::uint32_t devices = random.between(2, 5);
  made.machine = drawn_machine(devices + 1, false);
  for (std::uint32_t p = 0; p < devices; ++p) made.machine.class_of[p] = random.below(host);
  made.machine.class_of[devices] = host;
  if (random.chance(0.3)) made.machine.memory[random.below(devices)] = 0;
  const auto pin = [&](std::uint32_t v) {
    for (std::uint32_t c = 0; c < host; ++c) made.dag.time[c][v] = cannot_run;
  };
  for (std::uint32_t v = 0; v < nodes; ++v) {
    if (!random.chance(0.1)) continue;
    pin(v);
    if (made.dag.group[v] == no_node) continue;
    for (const std::uint32_t other : made.dag.together[made.dag.group[v]]) pin(other);
  }
  return made;
}

void check_rules(const PlacementCase& made, const PlacementOutcome& outcome) {
  REQUIRE(std::holds_alternative<Placement>(outcome));
  const Placement& placement = std::get<Placement>(outcome);
  CHECK(placement.order.empty());
  REQUIRE(placement.on.size() == made.dag.size);
  for (std::uint32_t v = 0; v < made.dag.size; ++v) {
    const std::uint32_t p = placement.on[v];
    REQUIRE(p < made.machine.size());
    CHECK(made.machine.memory[p] > 0);
    CHECK(time_on(made.dag, made.machine, v, p) != cannot_run);
  }
  for (const std::vector<std::uint32_t>& group : made.dag.together) {
    for (const std::uint32_t v : group) CHECK(placement.on[v] == placement.on[group.front()]);
  }
}

}  // namespace plimsoll
