// What a schedule file may say falsely about costs, sizes, places and names: legal schedules of strategies of every
// family and of random plans, falsified at random places. No falsification of any kind passes. Left out, because the
// result is another legal schedule: to forget a wait that no value depends on, to read more than is needed, to free
// later, and to move an op among steps that it does not depend on.

#include <catch2/catch.hpp>

#include <algorithm>

#include "sim/judge/check.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/conformance/loose.h"
#include "tests/conformance/random_plan.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

bool runs_op(const Loose::LooseStep& s) {
  return s.step.op != no_op;
}
bool moves(const Loose::LooseStep& s) {
  return s.step.work.is_transfer();
}
bool moves_bytes(const Loose::LooseStep& s) {
  return moves(s) && s.step.work.bytes > Bytes{0};
}
/// Changes one of the steps that match.
template <class Matches, class Change>
Mutation step_changed(Matches matches, Change change) {
  return [=](Loose& loose, const Problem& problem, Random& random) {
    const auto place = pick(loose, random, [&](const auto& s, std::size_t) { return matches(s); });
    if (place) change(loose.steps[*place], loose, problem, random);
    return place.has_value();
  };
}

/// Changes one of the buffers that match.
template <class Matches, class Change>
Mutation buffer_changed(Matches matches, Change change) {
  return [=](Loose& loose, const Problem& problem, Random& random) {
    std::vector<std::size_t> places;
    for (std::size_t b = 0; b < loose.schedule.buffers.size(); ++b) {
      if (matches(loose.schedule.buffers[b], problem)) places.push_back(b);
    }
    if (places.empty()) return false;
    change(loose.schedule.buffers[places[random.below(static_cast<std::uint32_t>(places.size()))]], problem, random);
    return true;
  };
}

template <class... Ignored>
bool any(const Ignored&...) {
  return true;
}
bool has_bytes(const Buffer& buffer, const Problem&) {
  return buffer.bytes > Bytes{1};
}

bool is_used_by_another(const Loose& loose, std::size_t maker, BufferId b) {
  for (std::size_t s = 0; s < loose.steps.size(); ++s) {
    for (const auto* list : {&loose.steps[s].reads, &loose.steps[s].writes}) {
      if (s != maker && std::ranges::find(*list, b) != list->end()) return true;
    }
  }
  return false;
}

bool omit_an_output_that_nobody_reads(Loose& loose, const Problem& problem, Random& random) {
  std::vector<std::pair<std::size_t, BufferId>> places;
  for (std::size_t s = 0; s < loose.steps.size(); ++s) {
    if (!runs_op(loose.steps[s])) continue;
    const Op& op = problem.graph[loose.steps[s].step.op];
    for (const BufferId b : loose.steps[s].allocates) {
      const TensorId t = loose.schedule[b].tensor;
      const bool only_saved = std::ranges::find(op.saved, t) != op.saved.end();
      if (only_saved || loose.schedule[b].bytes == Bytes{0} || is_used_by_another(loose, s, b)) continue;
      if (problem.graph[t].kind != TensorKind::input) places.emplace_back(s, b);
    }
  }
  if (places.empty()) return false;
  const auto [step, buffer] = places[random.below(static_cast<std::uint32_t>(places.size()))];
  std::erase(loose.steps[step].allocates, buffer);
  for (auto& s : loose.steps) std::erase(s.frees, buffer);
  return true;
}

bool load_the_input_again(Loose& loose, const Problem& problem, Random& random) {
  const auto input_read = [&](const Loose::LooseStep& s) -> std::optional<BufferId> {
    for (const BufferId b : s.reads) {
      const Buffer& buffer = loose.schedule[b];
      if (problem.graph[buffer.tensor].kind == TensorKind::input && buffer.bytes > Bytes{0}) return b;
    }
    return std::nullopt;
  };
  const auto place = pick(loose, random, [&](const auto& s, std::size_t) { return runs_op(s) && input_read(s); });
  if (!place) return false;
  const BufferId old = *input_read(loose.steps[*place]);
  loose.schedule.buffers.push_back(loose.schedule[old]);
  std::erase(loose.steps[*place].reads, old);
  loose.steps[*place].allocates.push_back(id_at<BufferId>(loose.schedule.buffers.size() - 1));
  return true;
}

