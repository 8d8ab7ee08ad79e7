#include "experiments/recordings/recorded_step.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <tuple>
#include <unordered_set>

#include "experiments/recordings/recorded_operands.h"
#include "sim/io/byte_source.h"
#include "traces/imports/pytorch/step_draft.h"

namespace plimsoll {
namespace {

bool is_category(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

std::optional<std::int64_t> number_behind(std::string_view text, std::string_view key) {
  const std::size_t at = text.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  std::size_t from = at + key.size();
  while (from < text.size() && text[from] == ' ') ++from;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + from, text.data() + text.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

/// What stands before the events: the device's name, and which rank of how many.
void read_head(const std::filesystem::path& path, StepRecording& made) {
  const std::string head(ByteSource(path).next());
  const std::string_view before = std::string_view(head).substr(0, head.find("\"traceEvents\""));
  if (const std::size_t devices = before.find("\"deviceProperties\""); devices != std::string_view::npos) {
    constexpr std::string_view key = "\"name\": \"";
    const std::size_t name = before.find(key, devices);
    if (name != std::string_view::npos) {
      const std::size_t first = name + key.size();
      made.device = before.substr(first, before.find('"', first) - first);
    }
  }
  made.rank = number_behind(before, "\"rank\":").value_or(0);
  made.ranks = number_behind(before, "\"world_size\":").value_or(1);
}

void add_slice(StepRecording& made, const TraceSlice& slice) {
  const std::string_view category = slice.category;
  if (const auto step = profiler_step(slice.name); step && !category.starts_with("gpu_")) {
    made.steps.push_back({*step, slice.start, slice.end()});
  } else if (is_category(category, {"cpu_op", "Operator", "user_annotation"})) {
    made.ops.push_back({slice.start, slice.end(), slice.sequence_number.value_or(-1), slice.thread,
                        made.words.number(slice.name), made.words.number(slice.shapes), made.words.number(slice.types),
                        made.words.number(slice.strides), made.words.number(slice.values)});
  } else if (category.ends_with("_runtime") || category.ends_with("_driver") || category == "Runtime") {
    if (slice.correlation) made.launches.push_back({slice.start, *slice.correlation, slice.thread});
  } else if (is_category(category, {"kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset"})) {
    made.work.push_back({slice.start, slice.duration, slice.correlation.value_or(-1), slice.stream.value_or(0),
                         made.words.number(slice.name)});
  }
}

/// Launches, and gradients that are accumulated, with the operators around them.
class LaunchReader {
 public:
  LaunchReader(const StepRecording& recording, StepWindow step) : recording_(recording), step_(step) {}

  std::vector<LaunchingOp> ops() && {
    for (const DeviceSlice& work : recording_.work) work_of_[work.correlation].push_back(&work);
    for (std::uint32_t k = 0; k < recording_.ops.size(); ++k) {
      if (is_within(recording_.ops[k].start)) on_[recording_.ops[k].thread].first.push_back(k);
    }
    for (std::uint32_t k = 0; k < recording_.launches.size(); ++k) {
      if (is_within(recording_.launches[k].date)) on_[recording_.launches[k].thread].second.push_back(k);
    }
    for (auto& [thread, both] : on_) walk(both.first, both.second);
    std::ranges::stable_sort(made_, {}, &LaunchingOp::date);
    return std::move(made_);
  }

 private:
  bool is_within(Nanoseconds date) const { return date >= step_.start && date < step_.end; }
  const std::string& name(std::uint32_t op) const { return recording_.words[recording_.ops[op].name]; }

  void walk(std::vector<std::uint32_t>& ops, std::vector<std::uint32_t>& launches) {
    std::ranges::sort(ops, {},
                      [&](std::uint32_t k) { return std::pair(recording_.ops[k].start, -recording_.ops[k].end); });
    std::ranges::sort(launches, {}, [&](std::uint32_t k) { return recording_.launches[k].date; });
    std::vector<std::uint32_t> open;
    std::size_t next = 0;
    const auto close = [&](Nanoseconds date) {
      while (!open.empty() && recording_.ops[open.back()].end < date) open.pop_back();
    };
    for (const std::uint32_t launch : launches) {
      const Nanoseconds date = recording_.launches[launch].date;
      for (; next < ops.size() && recording_.ops[ops[next]].start <= date; ++next) enter(ops[next], open, close);
      close(date);
      add(recording_.launches[launch], open);
    }
    for (; next < ops.size(); ++next) enter(ops[next], open, close);
  }

  void enter(std::uint32_t op, std::vector<std::uint32_t>& open, const auto& close) {
    close(recording_.ops[op].start + 1);
    open.push_back(op);
    if (name(op) != "torch::autograd::AccumulateGrad") return;
    made_.push_back(
        {.op = op, .has_op = true, .in_backward = true, .accumulates = true, .date = recording_.ops[op].start});
  }

  void add(const HostLaunch& launch, const std::vector<std::uint32_t>& open) {
    const auto work = work_of_.find(launch.correlation);
    if (work == work_of_.end()) return;
    LaunchingOp op{.date = launch.date};
    for (const std::uint32_t k : open) {
      const std::string& range = name(k);
      if (is_backward_range(range)) op.in_backward = true;
      if (is_update_range(range)) op.in_update = true;
      if (recording_.ops[k].sequence >= 0) op.sequence = recording_.ops[k].sequence;
      if (!range.starts_with("aten::") && !is_compiled_kernel(range)) continue;
      op.op = k;
      op.has_op = true;
    }
    for (const DeviceSlice* slice : work->second) add(op, *slice);
  }

  void add(LaunchingOp op, const DeviceSlice& slice) {
    const std::tuple key(op.has_op ? op.op : ~std::uint32_t{0}, slice.stream, op.has_op ? 0 : slice.start);
    const auto [place, is_new] = places_.try_emplace(key, made_.size());
    if (is_new) {
      op.name = slice.name;
      op.stream = slice.stream;
      made_.push_back(op);
    }
    LaunchingOp& all = made_[place->second];
    all.time += slice.duration;
    ++all.kernels;
  }

  const StepRecording& recording_;
  StepWindow step_;
  std::unordered_map<std::int64_t, std::vector<const DeviceSlice*>> work_of_;
  std::map<std::uint32_t, std::pair<std::vector<std::uint32_t>, std::vector<std::uint32_t>>> on_;  // by thread
  std::map<std::tuple<std::uint32_t, std::int64_t, Nanoseconds>, std::size_t> places_;
  std::vector<LaunchingOp> made_;
};

/// Those in which work of the device was launched.
std::vector<StepWindow> busy_steps(const StepRecording& recording) {
  std::unordered_set<std::int64_t> worked;
  for (const DeviceSlice& work : recording.work) worked.insert(work.correlation);
  std::vector<StepWindow> busy;
  std::ranges::copy_if(recording.steps, std::back_inserter(busy), [&](StepWindow step) {
    return std::ranges::any_of(recording.launches, [&](const HostLaunch& launch) {
      return launch.date >= step.start && launch.date < step.end && worked.contains(launch.correlation);
    });
  });
  return busy;
}

}  // namespace

StepRecording read_step_recording(const std::filesystem::path& path) {
  StepRecording made;
  read_head(path, made);
  TraceVisitor visitor{.slice = [&](const TraceSlice& slice) { add_slice(made, slice); },
                       .thread_name = [](const ThreadName&) {},
                       .memory =
                           [&](const MemorySample& sample) {
                             if (sample.device_type != 0) made.memory.push_back(sample);
                           },
                       .counter = [](const CounterSample&) {},
                       .wants_arguments = true};
  read_chrome_trace(path, visitor);
  return made;
}

StepWindow chosen_window(const StepRecording& recording, const std::string& file, ImportNumbers& numbers) {
  std::vector<StepWindow> steps = recording.steps;
  if (!numbers.asked("step")) {  // the last range of a profiler with a schedule may hold nothing
    std::vector<StepWindow> busy = busy_steps(recording);
    if (!busy.empty()) steps = std::move(busy);
  }
  std::ranges::sort(steps, {}, &StepWindow::start);
  std::vector<std::int64_t> found;
  for (const StepWindow& step : steps) found.push_back(step.number);
  const std::optional<std::size_t> which = chosen_step(found, file, numbers);
  if (which) return steps[*which];
  return {-1, std::numeric_limits<Nanoseconds>::min(), std::numeric_limits<Nanoseconds>::max()};
}

std::vector<LaunchingOp> launching_ops(const StepRecording& recording, StepWindow step) {
  return LaunchReader(recording, step).ops();
}

}  // namespace plimsoll
