#include "experiments/export/perfetto.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <vector>

#include "experiments/export/step_name.h"
#include "experiments/study/lane_name.h"
#include "experiments/study/memory_by_kind.h"
#include "sim/core/expects.h"
#include "sim/core/names.h"
#include "sim/judge/workspace_memories.h"

namespace plimsoll {
namespace {

/// `"text"` with what JSON wants escaped.
std::string json_quoted(std::string_view text) {
  constexpr std::string_view hex = "0123456789abcdef";
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      json += "\\u00";
      json += hex[static_cast<unsigned char>(c) >> 4U];
      json += hex[static_cast<unsigned char>(c) & 15U];
    } else {
      json += c;
    }
  }
  return json += '"';
}

/// Rounded dates, so that slices that follow each other never overlap.
std::int64_t nanoseconds(Seconds date) {
  constexpr double latest = 9e18;
  return static_cast<std::int64_t>(std::llround(std::min(date.value * 1e9, latest)));
}

/// Text that grows; numbers by to_chars.
class Text {
 public:
  Text& operator<<(std::string_view text) {
    text_ += text;
    return *this;
  }
  Text& operator<<(std::int64_t number) {
    char digits[24];
    const auto [end, error] = std::to_chars(digits, digits + sizeof digits, number);
    text_.append(digits, end);
    return *this;
  }
  Text& operator<<(std::uint32_t number) { return *this << static_cast<std::int64_t>(number); }

  /// Nanoseconds as microseconds with three decimals.
  Text& microseconds(std::int64_t ns) {
    *this << ns / 1000;
    const auto rest = static_cast<int>(ns % 1000);
    if (rest == 0) return *this;
    const char decimals[] = {'.', static_cast<char>('0' + rest / 100), static_cast<char>('0' + rest / 10 % 10),
                             static_cast<char>('0' + rest % 10)};
    text_.append(decimals, sizeof decimals);
    return *this;
  }

  void reserve(std::size_t size) { text_.reserve(size); }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

class Writer {
 public:
  Writer(const Problem& problem, const Schedule& schedule, const Timeline& timeline)
      : problem_(problem),
        graph_(problem.graph),
        platform_(problem.platform),
        schedule_(schedule),
        timeline_(timeline) {
    EXPECTS(timeline.steps.size() == schedule.steps.size());
    constexpr std::size_t characters_per_step = 480;  // a slice and about two counters
    text_.reserve(4096 + characters_per_step * schedule.steps.size());
    for (const Op& op : graph_.ops) op_names_.push_back(json_quoted(op.name));
  }

  std::string write(std::string_view made_by) {
    text_ << "{\"otherData\":{\"made_by\":" << json_quoted(made_by) << ",\"trace\":" << json_quoted(schedule_.trace)
          << ",\"platform\":" << json_quoted(schedule_.platform) << ",\"strategy\":" << json_quoted(schedule_.strategy)
          << ",\"times_rescaled\":" << (problem_.times_rescaled ? "true" : "false")
          << "},\n\"displayTimeUnit\":\"ms\",\n\"traceEvents\":[\n";
    names();
    for (std::size_t s = 0; s < schedule_.steps.size(); ++s) slice(id_at<StepId>(s));
    flows();
    counters();
    text_ << "\n]}\n";
    return text_.take();
  }

 private:
  // Perfetto keeps process 0 for itself, and a thread whose id is its process's for the main thread.
  static std::int64_t process(DeviceId device) { return 1 + std::int64_t{device.index}; }
  std::int64_t process(MemoryId memory) const {
    const Memory& m = platform_[memory];
    return m.device ? process(*m.device) : 1 + static_cast<std::int64_t>(platform_.devices.size()) + memory.index;
  }
  static std::int64_t thread(StreamId stream) { return 1'000'000 + std::int64_t{stream.index}; }
  static std::int64_t thread_of_collectives(StreamId stream) { return 2'000'000 + std::int64_t{stream.index}; }

  /// Collectives of a stream that does other things, too, have a lane of their own.
  bool is_apart(const Step& step) const {
    return is_collective(graph_, step) && !schedule_[step.stream].way.exchanges();
  }
  std::int64_t lane(const Step& step) const {
    return is_apart(step) ? thread_of_collectives(step.stream) : thread(step.stream);
  }

  void begin_event() {
    if (!first_) text_ << ",\n";
    first_ = false;
  }

