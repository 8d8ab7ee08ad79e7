#include "experiments/export/memory_profile_file.h"

#include <fmt/format.h>

#include <iterator>

#include "experiments/study/csv.h"
#include "experiments/study/memory_by_kind.h"
#include "sim/core/codec.h"
#include "sim/core/names.h"
#include "sim/io/text_file.h"
#include "sim/measure/memory_profile.h"

namespace plimsoll {
namespace {

Json peak_of(const Problem& problem, const Schedule& schedule, const Timeline& timeline, MemoryId memory) {
  const AtPeak peak = at_peak(schedule, timeline, problem.platform, memory);
  const MemoryPeak& moment = timeline.peaks[memory.index];
  const bool at_start = moment.at_start;
  BytesByKind by_kind{};
  by_kind[workspace_kind] = peak.workspace.count;
  Json tensors = Json::array();
  for (const BufferId b : peak.buffers) {
    const Buffer& buffer = schedule[b];
    const Tensor& tensor = problem.graph[buffer.tensor];
    by_kind[memory_kind(problem.graph, buffer)] += buffer.bytes.count;
    Json one{{"tensor", tensor.name},
             {"kind", written(tensor.kind)},
             {"bytes", buffer.bytes.count},
             {"micro_batch", buffer.micro_batch}};
    if (schedule.replicas > 1) one["replica"] = buffer.replica;
    if (buffer.is_packed()) one["codec"] = text_of(schedule.codecs[buffer.codec.index]);
    tensors.push_back(std::move(one));
  }
  Json json{{"name", problem.platform[memory].name}, {"peak_bytes", peak.bytes.count}};
  json["date_s"] = at_start ? 0.0 : timeline.steps[moment.step.index].start.value;
  json["step"] = at_start ? Json() : Json(moment.step.index);
  const bool has_op = !at_start && schedule[moment.step].op != no_op;
  json["op"] = has_op ? Json(problem.graph[schedule[moment.step].op].name) : Json();
  for (std::size_t k = 0; k < memory_kinds; ++k) json["bytes_by_kind"][std::string(memory_kind_names[k])] = by_kind[k];
  json["tensors"] = std::move(tensors);
  return json;
}

}  // namespace

std::string memory_profile_csv(const Problem& problem, const Schedule& schedule, const Timeline& timeline,
                               std::string_view made_by) {
  std::string csv = fmt::format("# {}\ndate_s,memory,live_bytes\n", made_by);
  for (std::size_t m = 0; m < problem.platform.memories.size(); ++m) {
    const std::string name = csv_field(problem.platform.memories[m].name);
    for (const MemoryPoint& point : memory_profile(schedule, timeline, problem.platform, id_at<MemoryId>(m))) {
      fmt::format_to(std::back_inserter(csv), "{},{},{}\n", point.date.value, name, point.live.count);
    }
  }
  return csv;
}

Json memory_peaks_json(const Problem& problem, const Schedule& schedule, const Timeline& timeline,
                       std::string_view made_by) {
  Json json{{"format", "plimsoll.memory_peaks.v1"},
            {"made_by", made_by},
            {"trace", schedule.trace},
            {"platform", schedule.platform},
            {"strategy", schedule.strategy},
            {"memories", Json::array()}};
  for (std::size_t m = 0; m < problem.platform.memories.size(); ++m) {
    json["memories"].push_back(peak_of(problem, schedule, timeline, id_at<MemoryId>(m)));
  }
  return json;
}

void write_memory_profile(const std::filesystem::path& path, const Problem& problem, const Schedule& schedule,
                          const Timeline& timeline, std::string_view made_by) {
  if (path.extension() == ".json") {
    write_json_file(path, memory_peaks_json(problem, schedule, timeline, made_by));
  } else {
    write_text_file(path, memory_profile_csv(problem, schedule, timeline, made_by));
  }
}

}  // namespace plimsoll
