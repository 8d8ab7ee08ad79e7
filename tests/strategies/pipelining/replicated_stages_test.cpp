// Stages of 1F1B on several devices, each of which takes every so manyth micro-batch; cuts that are given.

#include <catch2/catch.hpp>

#include "strategies/pipelining/cuts/cuts.h"
#include "strategies/pipelining/orders/orders.h"
#include "tests/bad_input.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/pipelining/equal_pipelines.h"

namespace plimsoll {
namespace {

std::string turns_of(const PipelineOrder& order, std::size_t rank) {
  std::string text;
  for (const Turn& turn : order.turns[rank]) {
    text += (text.empty() ? "" : " ") + std::string(turn.piece == piece::forward ? "F" : "B") +
            std::to_string(turn.micro_batch);
  }
  return text;
}

TEST_CASE("each copy of a stage takes its share of the micro-batches, the last stage's without warming up",
          "[pipelining]") {
  // Three devices have the first stage, one the second, two the third: 1, 2 and 0 forwards to warm up.
  const std::vector<std::uint32_t> copies{3, 1, 2}, warm_up = warm_up_for(copies);
  CHECK(warm_up == std::vector<std::uint32_t>{1, 2, 0});
  const PipelineOrder order = one_forward_one_backward_order(7, warm_up, copies);
  CHECK(order.stage_of == std::vector<std::uint32_t>{0, 0, 0, 1, 2, 2});
  CHECK(turns_of(order, 0) == "F0 F3 B0 F6 B3 B6");
  CHECK(turns_of(order, 1) == "F1 F4 B1 B4");
  CHECK(turns_of(order, 3) == "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 B5 B6");
  CHECK(turns_of(order, 4) == "F0 B0 F2 B2 F4 B4 F6 B6");
  CHECK(turns_of(order, 5) == "F1 B1 F3 B3 F5 B5");
  // Without copies it is the order there always was.
  CHECK(one_forward_one_backward_order(4, {1, 0}).stage_of.empty());
}

TEST_CASE("a stage of twice the work on two devices keeps up with the other one", "[pipelining]") {
  // F = B = 1 s a stage of the chain; the first part has two of them. In the steady state a micro-batch every 2 s:
  // the last of m = 8 has been through the first part after 2 + 8 s and comes back 1 + 1 + 2 s later.
  const Run twice = run_of("1f1b(cut=0x2:2)", 3, 3, 8, {.f = 1, .b = 1, .w = 0}, {.all = 6, .for_weights = 0});
  const Run once = run_of("1f1b(cut=0:2)", 3, 3, 8, {.f = 1, .b = 1, .w = 0}, {.all = 6, .for_weights = 0});
  CHECK(once.makespan == Seconds{8 * 4});
  CHECK(twice.makespan < Seconds{8 * 2 + 6});
  CHECK(twice.makespan >= Seconds{8 * 2 + 4});
  // Two in flight on each copy of the first part, of 2 x 6 B; one on the last device.
  CHECK(twice.peaks == std::vector{Bytes{24}, Bytes{24}, Bytes{6}});
}

TEST_CASE("any stages on any numbers of devices make legal schedules", "[pipelining]") {
  for (const RandomCase seed : random_cases(1, 40)) {
    Random random(seed);
    const std::uint32_t stages = random.between(1, 4);
    StageCut cut;
    for (std::uint32_t s = 0, first = 0; s < stages; ++s, first += random.between(1, 2)) {
      cut.first.push_back(first);
      cut.copies.push_back(random.between(1, 3));
    }
    const std::uint32_t most = *std::ranges::max_element(cut.copies);
    const std::string spec = std::string(random.chance(0.5) ? "1f1b" : "eager_1f1b") + "(cut=" + text_of(cut) + ")";
    INFO(spec);
    const Pieces time{.f = 1.0 * random.between(1, 4), .b = 1.0 * random.between(1, 4), .w = 0, .c = 0.5};
    run_of(spec, cut.devices(), static_cast<std::uint32_t>(cut.first.back()) + 2, most + random.between(0, 7), time);
  }
}

TEST_CASE("planners put stages on several devices where that is faster", "[pipelining][planners]") {
  // One stage of the chain takes most of the time: no cut alone helps.
  Chain chain = equal_stages(3, {.f = 1, .b = 1, .w = 0});
  chain.stages[0].forward = chain.stages[0].forward_nograd = Seconds{3};
  chain.stages[0].backward = Seconds{3};
  const Problem problem = problem_of(chain, gpus({.count = 3}), {.micro_batches = 6});
  for (const char* planner : {"pipedream", "piper", "alpa"}) {
    INFO(planner);
    const Plan made =
        std::get<Plan>(plan(problem, parse_spec(std::string("1f1b(cut=") + planner + ")", "test"), std::nullopt));
    const Plan balanced = std::get<Plan>(plan(problem, parse_spec("1f1b", "test"), std::nullopt));
    CHECK(check(made.schedule, problem.graph, problem.platform).empty());
    CHECK(made.makespan < 0.85 * balanced.makespan);
  }
}

TEST_CASE("planners are asked for one device a stage where the order knows no copies", "[pipelining][planners]") {
  const Problem problem = problem_of(equal_stages(4, {.f = 1, .b = 1, .w = 1}), gpus({.count = 4}),
                                     {.micro_batches = 6, .backward = Backward::split});
  for (const char* planner : {"pipedream", "ideals", "piper", "alpa", "madpipe"}) {
    for (const char* strategy : {"gpipe", "zb_h1"}) {
      INFO(strategy << " " << planner);
      const std::string spec = std::string(strategy) + "(cut=" + planner + ")";
      const Plan made = std::get<Plan>(plan(problem, parse_spec(spec, "test"), std::nullopt));
      CHECK(made.schedule.collectives.empty());
    }
  }
}

TEST_CASE("given cuts are read to the letter", "[pipelining]") {
  CHECK(text_of(*read_cut("0x2:5:9x12")) == "0x2:5:9x12");
  for (const char* wrong :
       {"", "1:2", "0:0", "0:3:2", "0x0", "0:", "0x", "0:2,", "0:x2", "0x2x2", "0:-1", "0:123456"}) {
    INFO(wrong);
    CHECK(!read_cut(wrong));
  }
  const Problem problem = problem_of(equal_stages(4, {.w = 0}), gpus({.count = 3}), {.micro_batches = 2});
  const auto complaint = [&](const std::string& spec) {
    return complaint_of([&] { plan(problem, parse_spec(spec, "test"), std::nullopt); });
  };
  CHECK(complaint("1f1b(cut=0:4)") ==
        "1f1b: cut=0:4 begins a part with stage 4, and 'equal' has 4 stages, counted from 0");
  CHECK(complaint("1f1b(stages=3,cut=0:2)") == "1f1b: cut=0:2 is for 2 devices, and stages=3");
  CHECK(complaint("1f1b(cut=0:1:2:3)") == "1f1b: stages=4, and platform 'test' has 3 devices");
  CHECK(complaint("1f1b(cut=0x3)") == "1f1b: cut=0x3 has a part on 3 devices, which need at least 3 micro-batches");
  CHECK(complaint("gpipe(cut=0x2:2)") ==
        "gpipe: cut=0x2:2 has a part on several devices, which gpipe has no order for");
  CHECK(complaint("gpipe(stages=3,cut=0:2)") == "gpipe: cut=0:2 has 2 parts, and the pipeline 3");
  CHECK(complaint("interleaved(stages=2,cut=0:1:2:3)") == "no complaint");
  CHECK(complaint("1f1b(in_flight=2:1)") == "1f1b: in_flight=2:1 is for 2 stages, and there are 3");
  CHECK(complaint("1f1b(in_flight=1:2:1)") ==
        "1f1b: in_flight=1:2:1 lets stage 1 take more ahead than stage 0 hands on, so that both wait for each other");
  CHECK(complaint("1f1b(in_flight=2:2:1)") == "no complaint");
}

}  // namespace
}  // namespace plimsoll