bool give_a_device_another_compute_stream(Loose& loose, const Problem&, Random& random) {
  const auto place = pick(loose, random, [&](const auto& s, std::size_t) {
    return runs_op(s) && loose.schedule[s.step.stream].way == way::compute;
  });
  std::size_t on_device = 0;
  for (const auto& s : loose.steps) {
    const Stream& stream = loose.schedule[s.step.stream];
    on_device += stream.way == way::compute && stream.device == loose.schedule[loose.steps[*place].step.stream].device;
  }
  if (on_device < 2) return false;
  loose.schedule.streams.push_back(loose.schedule[loose.steps[*place].step.stream]);
  loose.steps[*place].step.stream = id_at<StreamId>(loose.schedule.streams.size() - 1);
  return true;
}

/// One that a step uses: a parameter that nobody reads may be at home anywhere.
bool put_a_buffer_into_another_memory(Loose& loose, const Problem& problem, Random& random) {
  std::vector<BufferId> used;
  for (const auto& s : loose.steps) {
    for (const auto* list : {&s.reads, &s.writes, &s.allocates}) used.insert(used.end(), list->begin(), list->end());
  }
  Buffer& buffer = loose.schedule.buffers[used[random.below(static_cast<std::uint32_t>(used.size()))].index];
  buffer.memory = {(buffer.memory.index + 1) % static_cast<std::uint32_t>(problem.platform.memories.size())};
  return true;
}

void put_on_a_stream(Loose::LooseStep& s, Loose& loose, Way way) {
  loose.schedule.streams.push_back({.device = loose.schedule[s.step.stream].device, .way = way});
  s.step.stream = id_at<StreamId>(loose.schedule.streams.size() - 1);
}

bool makes_gradients(const Problem& problem) {
  return std::ranges::any_of(problem.graph.tensors,
                             [](const Tensor& t) { return t.kind == TensorKind::parameter_gradient; });
}

