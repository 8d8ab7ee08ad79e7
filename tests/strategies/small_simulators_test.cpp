// The small simulators that planners ask instead of making a schedule, in one table, each beside the event engine on
// random inputs: the same figure where its header says so, else a bound of it.

#include <array>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "sim/lower/lowering.h"
#include "sim/measure/metrics.h"
#include "strategies/compose/levels/least_makespan.h"
#include "strategies/models/chain_part.h"
#include "strategies/models/op_sequence.h"
#include "strategies/models/tape_cost.h"
#include "strategies/pipelining/cuts/stage_parts.h"
#include "strategies/pipelining/orders/order_times.h"
#include "strategies/placement/graph_dag.h"
#include "strategies/placement/lists/list_schedulers.h"
#include "strategies/placement/placed_parts.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/chain_oracle.h"
#include "tests/strategies/pipelining/equal_pipelines.h"

namespace plimsoll {
namespace {

enum class Said { same, at_most, at_least };

struct Compared {
  std::string figure;
  double said, simulated;
  Said relation = Said::same;
};

using Figures = std::vector<Compared>;

Compared of(std::string figure, Bytes said, Bytes simulated, Said relation = Said::same) {
  return {std::move(figure), static_cast<double>(said.count), static_cast<double>(simulated.count), relation};
}
Compared of(std::string figure, Seconds said, Seconds simulated, Said relation = Said::same) {
  return {std::move(figure), said.value, simulated.value, relation};
}

Timeline run_alone(const Problem& problem, const Partition& partition, const Tape& tape) {
  const std::variant<Schedule, std::string> made = lower(problem, partition, std::span(&tape, 1));
  return simulate_event(std::get<Schedule>(made), problem.platform);
}

/// A chain on one device and any legal way through it.
struct ChainRun {
  Problem problem;
  Partition partition = one_device(problem.graph, problem.micro_batches, 1);
  ChainPart part = chain_part(problem, partition.parts[0]);
  ChainModel model = chain_model(problem, part);
  ChainSequence sequence;
  Tape tape;

