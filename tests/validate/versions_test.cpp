// Updates within an iteration: a pipeline with stashed or double-buffered parameters trains as a plain loop does that
// keeps every version and is told which one each micro-batch reads.

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>

#include "sim/judge/check.h"
#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"
#include "tests/validate/op_loop.h"

namespace plimsoll {
namespace {

/// One micro-batch after the other, with every version of a parameter kept.
class PlainLoop : public OneThreadLoop {
 public:
  PlainLoop(const std::string& reference, Optimizer optimizer)
      : OneThreadLoop(with_kernels(named_network(reference, optimizer).network)) {
    versions_.resize(values_.size());
    for (std::size_t t = 0; t < values_.size(); ++t) versions_[t].push_back(values_[t]);
  }

  /// The version that the ops of a stage of the model read for a micro-batch; stage, micro-batch.
  using Rule = std::function<std::size_t(std::uint32_t, std::uint32_t)>;

  void train(std::uint32_t micro_batches, std::uint32_t every, const Rule& version) {
    for (std::uint32_t i = 0; i < micro_batches; ++i) {
      load(i);
      for (const Op& op : graph().ops) {
        if (op.phase == Phase::update) continue;
        for (const TensorId t : op.inputs) {
          if (graph()[t].kind == TensorKind::parameter) values_[t.index] = known(t, version(op.stage, i));
        }
        run(op);
      }
      if ((i + 1) % every == 0) update();
    }
  }

  /// The newest version of each parameter, and the states, by name.
  std::map<std::string, std::vector<std::byte>> trained() const {
    std::map<std::string, std::vector<std::byte>> values;
    for (std::size_t t = 0; t < values_.size(); ++t) {
      const TensorKind kind = graph().tensors[t].kind;
      if (kind != TensorKind::parameter && kind != TensorKind::optimizer_state) continue;
      values[graph().tensors[t].name] = versions_[t].size() > 1 ? versions_[t].back() : values_[t];
    }
    return values;
  }

 private:
  /// A parameter that nobody trains has one version.
  const std::vector<std::byte>& known(TensorId t, std::size_t version) const {
    return versions_[t.index][std::min(version, versions_[t.index].size() - 1)];
  }

  void load(std::uint32_t micro_batch) {
    const std::vector<std::vector<std::byte>> inputs = input_values(made_.network, micro_batch + 1);
    for (std::size_t t = 0; t < values_.size(); ++t) {
      if (graph().tensors[t].kind == TensorKind::input) values_[t] = inputs[micro_batch];
    }
  }

  void run(const Op& op) {
    Run run = run_of(op);
    for (const TensorId t : op.inputs) run.arguments.inputs.push_back(values_[t.index].data());
    run_kernel(op, run);
    add_parts(op, run);
  }

  void update() {
    for (const Op& op : graph().ops) {
      if (op.phase != Phase::update) continue;
      const TensorId parameter = op.inputs[0];
      values_[parameter.index] = versions_[parameter.index].back();
      run(op);
      versions_[parameter.index].push_back(values_[parameter.index]);
    }
    summed_.clear();
  }

