#include <fmt/format.h>

#include "sim/core/names.h"
#include "sim/io/json/json.h"
#include "sim/io/parameter_groups.h"
#include "sim/io/schedule/schedule_decisions.h"
#include "sim/io/schedule/schedule_file.h"
#include "sim/io/schedule/schedule_streams.h"
#include "sim/io/text_file.h"

namespace plimsoll {
namespace {

template <class Id>
Json indices(std::span<const Id> ids) {
  Json list = Json::array();
  for (const Id id : ids) list.push_back(id.index);
  return list;
}

Json json_of(const Buffer& buffer) {
  Json object{{"tensor", buffer.tensor.index},
              {"micro_batch", buffer.micro_batch},
              {"replica", buffer.replica},
              {"memory", buffer.memory.index},
              {"bytes", buffer.bytes.count}};
  if (buffer.range_offset != Bytes{0} || buffer.range_length != buffer.bytes) {
    object["range_offset_bytes"] = buffer.range_offset.count;
    object["range_length_bytes"] = buffer.range_length.count;
  }
  if (buffer.is_packed()) object["codec"] = buffer.codec.index;
  if (buffer.lossy) object["lossy"] = true;
  return object;
}

Json json_of(const Codec& codec) {
  Json object{{"kind", written(codec.kind)}, {"lossy", is_lossy(codec)}, {"size", is_bound(codec) ? "bound" : "exact"}};
  const Codec usual{.kind = codec.kind};
  if (codec.type != usual.type) object["type"] = written(codec.type);
  if (codec.sums != usual.sums) object["sums"] = written(codec.sums);
  if (codec.window != usual.window) object["window"] = codec.window;
  if (codec.channels_last) object["channels_last"] = true;
  if (codec.bits != usual.bits) object["bits"] = codec.bits;
  if (codec.exponent != usual.exponent) object["exponent"] = codec.exponent;
  if (codec.group != usual.group) object["group"] = codec.group;
  if (codec.parts != usual.parts) object["parts"] = codec.parts;
  if (codec.regrouped) object["regrouped"] = true;
  if (codec.keeps_signs) object["keeps_signs"] = true;
  if (codec.zero_mask) object["zero_mask"] = true;
  if (codec.group_bytes != usual.group_bytes) object["group_bytes"] = codec.group_bytes;
  if (codec.averaged != usual.averaged) object["averaged"] = codec.averaged;
  if (codec.padding != usual.padding) object["padding"] = written(codec.padding);
  if (codec.sample_bytes != usual.sample_bytes) object["sample_bytes"] = codec.sample_bytes;
  if (codec.block != usual.block) object["block"] = codec.block;
  if (codec.keep != usual.keep) object["keep"] = codec.keep;
  if (codec.product != usual.product) object["product"] = codec.product;
  if (codec.overhead != usual.overhead) object["overhead_s"] = codec.overhead.value;
  if (codec.copy != usual.copy) object["copy"] = codec.copy;
  return object;
}

Json json_of(const Schedule& schedule, const Step& step) {
  Json object{{"kind", written(step.kind)}, {"stream", step.stream.index}};
  if (step.op != no_op) object["op"] = step.op.index;
  if (step.implementation != 0) object["implementation"] = step.implementation;
  object["micro_batch"] = step.micro_batch;
  object["replica"] = step.replica;
  if (step.collective != no_collective) object["collective"] = step.collective.index;
  object["work_s"] = step.work.seconds.value;
  if (step.work.is_transfer()) {
    object["work_bytes"] = step.work.bytes.count;
    object["route"] = step.work.route.index;
  }
  if (step.workspace != Bytes{0}) object["workspace_bytes"] = step.workspace.count;
  if (step.memory_bound) object["memory_bound"] = true;
  if (step.measured) object["measured"] = true;
  const auto add = [&](const char* key, Slice slice) {
    if (slice.count > 0) object[key] = indices(schedule.buffers_in(slice));
  };
  add("reads", step.reads);
  add("writes", step.writes);
  add("allocates", step.allocates);
  add("frees", step.frees);
  if (step.waits.count > 0) object["waits"] = indices(schedule.waits_of(step));
  return object;
}

/// A path as seen from the schedule's folder, beginning with a dot; names and what is absolute as they are.
std::string seen_from(const std::filesystem::path& folder, const std::string& reference) {
  const std::filesystem::path path(reference);
  std::error_code error;
  if (path.is_absolute() || !std::filesystem::is_regular_file(path, error)) return reference;
  const std::string relative = std::filesystem::proximate(path, folder, error).generic_string();
  if (error) return reference;
  return relative.starts_with("../") ? relative : "./" + relative;
}

Json header(const Schedule& schedule, const std::string& made_by, const std::filesystem::path& folder) {
  const bool is_decided = !schedule.decisions.empty();  // version 3 is version 2 with these
  Json object{{"format", is_decided ? "plimsoll.schedule.v3" : "plimsoll.schedule.v2"},
              {"made_by", made_by},
              {"trace", schedule.trace},
              {"platform", schedule.platform},
              {"strategy", schedule.strategy},
              {"micro_batches", schedule.micro_batches},
              {"replicas", schedule.replicas}};
  if (!schedule.trace_from.empty()) object["trace_from"] = seen_from(folder, schedule.trace_from);
  if (!schedule.platform_from.empty()) object["platform_from"] = seen_from(folder, schedule.platform_from);
  if (schedule.budget) object["memory_budget_bytes"] = schedule.budget->count;
  object["optimizer"] = written(schedule.optimizer);
  if (schedule.optimizer != Optimizer::none) {
    object["states"] = written(schedule.states);
    object["update_kernels"] = written(schedule.update_kernels);
    if (!schedule.parameter_groups.empty()) object["parameter_groups"] = written(schedule.parameter_groups);
  }
  if (schedule.keeps_averages) object["ema"] = true;
  if (schedule.clips_gradients) object["clip_norm"] = true;
  if (const std::optional<Evaluation>& each = schedule.evaluation) {
    object["evaluation"] = {{"every", each->every}, {"batches", each->batches}, {"size", each->size}};
  }
  object["gradients"] = written(schedule.gradients);
  if (!schedule.updates.are_synchronous()) {
    object["versions"] = written(schedule.updates.versions);
    object["update_every"] = schedule.updates.every;
    object["staleness"] = schedule.staleness;
  }
  Json& streams = object["streams"] = Json::array();
  for (const Stream& stream : schedule.streams) streams.push_back(json_of(stream));
  Json& routes = object["routes"] = Json::array();
  for (const Endpoints& ends : schedule.routes) routes.push_back({{"from", ends.from.index}, {"to", ends.to.index}});
  Json& collectives = object["collectives"] = Json::array();
  for (const Collective& collective : schedule.collectives) {
    Json& one = collectives.emplace_back(Json{{"kind", written(collective.kind)},
                                              {"inputs", indices(std::span(collective.inputs))},
                                              {"outputs", indices(std::span(collective.outputs))}});
    if (collective.values > 1) one["values"] = collective.values;
  }
  if (!schedule.codecs.empty()) {
    Json& codecs = object["codecs"] = Json::array();
    for (const Codec& codec : schedule.codecs) codecs.push_back(json_of(codec));
  }
  if (!schedule.approximate.empty()) object["approximate"] = indices(std::span(schedule.approximate));
  object["resident"] = indices(std::span(schedule.resident));
  return object;
}

}  // namespace

std::string schedule_text(const Schedule& schedule, const std::string& made_by, const std::filesystem::path& folder) {
  // One line a buffer and a step: a diff of two schedules then reads well, and no tree of a million steps is built.
  std::string text = json_text(header(schedule, made_by, folder), 1);
  text.resize(text.size() - 2);  // "\n}"
  for (const Decisions& each : schedule.decisions) {
    text += (&each == schedule.decisions.data() ? ",\n \"decisions\": [\n  " : ",\n  ") + decisions_text(each);
  }
  if (!schedule.decisions.empty()) text += "\n ]";
  const auto add_list = [&text](const char* key, std::size_t count, auto&& element) {
    text += fmt::format(",\n \"{}\": [", key);
    for (std::size_t i = 0; i < count; ++i) {
      text += i == 0 ? "\n  " : ",\n  ";
      text += json_text(element(i));
    }
    text += count == 0 ? "]" : "\n ]";
  };
  add_list("buffers", schedule.buffers.size(), [&](std::size_t b) { return json_of(schedule.buffers[b]); });
  add_list("steps", schedule.steps.size(), [&](std::size_t s) { return json_of(schedule, schedule.steps[s]); });
  text += "\n}\n";
  return text;
}

void write_schedule(const std::filesystem::path& path, const Schedule& schedule, const std::string& made_by) {
  const std::filesystem::path folder = path.parent_path();
  write_text_file(path, schedule_text(schedule, made_by, folder.empty() ? "." : folder));
}

}  // namespace plimsoll
