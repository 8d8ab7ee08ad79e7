#include "strategies/placement/emulation.h"

#include <catch2/catch.hpp>

#include "strategies/placement/op_dag.h"
#include "tests/placement/op_dags.h"

namespace plimsoll {
namespace {

std::vector<std::uint32_t> on_processors(const std::string& digits) {
  std::vector<std::uint32_t> on;
  for (const char digit : digits) on.push_back(static_cast<std::uint32_t>(digit - '0'));
  return on;
}

TEST_CASE("the placement of ParDNN's figure 2 takes 13 in both orders", "[placement]") {
  const OpDag dag = pardnn_figure();
  const Machine machine = drawn_machine(2, true);
  // A B E I M O P Q, F, D L and N on the first; C G J K and H on the second.
  const std::vector<std::uint32_t> on = on_processors("00100011011000000");
  CHECK(emulate(dag, machine, on, QueueOrder::fifo).makespan == 13);
  CHECK(emulate(dag, machine, on, QueueOrder::b_level).makespan == 13);
  const std::vector<std::uint32_t> one(dag.size, 0);
  CHECK(emulate(dag, machine, one, QueueOrder::fifo).makespan == 17);
}

TEST_CASE("emulating an order that an emulation has found gives its times", "[placement]") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const OpDag dag = random_dag(seed, 12, 3, false);
    const Machine machine = random_machine(seed, 3);
    Placement placement;
    for (std::uint32_t v = 0; v < dag.size; ++v) placement.on.push_back((v * 7 + static_cast<std::uint32_t>(seed)) % 3);
    for (const QueueOrder by : {QueueOrder::fifo, QueueOrder::b_level}) {
      const Emulation found = emulate(dag, machine, placement.on, by);
      placement.order = found.order;
      const Emulation again = emulate_in_order(dag, machine, placement);
      CHECK(again.start == found.start);
      CHECK(again.finish == found.finish);
      CHECK(again.order == found.order);
    }
  }
}

TEST_CASE("bytes of a placement, by hand", "[placement]") {
  OpDag dag = drawn_dag({{2, 1, 3}}, {{0, 1, 4}, {0, 2, 6}});
  const Machine machine = drawn_machine(2, true);
  const std::vector<std::uint32_t> on{0, 0, 1};
  const Emulation times = emulate(dag, machine, on, QueueOrder::fifo);
  CHECK(times.start == std::vector<Nanoseconds>{0, 2, 8});
  // The first is there with both values while it runs, and the second value until it has been sent at 8.
  CHECK(memory_of(dag, machine, on, times) == std::vector<std::int64_t>{10, 6});
}

}  // namespace
}  // namespace plimsoll
