#include "strategies/placement/pardnn/pardnn.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "sim/core/containers/fenwick.h"
#include "strategies/placement/memory_tracker.h"
#include "strategies/placement/op_dag.h"
#include "strategies/placement/pardnn/pardnn_mapping.h"
#include "tests/generate/random.h"
#include "tests/placement/op_dags.h"
#include "tests/placement/placement_rules.h"

namespace plimsoll {
namespace {

constexpr PardnnOptions without_memory{.memory = PardnnMemory::ignored};

PardnnMapping mapping_of(const OpDag& dag, const Machine& machine) {
  auto units = units_of(dag, machine);
  REQUIRE(std::holds_alternative<Units>(units));
  return pardnn_mapping(dag, machine, std::get<Units>(std::move(units)));
}

std::vector<std::string> lettered(const std::vector<std::vector<std::uint32_t>>& paths) {
  std::vector<std::string> written;
  for (const std::vector<std::uint32_t>& path : paths) {
    std::string& text = written.emplace_back();
    for (const std::uint32_t v : path) text += static_cast<char>('A' + v);
  }
  return written;
}

std::vector<std::int64_t> peaks_of(const OpDag& dag, const Machine& machine, const Placement& placement) {
  return memory_of(dag, machine, placement.on, emulate(dag, machine, placement.on, QueueOrder::fifo));
}

bool is_within(const OpDag& dag, const Machine& machine, const Placement& placement) {
  const std::vector<std::int64_t> peaks = peaks_of(dag, machine, placement);
  for (std::size_t p = 0; p < peaks.size(); ++p) {
    if (peaks[p] > machine.memory[p]) return false;
  }
  return true;
}

TEST_CASE("ParDNN cuts and places its paper's figure 2 as printed there", "[placement]") {
  const OpDag dag = pardnn_figure();
  const Machine machine = drawn_machine(2, true);
  const PardnnMapping made = mapping_of(dag, machine);
  CHECK(lettered(made.slices.primary) == std::vector<std::string>{"ABEIMOPQ", "CGJK"});
  CHECK(lettered(made.slices.secondary) == std::vector<std::string>{"H", "N", "DL", "F"});
  const PlacementOutcome outcome = place_pardnn(dag, machine, without_memory);
  REQUIRE(std::holds_alternative<Placement>(outcome));
  const std::vector<std::uint32_t>& on = std::get<Placement>(outcome).on;
  CHECK(on == std::vector<std::uint32_t>{0, 0, 1, 0, 0, 0, 1, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0});
  CHECK(emulate(dag, machine, on, QueueOrder::fifo).makespan == 13);
}

// Ops of 30, 2, 20 and 1 are the longest path, one of 25 the next. Op 4, of 1, exchanges 2 with the first path, from
// the end of 30 on, where 12 others of 2 run, too, which exchange nothing. There the first processor has 22, with op 4
// it has 23, the other one nothing; all work is 22 + 24 + 1 = 47, a half of it 23. Nothing else speaks for it: with the
// 2 that the first does before op 4 may begin, the other one would come to 0 + 1 + 2 + 2 + 12, and neither 1 + 2 nor 2
// is as much.
TEST_CASE("ParDNN maps a path where it and what is there are no more than a processor's share", "[placement]") {
  std::vector<Nanoseconds> time{30, 2, 20, 25, 1};
  time.insert(time.end(), 12, 2);
  time.push_back(1);
  const auto last = static_cast<std::uint32_t>(time.size() - 1);
  std::vector<DrawnEdge> edges{{0, 1, 1}, {1, 2, 1}, {2, last, 1}, {0, 4, 1}, {4, last, 1}};
  for (std::uint32_t v = 5; v < last; ++v) {
    edges.push_back({0, v, 0});
    edges.push_back({v, last, 0});
  }
  const PardnnMapping made = mapping_of(drawn_dag({time}, edges), drawn_machine(2, true));
  REQUIRE(made.slices.primary == std::vector<std::vector<std::uint32_t>>{{0, 1, 2, last}, {3}});
  CHECK(made.on[4] == 0);
}

// The edges of a path exist, every node is in one path.
TEST_CASE("ParDNN's slices are paths that share no node and leave none out", "[placement]") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    const OpDag dag = random_dag(seed, 1 + static_cast<std::uint32_t>(seed), 3, false);
    const PardnnMapping made = mapping_of(dag, random_machine(seed, 3));
    std::vector<int> times(dag.size, 0);
    for (const auto& paths : {made.slices.primary, made.slices.secondary}) {
      for (const std::vector<std::uint32_t>& path : paths) {
        for (std::size_t i = 0; i < path.size(); ++i) {
          ++times[path[i]];
          const auto is_next = [&](const DagEdge& edge) { return edge.node == path[i]; };
          CHECK((i == 0 || std::ranges::any_of(dag.out[path[i - 1]], is_next)));
        }
      }
    }
    CHECK(times == std::vector<int>(dag.size, 1));
    CHECK(made.slices.primary.size() <= 3);
    CHECK((made.slices.primary.size() == 3 || made.slices.secondary.empty()));
  }
}

