// Legal random schedules, broken in many ways: every mutant that changes the meaning is reported.

#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>
#include <set>

#include "sim/judge/check.h"
#include "tests/conformance/loose.h"
#include "tests/conformance/random_plan.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

bool is_per_micro_batch(const Loose& loose, const Problem& problem, BufferId b) {
  return per_micro_batch(problem.graph[loose.schedule[b].tensor].kind);
}

/// Buffers that op steps need to read: those of the op's inputs that are values of a micro-batch.
std::vector<BufferId> needed(const Loose& loose, const Problem& problem, const Loose::LooseStep& s) {
  std::vector<BufferId> list;
  if (s.step.op == no_op) return list;
  for (const BufferId b : s.reads) {
    const auto& inputs = problem.graph[s.step.op].inputs;
    const bool is_input = std::ranges::find(inputs, loose.schedule[b].tensor) != inputs.end();
    if (is_input && is_per_micro_batch(loose, problem, b) && problem.graph[loose.schedule[b].tensor].bytes > Bytes{0}) {
      list.push_back(b);
    }
  }
  return list;
}

/// A buffer is used again after step s.
bool used_later(const Loose& loose, std::size_t s, BufferId b) {
  for (std::size_t later = s + 1; later < loose.steps.size(); ++later) {
    for (const auto* list : {&loose.steps[later].reads, &loose.steps[later].writes}) {
      if (std::ranges::find(*list, b) != list->end()) return true;
    }
  }
  return false;
}

