// Rules of frameworks on the ops of Llama-3 8B, whose names say what they are, and policies against `recompute_ops`.

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "platforms/platform_file.h"
#include "sim/bound/iteration_bound.h"
#include "sim/io/input_error.h"
#include "sim/io/text_file.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/models/runs_again.h"
#include "strategies/offloading/frameworks/framework_rules.h"
#include "strategies/offloading/frameworks/policy_file.h"
#include "tests/experiments/temporary_folder.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "traces/trace_file.h"

namespace plimsoll {
namespace {

const Problem& llama() {
  static const Problem problem =
      problem_of(std::get<Graph>(load_trace("llama3_8b_fsdp64").model), load_platform("h200"));
  return problem;
}

/// Number of the trace's op "mm" (0) or "mm_12" (12) among products.
std::optional<int> product_number(const std::string& name) {
  if (name == "mm") return 0;
  return name.starts_with("mm_") ? std::optional(std::stoi(name.substr(3))) : std::nullopt;
}

/// What a rule does with each product of a layer, in their order; "?" where layers differ.
std::string products_by(std::string_view rule_name) {
  const Partition partition = one_device(llama().graph, 1, 1);
  const PartTask task{llama(), partition, PartId{0}, 1};
  const OpModel model = op_model(task);
  const auto rule = std::ranges::find(framework_rules(), rule_name, &FrameworkRule::name);
  REQUIRE(rule != framework_rules().end());
  const RulePolicies made = rule->policies({task, model, {}});
  const OpPolicy& policy = std::get<std::vector<OpPolicy>>(made).front();
  std::string letters(7, ' ');
  for (std::size_t o = 0; o < policy.size(); ++o) {
    const std::optional<int> number = product_number(llama().graph.ops[o].name);
    const bool is_layers = number && *number < 224 && llama().graph.ops[o].phase == Phase::forward;
    if (!is_layers) continue;
    const char letter = "sro"[static_cast<int>(policy[o])];
    char& at = letters[static_cast<std::size_t>(*number) % 7];
    at = at == ' ' || at == letter ? letter : '?';
  }
  return letters;
}

TEST_CASE("the ops of Llama-3 8B have the roles that their places in a layer say", "[policy]") {
  using enum DecoderRole;
  const Graph& graph = llama().graph;
  const auto found = decoder_ops(graph);
  REQUIRE(std::holds_alternative<DecoderOps>(found));
  const auto& decoder = std::get<DecoderOps>(found);
  CHECK(decoder.layers == 32);
  constexpr std::array<DecoderRole, 7> in_layer{query_key_value, query_key_value, query_key_value, attention_out,
                                                feed_forward_in, feed_forward_in, feed_forward_out};
  std::map<DecoderRole, int> count;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    if (op.phase != Phase::forward) {
      CHECK(decoder.role[o] == outside);
      continue;
    }
    ++count[decoder.role[o]];
    const std::optional<int> number = product_number(op.name);
    if (!number) continue;
    INFO(op.name);
    CHECK(decoder.role[o] == (*number == 224 ? outside : in_layer[static_cast<std::size_t>(*number) % 7]));
    CHECK(decoder.layer[o] == (*number == 224 ? std::nullopt : std::optional(static_cast<std::uint32_t>(*number / 7))));
  }
  CHECK(count[attention] == 32);
  CHECK(count[layer_output] == 32);
  CHECK(count[parameter_side] == 2 * 291);  // a cast and a gather of each parameter
  CHECK(count[norm] == 32 * 2 * 8);         // convert, pow, mean, add, rsqrt, mul, mul, convert
  CHECK(count[activation] == 32 * 5);       // convert, sigmoid, mul, convert, mul
}

TEST_CASE("adapters change no place of a layer's own ops", "[policy]") {
  for (const std::string model : {"llama:layers=3,width=64,heads=4,kv_heads=2,inner=96,sequence=16,vocabulary=32",
                                  "gpt2:layers=3,width=64,heads=4,sequence=16,vocabulary=32",
                                  "opt:layers=3,width=64,heads=4,sequence=16,vocabulary=32"}) {
    const Graph plain = std::get<Graph>(load_trace(model).model),
                adapted = std::get<Graph>(load_trace(model + ",lora=4").model);
    const auto of_plain = decoder_ops(plain), of_adapted = decoder_ops(adapted);
    INFO(model);
    REQUIRE(std::holds_alternative<DecoderOps>(of_plain));
    REQUIRE(std::holds_alternative<DecoderOps>(of_adapted));
    const auto &one = std::get<DecoderOps>(of_plain), &other = std::get<DecoderOps>(of_adapted);
    CHECK(other.layers == 3);
    for (std::size_t o = 0; o < plain.ops.size(); ++o) {
      if (plain.ops[o].phase != Phase::forward) continue;
      INFO(plain.ops[o].name);
      const auto same = std::ranges::find(adapted.ops, plain.ops[o].name, &Op::name);
      REQUIRE(same != adapted.ops.end());
      const auto place = static_cast<std::size_t>(same - adapted.ops.begin());
      CHECK(other.role[place] == one.role[o]);
      CHECK(other.layer[place] == one.layer[o]);
    }
  }
}

TEST_CASE("each rule treats the products of a layer as its framework does", "[policy]") {
  const std::map<std::string, std::string> expected{{"maxtext.minimal_with_context", "sssssss"},
                                                    {"maxtext.minimal", "sssssss"},
                                                    {"maxtext.save_dot_with_context_except_mlp", "ssssrrr"},
                                                    {"maxtext.save_dot_except_mlpwi", "ssssrrs"},
                                                    {"maxtext.save_dot_except_mlp", "ssssrrr"},
                                                    {"maxtext.save_qkv_proj", "sssrrrr"},
                                                    {"maxtext.save_out_proj", "rrrsrrr"},
                                                    {"maxtext.full", "rrrrrrr"},
                                                    {"maxtext.minimal_offloaded", "ooooooo"},
                                                    {"maxtext.qkv_proj_offloaded", "ooorrrr"},
                                                    {"megatron.core_attn", "sssssss"},
                                                    {"megatron.layernorm", "sssssss"},
                                                    {"megatron.mlp", "ssssrrr"},
                                                    {"megatron.selective_all", "ssssrrr"},
                                                    {"torchtitan.default", "sssssss"},
                                                    {"torchtitan.eager", "srsrsrs"},
                                                    {"torchtitan.full", "rrrrrrr"},
                                                    {"jax.dots_saveable", "sssssss"},
                                                    {"jax.nothing_saveable", "rrrrrrr"}};
  for (const auto& [rule, letters] : expected) {
    INFO(rule);
    CHECK(products_by(rule) == letters);
  }
  CHECK(products_by("torchtitan.sac_and_offload") == "???????");  // the last layer stays
}

/// What the rule lets stay of ops with names of layers.
std::vector<std::string> saved_in_layers(const std::string& model, std::string_view rule_name) {
  const Problem problem = problem_of(std::get<Graph>(load_trace(model).model), load_platform("h200"));
  const Partition partition = one_device(problem.graph, 1, 1);
  const PartTask task{problem, partition, PartId{0}, 1};
  const OpModel op_costs = op_model(task);
  const auto rule = std::ranges::find(framework_rules(), rule_name, &FrameworkRule::name);
  REQUIRE(rule != framework_rules().end());
  const RulePolicies made = rule->policies({task, op_costs, {}});
  REQUIRE(std::holds_alternative<std::vector<OpPolicy>>(made));
  const OpPolicy& policy = std::get<std::vector<OpPolicy>>(made).front();
  std::vector<std::string> saved;
  for (std::size_t o = 0; o < policy.size(); ++o) {
    const Op& op = problem.graph.ops[o];
    const bool is_layers = op.name.starts_with("layer") || op.name.starts_with("decoder");
    if (is_layers && op.phase == Phase::forward && policy[o] == OpChoice::save) saved.push_back(op.name);
  }
  return saved;
}

// A checkpointed layer keeps what goes into it: with gradient_checkpointing_enable() of transformers 5.15 hooks count
// that and no more for each layer of GPT-2, BERT, ViT, Phi, Llama, Whisper and T5, in fp32 (2026-11-29). T5's first
// layer of a stack makes what all of it adds to scores; its decoder's layers, and Whisper's, read the encoder's result.
TEST_CASE("layers that are known by names keep their outputs", "[policy]") {
  using Names = std::vector<std::string>;
  const std::string small = "layers=2,width=64,heads=8,sequence=16,batch=2,vocabulary=96", rule = "huggingface.full";
  CHECK(saved_in_layers("bert:inner=96," + small, rule) == Names{"layer0.mlp.norm", "layer1.mlp.norm"});
  CHECK(saved_in_layers("bert:inner=96,lora=4," + small, rule) == Names{"layer0.mlp.norm", "layer1.mlp.norm"});
  CHECK(saved_in_layers("vit:layers=2,width=64,heads=8,size=32,patch=8", rule) ==
        Names{"layer0.mlp.add", "layer1.mlp.add"});
  CHECK(saved_in_layers("phi:" + small, rule) == Names{"layer0.add", "layer1.add"});
  CHECK(saved_in_layers("whisper:decoder=2,source=24," + small, rule) ==
        Names{"layer0.mlp.add", "layer1.mlp.add", "decoder0.mlp.add", "decoder1.mlp.add"});
  CHECK(saved_in_layers("t5:decoder=2,head_size=8,inner=96,source=24," + small, rule) ==
        Names{"layer0.attention.positions.mask", "layer0.mlp.add", "layer1.mlp.add",
              "decoder0.attention.positions.mask", "decoder0.mlp.add", "decoder1.mlp.add"});
  for (const std::string& model : {"gpt2:" + small, "gpt2:lora=4," + small, "llama:kv_heads=2,inner=96," + small})
    CHECK(saved_in_layers(model, rule) == saved_in_layers(model, "torchtitan.full"));
}

TEST_CASE("graphs without such layers have no decoder's rules", "[policy]") {
  const std::vector<Pass> passes = parse_spec("policy(rule=maxtext.full)", "test");
  const Problem problem = problem_of(random_graph(1, 4), gpus({}));
  const PlanOutcome outcome = plan(problem, passes, std::nullopt);
  REQUIRE(std::holds_alternative<Infeasible>(outcome));
  CHECK(std::get<Infeasible>(outcome).reason.find("is attention") != std::string::npos);
  const PlanOutcome by_name = plan(problem, parse_spec("policy(rule=huggingface.full)", "test"), std::nullopt);
  REQUIRE(std::holds_alternative<Infeasible>(by_name));
  CHECK(std::get<Infeasible>(by_name).reason.find("has the name of a layer, such as 'layer3.mlp.up'") !=
        std::string::npos);
}

/// The names of some ops of the forward that may run again, a line each.
std::string some_names(const Graph& graph, Random& random) {
  const std::vector<bool> overwritten = overwritten_tensors(graph);
  std::string names;
  for (const Op& op : graph.ops) {
    const bool may = op.phase == Phase::forward && !why_not_again(graph, op, overwritten);
    if (may && random.chance(0.5)) names += op.name + "\n";
  }
  return names;
}

TEST_CASE("a policy that only recomputes is recompute_ops of the same names", "[policy][property]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "names.txt").string();
  std::size_t compared = 0;
  for (const RandomCase seed : random_cases(1, 60)) {
    Random random(seed);
    const Problem problem = problem_of(random_graph(seed, random.between(1, 6)), gpus({}));
    const std::string names = some_names(problem.graph, random);
    if (names.empty()) continue;
    write_text_file(file, names);
    const std::vector<Pass> again = parse_spec("recompute_ops(file=" + file + ")", "test");
    const PlanOutcome by_policy = plan(problem, parse_spec("policy(file=" + file + ")", "test"), std::nullopt),
                      by_transform = plan(transformed(problem, again), again, std::nullopt);
    INFO("seed " << seed);
    REQUIRE(std::holds_alternative<Plan>(by_policy));
    CHECK(std::get<Plan>(by_policy).makespan.value ==
          Approx(std::get<Plan>(by_transform).makespan.value).epsilon(1e-9));
    ++compared;
  }
  CHECK(compared > 0);
}

TEST_CASE("the solvers of frameworks fit their budget and beat no bound", "[policy][eleventh-6]") {
  const std::vector<Bytes> budgets{Bytes{120'000'000'000}, Bytes{60'000'000'000}, Bytes{38'240'000'000}};
  const std::vector<std::optional<Bytes>> asked(budgets.begin(), budgets.end());
  IterationBounds bounds(llama(), DeviceId{0}, {.out = ways_out(llama().platform, DeviceId{0})});
  for (const char* rule : {"torchtitan_solver", "deepcompile", "torchtitan", "maxtext", "megatron.full"}) {
    const std::vector<Pass> passes = parse_spec(std::string("policy(rule=") + rule + ")", "test");
    const std::vector<PlanOutcome> outcomes = plan(llama(), passes, asked);
    std::size_t planned = 0;
    for (std::size_t b = 0; b < budgets.size(); ++b) {
      const Plan* made = std::get_if<Plan>(&outcomes[b]);
      if (made == nullptr) continue;
      INFO(rule << " within " << budgets[b].count);
      CHECK(made->peak <= budgets[b]);
      CHECK(made->makespan.value * (1 + 1e-9) >= bounds.within(budgets[b]).time.value);
      ++planned;
    }
    CHECK(planned > 0);
  }
}

TEST_CASE("a policy reads back as it was written", "[policy]") {
  const Graph& graph = llama().graph;
  Random random(7);
  OpPolicy policy(graph.ops.size(), OpChoice::save), only_again = policy;
  for (std::size_t o = 0; o < policy.size(); ++o) {
    if (graph.ops[o].phase != Phase::forward) continue;
    policy[o] = static_cast<OpChoice>(random.between(0, 2));
    if (policy[o] == OpChoice::recompute) only_again[o] = OpChoice::recompute;
  }
  const TemporaryFolder folder;
  const std::string file = (folder / "policy").string();
  write_text_file(file, policy_text(graph, policy, PolicyFormat::torchtitan));
  CHECK(read_policy_file(file, graph) == policy);
  write_text_file(file, policy_text(graph, policy, PolicyFormat::recompute_ops));
  CHECK(read_policy_file(file, graph) == only_again);
}

}  // namespace
}  // namespace plimsoll
