#include "experiments/export/steps_csv.h"

#include <fmt/format.h>

#include <iterator>
#include <optional>

#include "experiments/export/step_name.h"
#include "experiments/study/csv.h"
#include "experiments/study/lane_name.h"
#include "sim/core/expects.h"
#include "sim/core/names.h"

namespace plimsoll {
namespace {

constexpr std::string_view columns =
    "step,device,lane,kind,name,op,micro_batch,replica,start_s,finish_s,moved_bytes,from,to,workspace_bytes,"
    "allocated_bytes,freed_bytes,waits";

Bytes bytes_in(const Schedule& schedule, Slice slice) {
  Bytes bytes;
  for (const BufferId b : schedule.buffers_in(slice)) bytes += schedule[b].bytes;
  return bytes;
}

std::string waits_text(const Schedule& schedule, const Step& step) {
  std::string text;
  for (const StepId wait : schedule.waits_of(step)) text += (text.empty() ? "" : " ") + std::to_string(wait.index);
  return text;
}

std::string row(const Problem& problem, const Schedule& schedule, const Timeline& timeline, std::size_t s) {
  const Step& step = schedule.steps[s];
  const Stream& stream = schedule[step.stream];
  const Platform& platform = problem.platform;
  const auto name = [&](MemoryId memory) { return csv_field(platform[memory].name); };
  const bool moves = step.work.is_transfer();
  const Endpoints ends = moves ? schedule.routes[step.work.route.index] : Endpoints{};
  return fmt::format(
      "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", s, csv_field(platform.devices[stream.device.index].name),
      csv_field(lane_name(stream.way, platform)), written(step.kind),
      csv_field(step_name(problem.graph, schedule, step)), step.op == no_op ? "" : std::to_string(step.op.index),
      step.micro_batch, step.replica, timeline.steps[s].start.value, timeline.steps[s].finish.value,
      step.work.bytes.count, moves ? name(ends.from) : "", moves ? name(ends.to) : "", step.workspace.count,
      bytes_in(schedule, step.allocates).count, bytes_in(schedule, step.frees).count, waits_text(schedule, step));
}

}  // namespace

std::string steps_csv(const Problem& problem, const Schedule& schedule, const Timeline& timeline,
                      std::string_view made_by) {
  EXPECTS(timeline.steps.size() == schedule.steps.size());
  std::string csv = fmt::format("# {}\n{}\n", made_by, columns);
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) csv += row(problem, schedule, timeline, s);
  return csv;
}

}  // namespace plimsoll