  void metadata(std::string_view what, std::int64_t pid, std::int64_t tid, std::string_view key,
                std::string_view value) {
    begin_event();
    text_ << "{\"ph\":\"M\",\"name\":\"" << what << "\",\"pid\":" << pid;
    if (tid != 0) text_ << ",\"tid\":" << tid;
    text_ << ",\"args\":{\"" << key << "\":" << value << "}}";
  }

  void names() {
    for (std::size_t d = 0; d < platform_.devices.size(); ++d) {
      const Device& device = platform_.devices[d];
      const std::string model = device.model.empty() ? "" : " (" + device.model + ")";
      const std::int64_t pid = process(id_at<DeviceId>(d));
      metadata("process_name", pid, 0, "name", json_quoted(device.name + model));
      metadata("process_sort_index", pid, 0, "sort_index", std::to_string(pid));
    }
    for (std::size_t m = 0; m < platform_.memories.size(); ++m) {
      if (platform_.memories[m].device) continue;
      const std::int64_t pid = process(id_at<MemoryId>(m));
      metadata("process_name", pid, 0, "name", json_quoted(platform_.memories[m].name));
      metadata("process_sort_index", pid, 0, "sort_index", std::to_string(pid));
    }
    std::vector<bool> apart(schedule_.streams.size(), false);
    for (const Step& step : schedule_.steps) {
      if (is_apart(step)) apart[step.stream.index] = true;
    }
    for (std::size_t s = 0; s < schedule_.streams.size(); ++s) stream_name(id_at<StreamId>(s), apart[s]);
  }

  void thread_name(DeviceId device, std::int64_t tid, std::string_view name, std::uint32_t place) {
    metadata("thread_name", process(device), tid, "name", json_quoted(name));
    metadata("thread_sort_index", process(device), tid, "sort_index", std::to_string(place));
  }

  void stream_name(StreamId id, bool has_collectives_apart) {
    const Stream& stream = schedule_[id];
    std::size_t same_before = 0;
    for (std::uint32_t s = 0; s < id.index; ++s) {
      const Stream& other = schedule_.streams[s];
      if (other.device == stream.device && other.way == stream.way) ++same_before;
    }
    std::string name = stream.way.exchanges() ? "overlapped collectives" : lane_name(stream.way, platform_);
    if (same_before > 0) name += " " + std::to_string(same_before + 1);
    thread_name(stream.device, thread(id), name, 2 * id.index);
    if (!has_collectives_apart) return;
    thread_name(stream.device, thread_of_collectives(id), "collectives in " + name, 2 * id.index + 1);
  }

  std::string name_of(const Step& step) const {
    return step.op != no_op ? op_names_[step.op.index] : json_quoted(step_name(graph_, schedule_, step));
  }

  /// `"pid":1,"tid":1000000`
  void place(const Step& step) {
    text_ << "\"pid\":" << process(schedule_[step.stream].device) << ",\"tid\":" << lane(step);
  }

  void slice(StepId id) {
    const Step& step = schedule_[id];
    const Interval& ran = timeline_.steps[id.index];
    const std::int64_t start = nanoseconds(ran.start);
    begin_event();
    text_ << "{\"ph\":\"X\",\"name\":" << name_of(step) << ",\"cat\":\"" << written(step.kind) << "\",";
    place(step);
    text_ << ",\"ts\":";
    text_.microseconds(start) << ",\"dur\":";
    text_.microseconds(nanoseconds(ran.finish) - start) << ",\"args\":{\"step\":" << id.index;
    if (step.op != no_op) text_ << ",\"op\":" << step.op.index;
    text_ << ",\"micro_batch\":" << step.micro_batch;
    if (schedule_.replicas > 1) text_ << ",\"replica\":" << step.replica;
    if (step.work.is_transfer()) text_ << ",\"bytes\":" << step.work.bytes.count;
    if (step.workspace != Bytes{0}) text_ << ",\"workspace_bytes\":" << step.workspace.count;
    text_ << "}}";
  }

  bool moves(const Step& step) const { return step.work.is_transfer() || is_collective(graph_, step); }

