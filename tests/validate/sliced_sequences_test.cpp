// Slices of sequences: seq1f1b trains as one device does on whole sequences, which know nothing of slices.

#include <catch2/catch.hpp>

#include "sim/core/names.h"
#include "sim/judge/check.h"
#include "strategies/compose/spec.h"
#include "tests/bad_input.h"
#include "tests/generate/problems.h"
#include "tests/random_case.h"
#include "tests/training/training.h"
#include "validate/network_model.h"
#include "validate/networks/networks.h"

namespace plimsoll {
namespace {

constexpr BytesPerSecond fast{20e9};
constexpr std::uint32_t heads = 2;
const std::string small_gpt =
    "gpt:layers=3,width=16,heads=" + std::to_string(heads) + ",sequence=8,batch=2,vocabulary=20";

Training sliced(const std::string& network, const std::string& spec, std::uint32_t devices, ProblemOptions options) {
  const std::vector<Pass> passes = parse_spec(spec, "test");
  options.backward = backward_for(passes);
  const Platform platform = gpus({.count = devices, .to_host = fast, .to_peers = fast});
  Network made = named_network(network, options.optimizer).network;
  if (slices_of(passes) > 1) made.slices = network_in_slices(network, options.optimizer, slices_of(passes));
  CpuNetwork cpu = with_kernels(std::move(made));
  take_one_scratch(cpu, Bytes{1 << 18});  // with AVX2 a slice's kernel of oneDNN 3.7 wants more than the whole's
  Problem problem = transformed(problem_of(model_of(cpu.network, View::chain), platform, options), passes);
  return {std::move(problem), std::move(cpu)};
}

Replayed on_one_device(const std::string& network, const ProblemOptions& options) {
  const Training one = training_of(network, one_gpu(), options);
  return replayed(one, std::get<Plan>(planned(one.problem, "store_all")).schedule);
}

/// Unlimited, and within the least memory that the plan can do with.
std::vector<Schedule> schedules_of(const Training& training, const std::string& spec) {
  const std::vector<Pass> passes = parse_spec(spec, "test");
  std::vector<Schedule> schedules{std::get<Plan>(plan(training.problem, passes, std::nullopt)).schedule};
  const PlanOutcome none = plan(training.problem, passes, Bytes{0});
  schedules.push_back(std::get<Plan>(plan(training.problem, passes, std::get<Infeasible>(none).smallest)).schedule);
  return schedules;
}

/// The bias of keys moves all scores of a query alike, so that softmax gives it no gradient but rounding, which Adam's
/// first update divides by itself: of each head's share of a bias only the other two thirds are compared.
double difference_without_keys(const Replayed& run, const Replayed& whole, const std::string& name) {
  const auto others = [&](const Replayed& of) {
    std::vector<std::byte> value = of.values.at(name);
    const auto third = static_cast<std::ptrdiff_t>(value.size() / heads / 3);
    for (auto head = std::ptrdiff_t{heads}; head-- > 0;) {
      const auto key = value.begin() + (3 * head + 1) * third;
      value.erase(key, key + third);
    }
    return Replayed{.timeline = {}, .values = {{name, std::move(value)}}};
  };
  return relative_difference(others(run), others(whole), name);
}

TEST_CASE("pipelines on slices of sequences train as one device does on whole ones", "[validate][slices][eleventh-5]") {
  const std::uint32_t slices = GENERATE(2u, 4u, 8u), devices = GENERATE(1u, 2u, 4u);
  const Optimizer optimizer = GENERATE(Optimizer::sgd, Optimizer::adam);
  const ProblemOptions options{.micro_batches = 3, .optimizer = optimizer};
  const Replayed whole = on_one_device(small_gpt, options);
  const std::string of_slices = "slices=" + std::to_string(slices);
  const std::vector<std::string> specs{"seq1f1b(" + of_slices + ")", "seq1f1b(backward=split," + of_slices + ")",
                                       "seq1f1b(" + of_slices + ")|rotor", "seq1f1b(" + of_slices + ")|full_recompute"};
  for (const RandomCase k : fewer_cases(0, specs.size() - 1, 2)) {
    const std::string& spec = specs[k];
    INFO(spec << ", " << devices << " devices, " << written(optimizer));
    const Training training = sliced(small_gpt, spec, devices, options);
    for (const Schedule& schedule : schedules_of(training, spec)) {
      CHECK(check(schedule, training.problem.graph, training.problem.platform).empty());
      const Replayed run = replayed(training, schedule);
      CHECK(run.values.size() == whole.values.size());
      for (const auto& [name, value] : whole.values) {
        INFO(name);
        REQUIRE(run.values.contains(name));
        const bool divides_rounding = optimizer == Optimizer::adam && name.ends_with("attention.qkv.bias");
        CHECK((divides_rounding ? difference_without_keys(run, whole, name) : relative_difference(run, whole, name)) <
              2e-5);
      }
      const std::vector<Bytes> counted = recount(schedule, run.timeline, training.problem.platform);
      for (std::size_t m = 0; m < counted.size(); ++m) CHECK(counted[m] == run.timeline.peaks[m].bytes);
    }
  }
}

TEST_CASE("one slice trains bit for bit as whole sequences do", "[validate][slices]") {
  const ProblemOptions options{.micro_batches = 3, .optimizer = Optimizer::adam};
  const Training training = sliced(small_gpt, "seq1f1b(slices=1)", 2, options);
  const Replayed run = replayed(training, schedules_of(training, "seq1f1b(slices=1)").front());
  CHECK(differing(run, on_one_device(small_gpt, options)).empty());
}

TEST_CASE("networks without a sequence in their tensors do not run in slices", "[validate][slices]") {
  const auto complaint = [](const std::string& network) {
    return complaint_of([&] { network_in_slices(network, std::nullopt, 4); });
  };
  CHECK(complaint("mlp:layers=2") == "mlp:layers=2: has no sequence to slice: its inputs are rows of numbers");
  CHECK(complaint("resnet:blocks=1") == "resnet:blocks=1: has no sequence to slice: its inputs are pictures");
  CHECK(complaint("lstm:steps=4") ==
        "lstm:steps=4: has no sequence to slice: its steps are its stages, each with one state as its input");
  CHECK(complaint("gpt:sequence=62") == "gpt:sequence=62: sequence: 62 positions cannot be cut into 4 equal slices");
  const Training training = sliced(small_gpt, "seq1f1b(slices=2)", 2, {.micro_batches = 2});
  const Training whole = training_of(small_gpt, training.problem.platform);
  const std::variant<Replayed, ReplayFailure> outcome =
      run_of({training.problem, whole.network}, schedules_of(training, "seq1f1b(slices=2)").front(), {});
  CHECK(std::get<ReplayFailure>(outcome).what ==
        "network '" + small_gpt + "': runs whole sequences, and the schedule slices of them");
}

}  // namespace
}  // namespace plimsoll