const std::pair<const char*, Mutation> falsifications[] = {
    {"a longer op", step_changed(runs_op, [](auto& s, auto&...) { s.step.work.seconds += Seconds{0.37}; })},
    {"a shorter op",
     step_changed([](const auto& s) { return runs_op(s) && s.step.work.seconds > Seconds{0}; },
                  [](auto& s, auto&...) { s.step.work.seconds = 0.618 * s.step.work.seconds; })},
    {"a larger workspace", step_changed(runs_op, [](auto& s, auto&...) { s.step.workspace += Bytes{1000}; })},
    {"no workspace",
     step_changed([](const auto& s) { return s.step.workspace > Bytes{0}; },
                  [](auto& s, auto&...) { s.step.workspace = {}; })},
    {"a workspace of a copy", step_changed(moves, [](auto& s, auto&...) { s.step.workspace = Bytes{1}; })},
    {"a buffer of one byte", buffer_changed(has_bytes, [](Buffer& b, auto&...) { b.bytes = Bytes{1}; })},
    {"a buffer of one byte too many", buffer_changed(any<Buffer, Problem>, [](Buffer& b, auto&...) { b.bytes += Bytes{1}; })},
    {"a buffer of a part of its tensor",
     buffer_changed(has_bytes, [](Buffer& b, auto&...) { b.bytes = b.range_length = b.range_length - Bytes{1}; })},
    {"a buffer that begins later",
     buffer_changed(any<Buffer, Problem>, [](Buffer& b, auto&...) { b.range_offset += Bytes{1}; })},
    {"a compressed buffer", buffer_changed(any<Buffer, Problem>, [](Buffer& b, auto&...) { b.codec = CodecId{0}; })},
    {"a buffer of another memory", put_a_buffer_into_another_memory},
    {"a buffer of another tensor",
     buffer_changed(any<Buffer, Problem>,
                    [](Buffer& b, const Problem& p, Random&) {
                      b.tensor = {(b.tensor.index + 1) % static_cast<std::uint32_t>(p.graph.tensors.size())};
                    })},
    {"a buffer of another micro-batch",
     buffer_changed(
         [](const Buffer& b, const Problem& p) { return p.micro_batches > 1 && per_micro_batch(p.graph[b.tensor].kind); },
         [](Buffer& b, const Problem& p, Random&) { b.micro_batch = (b.micro_batch + 1) % p.micro_batches; })},
    {"an approximation that is copied as if it were none",
     step_changed(moves, [](auto& s, Loose& loose, auto&...) { loose.schedule.buffers[s.reads[0].index].lossy = true; })},
    {"a copy of nothing", step_changed(moves_bytes, [](auto& s, auto&...) { s.step.work.bytes = {}; })},
    {"a copy of one byte less", step_changed(moves_bytes, [](auto& s, auto&...) { s.step.work.bytes -= Bytes{1}; })},
    {"a copy of one byte more", step_changed(moves, [](auto& s, auto&...) { s.step.work.bytes += Bytes{1}; })},
    {"a copy that takes other time", step_changed(moves, [](auto& s, auto&...) { s.step.work.seconds += Seconds{0.1}; })},
    {"a copy over the way back",
     step_changed(moves,
                  [](auto& s, Loose& loose, auto&...) {
                    const Endpoints ends = loose.schedule.routes[s.step.work.route.index];
                    loose.schedule.routes.push_back({ends.to, ends.from});
                    s.step.work.route = id_at<RouteId>(loose.schedule.routes.size() - 1);
                  })},
    {"an op on a copy stream",
     step_changed(runs_op, [](auto& s, Loose& loose, auto&...) { put_on_a_stream(s, loose, way::device_to_host); })},
    {"an op that is no update on the host",
     step_changed([](const auto& s) { return runs_op(s) && s.step.kind != StepKind::update; },
                  [](auto& s, Loose& loose, auto&...) { put_on_a_stream(s, loose, way::on_host); })},
    {"a copy on a compute stream",
     step_changed(moves, [](auto& s, Loose& loose, auto&...) { put_on_a_stream(s, loose, way::compute); })},
    {"a copy on a stream of the other direction",
     step_changed(moves,
                  [](auto& s, Loose& loose, auto&...) {
                    const bool out = loose.schedule[s.step.stream].way == way::device_to_host;
                    put_on_a_stream(s, loose, out ? way::host_to_device : way::device_to_host);
                  })},
    {"another device's compute stream",
     [](Loose& loose, const Problem& problem, Random& random) {
       const auto devices = static_cast<std::uint32_t>(problem.platform.devices.size());
       const auto place = pick(loose, random, [](const auto& s, std::size_t) { return runs_op(s); });
       Stream stream = loose.schedule[loose.steps[*place].step.stream];
       if (devices < 2 || stream.way != way::compute) return false;
       stream.device = {(stream.device.index + 1) % devices};
       loose.schedule.streams.push_back(stream);
       loose.steps[*place].step.stream = id_at<StreamId>(loose.schedule.streams.size() - 1);
       return true;
     }},
    {"another compute stream", give_a_device_another_compute_stream},
    {"another implementation", step_changed(runs_op, [](auto& s, auto&...) { ++s.step.implementation; })},
    {"an op of another micro-batch",
     [](Loose& loose, const Problem& problem, Random& random) {
       const auto place = pick(loose, random, [&](const auto& s, std::size_t) {
         return runs_op(s) && problem.graph[s.step.op].phase != Phase::update;
       });
       Step& step = loose.steps[*place].step;
       step.micro_batch = (step.micro_batch + 1) % (problem.micro_batches + 1);
       return true;
     }},
    {"an op of another replica", step_changed(runs_op, [](auto& s, auto&...) { ++s.step.replica; })},
    {"a first run called a repetition, or the other way round",
     step_changed(runs_op,
                  [](auto& s, auto&...) {
                    const bool again = s.step.kind == StepKind::recompute;
                    s.step.kind = again ? StepKind::forward : StepKind::recompute;
                  })},
    {"a copy called otherwise", step_changed(moves, [](auto& s, auto&...) { s.step.kind = StepKind::collective; })},
    {"a step that does nothing, and takes time",
     [](Loose& loose, const Problem&, Random& random) {
       Loose::LooseStep idle;
       idle.step.stream = {random.below(static_cast<std::uint32_t>(loose.schedule.streams.size()))};
       idle.step.work.seconds = Seconds{1};
       loose.steps.push_back(idle);
       return true;
     }},
    {"an op that moves bytes", step_changed(runs_op, [](auto& s, auto&...) { s.step.work.bytes = Bytes{1}; })},
    {"a conversion where a copy was",
     step_changed(moves, [](auto& s, auto&...) { s.step.work.route = no_route; })},
    {"an output that nobody reads, left out", omit_an_output_that_nobody_reads},
    {"the network's input loaded again", load_the_input_again},
    {"a parameter or state that is not there at the start",
     [](Loose& loose, const Problem&, Random& random) {
       std::vector<BufferId>& resident = loose.schedule.resident;
       if (resident.empty()) return false;
       resident.erase(resident.begin() + random.below(static_cast<std::uint32_t>(resident.size())));
       return true;
     }},
    {"a parameter, state or existing gradient that is gone at the end",
     [](Loose& loose, const Problem&, Random& random) {
       const std::vector<BufferId>& resident = loose.schedule.resident;
       if (resident.empty()) return false;
       loose.steps.back().frees.push_back(resident[random.below(static_cast<std::uint32_t>(resident.size()))]);
       return true;
     }},
    {"gradients that appear otherwise than the header says",
     [](Loose& loose, const Problem& problem, Random&) {
       Gradients& gradients = loose.schedule.gradients;
       gradients = gradients == Gradients::fresh ? Gradients::existing : Gradients::fresh;
       return makes_gradients(problem);
     }},
    {"another optimizer's time on the host",
     [](Loose& loose, const Problem&, Random&) {
       const auto on_host = std::ranges::find_if(loose.steps, [&](const auto& s) {
         return runs_op(s) && loose.schedule[s.step.stream].way == way::on_host && s.step.work.seconds > Seconds{0};
       });
       if (on_host == loose.steps.end()) return false;
       on_host->step.work.seconds = 3.0 / 7.0 * on_host->step.work.seconds;  // sgd's of Adam's
       return true;
     }},
    {"one micro-batch more",
     [](Loose& loose, const Problem&, Random&) {
       ++loose.schedule.micro_batches;
       return true;
     }},
    {"one micro-batch less",
     [](Loose& loose, const Problem&, Random&) { return --loose.schedule.micro_batches > 0; }},
    {"one replica more",
     [](Loose& loose, const Problem&, Random&) {
       ++loose.schedule.replicas;
       return true;
     }},
};