  /// Arrows wherever what a step reads was made in another lane, and one of the two is a copy or a collective.
  void flows() {
    constexpr std::uint32_t nobody = no_op.index;
    std::vector<std::uint32_t> maker(schedule_.buffers.size(), nobody);
    for (std::uint32_t s = 0; s < schedule_.steps.size(); ++s) {
      const Step& step = schedule_.steps[s];
      std::uint32_t last = nobody;
      for (const BufferId b : schedule_.buffers_in(step.reads)) {
        const std::uint32_t from = maker[b.index];
        if (from == nobody || from == last || from == s) continue;
        last = from;
        const Step& made = schedule_.steps[from];
        if (lane(made) != lane(step) && (moves(made) || moves(step))) arrow(from, s);
      }
      for (const Slice slice : {step.allocates, step.writes}) {
        for (const BufferId b : schedule_.buffers_in(slice)) maker[b.index] = s;
      }
    }
  }

  void arrow(std::uint32_t from, std::uint32_t to) {
    ++arrows_;
    for (const bool starts : {true, false}) {
      const std::uint32_t s = starts ? from : to;
      begin_event();
      text_ << "{\"ph\":\"" << (starts ? "s\"" : "f\",\"bp\":\"e\"") << ",\"id\":" << arrows_
            << ",\"name\":\"transfer\",\"cat\":\"transfer\",";
      place(schedule_.steps[s]);
      text_ << ",\"ts\":";
      text_.microseconds(inside(timeline_.steps[s], starts)) << "}";
    }
  }

  /// A nanosecond inside of a slice, at its end or its beginning: where a slice ends the next one may begin, and a
  /// viewer could tie the arrow to that.
  static std::int64_t inside(const Interval& ran, bool at_end) {
    const std::int64_t start = nanoseconds(ran.start), finish = nanoseconds(ran.finish);
    if (finish - start < 2) return start;
    return at_end ? finish - 1 : start + 1;
  }

  /// Which kinds a memory ever holds, each as `"kind":` with the comma it needs.
  struct CounterArgument {
    std::size_t kind;
    std::string label;
  };
  std::vector<std::vector<CounterArgument>> counter_arguments() const {
    std::vector<std::array<bool, memory_kinds>> used(platform_.memories.size());
    for (const Buffer& buffer : schedule_.buffers) {
      used[buffer.memory.index][memory_kind(graph_, buffer)] = true;
    }
    const std::vector<MemoryId> workspace_of = workspace_memories(schedule_, platform_);
    for (const Step& step : schedule_.steps) {
      if (step.workspace != Bytes{0}) used[workspace_of[step.stream.index].index][workspace_kind] = true;
    }
    std::vector<std::vector<CounterArgument>> arguments(used.size());
    for (std::size_t m = 0; m < used.size(); ++m) {
      for (std::size_t k = 0; k < memory_kinds; ++k) {
        const std::string comma = arguments[m].empty() ? "" : ",";
        if (used[m][k]) arguments[m].push_back({k, comma + json_quoted(memory_kind_names[k]) + ":"});
      }
    }
    return arguments;
  }

  void counters() {
    std::vector<std::string> heads;
    for (std::size_t m = 0; m < platform_.memories.size(); ++m) {
      heads.push_back("{\"ph\":\"C\",\"name\":" + json_quoted(platform_.memories[m].name + " memory") +
                      ",\"pid\":" + std::to_string(process(id_at<MemoryId>(m))) + ",\"ts\":");
    }
    const std::vector<std::vector<CounterArgument>> arguments = counter_arguments();
    walk_memories(graph_, platform_, schedule_, timeline_, [&](MemoryId memory, Seconds date, const BytesByKind& live) {
      if (arguments[memory.index].empty()) return;
      begin_event();
      text_ << heads[memory.index];
      text_.microseconds(nanoseconds(date)) << ",\"args\":{";
      for (const CounterArgument& each : arguments[memory.index]) text_ << each.label << live[each.kind];
      text_ << "}}";
    });
  }

  const Problem& problem_;
  const Graph& graph_;
  const Platform& platform_;
  const Schedule& schedule_;
  const Timeline& timeline_;
  std::vector<std::string> op_names_;
  Text text_;
  std::int64_t arrows_ = 0;
  bool first_ = true;
};

}  // namespace

std::string perfetto_timeline(const Problem& problem, const Schedule& schedule, const Timeline& timeline,
                              std::string_view made_by) {
  return Writer(problem, schedule, timeline).write(made_by);
}

}  // namespace plimsoll
