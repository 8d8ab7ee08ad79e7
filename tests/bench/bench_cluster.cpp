// The best of a cluster with its proof: the search by itself, CPU time. The first argument is the model's size in
// billions of parameters.

#include <benchmark/benchmark.h>

#include <string>

#include "experiments/study/choice/cluster_question.h"
#include "experiments/study/model.h"
#include "platforms/platform_file.h"
#include "tests/bench/cpu_seconds.h"

namespace {

using namespace plimsoll;

struct Searched {
  std::string model, platform;
  std::uint32_t batch;
};

Searched searched(std::int64_t billions) {
  if (billions == 22) return {"layers=48,width=6144,heads=64", "a100_sxm_8", 32};
  return {"layers=96,width=12288,heads=96", "a100_sxm_64", 64};
}

void cluster(benchmark::State& state) {
  const Searched what = searched(state.range(0));
  const Question question{.trace = "transformer:" + what.model + ",sequence=2048,vocabulary=51200,view=graph",
                          .platform = what.platform,
                          .strategy = parse_pipeline("cluster(points=60)", "bench"),
                          .micro_batches = what.batch,
                          .optimizer = Optimizer::adam,
                          .engine = Engine::event};
  for (auto _ : state) {
    const double before = cpu_seconds();
    const AnsweredQuestion made =
        answered_by_cluster(question, load_model(question.trace), load_platform(question.platform));
    state.SetIterationTime(cpu_seconds() - before);
    state.SetLabel(made.question.strategy.text);
    if (made.answer.gap != 0.0) state.SkipWithError("not proven");
  }
}

BENCHMARK(cluster)->Arg(22)->Arg(175)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(3);

}  // namespace

BENCHMARK_MAIN();
