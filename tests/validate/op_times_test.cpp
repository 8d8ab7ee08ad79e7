// What a measuring run says of an op that loads the network's input in its first run.

#include "validate/op_times.h"

#include <catch2/catch.hpp>

#include "sim/engine/event/event_engine.h"
#include "tests/generate/problems.h"

namespace plimsoll {
namespace {

TEST_CASE("loading is told apart: it is in the first run of who reads the input", "[validate]") {
  Chain stated = even_chain(2);
  const Problem problem = problem_of(stated, gpus({}));
  const OpId first = problem.index->forward[0];
  Schedule sweeps = calibration_schedule(problem);
  std::vector<Step*> runs;
  for (Step& step : sweeps.steps) {
    if (step.op == first) runs.push_back(&step);
  }
  REQUIRE(runs.size() == 3);  // alone with loading, alone without, and keeping what the backward reads
  CHECK(loads(problem.graph, sweeps, *runs[0]));
  CHECK(!loads(problem.graph, sweeps, *runs[1]));
  runs[0]->work.seconds = Seconds{5};
  runs[1]->work.seconds = Seconds{3};
  runs[2]->work.seconds = Seconds{4};
  OpTimes times;
  times.add(problem.graph, sweeps, simulate_event(sweeps, problem.platform));
  CHECK(times.load_of(first) == Seconds{2});
  CHECK(!times.load_of(problem.index->forward[1]));
  CHECK(times.of(first, Saving::keep, true) == Seconds{6});
  CHECK(times.of(first, Saving::keep, false) == Seconds{4});
  const Chain timed = with_times(stated, problem, times);
  CHECK(timed.stages[0].load == Seconds{2});
  CHECK(timed.stages[0].forward == Seconds{6});
  CHECK(timed.stages[0].forward_nograd == Seconds{5});
  CHECK(timed.stages[1].load == Seconds{0});
  const Problem again = problem_of(timed, gpus({}));
  const Schedule schedule = retimed(calibration_schedule(again), again.graph, times);
  CHECK(simulate_event(schedule, again.platform).makespan ==
        simulate_event(calibration_schedule(again), again.platform).makespan);
}

}  // namespace
}  // namespace plimsoll
