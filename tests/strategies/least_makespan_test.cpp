// The bound by which plans are not simulated: beside the event engine's time, which it may not exceed.

#include "strategies/compose/levels/least_makespan.h"

#include "sim/engine/event/event_engine.h"
#include "strategies/pipelining/cuts/stage_parts.h"
#include "tests/strategies/pipelining/equal_pipelines.h"

namespace plimsoll {
namespace {

struct Bounded {
  Seconds least, simulated;
};

/// Of plain training.
Bounded bounded(const std::string& spec, Chain chain, const Gpus& machine, std::uint32_t micro_batches) {
  const std::vector<Pass> passes = parse_spec(spec, "test");
  const Problem problem =
      problem_of(std::move(chain), gpus(machine), {.micro_batches = micro_batches, .backward = backward_for(passes)});
  const std::optional<Bytes> unlimited;
  const Pass& pipeline = passes.front();
  const PartitionOutcome outcome =
      pipeline.strategy->partition(problem, pipeline.options, std::span(&unlimited, 1)).front();
  const Partition& partition = *std::get<std::shared_ptr<const Partition>>(outcome);
  std::vector<Tape> tapes;
  for (std::size_t p = 0; p < partition.parts.size(); ++p) {
    tapes.push_back(plain_tape({problem, partition, id_at<PartId>(p)}));
  }
  return {least_makespan(problem, partition, tapes), plain_timeline(problem, partition).makespan};
}

}  // namespace

TEST_CASE("where nothing is shared, the least makespan is what the event engine says", "[pipelining][least_makespan]") {
  const std::string spec =
      GENERATE("gpipe", "1f1b", "interleaved(chunks=2)", "zb_h1", "zb_h2", "zb_v", "v_min", "hanayo(waves=2)");
  const double latency = GENERATE(0.0, 0.25);
  CAPTURE(spec, latency);
  const Bounded made = bounded(spec, equal_stages(8, {1, 1.5, 0.5}), {.count = 4, .peer_latency = Seconds{latency}}, 8);
  CHECK(made.least.value == Approx(made.simulated.value).epsilon(1e-12));
}

TEST_CASE("the least makespan of gpipe is the way of the first and the last micro-batch",
          "[pipelining][least_makespan]") {
  constexpr double f = 1, b = 2, c = 0.25, parts = 4, m = 6;
  const Bounded made = bounded("gpipe", equal_stages(4, {f, b, 0}), {.count = 4, .peer_latency = Seconds{c}}, 6);
  CHECK(made.least.value == Approx((m + parts - 1) * (f + b) + 2 * (parts - 1) * c).epsilon(1e-12));
}

TEST_CASE("where parts have copies, a device's own computation is the bound", "[pipelining][least_makespan]") {
  const Bounded made = bounded("chimera", equal_stages(4, {1, 1.5, 0.5}), {.count = 4}, 8);
  CHECK(made.least.value == Approx(8 * 3));
  CHECK(made.least < made.simulated);
}

}  // namespace plimsoll
