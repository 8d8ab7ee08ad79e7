// The front of `cluster`: the answers of searches within less and less memory.

#include <chrono>
#include <utility>

#include "experiments/study/choice/cluster_question.h"

namespace plimsoll {
namespace {

constexpr Bytes any_memory{1'000'000'000'000'000'000};

}  // namespace

std::vector<AnsweredQuestion> front_of_cluster(const Question& question, const Trace& trace, const Platform& platform) {
  ClusterProblems problems(question, trace, platform);
  std::vector<AnsweredQuestion> made;
  auto started = std::chrono::steady_clock::now();
  const auto take = [&](const ClusterAnswer& found) {
    problems.limit_to(found.rows[*found.best].outcome->peak);
    const std::chrono::duration<double> searched = std::chrono::steady_clock::now() - started;
    made.push_back(answered_by_best(question, problems, found, searched.count()));
    started = std::chrono::steady_clock::now();
  };
  cluster_front(
      problems.question(), question.strategy.passes.front().options.as<ClusterOptions>(), any_memory,
      [&](Bytes budget) { problems.limit_to(budget); }, take);
  return made;
}

}  // namespace plimsoll
