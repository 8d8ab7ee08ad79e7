// What searches decide is enough to build their problem again, without searching.

#include <catch2/catch.hpp>

#include <functional>
#include <string>
#include <vector>

#include "platforms/platform_file.h"
#include "sim/io/input_error.h"
#include "sim/io/schedule/schedule_file.h"
#include "strategies/compose/chosen_width.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/list.h"
#include "tests/generate/random.h"
#include "traces/models/synthetic.h"
#include "traces/trace_file.h"

using namespace plimsoll;

namespace {

/// 30 words, which 4 ranks do not divide.
constexpr const char* small = "transformer:layers=2,width=32,heads=4,sequence=16,batch=4,vocabulary=30,view=graph";

Problem whole_model(const std::string& model = small) {
  auto made = make_problem(synthetic_model(model), load_platform("pcie_4x_rtx4090"),
                           {.micro_batches = 4, .optimizer = Optimizer::adam});
  return std::get<Problem>(std::move(made));
}

/// As a schedule file keeps them.
std::vector<Decisions> from_file(const std::vector<Decisions>& decisions) {
  Schedule schedule;
  schedule.trace = "t";
  schedule.platform = "p";
  schedule.decisions = decisions;
  const std::string text = schedule_text(schedule, "test");
  CHECK((text.find("plimsoll.schedule.v3") != std::string::npos) == !decisions.empty());
  const Schedule read = parse_schedule(text, "decisions.json");
  CHECK(schedule_text(read, "test") == text);
  return read.decisions;
}

void check_same(const Problem& a, const Problem& b) {
  CHECK(trace_text({a.graph}) == trace_text({b.graph}));
  CHECK(a.mesh == b.mesh);
  CHECK(a.platform.devices.size() == b.platform.devices.size());
  CHECK(a.micro_batches == b.micro_batches);
  CHECK(a.notes == b.notes);
  CHECK(a.chain.has_value() == b.chain.has_value());
}

std::string why_not(const Problem& problem, const std::vector<Pass>& passes, const std::vector<Decisions>& decisions) {
  const auto made = transformed(problem, passes, decisions);
  const CannotBuild* cannot = std::get_if<CannotBuild>(&made);
  return cannot == nullptr ? "" : cannot->key + ": " + cannot->why;
}

}  // namespace

TEST_CASE("decisions of a file give the problem that their search gave", "[hybrid]") {
  for (const std::string spec :
       {"hsm2dl", "hsm2dl(replicas=2)|greedy_recompute", "alpa(replicas=auto)", "tofu(memory=capacity)", "optcnn",
        "megatron", "megatron(tensor=2,sequence=yes,main_gradients=fp32)|zero1|1f1b",
        "megatron(tensor=2,sequence=yes,asynchronous=yes)|zero1|1f1b", "piper", "piper|rotor", "tofu|1f1b(cut=joint)",
        "adam8bit|hsm2dl(devices=2)|data_parallel", "context(ranks=2)|megatron(tensor=2)|1f1b",
        "megatron(tensor=2,scatter=yes)|1f1b", "recompute_ops|context(way=all_to_all)"}) {
    CAPTURE(spec);
    const std::vector<Pass> passes = parse_spec(spec, "test");
    const Problem problem = whole_model(), searched = transformed(problem, passes);
    REQUIRE(searched.decisions.size() == deciding(passes));
    const auto again = transformed(problem, passes, from_file(searched.decisions));
    REQUIRE(std::holds_alternative<Problem>(again));
    check_same(std::get<Problem>(again), searched);
  }
  const std::vector<Pass> ring = parse_spec("context(ranks=2,way=ring)|megatron(tensor=2)", "test");
  const Problem llama = whole_model("llama:layers=1,width=24,heads=4,kv_heads=2,inner=8,sequence=16,vocabulary=8"),
                around = transformed(llama, ring);
  const auto around_again = transformed(llama, ring, from_file(around.decisions));
  check_same(std::get<Problem>(around_again), around);
  const Problem of_one = transformed(whole_model(), parse_spec("tofu(devices=1)|1f1b(stages=1)", "test"));
  CHECK(of_one.mesh == Mesh{});  // one rank is a mesh, too
  const std::vector<Pass> piper = parse_spec("piper", "test");
  const Problem chain = whole_model("transformer:layers=2,width=32,heads=4,sequence=16,batch=4"),
                searched = transformed(chain, piper);
  check_same(std::get<Problem>(transformed(chain, piper, from_file(searched.decisions))), searched);
}