TEST_CASE("ParDNN keeps groups together and obeys what processors can run", "[placement]") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    const PlacementCase made = random_placement_case(seed, 1 + static_cast<std::uint32_t>(seed % 40));
    check_rules(made, place_pardnn(made.dag, made.machine, without_memory));
    check_rules(made, place_pardnn(made.dag, made.machine, {}));
  }
}

TEST_CASE("ParDNN puts all on one processor if there is only one", "[placement]") {
  const PlacementOutcome outcome = place_pardnn(pardnn_figure(), drawn_machine(1, true), {});
  CHECK(std::get<Placement>(outcome).on == std::vector<std::uint32_t>(17, 0));
}

TEST_CASE("ParDNN keeps memory limits, or names one with which it does", "[placement]") {
  std::uint32_t kept = 0, moved = 0, refused = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    INFO("seed " << seed);
    PlacementCase made = random_placement_case(seed, 10 + static_cast<std::uint32_t>(seed % 60));
    const PlacementOutcome free = place_pardnn(made.dag, made.machine, without_memory);
    const std::vector<std::int64_t> peaks = peaks_of(made.dag, made.machine, std::get<Placement>(free));
    const std::int64_t limit = std::ranges::max(peaks) * (60 + static_cast<std::int64_t>(seed % 40)) / 100;
    const auto limit_all = [&](std::int64_t bytes) {
      for (std::int64_t& memory : made.machine.memory) memory = memory > 0 ? bytes : 0;
    };
    limit_all(std::max<std::int64_t>(1, limit));
    const PlacementOutcome outcome = place_pardnn(made.dag, made.machine, {});
    if (const Placement* placement = std::get_if<Placement>(&outcome)) {
      check_rules(made, outcome);
      CHECK(is_within(made.dag, made.machine, *placement));
      ++kept;
      moved += placement->on != std::get<Placement>(free).on ? 1 : 0;
      continue;
    }
    ++refused;
    const std::optional<Bytes> smallest = std::get<Infeasible>(outcome).smallest;
    if (!smallest) continue;  // the host's memory is too small
    CHECK(smallest->count > limit);
    limit_all(smallest->count);
    const PlacementOutcome again = place_pardnn(made.dag, made.machine, {});
    check_rules(made, again);
    CHECK(is_within(made.dag, made.machine, std::get<Placement>(again)));
  }
  CHECK(kept > 50);
  CHECK(moved > 50);
  CHECK(refused > 0);
}

// Both have a parameter of 6; one of them must go where nothing is.
TEST_CASE("ParDNN moves what its processor has no room for", "[placement]") {
  OpDag dag = drawn_dag({{5, 5}}, {{0, 1, 0}});
  dag.residents = {{6, {0}}, {6, {1}}};
  Machine machine = drawn_machine(2, true);
  CHECK(std::get<Placement>(place_pardnn(dag, machine, {})).on == std::vector<std::uint32_t>{0, 0});
  machine.memory = {11, 11};
  const PlacementOutcome outcome = place_pardnn(dag, machine, {});
  REQUIRE(std::holds_alternative<Placement>(outcome));
  CHECK(std::get<Placement>(outcome).on[0] != std::get<Placement>(outcome).on[1]);
  machine.memory = {5, 5};
  const PlacementOutcome none = place_pardnn(dag, machine, {});
  REQUIRE(std::holds_alternative<Infeasible>(none));
  CHECK(std::get<Infeasible>(none).smallest == Bytes{12});
}

// The second processor is as empty as the third, but has room for 5 only.
TEST_CASE("ParDNN moves nothing to where it does not fit", "[placement]") {
  OpDag dag = drawn_dag({{5, 5}}, {{0, 1, 0}});
  dag.residents = {{6, {0}}, {6, {1}}};
  Machine machine = drawn_machine(3, true);
  machine.memory = {11, 5, 7};
  const PlacementOutcome outcome = place_pardnn(dag, machine, {});
  REQUIRE(std::holds_alternative<Placement>(outcome));
  CHECK(std::ranges::count(std::get<Placement>(outcome).on, 2u) == 1);
  CHECK(std::ranges::count(std::get<Placement>(outcome).on, 0u) == 1);
}

