#include "validate/profiler/timeline_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "sim/io/input_error.h"
#include "sim/io/quantity.h"

namespace plimsoll {
namespace {

/// What one step of the profiler, or the whole file, took.
struct Iteration {
  RecordedStep step;
  std::map<Activity, Seconds> activities;
  Nanoseconds device_begin = std::numeric_limits<Nanoseconds>::max(), device_end = 0;
  std::vector<BusyTime> busy{};

  void add(const Spent& spent, bool by_device) {
    activities[spent.activity] += seconds(spent.end - spent.start);
    if (!by_device) return;
    device_begin = std::min(device_begin, spent.start);
    device_end = std::max(device_end, spent.end);
    const bool is_known = spent.launched < spent.start;
    busy.push_back({spent.device, spent.start, spent.end, is_known ? std::optional(spent.launched) : std::nullopt});
  }

  Nanoseconds length() const {
    return std::max(step.end - step.start, device_end - std::min(device_begin, device_end));
  }
  Seconds whole() const { return seconds(length()); }
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

IterationTime time_over(std::span<const Iteration> counted, const std::function<Seconds(const Iteration&)>& time) {
  std::vector<double> values;
  for (const Iteration& each : counted) values.push_back(time(each).value);
  return {{median(values)}, {std::ranges::min(values)}, {std::ranges::max(values)}, {}};
}

Seconds time_of(const std::map<Activity, Seconds>& activities, Activity activity) {
  const auto found = activities.find(activity);
  return found == activities.end() ? Seconds{} : found->second;
}

/// The iterations of a profiler's trace: its steps, in the order of their starts, or the whole of it.
class Iterations {
 public:
  explicit Iterations(const Recording& recording) : by_device_(!recording.work.empty()) {
    for (const RecordedStep& step : recording.steps) each_.push_back({.step = step});
    if (each_.empty()) each_.push_back({.step = {0, recording.begin, recording.end}});
    whole_file_ = recording.steps.empty();
  }

  void add(const Spent& spent) {
    recorded_[spent.activity] += seconds(spent.end - spent.start);
    if (whole_file_) return each_.front().add(spent, by_device_);
    const auto start = [](const Iteration& i) { return i.step.start; };
    const auto after = std::ranges::upper_bound(each_, spent.launched, {}, start);
    if (after == each_.begin()) return;
    Iteration& last = *std::prev(after);
    if (spent.launched < last.step.end) last.add(spent, by_device_);
  }

  /// Steps in which nothing happened are gone (the profiler opens one more before it stops), and so are the first, and
  /// those after it that took over half as long again as the median of what follows: they allocate, choose algorithms,
  /// compile. The last two stay.
  std::vector<std::string> leave_out() {
    std::vector<std::string> left_out;
    if (whole_file_) return left_out;
    const auto name = [](const Iteration& i, const char* why) { return fmt::format("#{} ({})", i.step.number, why); };
    for (const Iteration& each : each_) {
      if (each.activities.empty()) left_out.push_back(name(each, "empty"));
    }
    std::erase_if(each_, [](const Iteration& i) { return i.activities.empty(); });
    std::size_t skipped = 0;
    while (each_.size() - skipped >= (skipped == 0 ? 2U : 3U) && (skipped == 0 || is_slow(skipped))) {
      left_out.push_back(name(each_[skipped], skipped == 0 ? "the first" : "slow"));
      ++skipped;
    }
    each_.erase(each_.begin(), each_.begin() + static_cast<std::ptrdiff_t>(skipped));
    return left_out;
  }

  std::span<const Iteration> counted() const { return each_; }
  bool whole_file() const { return whole_file_; }
  const std::map<Activity, Seconds>& recorded() const { return recorded_; }

 private:
  bool is_slow(std::size_t index) const {
    std::vector<double> following;
    for (std::size_t i = index + 1; i < each_.size(); ++i) following.push_back(each_[i].whole().value);
    return each_[index].whole().value > 1.5 * median(following);
  }

