#include "validate/profiler/chrome_trace.h"

#include <unordered_map>

#include "sim/io/json/json_list.h"

namespace plimsoll {
namespace {

/// A process's or thread's id, whether written as a number or as a word.
std::string id_text(JsonCursor value) {
  return value.is_word() ? value.string() : value.compact();
}

void read_slice_argument(std::string_view key, JsonCursor value, TraceSlice& slice) {
  std::optional<std::int64_t>* place = nullptr;
  if (key == "correlation") place = &slice.correlation;
  if (key == "External id" || key == "external id") place = &slice.external_id;
  if (key == "Sequence number") place = &slice.sequence_number;
  if (key == "Fwd thread id") place = &slice.forward_thread;
  if (key == "stream") place = &slice.stream;
  if (place != nullptr && value.is_whole()) *place = value.integer();
}

/// Kineto has had these words since 2021 and since 2022.
void read_operands(std::string_view key, JsonCursor value, TraceSlice& slice) {
  if (key == "Input Dims" || key == "Input dims") slice.shapes = value.compact();
  if (key == "Input Strides") slice.strides = value.compact();
  if (key == "Input type") slice.types = value.compact();
  if (key == "Concrete Inputs") slice.values = value.compact();
}

Nanoseconds not_negative(JsonCursor value) {
  const Nanoseconds time = value.thousandths();
  if (time < 0) value.complain("must not be negative, " + value.found());
  return time;
}

class ChromeTraceReader {
 public:
  explicit ChromeTraceReader(const TraceVisitor& visitor) : visitor_(visitor) {}

  void operator()(JsonDocument& event) {
    const std::optional<std::string> phase = event.peek_string("ph");
    if (phase == "X") {
      event.read([&](JsonCursor root) { read_slice(root); });
    } else if ((phase == "i" || phase == "I") && event.peek_string("name") == "[memory]") {
      event.read([&](JsonCursor root) { read_memory(root); });
    } else if (phase == "M" && event.peek_string("name") == "thread_name") {
      event.read([&](JsonCursor root) { read_thread_name(root); });
    } else if (phase == "C" && is_first_counter(event.peek_string("name").value_or(""))) {
      event.read([&](JsonCursor root) { read_counter(root); });
    } else {  // names, arrows and the like
      event.read([](JsonCursor root) { root.object([](std::string_view, JsonCursor) {}); });
    }
  }

 private:
  void read_slice(JsonCursor root) {
    TraceSlice slice;
    std::string thread;
    bool has_start = false, has_duration = false;
    root.object([&](std::string_view key, JsonCursor value) {
      if (key == "name") slice.name = value.string();
      if (key == "cat") slice.category = value.string();
      if (key == "pid") slice.process = id_text(value);
      if (key == "tid") thread = id_text(value);
      if (key == "ts") {
        has_start = true;
        slice.start = not_negative(value);
      }
      if (key == "dur") {
        has_duration = true;
        slice.duration = not_negative(value);
      }
      if (key == "args" && value.is_object()) {
        value.object([&](std::string_view name, JsonCursor argument) {
          if (visitor_.wants_arguments && name.size() > 9 && !argument.is_word() && !argument.is_whole()) {
            read_operands(name, argument, slice);
          } else {
            read_slice_argument(name, argument, slice);
          }
        });
      }
    });
    if (!has_start) root.complain_missing_key("ts");
    if (!has_duration) root.complain_missing_key("dur");
    slice.thread = number_of(slice.process, thread);
    visitor_.slice(slice);
  }

  std::uint32_t number_of(const std::string& process, const std::string& thread) {
    const auto number = static_cast<std::uint32_t>(threads_.size());
    return threads_.try_emplace(process + '\n' + thread, number).first->second;
  }

  void read_thread_name(JsonCursor root) {
    std::string process, thread, name;
    root.object([&](std::string_view key, JsonCursor value) {
      if (key == "pid") process = id_text(value);
      if (key == "tid") thread = id_text(value);
      if (key != "args" || !value.is_object()) return;
      value.object([&](std::string_view of, JsonCursor argument) {
        if (of == "name" && argument.is_word()) name = argument.string();
      });
    });
    visitor_.thread_name({number_of(process, thread), name});
  }

  void read_memory(JsonCursor root) {
    MemorySample sample;
    std::string process, thread;
    bool has_total = false;
    root.object([&](std::string_view key, JsonCursor value) {
      if (key == "pid") process = id_text(value);
      if (key == "tid") thread = id_text(value);
      if (key == "ts") sample.date = not_negative(value);
      if (key != "args" || !value.is_object()) return;
      value.object([&](std::string_view name, JsonCursor argument) {
        if (name == "Device Type") sample.device_type = argument.integer();
        if (name == "Device Id") sample.device = argument.integer();
        if (name == "Bytes" && argument.is_whole()) sample.change = argument.signed_bytes();
        if (name == "Addr" && argument.is_whole()) sample.address = argument.integer();
        if (name == "Ev Idx" && argument.is_whole()) sample.order = argument.integer();
        if (name != "Total Allocated") return;
        has_total = true;
        sample.total = argument.bytes();
      });
    });
    sample.thread = number_of(process, thread);
    if (has_total) visitor_.memory(sample);  // before torch 1.11 only changes were recorded
  }

  bool is_first_counter(const std::string& name) {
    if (!first_counter_) first_counter_ = name;
    return first_counter_ == name;
  }

  void read_counter(JsonCursor root) {
    CounterSample sample;
    root.object([&](std::string_view key, JsonCursor value) {
      if (key == "ts") sample.date = not_negative(value);
      if (key != "args" || !value.is_object()) return;
      value.object([&](std::string_view, JsonCursor argument) {
        if (argument.is_whole()) sample.sum += argument.signed_bytes();  // a step's workspace may be below 0
      });
    });
    visitor_.counter(sample);
  }

  const TraceVisitor& visitor_;
  std::unordered_map<std::string, std::uint32_t> threads_;
  std::optional<std::string> first_counter_;
};

}  // namespace

void read_chrome_trace(const std::filesystem::path& file, const TraceVisitor& visitor) {
  ChromeTraceReader reader(visitor);
  read_json_list(file, "traceEvents", [&](JsonDocument& event) { reader(event); });
}

}  // namespace plimsoll