/// Schedules of strategies of every family that runs on one device, without limits and in as little as they need.
std::vector<RandomPlan> plans_of_strategies() {
  const Platform machine = gpus({.to_host = {16}, .adam = BytesPerSecond{8}, .to_disk = BytesPerSecond{8}});
  std::vector<RandomPlan> plans;
  for (const char* spec : {"store_all", "rotor", "dtr", "vdnn(mode=all)", "offload_greedy(chunks=2)",
                           "offload_fractional", "rotor|offload_greedy", "zero_offload", "zero_infinity",
                           "deep_optimizer_states", "demand_layering(lead=0, from=disk)"}) {
    for (const RandomCase seed : random_cases(1, 12)) {
      Random random(seed);
      Chain chain = random_small_chain(seed, random.between(2, 6));
      if (chain.parameters.empty()) chain.parameters.push_back({"w", Bytes{3}});
      chain.stages[0].parameters = {0};
      const ProblemOptions options{.micro_batches = random.between(1, 3),
                                   .optimizer = Optimizer::adam,
                                   .gradients = random.chance(0.5) ? Gradients::fresh : Gradients::existing};
      const Problem problem = problem_of(chain, machine, options);
      const std::vector<Pass> passes = parse_spec(spec, "test");
      std::vector<std::optional<Bytes>> budgets{Bytes{0}};
      const PlanOutcome none = std::move(plan(problem, passes, budgets).front());
      budgets = {std::nullopt, std::get<Infeasible>(none).smallest};
      for (PlanOutcome& outcome : plan(problem, passes, budgets)) {
        plans.push_back({problem, std::move(std::get<Plan>(outcome).schedule)});
      }
    }
  }
  return plans;
}

std::vector<RandomPlan> legal_plans() {
  std::vector<RandomPlan> plans = plans_of_strategies();
  for (std::uint64_t seed = 1; seed <= 150; ++seed) plans.push_back(random_plan(seed));
  for (std::size_t p = 0; p < plans.size(); ++p) {
    const std::vector<Violation> found = check(plans[p].schedule, plans[p].problem.graph, plans[p].problem.platform, 1);
    INFO("plan " << p << ": " << (found.empty() ? "" : found[0].what));
    REQUIRE(found.empty());
  }
  return plans;
}

TEST_CASE("no falsification of costs, sizes, places or names passes", "[conformance][eleventh-6]") {
  const std::vector<RandomPlan> plans = legal_plans();
  for (const auto& [name, falsify] : falsifications) {
    std::size_t mutants = 0;
    for (const RandomCase p : random_cases(0, plans.size() - 1)) {
      const Problem& problem = plans[p].problem;
      Loose loose(plans[p].schedule);
      Random random(1000 + p);
      if (!falsify(loose, problem, random)) continue;
      ++mutants;
      INFO(name << ", plan " << p << " (" << plans[p].schedule.strategy << ")");
      CHECK_FALSE(check(loose.packed(), problem.graph, problem.platform, 1).empty());
    }
    INFO(name);
    if (all_cases()) CHECK(mutants >= 20);
  }
}

}  // namespace
}  // namespace plimsoll