  std::vector<std::vector<std::vector<std::byte>>> versions_;  // by tensor, of parameters
};

/// On which device the schedule runs a stage of the model.
std::vector<std::uint32_t> devices_of_stages(const Problem& problem, const Schedule& schedule) {
  std::vector<std::uint32_t> devices(problem.chain->stages.size());
  for (const Step& step : schedule.steps) {
    if (step.kind == StepKind::forward) devices[problem.graph[step.op].stage] = schedule[step.stream].device.index;
  }
  return devices;
}

void check_trained(const Replayed& run, const PlainLoop& loop) {
  std::size_t compared = 0;
  for (const auto& [name, value] : loop.trained()) {
    INFO(name);
    REQUIRE(run.values.contains(name));
    CHECK(run.values.at(name) == value);
    ++compared;
  }
  CHECK(compared > 4);
}

std::size_t differences(const Replayed& run, const PlainLoop& loop) {
  std::size_t count = 0;
  for (const auto& [name, value] : loop.trained()) count += run.values.at(name) != value ? 1 : 0;
  return count;
}

constexpr const char* mlp = "mlp:layers=6,width=24,batch=6,classes=4";
constexpr const char* resnet = "resnet:blocks=4,channels=4,picture=16,batch=2,classes=5";

struct Case {
  const char* network;
  Optimizer optimizer;
  std::uint32_t devices;
};

TEST_CASE("pipedream trains as a plain loop with the same versions, bit for bit", "[validate][versions]") {
  const Case given = GENERATE(Case{mlp, Optimizer::sgd, 3}, Case{mlp, Optimizer::momentum, 4},
                              Case{mlp, Optimizer::adam, 2}, Case{resnet, Optimizer::momentum, 3});
  const std::string spec =
      GENERATE("pipedream", "pipedream|rotor", "pipedream|full_recompute", "pipedream(backward=split)");
  INFO(given.network << ", " << spec << " on " << given.devices << " devices");
  constexpr BytesPerSecond fast{20e9};
  constexpr std::uint32_t micro_batches = 9;
  const Training several = training_of(given.network, gpus({.count = given.devices, .to_host = fast, .to_peers = fast}),
                                       {.micro_batches = micro_batches,
                                        .optimizer = given.optimizer,
                                        .backward = backward_for(parse_spec(spec, "test"))});
  const PlanOutcome none = planned(several.problem, spec, Bytes{0});
  const PlanOutcome made = planned(several.problem, spec, std::get<Infeasible>(none).smallest);
  REQUIRE(std::holds_alternative<Plan>(made));
  const Schedule& schedule = std::get<Plan>(made).schedule;
  const Replayed run = replayed(several, schedule);
  const std::vector<std::uint32_t> device = devices_of_stages(several.problem, schedule);

  PlainLoop loop(given.network, given.optimizer);
  loop.train(micro_batches, 1, [&](std::uint32_t stage, std::uint32_t i) {
    const std::uint32_t behind = given.devices - 1 - device[stage];
    return i < behind ? 0 : i - behind;
  });
  check_trained(run, loop);

  PlainLoop newest(given.network, given.optimizer);  // as if micro-batches did not overlap
  newest.train(micro_batches, 1, [](std::uint32_t, std::uint32_t i) { return i; });
  CHECK(differences(run, newest) > 0);
  const std::vector<Bytes> counted = recount(schedule, run.timeline, several.problem.platform);
  for (std::size_t m = 0; m < counted.size(); ++m) CHECK(counted[m] == run.timeline.peaks[m].bytes);
}

TEST_CASE("pipedream_2bw trains as a plain loop with the same versions, bit for bit", "[validate][versions]") {
  const Case given =
      GENERATE(Case{mlp, Optimizer::sgd, 3}, Case{mlp, Optimizer::adam, 2}, Case{resnet, Optimizer::momentum, 2});
  const std::uint32_t group = given.devices + GENERATE(0U, 1U);
  const std::string memory = GENERATE("", "|rotor");
  INFO(given.network << memory << ", group " << group);
  constexpr BytesPerSecond fast{20e9};
  const std::uint32_t micro_batches = 4 * group;
  const Training several = training_of(given.network, gpus({.count = given.devices, .to_host = fast, .to_peers = fast}),
                                       {.micro_batches = micro_batches, .optimizer = given.optimizer});
  const PlanOutcome made = planned(several.problem, "pipedream_2bw(group=" + std::to_string(group) + ")" + memory);
  REQUIRE(std::holds_alternative<Plan>(made));
  const Replayed run = replayed(several, std::get<Plan>(made).schedule);

  PlainLoop loop(given.network, given.optimizer);
  loop.train(micro_batches, group, [&](std::uint32_t, std::uint32_t i) { return i < group ? 0 : i / group - 1; });
  check_trained(run, loop);

  PlainLoop newest(given.network, given.optimizer);
  newest.train(micro_batches, group, [&](std::uint32_t, std::uint32_t i) { return i / group; });
  CHECK(differences(run, newest) > 0);
}

}  // namespace
}  // namespace plimsoll
