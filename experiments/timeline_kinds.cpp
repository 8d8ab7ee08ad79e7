#include "experiments/timeline_kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "sim/core/names.h"
#include "sim/io/input_error.h"
#include "sim/io/json.h"

namespace plimsoll {
namespace {

/// One slice; microseconds, as the format has them.
struct Event {
  std::string name, category;
  double start = 0, end = 0;
  std::int64_t external_id = -1;  ///< Kineto: which operator launched a kernel

  bool inside(const Event& other) const { return start >= other.start && end <= other.end; }
};

/// The text of a key; empty where it is missing or something else.
std::string text_of(const Json& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_string() ? found->get<std::string>() : "";
}

std::vector<Event> events_of(const Json& events) {
  std::vector<Event> slices;
  for (const Json& e : events) {
    if (!e.is_object() || text_of(e, "ph") != "X" || !e.contains("ts") || !e.contains("dur")) continue;
    if (!e["ts"].is_number() || !e["dur"].is_number()) continue;
    Event event{text_of(e, "name"), text_of(e, "cat"), e["ts"].get<double>(), 0, -1};
    event.end = event.start + e["dur"].get<double>();
    if (e.contains("args") && e["args"].is_object() && e["args"].contains("External id") &&
        e["args"]["External id"].is_number_integer()) {
      event.external_id = e["args"]["External id"].get<std::int64_t>();
    }
    slices.push_back(std::move(event));
  }
  return slices;
}

std::vector<Event> chosen(const std::vector<Event>& events, bool (*is_chosen)(const Event&)) {
  std::vector<Event> list;
  std::ranges::copy_if(events, std::back_inserter(list), is_chosen);
  return list;
}

/// Which kind an operator has by the ranges that it lies in.
class Ranges {
 public:
  explicit Ranges(const std::vector<Event>& events)
      : updates_(chosen(events, [](const Event& e) { return e.name.starts_with("Optimizer.step"); })),
        backwards_(
            chosen(events, [](const Event& e) { return e.name.starts_with("autograd::engine::evaluate_function"); })) {}

  StepKind kind_of(const Event& op) const {
    const auto within = [&](const Event& range) { return op.inside(range); };
    if (std::ranges::any_of(updates_, within)) return StepKind::update;
    return std::ranges::any_of(backwards_, within) ? StepKind::backward : StepKind::forward;
  }

 private:
  std::vector<Event> updates_, backwards_;
};

/// Operators that no other operator contains, in the order of their starts.
std::vector<Event> outermost(std::vector<Event> ops) {
  std::ranges::stable_sort(ops, {}, &Event::start);
  std::vector<Event> outer;
  for (Event& op : ops) {
    if (outer.empty() || op.start >= outer.back().end) outer.push_back(std::move(op));
  }
  return outer;
}

void add(TimelineKinds& kinds, StepKind kind, const Event& event) {
  kinds.seconds[kind] += Seconds{(event.end - event.start) * 1e-6};
}

TimelineKinds kineto_kinds(const std::vector<Event>& events) {
  TimelineKinds kinds;
  const Ranges ranges(events);
  const auto is_op = [](const Event& e) {
    return e.category == "cpu_op" && !e.name.starts_with("autograd::engine") && !e.name.starts_with("Optimizer.");
  };
  const std::vector<Event> ops = chosen(events, is_op);
  const std::vector<Event> kernels = chosen(events, [](const Event& e) { return e.category == "kernel"; });
  std::map<std::int64_t, StepKind> launched;
  for (const Event& op : ops) {
    if (op.external_id >= 0) launched[op.external_id] = ranges.kind_of(op);
  }
  for (const Event& kernel : kernels) {
    const auto by = launched.find(kernel.external_id);
    add(kinds, by == launched.end() ? StepKind::forward : by->second, kernel);
  }
  for (const Event& copy : chosen(events, [](const Event& e) { return e.category == "gpu_memcpy"; })) {
    const bool out = copy.name.find("DtoH") != std::string::npos, in = copy.name.find("HtoD") != std::string::npos;
    if (out || in) add(kinds, out ? StepKind::offload : StepKind::prefetch, copy);
  }
  if (!kernels.empty()) return kinds;
  for (const Event& op : outermost(ops)) add(kinds, ranges.kind_of(op), op);
  return kinds;
}

/// The largest sum of the stacked values of the first memory counter.
std::optional<Bytes> peak_of(const Json& events) {
  std::optional<Bytes> peak;
  std::string first;
  for (const Json& e : events) {
    if (!e.is_object() || text_of(e, "ph") != "C" || !e.contains("args")) continue;
    const std::string name = text_of(e, "name");
    if (first.empty()) first = name;
    if (name != first) continue;
    Bytes sum;
    for (const Json& value : e["args"]) {
      if (value.is_number_integer()) sum += Bytes{value.get<std::int64_t>()};
    }
    peak = std::max(peak.value_or(Bytes{0}), sum);
  }
  return peak;
}

}  // namespace

TimelineKinds kinds_of_timeline(const std::string& text, const std::string& file) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::parse_error& error) {
    throw InputError(located(file, position_of(text, error.byte == 0 ? 0 : error.byte - 1), "", "not valid JSON"));
  }
  const Json& events = json.is_object() && json.contains("traceEvents") ? json["traceEvents"] : json;
  if (!events.is_array()) throw InputError(file + ": expected a timeline in Chrome's trace format, with 'traceEvents'");
  const std::vector<Event> slices = events_of(events);
  TimelineKinds kinds;
  for (const Event& event : slices) {
    if (const std::optional<StepKind> kind = from_name<StepKind>(event.category)) add(kinds, *kind, event);
  }
  if (kinds.seconds.empty()) kinds = kineto_kinds(slices);
  if (kinds.seconds.empty()) throw InputError(file + ": no steps of Plimsoll's and no operators of a profiler's in it");
  double begin = slices.front().start, end = slices.front().end;
  for (const Event& event : slices) {
    begin = std::min(begin, event.start);
    end = std::max(end, event.end);
  }
  kinds.span = Seconds{(end - begin) * 1e-6};
  kinds.peak = peak_of(events);
  return kinds;
}

}  // namespace plimsoll
