#include "sim/lower/collective.h"

#include <algorithm>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

/// Beside the stream of what is sent that way, which does not wait for a collective's other ranks.
constexpr std::uint32_t own_stream = 2;

std::int64_t divided_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

NewStep flow(ScheduleBuilder& builder, const Platform& platform, const Rank& from, const Rank& to, CollectiveId id,
             std::int64_t bytes) {
  NewStep step;
  step.kind = StepKind::collective;
  step.stream = builder.stream(from.device, {place::device, platform[to.device].memory}, own_stream);
  step.collective = id;
  step.work = {.seconds = {},
               .bytes = Bytes{bytes},
               .route = builder.route(platform[from.device].memory, platform[to.device].memory)};
  step.reads = from.buffers;
  step.writes = to.buffers;
  return step;
}

}  // namespace

std::vector<StepId> ring_all_reduce(ScheduleBuilder& builder, const Platform& platform, std::span<const Rank> ranks,
                                    Collectives how) {
  const std::size_t n = ranks.size();
  EXPECTS(n >= 2);
  Collective collective;
  collective.kind = CollectiveKind::all_reduce;
  collective.values = static_cast<std::uint32_t>(ranks[0].buffers.size());
  std::vector<StepId> everyone_ready;
  for (const Rank& rank : ranks) {
    collective.inputs.insert(collective.inputs.end(), rank.buffers.begin(), rank.buffers.end());
    everyone_ready.insert(everyone_ready.end(), rank.after.begin(), rank.after.end());
  }
  collective.outputs = collective.inputs;
  const CollectiveId id = builder.collective(std::move(collective));
  std::int64_t bytes = 0;
  for (const BufferId b : ranks[0].buffers) bytes += builder[b].bytes.count;
  const auto count = static_cast<std::int64_t>(n);

  if (how == Collectives::aggregated) {
    std::vector<StepId> last;
    for (std::size_t r = 0; r < n; ++r) {
      const Rank& to = ranks[(r + 1) % n];
      NewStep step = flow(builder, platform, ranks[r], to, id, divided_up(2 * (count - 1) * bytes, count));
      const auto route = route_between(platform, platform[ranks[r].device].memory, platform[to.device].memory);
      EXPECTS(route);
      step.work.seconds = static_cast<double>(2 * (count - 1) - 1) * route->latency;  // the engine adds one
      step.waits = everyone_ready;
      last.push_back(builder.add(step));
    }
    return last;
  }
  std::vector<StepId> previous, round;
  for (std::size_t k = 0; k < 2 * (n - 1); ++k) {
    round.clear();
    for (std::size_t r = 0; r < n; ++r) {
      NewStep step = flow(builder, platform, ranks[r], ranks[(r + 1) % n], id, divided_up(bytes, count));
      step.waits = ranks[r].after;
      if (k == 0) step.waits.insert(step.waits.end(), ranks[(r + 1) % n].after.begin(), ranks[(r + 1) % n].after.end());
      if (k > 0) step.waits.push_back(previous[(r + n - 1) % n]);  // sends on what came in the round before
      round.push_back(builder.add(step));
    }
    previous = round;
  }
  return round;
}

}  // namespace plimsoll
