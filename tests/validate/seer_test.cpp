// Stages on stored outputs, replayed: what is trained ends as in plain training of the whole network.

#include <algorithm>
#include <catch2/catch.hpp>

#include "sim/judge/check.h"
#include "strategies/compose/spec.h"
#include "tests/training/training.h"
#include "validate/networks/changed_network.h"
#include "validate/networks/network_prefix.h"
#include "validate/networks/networks.h"

namespace plimsoll {
namespace {

const std::vector<std::string> networks_to_cut{"mlp:layers=5,width=24,batch=6,classes=4",
                                               "resnet:blocks=3,channels=4,picture=16,batch=2,classes=5",
                                               "gpt:layers=2,width=16,heads=2,sequence=8,batch=2,vocabulary=20"};

/// As the program makes a network ready for a schedule of what the spec leaves.
Training cut_training(const Training& whole, const std::string& spec) {
  Problem changed = transformed(whole.problem, parse_spec(spec, "test"));
  const std::size_t stages = changed.chain ? changed.chain->stages.size() : 0;
  const std::size_t first = first_stage_of(whole.network.network, changed.graph, stages);
  Network network = without_first_stages(whole.network.network, first);
  take_updates(network.graph, changed.graph);
  return {std::move(changed), with_kernels(std::move(network))};
}

TEST_CASE("on stored outputs the other stages train as in plain training, bit for bit", "[validate]") {
  for (const std::string& reference : networks_to_cut) {
    for (const bool graph : {false, true}) {
      const ProblemOptions options{.micro_batches = 2, .optimizer = graph ? Optimizer::none : Optimizer::adam};
      const Training whole = training_of(reference + (graph ? ",view=graph,updates=adam" : ""), one_gpu(), options);
      const PlanOutcome store_all = planned(whole.problem, "store_all");
      const Replayed plain = replayed(whole, std::get<Plan>(store_all).schedule);
      for (const std::string seer : {"seer", "seer(layers=1)"}) {
        for (const std::string then :
             {"", graph ? "|greedy_recompute" : "|rotor", "|offload_greedy", "|zero_offload"}) {
          const std::string spec = seer + then;
          INFO(reference << (graph ? ", graph, " : ", chain, ") << spec);
          const Training cut = cut_training(whole, spec);
          CHECK(cut.network.network.stage_names.size() < whole.network.network.stage_names.size());
          const PlanOutcome outcome = plan(cut.problem, parse_spec(spec, "test"), std::nullopt);
          const Schedule& schedule = std::get<Plan>(outcome).schedule;
          const Replayed run = replayed(cut, schedule);
          CHECK(recount(schedule, run.timeline, cut.problem.platform)[0] == run.timeline.peaks[0].bytes);
          std::size_t trained = 0;
          for (const Tensor& tensor : cut.problem.graph.tensors) {
            if (tensor.kind != TensorKind::parameter_gradient && tensor.kind != TensorKind::optimizer_state) continue;
            const bool is_left = run.values.contains(tensor.name);  // a host that updates drops gradients
            CHECK((is_left || spec.ends_with("zero_offload")));
            if (!is_left) continue;
            INFO(tensor.name);
            CHECK(run.values.at(tensor.name) == plain.values.at(tensor.name));
            ++trained;
          }
          CHECK(trained > 2);
          for (const Op& op : cut.problem.graph.ops) {
            if (op.phase != Phase::update) continue;
            const std::string& parameter = cut.problem.graph[op.inputs[0]].name;
            CHECK(run.values.at(parameter) == plain.values.at(parameter));
          }
        }
      }
    }
  }
}

TEST_CASE("an 8-bit optimizer trains on stored outputs", "[validate]") {
  const Training whole = training_of(networks_to_cut[0], one_gpu(), {.optimizer = Optimizer::adam});
  for (const std::string spec : {"seer(layers=2)|adam8bit(least=8)", "adam8bit(least=8)|seer(layers=2)"}) {
    const Training cut = cut_training(whole, spec);
    const PlanOutcome outcome = plan(cut.problem, parse_spec(spec, "test"), std::nullopt);
    const Replayed run = replayed(cut, std::get<Plan>(outcome).schedule);
    CHECK(run.values.size() > 8);
  }
}

}  // namespace
}  // namespace plimsoll
