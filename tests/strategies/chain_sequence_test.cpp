#include "strategies/models/chain_sequence.h"

#include <catch2/catch.hpp>

#include "tests/random_case.h"
#include "tests/strategies/chain_oracle.h"

using namespace plimsoll;

namespace {

constexpr auto F = ChainStep::Kind::forward;
constexpr auto S = ChainStep::Kind::forward_saving;
constexpr auto B = ChainStep::Kind::backward;

// Two stages and a loss that share parameter 1: 10 bytes in stage 0 only, 20 in stages 0 and 1.
Chain tied_chain() {
  Chain chain;
  chain.input = Bytes{4};
  chain.parameters = {{"own", {10}}, {"tied", {20}}};
  for (const char* name : {"first", "second", "loss"}) {
    Stage stage;
    stage.name = name;
    stage.output = Bytes{3};
    stage.saved = Bytes{5};
    stage.backward_workspace = Bytes{7};
    stage.backward_accumulate_workspace = Bytes{9};
    chain.stages.push_back(stage);
  }
  chain.stages[0].parameters = {0, 1};
  chain.stages[1].parameters = {1};
  return chain;
}

}  // namespace

TEST_CASE("evaluate gives the worked example's time and peak of store_all", "[chain]") {
  const ChainCost cost = evaluate(worked_example_model(), store_all_sequence(3));
  CHECK(cost.violation == "");
  CHECK(cost.time == Seconds{7});
  CHECK(cost.recompute == Seconds{0});
  CHECK(cost.peak == Bytes{22});
}

TEST_CASE("evaluate charges a recomputation and frees a bare activation after its last reader", "[chain]") {
  // F0: 4 + 3 + 1 = 8. S1: 4 + 3 + 5 + 2 = 14. S2: 12. B2: 12 + 2 + 3 = 17, then 14. B1: 14 + 3 + 1 = 18, then x_0 and
  // the gradient of x_1: 7. S0: 7 + 7 + 1 = 15. B0: 14 + 4 + 2 = 20.
  const ChainCost cost = evaluate(worked_example_model(), {{F, 0}, {S, 1}, {S, 2}, {B, 2}, {B, 1}, {S, 0}, {B, 0}});
  CHECK(cost.violation == "");
  CHECK(cost.time == Seconds{8});
  CHECK(cost.recompute == Seconds{1});
  CHECK(cost.peak == Bytes{20});
}

TEST_CASE("evaluate says what is wrong with an illegal sequence", "[chain]") {
  const std::vector<std::pair<ChainSequence, std::string>> illegal{
      {{{S, 0}, {S, 1}, {S, 2}, {B, 2}, {B, 1}}, "missing backward of stage 0"},
      {{{S, 0}, {B, 0}}, "backward out of order, of stage 0"},
      {{{S, 0}, {S, 1}, {F, 2}, {B, 2}}, "backward without saved tensors, of stage 2"},
      {{{S, 1}}, "forward without its input, of stage 1"},
      {{{S, 0}, {S, 0}}, "forward while its output is kept, of stage 0"},
      {{{S, 0}, {S, 1}, {S, 2}, {B, 2}, {F, 2}}, "forward after the backward of stage 2"},
      {{{S, 3}}, "no stage 3"},
      {ChainSequence{}, "missing backward of stage 2"},
  };
  for (const auto& [sequence, violation] : illegal) {
    CHECK(evaluate(worked_example_model(), sequence).violation == violation);
  }
}

TEST_CASE("evaluate refuses to repeat what is not recomputable", "[chain]") {
  ChainModel model = worked_example_model();
  model.recomputable[0] = false;
  CHECK(evaluate(model, store_all_sequence(3)).legal());
  CHECK(evaluate(model, {{F, 0}, {S, 1}, {S, 2}, {B, 2}, {B, 1}, {S, 0}, {B, 0}}).violation ==
        "second forward of not recomputable stage 0");
}

TEST_CASE("evaluate agrees with a replay that searches every value's last reader", "[chain][property]") {
  for (const RandomCase seed : random_cases(0, 2999)) {
    CAPTURE(seed);
    const ChainModel model = random_chain_model({.stages = 1 + seed % 7, .keeps_percent = 75}, seed);
    const ChainSequence sequence = random_sequence(model, seed);
    const ChainCost cost = evaluate(model, sequence);
    REQUIRE(cost.violation == "");
    REQUIRE(cost.peak.count == replayed_peak(model, sequence));
  }
}

TEST_CASE("a shared parameter's gradient appears in the last stage that uses it", "[chain]") {
  const ChainModel model = chain_model(tied_chain());
  CHECK(model.resident == Bytes{30});
  CHECK(model.new_gradients == std::vector<Bytes>{{10}, {20}, {0}});
  CHECK(model.backward_workspace == std::vector<Bytes>{{7}, {7}, {7}});
  CHECK(gradients_made_after(model) == std::vector<Bytes>{{20}, {0}, {0}});
}

TEST_CASE("a stage whose gradients all exist by then accumulates", "[chain]") {
  Chain chain = tied_chain();
  chain.stages[0].parameters = {1};
  const ChainModel model = chain_model(chain);
  CHECK(model.new_gradients == std::vector<Bytes>{{0}, {20}, {0}});
  CHECK(model.backward_workspace == std::vector<Bytes>{{9}, {7}, {7}});
}

TEST_CASE("existing gradients and optimizer states are resident", "[chain]") {
  const ChainModel existing =
      chain_model(tied_chain(), {.gradients = Gradients::existing, .optimizers = Optimizer::adam});
  CHECK(existing.resident == Bytes{30 + 30 + 60});
  CHECK(existing.new_gradients == std::vector<Bytes>{{0}, {0}, {0}});
  CHECK(existing.backward_workspace == std::vector<Bytes>{{9}, {9}, {7}});
  CHECK(chain_model(tied_chain(), {.optimizers = Optimizer::momentum}).resident == Bytes{60});
  CHECK(chain_model(tied_chain(), {.optimizers = Optimizer::sgd}).resident == Bytes{30});
}

TEST_CASE("several micro-batches are planned for fresh and for existing gradients at once", "[chain]") {
  Chain chain = tied_chain();
  chain.stages[1].backward_workspace = Bytes{11};
  const ChainModel model = chain_model(chain, {.micro_batches = 2});
  CHECK(model.resident == Bytes{60});
  CHECK(model.new_gradients == std::vector<Bytes>{{0}, {0}, {0}});
  CHECK(model.backward_workspace == std::vector<Bytes>{{9}, {11}, {7}});
}

TEST_CASE("a stated parameter gradient replaces the parameters' bytes", "[chain]") {
  Chain chain = tied_chain();
  chain.stages[0].parameter_gradient = Bytes{36};
  chain.stages[2].parameter_gradient = Bytes{5};
  CHECK(chain_model(chain).new_gradients == std::vector<Bytes>{{36}, {20}, {5}});
}

TEST_CASE("a sequence prints in one line", "[chain]") {
  CHECK(to_string({{F, 0}, {S, 1}, {B, 10}}) == "F0 S1 B10");
}
