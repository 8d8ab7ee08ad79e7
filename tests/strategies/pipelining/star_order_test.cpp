// cut=madpipe of 1f1b: its periodic orders against every start there is, its periods and peaks against the planner's.

#include <map>

#include "strategies/pipelining/cuts/planner_cuts.h"
#include "strategies/pipelining/orders/order_times.h"
#include "strategies/pipelining/orders/orders.h"
#include "strategies/pipelining/star_order.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/pipelining/equal_pipelines.h"

namespace plimsoll {
namespace {

struct PeriodicCase {
  PartCosts costs;
  std::vector<std::uint32_t> rank_of, in_flight;
};

/// Whole numbers: where there is an order, there is one that begins everything at whole numbers.
PeriodicCase random_periodic(Random& random) {
  static const std::vector<std::vector<std::uint32_t>> shapes{{0, 1, 0}, {0, 1, 0, 1}, {0, 1, 2, 0}, {0, 1}, {0, 1, 1}};
  PeriodicCase made;
  made.rank_of = shapes[random.below(static_cast<std::uint32_t>(shapes.size()))];
  for (std::size_t g = 0; g < made.rank_of.size(); ++g) {
    made.costs.f.push_back(random.between(1, 3));
    made.costs.b.push_back(random.between(1, 3));
    made.costs.w.push_back(random.between(0, 1));
    made.in_flight.push_back(random.between(1, 3));
    if (g == 0) continue;
    made.costs.sent.push_back(random.between(0, 2));
    made.costs.returned.push_back(random.between(0, 2));
  }
  return made;
}

/// Whether what crosses two borders goes from one device to one other: there transfers queue.
bool has_shared_links(const PeriodicCase& of) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> links;
  for (std::size_t g = 0; g + 1 < of.rank_of.size(); ++g) {
    if (of.rank_of[g] == of.rank_of[g + 1]) continue;
    links.emplace_back(of.rank_of[g], of.rank_of[g + 1]);
    links.emplace_back(of.rank_of[g + 1], of.rank_of[g]);
  }
  std::ranges::sort(links);
  return std::ranges::adjacent_find(links) != links.end();
}

/// Tries every whole start of every pass: forwards from the first part on, then backwards from the last one on.
class EveryStart {
 public:
  EveryStart(const PeriodicCase& made, int period) : made_(made), period_(period), starts_(2 * made.rank_of.size()) {}

  bool any() { return place(0); }

 private:
  std::size_t parts() const { return made_.rank_of.size(); }
  std::size_t part(std::size_t pass) const { return pass < parts() ? pass : 2 * parts() - 1 - pass; }
  int lasts(std::size_t pass) const {
    const std::size_t g = part(pass);
    return static_cast<int>(pass < parts() ? made_.costs.f[g] : made_.costs.b[g] + made_.costs.w[g]);
  }
  int arrives(std::size_t pass) const {
    if (pass == 0) return 0;
    const int ready = starts_[pass - 1] + lasts(pass - 1);
    if (pass < parts()) return ready + static_cast<int>(made_.costs.sent[pass - 1]);
    return ready + (pass == parts() ? 0 : static_cast<int>(made_.costs.returned[part(pass)]));
  }

  bool meets(std::size_t a, std::size_t b) const {
    for (int i = -20; i <= 20; ++i) {
      const int of_a = starts_[a] + i * period_;
      if (of_a < starts_[b] + lasts(b) && starts_[b] < of_a + lasts(a)) return true;
    }
    return false;
  }

  bool place(std::size_t pass) {
    if (pass == starts_.size()) return true;
    // What is not yet back in time for the first part's last free place is too late.
    const int latest = static_cast<int>(made_.in_flight[0]) * period_;
    for (int start = arrives(pass); start <= latest; ++start) {
      starts_[pass] = start;
      const std::size_t g = part(pass);
      if (pass >= parts() && start + lasts(pass) > starts_[g] + static_cast<int>(made_.in_flight[g]) * period_) break;
      bool is_free = true;
      for (std::size_t other = 0; other < pass && is_free; ++other) {
        is_free = made_.rank_of[part(other)] != made_.rank_of[g] || !meets(other, pass);
      }
      if (is_free && place(pass + 1)) return true;
      if (pass == 0) break;  // all others move with it
    }
    return false;
  }

