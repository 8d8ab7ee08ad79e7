// Backwards in two parts: what networks state of them, and pipelines that run them apart, replayed.

#include <algorithm>
#include <catch2/catch.hpp>

#include "sim/engine/event/event_engine.h"
#include "sim/judge/check.h"
#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"
#include "tests/random_case.h"
#include "tests/training/training.h"
#include "validate/op_times.h"

namespace plimsoll {
namespace {

Stage stage_of(const std::string& network, const std::string& name) {
  const auto chain = std::get<Chain>(network_model(network));
  const auto found = std::ranges::find(chain.stages, name, &Stage::name);
  REQUIRE(found != chain.stages.end());
  return *found;
}

TEST_CASE("networks state what the weight part of each backward needs, by hand", "[validate][split]") {
  const std::string mlp = "mlp:layers=2,width=24,batch=6,classes=16";
  // layer0 is linear, relu: the weight part needs x, and the gradient behind the linear op that the input part makes.
  CHECK(stage_of(mlp, "layer0").weight_made == Bytes{6 * 24 * 4});
  CHECK(stage_of(mlp, "layer0").weight_saved == Bytes{6 * 24 * 4});
  CHECK(stage_of(mlp, "layer0").weight_keeps_input);
  CHECK_FALSE(stage_of(mlp, "layer0").weight_keeps_gradient);
  // layer1 is linear alone: the gradient of its output is that of the stage's.
  CHECK(stage_of(mlp, "layer1").weight_made == Bytes{0});
  CHECK(stage_of(mlp, "layer1").weight_saved == Bytes{0});
  CHECK(stage_of(mlp, "layer1").weight_keeps_gradient);
  CHECK(stage_of(mlp, "loss").weight_saved == Bytes{0});
  CHECK_FALSE(stage_of(mlp, "loss").weight_keeps_input);
  CHECK_FALSE(stage_of(mlp, "loss").weight_keeps_output);
  CHECK(stage_of(mlp, "loss").backward_weight == Seconds{0});

  const std::string gpt = "gpt:layers=1,width=16,heads=2,sequence=8,batch=2,vocabulary=20";
  constexpr Bytes row{2 * 8 * 16 * 4};  // a tensor of (batch, sequence, width)
  // Saved: what the norm and the values of attention make. Made: gradients of the norm's result and of qkv, 3 wide; the
  // one behind the projection is the stage's own.
  CHECK(stage_of(gpt, "layer0.attention").weight_made == 4 * row);
  CHECK(stage_of(gpt, "layer0.attention").weight_saved == 6 * row);
  CHECK(stage_of(gpt, "layer0.attention").weight_keeps_input);
  CHECK(stage_of(gpt, "layer0.attention").weight_keeps_gradient);
  // Saved: the norm's result and gelu's, 4 wide. Made: gradients of the norm's result and of what is expanded, 4 wide.
  CHECK(stage_of(gpt, "layer0.mlp").weight_made == 5 * row);
  CHECK(stage_of(gpt, "layer0.mlp").weight_saved == 10 * row);
  CHECK(stage_of(gpt, "embedding").weight_saved == Bytes{0});
}

TEST_CASE("the two parts of a backward take the time of the whole together", "[validate][split]") {
  for (const std::string network : {"mlp:layers=3", "resnet:blocks=2", "gpt:layers=1", "lstm:steps=2"}) {
    const auto chain = std::get<Chain>(network_model(network));
    for (const Stage& stage : chain.stages) {
      INFO(network << ", " << stage.name);
      CHECK(stage.has_backward_weight);
      CHECK(stage.backward_weight <= stage.backward);
      CHECK((stage.backward_weight > Seconds{0}) == !stage.parameters.empty());
      CHECK(stage.backward_input_workspace.value() <= stage.backward_workspace);
      CHECK(stage.backward_weight_workspace.value() <= stage.backward_workspace);
      CHECK(stage.backward_weight_workspace.value() <= stage.backward_weight_accumulate_workspace.value());
    }
  }
}

/// Training on `count` devices, with backwards split if the strategy asks for that.
Training training_for(const std::string& spec, const std::string& network, std::uint32_t count,
                      std::uint32_t micro_batches) {
  constexpr BytesPerSecond fast{20e9};
  return training_of(network, gpus({.count = count, .to_host = fast, .to_peers = fast}),
                     {.micro_batches = micro_batches,
                      .optimizer = Optimizer::adam,
                      .backward = backward_for(parse_spec(spec, "test"))});
}

Replayed alone(const std::string& network, std::uint32_t micro_batches) {
  const Training one = training_for("store_all", network, 1, micro_batches);
  return replayed(one, std::get<Plan>(planned(one.problem, "store_all")).schedule);
}

void check_peaks(const Training& training, const Schedule& schedule, const Replayed& run) {
  const std::vector<Bytes> counted = recount(schedule, run.timeline, training.problem.platform);
  for (std::size_t m = 0; m < counted.size(); ++m) CHECK(counted[m] == run.timeline.peaks[m].bytes);
}

TEST_CASE("on one device a backward in two parts trains as the whole one does and takes what was promised",
          "[validate][split]") {
  for (const std::string network :
       {"mlp:layers=5,width=24,batch=6,classes=4", "resnet:blocks=3,channels=4,picture=16,batch=2,classes=5",
        "gpt:layers=2,width=16,heads=2,sequence=8,batch=2,vocabulary=20", "lstm:steps=6,width=8,batch=4,classes=3"}) {
    const Replayed plain = alone(network, 3);
    for (const std::string spec : {"1f1b(backward=split)", "zb_h1", "zb_h1|rotor"}) {
      INFO(network << ", " << spec);
      const Training split = training_for(spec, network, 1, 3);
      const PlanOutcome none = planned(split.problem, spec, Bytes{0});
      const PlanOutcome made = planned(split.problem, spec, std::get<Infeasible>(none).smallest);
      REQUIRE(std::holds_alternative<Plan>(made));
      const Schedule& schedule = std::get<Plan>(made).schedule;
      const Replayed run = replayed(split, schedule);
      CHECK(differing(run, plain).empty());
      CHECK(differing(plain, run).empty());
      CHECK(run.timeline.peaks[0].bytes == simulate_event(schedule, split.problem.platform).peaks[0].bytes);
      check_peaks(split, schedule, run);
    }
  }
}

/// The same sums in the same order, whatever the device.
bool adds_in_order(const Training& training, const Schedule& schedule) {
  for (const auto& [gradient, made] : contributions(training.problem, schedule)) {
    const auto before = [](const auto& a, const auto& b) { return a.second < b.second; };
    if (!std::ranges::is_sorted(made, before)) return false;
  }
  return true;
}

TEST_CASE("every synchronous pipeline trains as one device does", "[validate][split][eleventh-9]") {
  const std::string network = GENERATE("mlp:layers=8,width=24,batch=6,classes=4",
                                       "gpt:layers=3,width=16,heads=2,sequence=8,batch=2,vocabulary=20");
  const std::uint32_t devices = GENERATE(2u, 4u);
  constexpr std::uint32_t micro_batches = 8;
  const Replayed one = alone(network, micro_batches);
  const std::vector<std::string> specs{"gpipe(order=fifo)",
                                       "gpipe",
                                       "gpipe(backward=split)",
                                       "1f1b",
                                       "1f1b(backward=split)",
                                       "eager_1f1b",
                                       "eager_1f1b(backward=split)",
                                       "interleaved",
                                       "interleaved(backward=split)",
                                       "zb_h1",
                                       "zb_h2",
                                       "zb_auto",
                                       "zb_auto(limit=2)",
                                       "zb_v",
                                       "v_half",
                                       "v_half(pattern=1f1b_v)",
                                       "v_min",
                                       "hanayo",
                                       "hanayo(backward=split)",
                                       "chimera",
                                       "dualpipe",
                                       "dualpipe_v",
                                       "zb_ilp(nodes=10)",
                                       "pipeline_search(moves=200)",
                                       "zb_h1|rotor",
                                       "zb_v|full_recompute",
                                       "hanayo|full_recompute"};
  for (const RandomCase k : fewer_cases(0, specs.size() - 1, 2)) {
    const std::string& spec = specs[k];
    INFO(network << ", " << spec << ", " << devices << " devices");
    const Training several = training_for(spec, network, devices, micro_batches);
    const PlanOutcome made = planned(several.problem, spec);
    REQUIRE(std::holds_alternative<Plan>(made));
    const Schedule& schedule = std::get<Plan>(made).schedule;
    const Replayed run = replayed(several, schedule);
    check_peaks(several, schedule, run);
    CHECK(run.values.size() == one.values.size());
    const bool is_in_order = schedule.collectives.empty() && adds_in_order(several, schedule);
    CHECK(is_in_order !=
          (spec.starts_with("chimera") || spec == "dualpipe" || spec == "gpipe" || spec == "gpipe(backward=split)"));
    if (is_in_order) CHECK(differing(run, one).empty());
    for (const std::string& name : differing(run, one)) {
      INFO(name);
      REQUIRE(one.values.contains(name));
      CHECK(relative_difference(run, one, name) < 2e-5);
    }
  }
}

/// What one run of the schedule that measures ops took.
OpTimes times_of(const Training& training) {
  const Schedule sweeps = calibration_schedule(training.problem);
  OpTimes times;
  times.add(training.problem.graph, sweeps, replayed(training, sweeps).timeline);
  return times;
}

TEST_CASE("measured parts of a backward say how its time divides", "[validate][split]") {
  const std::string network = "mlp:layers=2,width=24,batch=6,classes=4";
  const Training split = training_for("zb_h1", network, 1, 1);
  const OpTimes times = times_of(split);
  auto stated = std::get<Chain>(network_model(network));
  for (Stage& stage : stated.stages) stage.backward = Seconds{10};
  const Chain measured = with_times(stated, split.problem, times);
  const ChainGraph& index = split.problem.index.value();
  for (std::size_t i = 0; i < 2; ++i) {
    const double input = times.of(index.backward[i], Saving::keep).value().value;
    const double weight = times.of(index.weight[i], Saving::keep).value().value;
    CHECK(measured.stages[i].backward == Seconds{10});
    CHECK(measured.stages[i].backward_weight.value == Approx(10 * weight / (input + weight)));
    CHECK(measured.stages[i].backward_weight > Seconds{0});
    CHECK(measured.stages[i].backward_weight < Seconds{10});
  }
  CHECK(measured.stages[2].backward_weight == Seconds{0});  // the loss has no weights
}

TEST_CASE("a measured backward divides as the stated one did", "[validate][split]") {
  const std::string network = "mlp:layers=2,width=24,batch=6,classes=4";
  const Training whole = training_for("store_all", network, 1, 1);
  auto stated = std::get<Chain>(network_model(network));
  for (Stage& stage : stated.stages) stage.backward_weight = 0.25 * stage.backward;
  const OpTimes times = times_of(whole);
  const Chain measured = with_times(stated, whole.problem, times);
  for (std::size_t i = 0; i < measured.stages.size(); ++i) {
    CHECK(measured.stages[i].backward == times.of(whole.problem.index->backward[i], Saving::keep));
    CHECK(measured.stages[i].backward_weight.value == Approx(0.25 * measured.stages[i].backward.value));
  }
}

}  // namespace
}  // namespace plimsoll