  std::vector<Iteration> each_;
  std::map<Activity, Seconds> recorded_;
  bool by_device_ = false, whole_file_ = false;
};

std::string note_on_steps(const Iterations& iterations, const std::vector<std::string>& left_out, std::size_t updates) {
  if (iterations.whole_file()) {
    return fmt::format(
        "no ProfilerStep in it: the whole recording was taken for one iteration; runs of Optimizer.step in it: {}",
        updates);
  }
  const std::span<const Iteration> counted = iterations.counted();
  const std::int64_t first = counted.front().step.number, last = counted.back().step.number;
  std::string note = counted.size() == 1
                         ? fmt::format("ProfilerStep#{}", first)
                         : fmt::format("median of {} steps, ProfilerStep#{} to #{}", counted.size(), first, last);
  for (std::size_t i = 0; i < left_out.size(); ++i) note += (i == 0 ? "; without " : ", ") + left_out[i];
  return note;
}

std::string reasons(const Unmatched& unmatched) {
  std::string text;
  const auto add = [&](Seconds time, std::string_view why) {
    if (time.value > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", format_seconds(time), why);
  };
  add(unmatched.launch_missing, "without a launch in the trace");
  add(unmatched.thread_unknown, "launched by threads without operators");
  add(unmatched.of_whole_graph, "launched as a whole CUDA graph");
  add(unmatched.direction_unknown, "copied in an unknown direction");
  return text;
}

/// Throws where too much is unmatched.
std::string note_on_matching(const Unmatched& unmatched, const std::string& file) {
  if (unmatched.share() > largest_unmatched_share) {
    throw InputError(fmt::format(
        "{}: {:.1f} % of the devices' time ({}) belongs to no operator: {}; at most {:.0f} % may; record with "
        "ProfilerActivity.CPU and ProfilerActivity.CUDA together, without replaying whole graphs",
        file, 100 * unmatched.share(), format_seconds(unmatched.of), reasons(unmatched),
        100 * largest_unmatched_share));
  }
  const std::string why = reasons(unmatched);
  return fmt::format("unmatched: {:.1f} % of the devices' time{}{}", 100 * unmatched.share(), why.empty() ? "" : ": ",
                     why);
}

/// The totals of one memory: the first device's, or the host's where no device has any.
std::vector<DatedTotal> totals_of(const std::vector<MemorySample>& samples, bool& is_host) {
  const auto place = [](const MemorySample& s) { return std::tuple(s.device_type == 0, s.device_type, s.device); };
  std::vector<DatedTotal> totals;
  const auto chosen = std::ranges::min_element(samples, {}, place);
  if (chosen == samples.end()) return totals;
  is_host = chosen->device_type == 0;
  for (const MemorySample& sample : samples) {
    if (place(sample) == place(*chosen)) totals.push_back({sample.date, sample.total});
  }
  std::ranges::stable_sort(totals, {}, &DatedTotal::date);
  return totals;
}

/// The curve of the iteration of median length, with the largest peak of all.
void measure_memory(const Recording& recording, std::span<const Iteration> counted, TimelineSummary& summary) {
  bool is_host = false;
  const std::vector<DatedTotal> totals = totals_of(recording.memory, is_host);
  if (totals.empty()) return;
  std::vector<std::size_t> by_length(counted.size());
  std::iota(by_length.begin(), by_length.end(), std::size_t{0});
  std::ranges::stable_sort(by_length, {}, [&](std::size_t i) { return counted[i].whole(); });
  const RecordedStep typical = counted[by_length[(counted.size() - 1) / 2]].step;
  summary.memory = curve_of(totals, typical.start, typical.end);
  for (const Iteration& each : counted) {
    const std::optional<MemoryCurve> curve = curve_of(totals, each.step.start, each.step.end);
    if (curve && summary.memory) summary.memory->peak = std::max(summary.memory->peak, curve->peak);
  }
  if (is_host) summary.notes.push_back("memory is the host's, counted from when the profiler started");
}

std::string share_text(Seconds part, Seconds whole) {
  return fmt::format("{} ({:.1f} %)", format_seconds(part), whole.value > 0 ? 100 * (part / whole) : 0);
}

void measure_idle(std::span<const Iteration> counted, TimelineSummary& summary) {
  std::vector<IdleTime> idle;
  for (const Iteration& each : counted) idle.push_back(idle_time(each.busy, each.length()));
  const auto over = [&](Seconds IdleTime::*part) {
    return time_over(counted,
                     [&](const Iteration& i) { return idle[static_cast<std::size_t>(&i - counted.data())].*part; });
  };
  summary.idle = over(&IdleTime::idle);
  summary.unlaunched = over(&IdleTime::unlaunched);
  const Seconds waited = summary.unlaunched->median, whole = summary.whole.median;
  const bool is_bound = waited.value >= host_bound_share * whole.value;
  summary.notes.push_back(fmt::format("the device idled {}, {} with nothing launched: {}",
                                      share_text(summary.idle->median, whole), share_text(waited, whole),
                                      is_bound ? "the host bound it" : "the host did not bind it"));
}

TimelineSummary summary_of_ours(const Recording& recording) {
  TimelineSummary summary;
  const auto once = [](Seconds time) { return IterationTime{time, time, time, time}; };
  summary.whole = once(seconds(recording.end - recording.begin));
  for (const auto& [activity, time] : recording.own_steps) summary.activities[activity] = once(time);
  if (!recording.own_busy.empty()) {
    summary.idle = once(idle_time(recording.own_busy, recording.end - recording.begin).idle);
  }
  std::vector<DatedTotal> totals;
  for (const CounterSample& sample : recording.own_memory) totals.push_back({sample.date, sample.sum});
  std::ranges::stable_sort(totals, {}, &DatedTotal::date);
  if (!totals.empty()) {
    summary.memory =
        curve_of(totals, std::min(recording.begin, totals.front().date), std::max(recording.end, totals.back().date));
  }
  return summary;
}

}  // namespace

TimelineSummary summary_of_timeline(const std::filesystem::path& file) {
  Recording recording = read_recording(file);
  if (!recording.own_steps.empty()) return summary_of_ours(recording);
  Iterations iterations(recording);
  const Unmatched unmatched = attribute(recording, [&](const Spent& spent) { iterations.add(spent); });
  TimelineSummary summary;
  summary.unmatched_share = unmatched.share();
  std::string matching;
  if (!recording.work.empty()) matching = note_on_matching(unmatched, file.string());
  const std::vector<std::string> left_out = iterations.leave_out();
  const std::span<const Iteration> counted = iterations.counted();
  if (counted.empty()) throw InputError(file.string() + ": nothing ran in any of its steps (ProfilerStep#)");
  summary.iterations = counted.size();
  summary.notes.push_back(note_on_steps(iterations, left_out, recording.updates));
  summary.notes.push_back(matching.empty() ? "no work of devices in it: times are those of operators on the host"
                                           : matching);
  summary.whole = time_over(counted, [](const Iteration& i) { return i.whole(); });
  summary.whole.recorded = seconds(recording.end - recording.begin);
  for (const auto& recorded : iterations.recorded()) {
    IterationTime& time = summary.activities[recorded.first];
    time = time_over(counted, [&](const Iteration& i) { return time_of(i.activities, recorded.first); });
    time.recorded = recorded.second;
  }
  if (!recording.work.empty()) measure_idle(counted, summary);
  measure_memory(recording, counted, summary);
  return summary;
}

}  // namespace plimsoll