  ChainRun(std::uint64_t seed, Random& random, const ProblemOptions& options)
      : problem(problem_of(random_small_chain(seed, random.between(1, 7)), gpus({}), options)),
        sequence(random_sequence(model, seed)),
        tape(chain_tape(problem, partition, PartId{0}, part, sequence)) {}
};

ProblemOptions any_options(Random& random) {
  ProblemOptions options;
  options.micro_batches = random.between(1, 3);
  options.gradients = random.chance(0.5) ? Gradients::fresh : Gradients::existing;
  options.optimizer = random.chance(0.5) ? Optimizer::none : Optimizer::adam;
  return options;
}

Figures tape_cost_of_chains(std::uint64_t seed) {
  Random random(seed);
  const ChainRun run(seed, random, any_options(random));
  const TapeCost cost = tape_cost(run.problem, run.partition.parts[0], run.tape);
  const Timeline timeline = run_alone(run.problem, run.partition, run.tape);
  return {of("makespan", cost.makespan, timeline.makespan), of("peak", cost.peak, timeline.peaks[0].bytes)};
}

/// Some forwards run again, at any place behind their first run.
Figures tape_cost_of_graphs(std::uint64_t seed) {
  Random random(seed);
  ProblemOptions options = any_options(random);
  options.optimizer = Optimizer::none;  // does not know whose some gradients of these graphs are
  const Problem problem = problem_of(random_graph(seed, random.between(1, 8)), gpus({}), options);
  const Partition partition = one_device(problem.graph, problem.micro_batches, 1);
  const PartTask task{problem, partition, PartId{0}};
  OpSequence sequence = store_all_ops(task);
  for (std::uint32_t again = random.below(4); again > 0; --again) {
    const std::size_t first = random.below(static_cast<std::uint32_t>(sequence.size()));
    const Op& op = problem.graph[sequence[first].op];
    if (op.phase != Phase::forward || !op.recomputable) continue;
    const std::size_t at = first + 1 + random.below(static_cast<std::uint32_t>(sequence.size() - first));
    const OpRun repeated = sequence[first];
    sequence.insert(sequence.begin() + static_cast<std::ptrdiff_t>(at), repeated);
  }
  const PlannedTape made = planned_ops(task, sequence);
  const Timeline timeline = run_alone(problem, partition, made.tape);
  return {of("makespan", made.makespan, timeline.makespan), of("peak", made.peak, timeline.peaks[0].bytes)};
}

/// With fresh gradients of several micro-batches the model takes those of the first as there, which they are not.
Figures chain_sequences(std::uint64_t seed) {
  Random random(seed);
  ProblemOptions options = any_options(random);
  options.optimizer = Optimizer::none;  // a sequence has no updates
  const ChainRun run(seed, random, options);
  const bool is_exact = options.micro_batches == 1 || options.gradients == Gradients::existing;
  const ChainCost cost = evaluate(run.model, run.sequence);
  REQUIRE(cost.violation == "");
  const Timeline timeline = run_alone(run.problem, run.partition, run.tape);
  return {of("makespan", options.micro_batches * cost.time, timeline.makespan),
          of("peak", cost.peak, timeline.peaks[0].bytes, is_exact ? Said::same : Said::at_least)};
}

/// Parts of unequal stages in plain training; transfers take a time, but share nothing.
Figures orders(std::uint64_t seed) {
  Random random(seed);
  const std::uint32_t devices = random.between(1, 4), m = random.between(1, 9);
  Chain chain = with_weight_times(random_small_chain(seed, random.between(2 * devices, 2 * devices + 5)));
  for (Stage& stage : chain.stages) stage.parameters.clear();  // shared ones' gradients are sent at the end
  Figures figures;
  for (const std::string spec : {"gpipe", "1f1b", "eager_1f1b", "interleaved", "zb_h2", "zb_v", "v_half"}) {
    const std::vector<Pass> passes = parse_spec(spec, "test");
    const Problem problem =
        problem_of(chain, gpus({.count = devices, .peer_latency = Seconds{random.between(0, 6) * 3.0}}),
                   {.micro_batches = m, .backward = backward_for(passes)});
    const std::optional<Bytes> any;
    const auto outcomes = passes[0].strategy->partition(problem, passes[0].options, std::span(&any, 1));
    const Partition& partition = *std::get<std::shared_ptr<const Partition>>(outcomes[0]);
    const OrderTimes times = time_order(part_costs(problem, partition), m, order_of(partition));
    const Plan made = std::get<Plan>(plan(problem, passes, std::nullopt));
    figures.push_back(of("makespan of " + spec, Seconds{times.makespan()}, made.makespan));
    figures.push_back(of("longest device of " + spec, Seconds{times.longest()}, longest_stage_of(problem, made)));
  }
  return figures;
}

struct Bounded {
  Seconds least, simulated;
};

/// Of plain training.
Bounded bounded(const std::string& spec, Chain chain, const Gpus& machine, std::uint32_t micro_batches) {
  const std::vector<Pass> passes = parse_spec(spec, "test");
  const Problem problem =
      problem_of(std::move(chain), gpus(machine), {.micro_batches = micro_batches, .backward = backward_for(passes)});
  const std::optional<Bytes> unlimited;
  const Pass& pipeline = passes.front();
  const PartitionOutcome outcome =
      pipeline.strategy->partition(problem, pipeline.options, std::span(&unlimited, 1)).front();
  const Partition& partition = *std::get<std::shared_ptr<const Partition>>(outcome);
  std::vector<Tape> tapes;
  for (std::size_t p = 0; p < partition.parts.size(); ++p) {
    tapes.push_back(plain_tape({problem, partition, id_at<PartId>(p)}));
  }
  return {least_makespan(problem, partition, tapes), plain_timeline(problem, partition).makespan};
}

constexpr std::array bounded_specs{"gpipe", "1f1b",  "interleaved(chunks=2)", "zb_h1", "zb_h2",
                                   "zb_v",  "v_min", "hanayo(waves=2)"};

/// Where nothing is shared.
Figures least_makespan_of_equal_stages(std::uint64_t seed) {
  const std::string spec = bounded_specs.at(seed % bounded_specs.size());
  const double latency = seed / bounded_specs.size() % 2 == 0 ? 0.0 : 0.25;
  const Bounded made = bounded(spec, equal_stages(8, {1, 1.5, 0.5}), {.count = 4, .peer_latency = Seconds{latency}}, 8);
  return {of(spec, made.least, made.simulated)};
}

/// Transfers wait for each other.
Figures least_makespan_of_any_stages(std::uint64_t seed) {
  Random random(seed);
  const std::string spec = bounded_specs.at(seed % bounded_specs.size());
  const Chain chain = with_weight_times(random_small_chain(seed, random.between(8, 12)));
  const Gpus machine{.count = 2,
                     .to_peers = random.chance(0.5) ? unlimited_bandwidth : BytesPerSecond{random.between(1, 9) * 1.0},
                     .peer_latency = Seconds{random.between(0, 3) * 1.0}};
  const Bounded made = bounded(spec, chain, machine, random.between(2, 6));
  return {of(spec, made.least, made.simulated, Said::at_most)};
}

/// A graph on devices whose transfers take no time, half the time.
struct PlacedGraph {
  bool sends_take_time;
  Problem problem;
  GraphDag graph;
  Machine machine;

  PlacedGraph(std::uint64_t seed, Random& random)
      : sends_take_time(random.chance(0.5)),
        problem(problem_of(random_graph(seed, random.between(2, 9)),
                           gpus({.count = random.between(1, 3),
                                 .peer_latency = Seconds{sends_take_time ? random.between(1, 5) * 0.5 : 0.0}}))),
        graph(graph_dag(problem, static_cast<std::uint32_t>(problem.platform.devices.size()))),
        machine(machine_of(problem, graph, std::nullopt, 1)) {}