const std::pair<const char*, Mutation> mutations[] = {
    {"drop a step that computes for the first time",
     [](Loose& loose, const Problem&, Random& random) {
       std::set<std::tuple<std::uint32_t, std::uint32_t>> seen;
       std::vector<std::size_t> only;
       for (std::size_t s = 0; s < loose.steps.size(); ++s) {
         const Step& step = loose.steps[s].step;
         if (step.op != no_op && seen.insert({step.op.index, step.micro_batch}).second) only.push_back(s);
       }
       loose.drop(only[random.below(static_cast<std::uint32_t>(only.size()))]);
       return true;
     }},
    {"forget a transfer",
     [](Loose& loose, const Problem&, Random& random) {
       const auto place = pick(loose, random, [&](const auto& s, std::size_t at) {
         return s.step.work.is_transfer() && used_later(loose, at, s.allocates.at(0));
       });
       if (place) loose.drop(*place);
       return place.has_value();
     }},
    {"free a buffer early",
     [](Loose& loose, const Problem&, Random& random) {
       const auto place = pick(loose, random, [&](const auto& s, std::size_t at) {
         return std::ranges::any_of(s.allocates, [&](BufferId b) { return used_later(loose, at, b); });
       });
       if (!place) return false;
       for (const BufferId b : loose.steps[*place].allocates) {
         if (!used_later(loose, *place, b)) continue;
         for (auto& s : loose.steps) std::erase(s.frees, b);
         loose.steps[*place].frees.push_back(b);
         return true;
       }
       return false;
     }},
    {"read another micro-batch's value",
     [](Loose& loose, const Problem& problem, Random& random) {
       if (problem.micro_batches < 2) return false;
       const auto place =
           pick(loose, random, [&](const auto& s, std::size_t) { return !needed(loose, problem, s).empty(); });
       if (!place) return false;
       auto& step = loose.steps[*place];
       const BufferId right = needed(loose, problem, step)[0];
       for (std::size_t b = 0; b < loose.schedule.buffers.size(); ++b) {
         const Buffer& other = loose.schedule.buffers[b];
         const Buffer& own = loose.schedule[right];
         if (other.tensor != own.tensor || other.micro_batch == own.micro_batch || other.memory != own.memory) continue;
         *std::ranges::find(step.reads, right) = id_at<BufferId>(b);
         return true;
       }
       return false;
     }},
    {"read nothing for an input",
     [](Loose& loose, const Problem& problem, Random& random) {
       const auto place =
           pick(loose, random, [&](const auto& s, std::size_t) { return !needed(loose, problem, s).empty(); });
       if (place) std::erase(loose.steps[*place].reads, needed(loose, problem, loose.steps[*place])[0]);
       return place.has_value();
     }},
    {"drop the waits of a step on another stream's values",
     [](Loose& loose, const Problem&, Random& random) {
       const auto place = pick(loose, random, [&](const auto& s, std::size_t at) {
         // Only a wait for the maker of something read, and with nothing else on the stream to imply it.
         if (s.waits.empty() || s.reads.empty()) return false;
         for (std::size_t earlier = 0; earlier < at; ++earlier) {
           if (loose.steps[earlier].step.stream == s.step.stream) return false;
         }
         return std::ranges::any_of(s.waits, [&](StepId wait) {
           const auto& made = loose.steps[wait.index].allocates;
           return std::ranges::any_of(s.reads, [&](BufferId b) { return std::ranges::find(made, b) != made.end(); });
         });
       });
       if (place) loose.steps[*place].waits.clear();
       return place.has_value();
     }},
    {"update twice",
     [](Loose& loose, const Problem&, Random& random) {
       const auto place =
           pick(loose, random, [](const auto& s, std::size_t) { return s.step.kind == StepKind::update; });
       if (place) loose.steps.push_back(loose.steps[*place]);
       return place.has_value();
     }},
    {"add a gradient twice",
     [](Loose& loose, const Problem& problem, Random& random) {
       const auto place = pick(loose, random, [&](const auto& s, std::size_t) {
         return std::ranges::any_of(s.writes, [&](BufferId b) {
           return problem.graph[loose.schedule[b].tensor].kind == TensorKind::parameter_gradient;
         });
       });
       if (!place) return false;
       auto again = loose.steps[*place];
       again.step.micro_batch =
           again.step.micro_batch == 0 ? 1 : 0;  // another micro-batch's contribution, or a bad one
       loose.steps[*place].step.micro_batch = again.step.micro_batch;
       return true;
     }},
    {"allocate a live buffer again",
     [](Loose& loose, const Problem&, Random& random) {
       const auto place = pick(loose, random, [](const auto& s, std::size_t) { return !s.reads.empty(); });
       if (place) loose.steps[*place].allocates.push_back(loose.steps[*place].reads[0]);
       return place.has_value();
     }},
    {"free twice",
     [](Loose& loose, const Problem&, Random& random) {
       const auto place = pick(loose, random, [&](const auto& s, std::size_t at) {
         return !s.frees.empty() && at + 1 < loose.steps.size();
       });
       if (place) loose.steps.back().frees.push_back(loose.steps[*place].frees[0]);
       return place.has_value();
     }},
    {"run another op under the same buffers",
     [](Loose& loose, const Problem& problem, Random& random) {
       const auto place = pick(loose, random, [](const auto& s, std::size_t) { return s.step.op != no_op; });
       OpId& op = loose.steps[*place].step.op;
       op = {(op.index + 1) % static_cast<std::uint32_t>(problem.graph.ops.size())};
       return problem.graph.ops.size() > 1;
     }},
    {"copy to the wrong memory",
     [](Loose& loose, const Problem&, Random& random) {
       const auto place = pick(loose, random, [](const auto& s, std::size_t) { return s.step.work.is_transfer(); });
       if (!place) return false;
       Buffer& target = loose.schedule.buffers[loose.steps[*place].allocates.at(0).index];
       target.memory = loose.schedule.routes[loose.steps[*place].step.work.route.index].from;
       return true;
     }},
    {"swap two steps of which one reads what the other makes",
     [](Loose& loose, const Problem&, Random& random) {
       const auto feeds = [&](std::size_t maker, std::size_t reader) {
         return std::ranges::any_of(loose.steps[reader].reads, [&](BufferId b) {
           const auto& made = loose.steps[maker].allocates;
           return std::ranges::find(made, b) != made.end();
         });
       };
       const auto place = pick(loose, random, [&](const auto&, std::size_t at) { return at > 0 && feeds(at - 1, at); });
       if (!place) return false;
       std::swap(loose.steps[*place], loose.steps[*place - 1]);
       std::erase(loose.steps[*place - 1].waits, id_at<StepId>(*place - 1));  // a wait for itself would be malformed
       return true;
     }},
    {"compute on the host's copy",
     [](Loose& loose, const Problem&, Random& random) {
       const auto place =
           pick(loose, random, [](const auto& s, std::size_t) { return s.step.kind == StepKind::prefetch; });
       if (!place) return false;
       const BufferId host = loose.steps[*place].reads[0], device = loose.steps[*place].allocates[0];
       for (auto& s : loose.steps) std::erase(s.frees, host);
       for (auto& s : loose.steps) {
         std::ranges::replace(s.reads, device, host);
         std::erase(s.frees, device);
       }
       loose.steps[*place].reads = {host};
       return true;
     }},
};

TEST_CASE("random plans of every kind are legal", "[conformance]") {
  for (const RandomCase seed : random_cases(1, 500)) {
    const RandomPlan made = random_plan(seed);
    const std::vector<Violation> found = check(made.schedule, made.problem.graph, made.problem.platform, 3);
    INFO("seed " << seed << ": " << (found.empty() ? "" : found[0].what));
    REQUIRE(found.empty());
  }
}

TEST_CASE("every mutant that changes the meaning of a schedule is reported, naming step or buffer", "[conformance]") {
  for (const auto& [name, mutate] : mutations) {
    std::size_t mutants = 0;
    for (const RandomCase seed : random_cases(1, 200)) {
      const RandomPlan made = random_plan(seed);
      Loose loose(made.schedule);
      Random random(1000 + seed);
      if (!mutate(loose, made.problem, random)) continue;
      ++mutants;
      const Schedule mutant = loose.packed();
      const std::vector<Violation> found = check(mutant, made.problem.graph, made.problem.platform);
      INFO(name << ", seed " << seed);
      REQUIRE(!found.empty());
      for (const Violation& v : found) CHECK((v.step || v.buffer || v.rule == Rule::incomplete));
    }
    INFO(name);
    if (all_cases()) CHECK(mutants >= 20);
  }
}

}  // namespace
}  // namespace plimsoll