// The first two are a group: 1 and 5 long; what the first sends to the third keeps it there if it is more than 4.
TEST_CASE("a group goes where it runs and sends the most", "[placement]") {
  for (const std::int64_t sent : {3, 5}) {
    OpDag dag = drawn_dag({{1, 5, 1}}, {{0, 2, sent}});
    dag.together = {{0, 1}};
    dag.group = {0, 0, no_node};
    const Machine machine = drawn_machine(2, true);
    const auto units = units_of(dag, machine);
    std::vector<std::uint32_t> on{0, 1, 0};
    collocate(dag, machine, std::get<Units>(units), on);
    CHECK(on == (sent == 3 ? std::vector<std::uint32_t>{1, 1, 0} : std::vector<std::uint32_t>{0, 0, 0}));
  }
}

TEST_CASE("a memory tracker's peaks are those of the emulation, also after moves", "[placement]") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    Random random(seed);
    const OpDag dag = random_dag(seed, 1 + static_cast<std::uint32_t>(seed % 40), 1, false);
    Machine machine = drawn_machine(3, true);
    std::vector<std::uint32_t> on;
    for (std::uint32_t v = 0; v < dag.size; ++v) on.push_back(random.below(3));
    const Emulation times = emulate(dag, machine, on, QueueOrder::fifo);
    MemoryTracker tracker(dag, machine, on, times);
    for (std::uint32_t move = 0; move < 10; ++move) {
      for (std::uint32_t p = 0; p < 3; ++p) {
        CHECK(tracker.profile(p).peak() >= memory_of(dag, machine, on, times)[p]);
        if (move == 0) CHECK(tracker.profile(p).peak() == memory_of(dag, machine, on, times)[p]);
      }
      const std::uint32_t v = random.below(dag.size);
      on[v] = random.below(3);
      tracker.move(std::span(&v, 1), on[v]);
    }
    const MemoryTracker fresh(dag, machine, on, times);
    for (std::uint32_t p = 0; p < 3; ++p) {
      for (std::size_t slot = 0; slot < fresh.slots(); ++slot) {
        CHECK(tracker.profile(p).at(slot) == fresh.profile(p).at(slot));
      }
    }
  }
}

TEST_CASE("sums over ranges of rows are those of a loop", "[placement]") {
  constexpr std::size_t places = 37, columns = 3;
  Random random(1);
  FenwickRows tree(places, columns);
  std::vector<std::vector<std::int64_t>> rows(places, std::vector<std::int64_t>(columns, 0));
  std::vector<std::int64_t> found(columns);
  for (int trial = 0; trial < 500; ++trial) {
    const std::size_t place = random.below(places), column = random.below(columns);
    tree.add(place, column, trial);
    rows[place][column] += trial;
    const std::size_t first = random.below(places), end = random.below(places + 1);
    std::vector<std::int64_t> sums(columns, 0);
    for (std::size_t i = first; i < end; ++i) {
      for (std::size_t c = 0; c < columns; ++c) sums[c] += rows[i][c];
    }
    tree.sum(first, end, found);
    CHECK(found == sums);
  }
}

TEST_CASE("a memory profile finds what a loop finds", "[placement]") {
  constexpr std::size_t slots = 21;
  Random random(2);
  MemoryProfile profile(slots);
  std::vector<std::int64_t> bytes(slots, 0);
  for (int trial = 0; trial < 500; ++trial) {
    const std::size_t first = random.below(slots),
                      end = first + random.below(static_cast<std::uint32_t>(slots - first) + 1);
    const std::int64_t change = static_cast<std::int64_t>(random.below(20)) - 9;
    profile.add(first, end, change);
    for (std::size_t i = first; i < end; ++i) bytes[i] += change;
    const std::int64_t limit = random.below(40);
    const std::size_t before = random.below(slots + 1);
    std::optional<std::size_t> last;
    for (std::size_t i = 0; i < before; ++i) last = bytes[i] > limit ? std::optional(i) : last;
    CHECK(profile.last_above(limit, before) == last);
    CHECK(profile.at(first) == bytes[first]);
    CHECK(profile.peak() == std::max<std::int64_t>(0, std::ranges::max(bytes)));
  }
}

}  // namespace
}  // namespace plimsoll
