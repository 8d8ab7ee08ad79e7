// Several devices: each with its own memory and threads, activations and gradients sent between them.

#include <catch2/catch.hpp>

#include "sim/judge/check.h"
#include "sim/lower/lowering.h"
#include "strategies/list.h"
#include "strategies/models/chain_pass.h"
#include "tests/generate/problems.h"
#include "tests/training/training.h"

namespace plimsoll {
namespace {

/// A rotor tape of each part on the least budget that it can do, or store_all's.
Tape tape_of(const Problem& problem, const Partition& partition, PartId id, bool rematerializes) {
  const ChainPart part = chain_part(problem, partition.parts[id.index]);
  if (!rematerializes) {
    return chain_tape(problem, partition, id, part, store_all_sequence(part.chain.stages.size()));
  }
  const auto in_flight = static_cast<std::uint32_t>(partition.parts.size()) - id.index;
  const PartTask task{problem, partition, id, in_flight};
  const Options options(rotor_strategy.options, {});
  const std::optional<Bytes> nothing = Bytes{0};
  const TapeOutcome least = rotor_strategy.tapes(task, options, std::span(&nothing, 1), nullptr).front();
  const std::optional<Bytes> budget = std::get<Infeasible>(least).smallest;
  const TapeOutcome made = rotor_strategy.tapes(task, options, std::span(&budget, 1), nullptr).front();
  return std::get<PlannedTape>(made).tape;
}

TEST_CASE("1F1B on three devices trains as one device does, with and without rematerialization", "[validate]") {
  const bool rematerializes = GENERATE(false, true);
  const std::string network = GENERATE("mlp:layers=6,width=24,batch=6,classes=4",
                                       "gpt:layers=2,width=16,heads=2,sequence=8,batch=2,vocabulary=20",
                                       "decoder:layers=2,width=16,heads=4,sequence=8,batch=2,vocabulary=20,experts=4",
                                       "resnet:blocks=4,channels=4,picture=16,batch=2,classes=5");
  INFO(network << (rematerializes ? ", rotor" : ", store_all"));
  constexpr BytesPerSecond fast{20e9};
  const ProblemOptions options{.micro_batches = 4, .optimizer = Optimizer::adam};
  const Training one = training_of(network, one_gpu(), options);
  const Training three = training_of(network, gpus({.count = 3, .to_host = fast, .to_peers = fast}), options);
  const Partition partition = one_forward_one_backward(three.problem, {0, 2, 4});
  std::vector<Tape> tapes;
  for (std::uint32_t p = 0; p < 3; ++p) tapes.push_back(tape_of(three.problem, partition, PartId{p}, rematerializes));
  const std::variant<Schedule, std::string> made = lower(three.problem, partition, tapes);
  REQUIRE(std::holds_alternative<Schedule>(made));
  const auto& schedule = std::get<Schedule>(made);
  const Replayed pipelined = replayed(three, schedule);
  const PlanOutcome plain = planned(one.problem, "store_all");
  const Replayed alone = replayed(one, std::get<Plan>(plain).schedule);
  CHECK(differing(pipelined, alone).empty());
  CHECK(differing(alone, pipelined).empty());
  const std::vector<Bytes> counted = recount(schedule, pipelined.timeline, three.problem.platform);
  for (std::size_t m = 0; m < counted.size(); ++m) CHECK(counted[m] == pipelined.timeline.peaks[m].bytes);
}

TEST_CASE("pipelines of strategies train as one device does", "[validate]") {
  const std::string network = GENERATE("mlp:layers=6,width=24,batch=6,classes=4",
                                       "gpt:layers=2,width=16,heads=2,sequence=8,batch=2,vocabulary=20");
  constexpr BytesPerSecond fast{20e9};
  const ProblemOptions options{.micro_batches = 4, .optimizer = Optimizer::adam};
  const Training one = training_of(network, one_gpu(), options);
  const Replayed alone = replayed(one, std::get<Plan>(planned(one.problem, "store_all")).schedule);
  const Training two = training_of(network, gpus({.count = 2, .to_host = fast, .to_peers = fast}), options);
  for (const char* spec :
       {"gpipe(order=fifo)", "gpipe", "eager_1f1b", "interleaved", "interleaved(warm_up=less_memory)", "1f1b|rotor",
        "interleaved|full_recompute", "gpipe|chen_sqrt"}) {
    INFO(network << ", " << spec);
    const PlanOutcome none = planned(two.problem, spec, Bytes{0});
    const std::optional<Bytes> least = std::get<Infeasible>(none).smallest;
    REQUIRE(least);
    const PlanOutcome made = planned(two.problem, spec, least);
    REQUIRE(std::holds_alternative<Plan>(made));
    const Replayed pipelined = replayed(two, std::get<Plan>(made).schedule);
    if (std::string_view(spec).starts_with("gpipe") && spec != std::string_view("gpipe(order=fifo)")) {
      for (const std::string& name : differing(pipelined, alone)) {  // the last micro-batch's gradient comes first
        CHECK(relative_difference(pipelined, alone, name) < 2e-5);
      }
    } else {
      CHECK(differing(pipelined, alone).empty());
      CHECK(differing(alone, pipelined).empty());
    }
    const std::vector<Bytes> counted = recount(std::get<Plan>(made).schedule, pipelined.timeline, two.problem.platform);
    for (std::size_t m = 0; m < counted.size(); ++m) CHECK(counted[m] == pipelined.timeline.peaks[m].bytes);
  }
}

TEST_CASE("stages on several devices that share parameters train as one device does within rounding", "[validate]") {
  const std::string network = "lstm:steps=5,width=8,batch=3,classes=4";
  constexpr BytesPerSecond fast{20e9};
  const ProblemOptions options{.micro_batches = 4, .optimizer = Optimizer::adam};
  const Training one = training_of(network, one_gpu(), options);
  const Replayed alone = replayed(one, std::get<Plan>(planned(one.problem, "store_all")).schedule);
  const Training three = training_of(network, gpus({.count = 3, .to_host = fast, .to_peers = fast}), options);
  for (const char* spec : {"1f1b", "gpipe(order=fifo)", "interleaved", "1f1b|rotor"}) {
    INFO(spec);
    const Replayed several = replayed(three, std::get<Plan>(planned(three.problem, spec)).schedule);
    const std::vector<std::string> others = differing(several, alone);
    CHECK(!others.empty());  // what each device makes of the cell's gradient is summed first
    for (const std::string& name : others) CHECK(relative_difference(several, alone, name) < 2e-5);
    for (const auto& [name, value] : alone.values) CHECK(several.values.contains(name));
  }
}

/// On four devices within the least memory: gradients of copies are summed, in an order that is not one device's.
void check_sums(const char* spec, std::uint32_t micro_batches) {
  const std::string network = GENERATE("mlp:layers=6,width=24,batch=6,classes=4",
                                       "gpt:layers=2,width=16,heads=2,sequence=8,batch=2,vocabulary=20");
  INFO(network << ", " << spec);
  constexpr BytesPerSecond fast{20e9};
  const ProblemOptions options{.micro_batches = micro_batches, .optimizer = Optimizer::adam};
  const Training one = training_of(network, one_gpu(), options);
  const Replayed alone = replayed(one, std::get<Plan>(planned(one.problem, "store_all")).schedule);
  const Training four = training_of(network, gpus({.count = 4, .to_host = fast, .to_peers = fast}), options);
  const PlanOutcome none = planned(four.problem, spec, Bytes{0});
  const PlanOutcome made = planned(four.problem, spec, std::get<Infeasible>(none).smallest);
  REQUIRE(std::holds_alternative<Plan>(made));
  const Schedule& schedule = std::get<Plan>(made).schedule;
  CHECK(!schedule.collectives.empty());
  const Replayed several = replayed(four, schedule);
  CHECK(!differing(several, alone).empty());
  for (const std::string& name : differing(several, alone)) {
    CHECK(relative_difference(several, alone, name) < 2e-5);
  }
  const std::vector<Bytes> counted = recount(schedule, several.timeline, four.problem.platform);
  for (std::size_t m = 0; m < counted.size(); ++m) CHECK(counted[m] == several.timeline.peaks[m].bytes);
}

TEST_CASE("stages on several devices train as one device does within rounding", "[validate]") {
  check_sums(GENERATE("1f1b(cut=0x3:3)", "eager_1f1b(cut=0:2x2:4)", "1f1b(cut=0x2:3x2)|rotor",
                      "1f1b(cut=0x2:3x2,buckets=2kB)"),
             5);
}

TEST_CASE("pipelines both ways, whose copies' gradients are summed, train as one device does within rounding",
          "[validate]") {
  check_sums(GENERATE("chimera", "chimera(pairs=2)", "chimera(stages=2)|rotor", "chimera(buckets=1kB)",
                      "chimera(pairs=2,buckets=1GB)"),
             8);
}

}  // namespace
}  // namespace plimsoll