TEST_CASE("decisions are kept where a search would decide otherwise", "[hybrid]") {
  const Problem problem = whole_model();
  const std::vector<Pass> megatron = parse_spec("megatron", "test"), alpa = parse_spec("alpa", "test");
  const Problem blocks = transformed(problem, megatron), cheapest = transformed(problem, alpa);
  REQUIRE(trace_text({blocks.graph}) != trace_text({cheapest.graph}));
  std::vector<Decisions> decisions = blocks.decisions;
  decisions.front().strategy = "alpa";
  const auto made = transformed(problem, alpa, decisions);
  REQUIRE(std::holds_alternative<Problem>(made));
  check_same(std::get<Problem>(made), blocks);
}

TEST_CASE("decisions that are not for the problem are refused by their key", "[hybrid]") {
  const Problem problem = whole_model();
  const std::vector<Pass> passes = parse_spec("megatron|1f1b(stages=1)", "test");
  const std::vector<Decisions> right = transformed(problem, passes).decisions;
  REQUIRE(right.front().paddings.size() == 1);
  const auto changed = [&](const std::function<void(Decisions&)>& change) {
    std::vector<Decisions> wrong = right;
    change(wrong.front());
    return why_not(problem, passes, wrong);
  };
  CHECK(changed([](Decisions&) {}).empty());
  CHECK(why_not(problem, passes, {}) == ": those of 'megatron' are missing");
  CHECK(why_not(problem, passes, {right.front(), right.front()}) == "[1]: of the strategies 1 decide");
  CHECK(changed([](Decisions& d) { d.strategy = "alpa"; }) == "[0].strategy: expected 'megatron', found 'alpa'");
  CHECK(changed([](Decisions& d) { d.mesh.axes.front().ranks = 8; }) ==
        "[0].mesh: 8 ranks, but 'pcie_4x_rtx4090' has 4 devices");
  CHECK(changed([](Decisions& d) {
          d.mesh.axes.assign(2, {"a", 65'536});
          d.mesh.axes.back().name = "b";
        }) == "[0].mesh: 4294967295 ranks, but 'pcie_4x_rtx4090' has 4 devices");
  CHECK(changed([](Decisions& d) {
          d.mesh.axes.insert(d.mesh.axes.begin(), {"replicas", 2, true});
        }) == "[0].mesh: expected 1 replicas, as 'megatron' has them, found 2");
  CHECK(changed([](Decisions& d) { d.cuts.front().op.index = 100'000; }).starts_with("[0].cuts[0].op: 100000 of "));
  CHECK(changed([](Decisions& d) { d.cuts[1].op = d.cuts[0].op; }).starts_with("[0].cuts[1].op: expected more than "));
  CHECK(changed([&](Decisions& d) {
          d.cuts.back().op.index = static_cast<std::uint32_t>(problem.graph.ops.size() - 1);
        }).ends_with("is an update, which lies as its parameters"));
  CHECK(changed([](Decisions& d) { d.cuts[2].shares[0].axis = "nodes"; }) ==
        "[0].cuts[2].shares.nodes: 'nodes' is not an axis of the mesh along which operators are split");
  CHECK(changed([](Decisions& d) {
          d.cuts[2].shares[0].dimension = "q";
        }).starts_with("[0].cuts[2].shares.tensor: 'layer0."));
  CHECK(
      changed([](Decisions& d) {
        d.paddings.clear();
        d.mesh.axes.front().ranks = 3;
      }) ==
      "[0]: 'a' of 'layer0.attention.qkv' has 4 in 'layer0.attention.qkv.weight', which 3 ranks do not divide; 2 or 4 "
      "would");
  CHECK(changed([](Decisions& d) { d.paddings.front().to = 30; }) ==
        "[0].paddings[0].to: expected 31 to 542, found 30");
  CHECK(changed([](Decisions& d) { d.paddings.push_back(d.paddings.front()); }) ==
        "[0].paddings[1].from: expected more than 30, which was padded before, found 30");
  CHECK(changed([](Decisions& d) {
          d.paddings.push_back({"v", d.paddings.front().to, 520});
        }) == "[0].paddings[1].from: 512 is what 'paddings[0]' pads to");
  const std::vector<Pass> two = parse_spec("hsm2dl(replicas=2)", "test");
  std::vector<Decisions> of_two = transformed(problem, two).decisions;
  of_two.front().mesh.axes.front().ranks = 4;
  CHECK(why_not(problem, two, of_two) == "[0].mesh: expected 2 replicas, as 'hsm2dl' has them, found 4");
}

TEST_CASE("any decisions give a problem or are refused", "[hybrid]") {
  const Problem problem = whole_model();
  const std::vector<Pass> passes = parse_spec("hsm2dl", "test");
  Decisions found = transformed(problem, parse_spec("megatron(sequence=yes)", "test")).decisions.front();
  found.strategy = "hsm2dl";
  std::size_t gave = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    Decisions any = found;
    for (std::uint32_t k = random.between(1, 6); k-- > 0;) {
      Decisions::Cut& cut = any.cuts[random.below(static_cast<std::uint32_t>(any.cuts.size()))];
      const Decisions::Cut& other = any.cuts[random.below(static_cast<std::uint32_t>(any.cuts.size()))];
      if (random.chance(0.3)) {
        cut.shares.clear();
      } else if (!cut.shares.empty() && !other.shares.empty()) {
        cut.shares.front().dimension = other.shares.front().dimension;
      }
    }
    if (random.chance(0.2)) any.mesh.axes.front().ranks = random.between(1, 4);
    if (random.chance(0.2)) any.mesh.axes.insert(any.mesh.axes.begin(), {"replicas", random.between(1, 4), true});
    try {
      const auto made = transformed(problem, passes, std::span(&any, 1));
      gave += std::holds_alternative<Problem>(made) ? 1 : 0;
    } catch (const InputError& error) {
      CHECK(std::string(error.what()).starts_with("hsm2dl: "));
    }
  }
  CHECK(gave > 20);
}

TEST_CASE("a search whose time is over ends with what it has, and says so", "[hybrid]") {
  const Problem problem = whole_model();
  const Deadline over(0);
  const std::string note = "alpa: the search stopped after its share of 60 s (seconds)";
  const auto notes_of = [&](const std::string& spec) {
    const std::vector<Pass> passes = parse_spec(spec, "test"), memory = parse_spec("store_all", "test");
    const auto made = leaves_width_open(passes) ? at_chosen_width(problem, passes, memory, over)
                                                : passes[0].strategy->decide(problem, passes[0].options, over);
    const Decisions& decisions = std::get<Decisions>(made);
    CHECK(std::holds_alternative<Problem>(built(problem, decisions)));
    return decisions.notes;
  };
  CHECK(notes_of("alpa") == std::vector<std::string>{note});
  CHECK(notes_of("alpa(replicas=auto)") == std::vector<std::string>{note});  // of one copy: no others are tried
  CHECK(notes_of("alpa|1f1b") == std::vector<std::string>{note, "alpa(devices=1) was the best of all tried"});
  // One micro-batch of a wide model: a pipeline gains nothing, and operators of several ranks are faster.
  auto made = make_problem(synthetic_model("transformer:layers=2,width=4096,heads=32,sequence=1024,batch=4,view=graph"),
                           load_platform("h100_sxm_8"), {});
  const Problem wide = std::get<Problem>(std::move(made));
  const auto width_within = [&](const Deadline& deadline) {
    const std::vector<Pass> passes = parse_spec("tofu|1f1b", "test"), memory = parse_spec("store_all", "test");
    return std::get<Decisions>(at_chosen_width(wide, passes, memory, deadline)).notes.back();
  };
  CHECK(width_within(over) == "tofu(devices=1) was the best of all tried");
  CHECK(width_within(Deadline(60)) != "tofu(devices=1) was the best of all tried");
  CHECK(alpa_strategy.seconds(parse_spec("alpa(seconds=7)", "test")[0].options) == 7);
}