  const PeriodicCase& made_;
  int period_;
  std::vector<int> starts_;
};

TEST_CASE("there is a periodic order just where some starts of all passes make one",
          "[pipelining][madpipe][eleventh-0]") {
  std::size_t made = 0, none = 0;
  for (const RandomCase seed : random_cases(1, 150)) {
    Random random(seed);
    const PeriodicCase of = random_periodic(random);
    std::map<std::uint32_t, int> busy;
    for (std::size_t g = 0; g < of.rank_of.size(); ++g) {
      busy[of.rank_of[g]] += static_cast<int>(of.costs.f[g] + of.costs.b[g] + of.costs.w[g]);
    }
    int least = 0;
    for (const auto& [rank, load] : busy) least = std::max(least, load);
    for (int period = least; period < least + 5; ++period) {
      INFO("a period of " << period);
      const auto times = periodic_times(of.costs, of.rank_of, of.in_flight, period);
      REQUIRE(times.has_value() == EveryStart(of, period).any());
      ++(times ? made : none);
      if (!times) continue;
      // Its order, unrolled, is as fast, and keeps no more.
      const PipelineOrder few = unrolled(*times, of.rank_of, 12), many = unrolled(*times, of.rank_of, 24);
      const OrderTimes short_run = time_order(of.costs, 12, few), long_run = time_order(of.costs, 24, many);
      REQUIRE(long_run.stuck.empty());
      if (!has_shared_links(of)) CHECK(long_run.makespan() - short_run.makespan() <= 12 * period + 1e-6);
      Partition partition;
      partition.parts.resize(of.rank_of.size());
      partition.order = many.turns;
      const std::vector<Waiting> waiting = waiting_in(partition);
      for (std::size_t g = 0; g < waiting.size(); ++g) CHECK(waiting[g].in_flight <= of.in_flight[g]);
    }
  }
  if (all_cases()) CHECK(made > 150);
  if (all_cases()) CHECK(none > 50);
}

/// Times and bytes of a chain's stages drawn anew; what is saved is all that a stage takes.
Chain chain_of_layers(Random& random, std::uint32_t count) {
  Chain chain = equal_stages(count, {});
  for (Stage& stage : chain.stages) {
    stage.forward = stage.forward_nograd = Seconds{1.0 * random.between(1, 6)};
    stage.backward = Seconds{1.0 * random.between(1, 6)};
    stage.saved = Bytes{random.between(1, 10)};
  }
  return chain;
}

double period_of(const Chain& chain, const Platform& platform, const std::string& spec,
                 const std::optional<Bytes>& budget) {
  constexpr std::uint32_t few = 16;
  std::vector<double> makespans;
  for (const std::uint32_t m : {few, 2 * few}) {
    const Problem problem = problem_of(chain, platform, {.micro_batches = m});
    const PlanOutcome outcome = plan(problem, parse_spec(spec, "test"), budget);
    makespans.push_back(std::get<Plan>(outcome).makespan.value);
  }
  return (makespans[1] - makespans[0]) / few;
}

TEST_CASE("1F1B* reaches the period that madpipe promises, within the memory", "[pipelining][madpipe]") {
  std::size_t limited = 0;
  for (const RandomCase seed : random_cases(1, 60)) {
    Random random(seed);
    const std::uint32_t devices = random.between(1, 4);
    const Chain chain = chain_of_layers(random, random.between(devices, 7));
    const bool has_transfers = random.chance(0.5);
    const Platform platform = gpus({.count = devices, .peer_latency = Seconds{has_transfers ? 0.5 : 0.0}});
    MadpipeProblem table{.layers = {}, .devices = devices, .bytes_per_second = 1, .all_devices = true};
    for (const Stage& stage : chain.stages) {
      table.layers.push_back(
          {.seconds = (stage.forward + stage.backward).value, .kept_bytes = static_cast<double>(stage.saved.count)});
    }
    table.memory_bytes = random.between(10, 60);
    const std::optional<MadpipePlan> promised = plan_madpipe(table);
    if (!promised) continue;
    StageCut cut;
    std::string in_flight;
    double most = 0;
    for (const MadpipePlan::Stage& stage : promised->stages) {
      cut.first.push_back(stage.first);
      cut.copies.push_back(1);
      in_flight += (in_flight.empty() ? "" : ":") + std::to_string(stage.in_flight);
      most = std::max(most, stage.bytes);
    }
    limited += promised->stages.front().in_flight < devices ? 1 : 0;
    const std::string spec = "1f1b(cut=" + text_of(cut) + ",in_flight=" + in_flight + ")";
    INFO(spec);
    const double period = period_of(chain, platform, spec, std::nullopt);
    if (has_transfers) {
      CHECK(period >= promised->seconds - 1e-9);  // the table has none
    } else {
      CHECK(period == Approx(promised->seconds).epsilon(1e-9));
    }
    const Problem problem = problem_of(chain, platform, {.micro_batches = 16});
    const Plan made = std::get<Plan>(plan(problem, parse_spec(spec, "test"), std::nullopt));
    CHECK(static_cast<double>(made.peak.count) == most);
  }
  if (all_cases()) CHECK(limited > 10);
}

// 4, 6 and 4 s on two devices: 10 s a micro-batch with one stage each, 8 s where one device has both ends.
TEST_CASE("cut=madpipe gives one device stages that do not follow each other, where that is faster",
          "[pipelining][madpipe]") {
  Chain chain = equal_stages(3, {.f = 2, .b = 2, .w = 0}, {.all = 1, .for_weights = 0});
  chain.stages[1].forward = chain.stages[1].forward_nograd = Seconds{3};
  chain.stages[1].backward = Seconds{3};
  const Platform two = gpus({.count = 2});
  CHECK(period_of(chain, two, "1f1b(cut=0:1)", std::nullopt) == 10);
  CHECK(period_of(chain, two, "1f1b(cut=madpipe)", std::nullopt) == 8);
  const Problem problem = problem_of(chain, two, {.micro_batches = 8});
  const Plan made = std::get<Plan>(plan(problem, parse_spec("1f1b(cut=madpipe)", "test"), std::nullopt));
  // 14 s from the first forward to the last backward are less than two periods, but the first device is never idle: its
  // passes of 2 s begin at 0, 2, 4 and 6 of each period. The last stage's forward can begin at 6, its backward at 10 or
  // 12, and so the first stage's at 20 or 18: a third micro-batch has begun by then.
  CHECK(made.note == "cut=0:1:2 on devices 0:1:0, 3:2:1 in flight, a period of 8 s");
  CHECK(made.peak == Bytes{4});  // 3 of the first stage and 1 of the last
  CHECK(period_of(chain, two, "1f1b(cut=madpipe)", Bytes{4}) == 8);
  CHECK(period_of(chain, two, "1f1b(cut=madpipe)", Bytes{3}) > 8);
}

struct LayerOf {
  double forward, backward;
  std::int64_t saved;
};
Chain chain_of(const std::vector<LayerOf>& layers) {
  Chain chain = equal_stages(static_cast<std::uint32_t>(layers.size()), {});
  for (std::size_t i = 0; i < layers.size(); ++i) {
    Stage& stage = chain.stages[i];
    stage.forward = stage.forward_nograd = Seconds{layers[i].forward};
    stage.backward = Seconds{layers[i].backward};
    stage.saved = Bytes{layers[i].saved};
  }
  return chain;
}

// The first device has the first layer and the last two, which take 2 and 11 s and keep 3 and 5 bytes a micro-batch;
// the second one 7 s and 5 bytes. One stage a device: 18 s.
TEST_CASE("cut=madpipe shares a device's memory among its stages", "[pipelining][madpipe]") {
  const Chain chain = chain_of({{1, 1, 3}, {2, 5, 5}, {1, 3, 3}, {3, 4, 2}});
  constexpr std::int64_t budget = 12;
  int least = 100;
  PeriodicCase of{.costs = {.f = {1, 2, 4}, .b = {1, 5, 7}, .w = {0, 0, 0}, .sent = {0, 0}, .returned = {0, 0}},
                  .rank_of = {0, 1, 0},
                  .in_flight = {}};
  for (std::uint32_t first = 1; first <= 4; ++first) {
    for (std::uint32_t last = 1; 3 * first + 5 * last <= budget; ++last) {
      of.in_flight = {first, budget / 5, last};
      for (int period = 13; period < least; ++period) {
        if (EveryStart(of, period).any()) least = period;
      }
    }
  }
  CHECK(least == 14);
  const Platform two = gpus({.count = 2});
  CHECK(period_of(chain, two, "1f1b(cut=0:1)", Bytes{budget}) == 18);
  CHECK(period_of(chain, two, "1f1b(cut=madpipe)", Bytes{budget}) == 14);
}

// Three micro-batches of the first layer and one of the last are 17 bytes together, but are never there together.
TEST_CASE("cut=madpipe tries by simulation what a device's stages do not fit by their sum", "[pipelining][madpipe]") {
  const Chain chain = chain_of({{1, 1, 4}, {1, 1, 4}, {1, 5, 4}, {2, 5, 5}});
  const Platform two = gpus({.count = 2});
  CHECK(period_of(chain, two, "1f1b(cut=madpipe)", Bytes{16}) == 10);
  const Problem problem = problem_of(chain, two, {.micro_batches = 8});
  const Plan made = std::get<Plan>(plan(problem, parse_spec("1f1b(cut=madpipe)", "test"), Bytes{16}));
  CHECK(made.note == "cut=0:1:3 on devices 0:1:0, 3:2:1 in flight, a period of 10 s");
  CHECK(made.peak == Bytes{16});
}

TEST_CASE("cut=madpipe keeps within the budget and is not slower than one stage a device in 1F1B's order",
          "[pipelining][madpipe]") {
  std::size_t several = 0, squeezed = 0, promised = 0;
  for (const RandomCase seed : random_cases(1, 60)) {
    Random random(seed);
    const std::uint32_t devices = random.between(2, 3);
    const Chain chain = chain_of_layers(random, random.between(devices, 6));
    const Platform platform = gpus({.count = devices, .peer_latency = Seconds{random.chance(0.5) ? 0.5 : 0.0}});
    const Problem problem = problem_of(chain, platform, {.micro_batches = random.between(1, 10)});
    const auto within = [&](const std::string& spec, const std::optional<Bytes>& budget) {
      return plan(problem, parse_spec(spec, "test"), budget);
    };
    const Plan free = std::get<Plan>(within("1f1b(cut=madpipe)", std::nullopt));
    const std::string in_line =
        "1f1b(cut=" + text_of(std::get<StageCut>(planner_cut(problem, {.planner = "madpipe", .devices = devices}))) +
        ")";
    INFO(in_line);
    const Plan usual = std::get<Plan>(within(in_line, std::nullopt));
    CHECK(free.makespan.value <= usual.makespan.value + 1e-9);
    for (const std::int64_t less : {0, 1, 2, 3}) {
      const Bytes budget{usual.peak.count * (8 - 2 * less) / 8};
      const PlanOutcome outcome = within("1f1b(cut=madpipe)", budget);
      const Plan* made = std::get_if<Plan>(&outcome);
      if (made == nullptr) continue;
      squeezed += less > 0 ? 1 : 0;
      CHECK(made->peak <= budget);
      CHECK(check(made->schedule, problem.graph, problem.platform).empty());
      CHECK(simulate_event(made->schedule, problem.platform).makespan == made->makespan);
    }
    const std::size_t at = free.note.find("on devices ");
    REQUIRE(at != std::string::npos);
    const std::string ranks = free.note.substr(at + 11, free.note.find(',', at) - at - 11);
    if (ranks.size() <= 2 * devices - 1) continue;
    ++several;
    const double said = std::stod(free.note.substr(free.note.find("period of ") + 10));
    const double period = period_of(chain, platform, "1f1b(cut=madpipe)", std::nullopt);
    promised += period <= said * (1 + 1e-5) ? 1 : 0;
  }
  if (all_cases()) CHECK(several > 10);
  if (all_cases()) CHECK(squeezed > 60);
  CHECK(promised == several);
}

}  // namespace
}  // namespace plimsoll
