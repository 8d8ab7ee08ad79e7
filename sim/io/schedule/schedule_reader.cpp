#include <fmt/format.h>

#include "sim/core/names.h"
#include "sim/io/fields.h"
#include "sim/io/json/json_cursor.h"
#include "sim/io/one_of.h"
#include "sim/io/parameter_groups.h"
#include "sim/io/schedule/schedule_decisions.h"
#include "sim/io/schedule/schedule_file.h"
#include "sim/io/schedule/schedule_streams.h"
#include "sim/io/text_file.h"

namespace plimsoll {
namespace {

using enum Need;

template <class Enum>
Enum enumerator(JsonCursor c) {
  const std::string text = c.string();
  if (const std::optional<Enum> value = from_name<Enum>(text)) return *value;
  const std::vector<std::string_view> names = names_of<Enum>();
  c.complain(fmt::format("expected {}, found '{}'{}", alternatives(names), text, suggestion(text, names)));
  return {};
}

template <class Id>
std::vector<Id> ids(JsonCursor c) {
  std::vector<Id> list;
  c.array([&](JsonCursor element) { list.push_back(Id{element.index()}); });
  return list;
}

/// Appends to one of the schedule's flat lists.
template <class Id>
Slice append(std::vector<Id>& list, JsonCursor c) {
  const std::size_t first = list.size();
  c.array([&](JsonCursor element) { list.push_back(Id{element.index()}); });
  return {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(list.size() - first)};
}

struct StepDraft {
  Schedule* schedule;
  Step step;
};

const Field<Endpoints, JsonCursor> route_fields[] = {
    {"from", required, [](Endpoints& e, JsonCursor c) { e.from = MemoryId{c.index()}; }},
    {"to", required, [](Endpoints& e, JsonCursor c) { e.to = MemoryId{c.index()}; }},
};

const Field<Collective, JsonCursor> collective_fields[] = {
    {"kind", required, [](Collective& x, JsonCursor c) { x.kind = enumerator<CollectiveKind>(c); }},
    {"inputs", required, [](Collective& x, JsonCursor c) { x.inputs = ids<BufferId>(c); }},
    {"outputs", required, [](Collective& x, JsonCursor c) { x.outputs = ids<BufferId>(c); }},
    {"values", optional, [](Collective& x, JsonCursor c) { x.values = c.index(); }},
};

struct CodecDraft {
  Codec codec;
  bool lossy = false;
  std::string size;
};

const Field<CodecDraft, JsonCursor> codec_fields[] = {
    {"kind", required, [](CodecDraft& d, JsonCursor c) { d.codec.kind = enumerator<CodecKind>(c); }},
    {"lossy", required, [](CodecDraft& d, JsonCursor c) { d.lossy = c.boolean(); }},
    {"size", required, [](CodecDraft& d, JsonCursor c) { d.size = c.string(); }},
    {"type", optional, [](CodecDraft& d, JsonCursor c) { d.codec.type = enumerator<PoolType>(c); }},
    {"sums", optional, [](CodecDraft& d, JsonCursor c) { d.codec.sums = enumerator<Projection>(c); }},
    {"window", optional, [](CodecDraft& d, JsonCursor c) { d.codec.window = c.index(); }},
    {"channels_last", optional, [](CodecDraft& d, JsonCursor c) { d.codec.channels_last = c.boolean(); }},
    {"bits", optional, [](CodecDraft& d, JsonCursor c) { d.codec.bits = c.index(); }},
    {"exponent", optional, [](CodecDraft& d, JsonCursor c) { d.codec.exponent = c.index(); }},
    {"group", optional, [](CodecDraft& d, JsonCursor c) { d.codec.group = c.index(); }},
    {"parts", optional, [](CodecDraft& d, JsonCursor c) { d.codec.parts = c.index(); }},
    {"regrouped", optional, [](CodecDraft& d, JsonCursor c) { d.codec.regrouped = c.boolean(); }},
    {"keeps_signs", optional, [](CodecDraft& d, JsonCursor c) { d.codec.keeps_signs = c.boolean(); }},
    {"zero_mask", optional, [](CodecDraft& d, JsonCursor c) { d.codec.zero_mask = c.boolean(); }},
    {"group_bytes", optional, [](CodecDraft& d, JsonCursor c) { d.codec.group_bytes = c.index(); }},
    {"averaged", optional, [](CodecDraft& d, JsonCursor c) { d.codec.averaged = c.index(); }},
    {"padding", optional, [](CodecDraft& d, JsonCursor c) { d.codec.padding = enumerator<Padding>(c); }},
    {"sample_bytes", optional, [](CodecDraft& d, JsonCursor c) { d.codec.sample_bytes = c.index(); }},
    {"block", optional, [](CodecDraft& d, JsonCursor c) { d.codec.block = c.index(); }},
    {"keep", optional, [](CodecDraft& d, JsonCursor c) { d.codec.keep = c.number(); }},
    {"product", optional, [](CodecDraft& d, JsonCursor c) { d.codec.product = c.number(); }},
    {"overhead_s", optional, [](CodecDraft& d, JsonCursor c) { d.codec.overhead = c.seconds(); }},
    {"copy", optional, [](CodecDraft& d, JsonCursor c) { d.codec.copy = c.index(); }},
};

struct BufferDraft {
  Buffer buffer;
  std::optional<Bytes> length;
};

const Field<BufferDraft, JsonCursor> buffer_fields[] = {
    {"tensor", required, [](BufferDraft& d, JsonCursor c) { d.buffer.tensor = TensorId{c.index()}; }},
    {"micro_batch", optional, [](BufferDraft& d, JsonCursor c) { d.buffer.micro_batch = c.index(); }},
    {"replica", optional, [](BufferDraft& d, JsonCursor c) { d.buffer.replica = c.index(); }},
    {"memory", required, [](BufferDraft& d, JsonCursor c) { d.buffer.memory = MemoryId{c.index()}; }},
    {"bytes", required, [](BufferDraft& d, JsonCursor c) { d.buffer.bytes = c.bytes(); }},
    {"range_offset_bytes", optional, [](BufferDraft& d, JsonCursor c) { d.buffer.range_offset = c.bytes(); }},
    {"range_length_bytes", optional, [](BufferDraft& d, JsonCursor c) { d.length = c.bytes(); }},
    {"codec", optional, [](BufferDraft& d, JsonCursor c) { d.buffer.codec = CodecId{c.index()}; }},
    {"lossy", optional, [](BufferDraft& d, JsonCursor c) { d.buffer.lossy = c.boolean(); }},
};

const Field<StepDraft, JsonCursor> step_fields[] = {
    {"kind", required, [](StepDraft& d, JsonCursor c) { d.step.kind = enumerator<StepKind>(c); }},
    {"stream", required, [](StepDraft& d, JsonCursor c) { d.step.stream = StreamId{c.index()}; }},
    {"op", optional, [](StepDraft& d, JsonCursor c) { d.step.op = OpId{c.index()}; }},
    {"implementation", optional, [](StepDraft& d, JsonCursor c) { d.step.implementation = c.index(); }},
    {"micro_batch", optional, [](StepDraft& d, JsonCursor c) { d.step.micro_batch = c.index(); }},
    {"replica", optional, [](StepDraft& d, JsonCursor c) { d.step.replica = c.index(); }},
    {"collective", optional, [](StepDraft& d, JsonCursor c) { d.step.collective = CollectiveId{c.index()}; }},
    {"work_s", required, [](StepDraft& d, JsonCursor c) { d.step.work.seconds = c.seconds(); }},
    {"work_bytes", optional, [](StepDraft& d, JsonCursor c) { d.step.work.bytes = c.bytes(); }},
    {"route", optional, [](StepDraft& d, JsonCursor c) { d.step.work.route = RouteId{c.index()}; }},
    {"workspace_bytes", optional, [](StepDraft& d, JsonCursor c) { d.step.workspace = c.signed_bytes(); }},
    {"memory_bound", optional, [](StepDraft& d, JsonCursor c) { d.step.memory_bound = c.boolean(); }},
    {"measured", optional, [](StepDraft& d, JsonCursor c) { d.step.measured = c.boolean(); }},
    {"reads", optional, [](StepDraft& d, JsonCursor c) { d.step.reads = append(d.schedule->buffer_list, c); }},
    {"writes", optional, [](StepDraft& d, JsonCursor c) { d.step.writes = append(d.schedule->buffer_list, c); }},
    {"allocates", optional, [](StepDraft& d, JsonCursor c) { d.step.allocates = append(d.schedule->buffer_list, c); }},
    {"frees", optional, [](StepDraft& d, JsonCursor c) { d.step.frees = append(d.schedule->buffer_list, c); }},
    {"waits", optional, [](StepDraft& d, JsonCursor c) { d.step.waits = append(d.schedule->wait_list, c); }},
};

template <class Element, class Table>
void elements(JsonCursor c, const Table& table, std::vector<Element>& list) {
  c.array([&](JsonCursor element) { read_fields(element, table, list.emplace_back()); });
}

void read_format(Schedule&, JsonCursor c) {
  const std::string format = c.string();
  if (format != "plimsoll.schedule.v3" && format != "plimsoll.schedule.v2" && format != "plimsoll.schedule.v1") {
    c.complain(fmt::format("expected plimsoll.schedule.v3, v2 or v1, found '{}'", format));
  }
}

void read_codecs(Schedule& schedule, JsonCursor c) {
  c.array([&](JsonCursor element) {
    CodecDraft draft;
    read_fields(element, codec_fields, draft);
    const std::string_view kind = written(draft.codec.kind), size = is_bound(draft.codec) ? "bound" : "exact";
    if (draft.lossy != is_lossy(draft.codec)) {
      element.complain(
          fmt::format("lossy: expected {} of a codec of kind '{}', found {}", !draft.lossy, kind, draft.lossy));
    }
    if (draft.size != size) {
      element.complain(fmt::format("size: expected '{}' of a codec of kind '{}', found '{}'", size, kind, draft.size));
    }
    schedule.codecs.push_back(draft.codec);
  });
}

void read_buffers(Schedule& schedule, JsonCursor c) {
  c.array([&](JsonCursor element) {
    BufferDraft draft;
    read_fields(element, buffer_fields, draft);
    draft.buffer.range_length = draft.length.value_or(draft.buffer.bytes);
    schedule.buffers.push_back(draft.buffer);
  });
}

void read_steps(Schedule& schedule, JsonCursor c) {
  c.array([&](JsonCursor element) {
    StepDraft draft{&schedule, {}};
    read_fields(element, step_fields, draft);
    schedule.steps.push_back(draft.step);
  });
}

void read_count(std::uint32_t& count, JsonCursor c) {
  count = c.index();
  if (count == 0) c.complain("expected at least 1, found 0");
}

const Field<Evaluation, JsonCursor> evaluation_fields[] = {
    {"every", required, [](Evaluation& e, JsonCursor c) { read_count(e.every, c); }},
    {"batches", required, [](Evaluation& e, JsonCursor c) { read_count(e.batches, c); }},
    {"size", required,
     [](Evaluation& e, JsonCursor c) {
       e.size = c.number();
       if (e.size <= 0 || e.size > largest_evaluation) {
         c.complain(fmt::format("expected above 0, at most {:g} micro-batches, {}", largest_evaluation, c.found()));
       }
     }},
};

void read_groups(Schedule& schedule, JsonCursor c) {
  const Parsed<std::vector<ParameterGroup>> groups = parse_parameter_groups(c.string());
  if (!groups.fine()) c.complain(groups.complaint);
  schedule.parameter_groups = groups.value;
}

const Field<Schedule, JsonCursor> schedule_fields[] = {
    schema_field<Schedule, JsonCursor>,
    {"format", required, read_format},
    {"made_by", optional, [](Schedule&, JsonCursor c) { c.string(); }},
    {"trace", required, [](Schedule& s, JsonCursor c) { s.trace = c.string(); }},
    {"platform", required, [](Schedule& s, JsonCursor c) { s.platform = c.string(); }},
    {"trace_from", optional, [](Schedule& s, JsonCursor c) { s.trace_from = c.string(); }},
    {"platform_from", optional, [](Schedule& s, JsonCursor c) { s.platform_from = c.string(); }},
    {"strategy", optional, [](Schedule& s, JsonCursor c) { s.strategy = c.string(); }},
    {"micro_batches", required, [](Schedule& s, JsonCursor c) { read_count(s.micro_batches, c); }},
    {"replicas", optional, [](Schedule& s, JsonCursor c) { read_count(s.replicas, c); }},
    {"memory_budget_bytes", optional, [](Schedule& s, JsonCursor c) { s.budget = c.bytes(); }},
    {"optimizer", required, [](Schedule& s, JsonCursor c) { s.optimizer = enumerator<Optimizer>(c); }},
    {"states", optional, [](Schedule& s, JsonCursor c) { s.states = enumerator<States>(c); }},
    {"update_kernels", optional, [](Schedule& s, JsonCursor c) { s.update_kernels = enumerator<UpdateKernels>(c); }},
    {"parameter_groups", optional, read_groups},
    {"ema", optional, [](Schedule& s, JsonCursor c) { s.keeps_averages = c.boolean(); }},
    {"clip_norm", optional, [](Schedule& s, JsonCursor c) { s.clips_gradients = c.boolean(); }},
    {"evaluation", optional,
     [](Schedule& s, JsonCursor c) { read_fields(c, evaluation_fields, s.evaluation.emplace()); }},
    {"gradients", required, [](Schedule& s, JsonCursor c) { s.gradients = enumerator<Gradients>(c); }},
    {"versions", optional, [](Schedule& s, JsonCursor c) { s.updates.versions = enumerator<Versions>(c); }},
    {"update_every", optional, [](Schedule& s, JsonCursor c) { read_count(s.updates.every, c); }},
    {"staleness", optional, [](Schedule& s, JsonCursor c) { s.staleness = c.index(); }},
    {"decisions", optional,
     [](Schedule& s, JsonCursor c) { c.array([&](JsonCursor one) { s.decisions.push_back(read_decisions(one)); }); }},
    {"streams", required,
     [](Schedule& s, JsonCursor c) { c.array([&](JsonCursor one) { s.streams.push_back(read_stream(one)); }); }},
    {"routes", optional, [](Schedule& s, JsonCursor c) { elements(c, route_fields, s.routes); }},
    {"collectives", optional, [](Schedule& s, JsonCursor c) { elements(c, collective_fields, s.collectives); }},
    {"codecs", optional, read_codecs},
    {"approximate", optional, [](Schedule& s, JsonCursor c) { s.approximate = ids<TensorId>(c); }},
    {"resident", optional, [](Schedule& s, JsonCursor c) { s.resident = ids<BufferId>(c); }},
    {"buffers", required, read_buffers},
    {"steps", required, read_steps},
};

/// What begins with a dot is a path from the schedule's folder.
void find_from(std::string& reference, const std::filesystem::path& schedule_file) {
  if (!reference.starts_with("./") && !reference.starts_with("../")) return;
  reference = (schedule_file.parent_path() / reference).lexically_normal().generic_string();
}

}  // namespace

Schedule parse_schedule(std::string text, std::string file_name) {
  const std::filesystem::path file(file_name);
  JsonDocument document(std::move(text), std::move(file_name));
  Schedule schedule;
  schedule.states = States::as_parameters;  // of files from before there was a choice
  schedule.update_kernels = UpdateKernels::single;
  document.read([&](JsonCursor root) { read_fields(root, schedule_fields, schedule); });
  find_peers(schedule);
  find_from(schedule.trace_from, file);
  find_from(schedule.platform_from, file);
  return schedule;
}

void refuse(const std::filesystem::path& file, std::string_view key, std::string_view what) {
  if (std::filesystem::is_regular_file(file)) {
    JsonDocument document(read_text_file(file), file.string());
    document.complain(key, what);
    document.throw_if_any();
  }
  throw InputError(located(file.string(), {}, key, what));
}

Schedule read_schedule(const std::filesystem::path& path) {
  return parse_schedule(read_text_file(path), path.string());
}

}  // namespace plimsoll