  PlainRun run(std::span<const std::uint32_t> on, const Emulation& times) const {
    return plain_run(problem, placed_parts(problem, graph, on, times));
  }
  Compared makespan(std::string figure, Nanoseconds said, const PlainRun& simulated) const {
    return of(std::move(figure), Seconds{1e-9 * static_cast<double>(said)}, simulated.makespan,
              sends_take_time ? Said::at_most : Said::same);
  }
};

/// Of any placement.
Figures emulations(std::uint64_t seed) {
  Random random(seed);
  const PlacedGraph placed(seed, random);
  const OpDag& dag = placed.graph.dag;
  const auto anywhere = [&] { return random.below(static_cast<std::uint32_t>(placed.machine.size())); };
  std::vector<std::uint32_t> on;
  for (std::uint32_t v = 0; v < dag.size; ++v) on.push_back(anywhere());
  for (const std::vector<std::uint32_t>& group : dag.together) {
    for (const std::uint32_t v : group) on[v] = on[group.front()];
  }
  Figures figures;
  for (const QueueOrder order : {QueueOrder::fifo, QueueOrder::b_level, QueueOrder::number}) {
    const Emulation times = emulate(dag, placed.machine, on, order);
    const PlainRun run = placed.run(on, times);
    figures.push_back(placed.makespan("makespan", times.makespan, run));
    if (placed.sends_take_time) continue;
    // What begins and ends at one date may overlap in a schedule.
    const std::vector<std::int64_t> bytes = memory_of(dag, placed.machine, on, times);
    for (std::size_t d = 0; d < bytes.size(); ++d) {
      figures.push_back(of("peak of device " + std::to_string(d), Bytes{bytes[d]}, run.peaks[d], Said::at_most));
    }
  }
  return figures;
}

Figures dag_schedules(std::uint64_t seed) {
  Random random(seed);
  const PlacedGraph placed(seed, random);
  Figures figures;
  const auto add = [&](const std::string& name, const ListOutcome& outcome) {
    const auto& made = std::get<ListSchedule>(outcome);
    const Emulation times = emulate_in_order(placed.graph.dag, placed.machine, made.placement);
    figures.push_back(placed.makespan(name, made.makespan, placed.run(made.placement.on, times)));
  };
  add("heft", heft_schedule(placed.graph.dag, placed.machine));
  add("cpop", cpop_schedule(placed.graph.dag, placed.machine));
  add("etf", etf_schedule(placed.graph.dag, placed.machine));
  return figures;
}

struct SmallSimulator {
  const char* name;
  std::uint64_t cases;
  Figures (*compare)(std::uint64_t seed);
};

constexpr std::array simulators{
    SmallSimulator{"tape_cost() of chains", 300, tape_cost_of_chains},
    SmallSimulator{"tape_cost() of graphs", 300, tape_cost_of_graphs},
    SmallSimulator{"evaluate()", 300, chain_sequences},
    SmallSimulator{"time_order()", 60, orders},
    SmallSimulator{"least_makespan() of equal stages", 2 * bounded_specs.size(), least_makespan_of_equal_stages},
    SmallSimulator{"least_makespan()", 100, least_makespan_of_any_stages},
    SmallSimulator{"emulate()", 200, emulations},
    SmallSimulator{"schedules of lists", 200, dag_schedules},
};

TEST_CASE("small simulators say what the event engine says", "[simulators][chain][pipelining][eleventh-0]") {
  for (const SmallSimulator& each : simulators) {
    INFO(each.name);
    for (const RandomCase seed : random_cases(1, each.cases)) {
      for (const Compared& compared : each.compare(seed)) {
        INFO(compared.figure << " of seed " << seed);
        const double rounding = 1e-9 * (compared.simulated + 1e-9);
        CHECK((compared.relation == Said::at_least || compared.said <= compared.simulated + rounding));
        CHECK((compared.relation == Said::at_most || compared.said >= compared.simulated - rounding));
      }
    }
  }
}

TEST_CASE("the least makespan of gpipe is the way of the first and the last micro-batch",
          "[pipelining][least_makespan]") {
  constexpr double f = 1, b = 2, c = 0.25, parts = 4, m = 6;
  const Bounded made = bounded("gpipe", equal_stages(4, {f, b, 0}), {.count = 4, .peer_latency = Seconds{c}}, 6);
  CHECK(made.least.value == Approx((m + parts - 1) * (f + b) + 2 * (parts - 1) * c).epsilon(1e-12));
}

TEST_CASE("where parts have copies, a device's own computation is the bound", "[pipelining][least_makespan]") {
  const Bounded made = bounded("chimera", equal_stages(4, {1, 1.5, 0.5}), {.count = 4}, 8);
  CHECK(made.least.value == Approx(8 * 3));
  CHECK(made.least < made.simulated);
}

}  // namespace
}  // namespace plimsoll
