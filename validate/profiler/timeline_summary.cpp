#include "validate/profiler/timeline_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "sim/io/input_error.h"
#include "sim/io/printable.h"
#include "sim/io/quantity.h"
#include "validate/profiler/attribution.h"
#include "validate/profiler/idle_time.h"
#include "validate/profiler/recording.h"

namespace plimsoll {
namespace {

// The iterations of a profiler's trace: its steps, in the order of their starts, or the whole of it.

/// What one step, or the whole file, took.
struct Iteration {
  RecordedStep step;
  std::map<Activity, Seconds> activities{};
  Unmatched unmatched{};
  Nanoseconds device_begin = 0, device_end = 0;  ///< of its work
  bool works = false;                            ///< whether devices do
  std::optional<Nanoseconds> after{};            ///< when the work of the step before was over

  void add(const Spent&, bool by_device);
  /// From the end of the last work of the step before to that of its own, since hosts run ahead of devices. Where no
  /// step before is known, what it holds its host's thread or its devices, whichever is longer.
  Nanoseconds length() const;
  Seconds whole() const { return seconds(length()); }
};

class Iterations {
 public:
  explicit Iterations(const Recording&);

  void add(const Spent&);

  /// To be called once, after all is added. Steps in which nothing happened are gone (the profiler opens one more
  /// before it stops), and so are the first, and those after it that took over half as long again as the median of what
  /// follows: they allocate, choose algorithms, compile. The last two stay. Returns what is gone, and why.
  std::vector<std::string> leave_out();

  std::span<const Iteration> counted() const { return each_; }
  bool whole_file() const { return whole_file_; }
  const std::map<Activity, Seconds>& recorded() const { return recorded_; }

  /// Of the steps that count.
  Unmatched unmatched() const;
  IdleTime idle(const Iteration&, const BusyTimes&) const;
  /// All work of devices, also of steps that do not count.
  std::vector<BusyTime> take_busy() { return std::move(busy_); }

 private:
  Iteration* of_date(Nanoseconds);
  void place_lost();
  void find_ends_before();
  bool is_slow(std::size_t index) const;

  std::vector<Iteration> each_;
  std::vector<Spent> lost_;  // without a launch
  std::vector<BusyTime> busy_;
  std::map<Activity, Seconds> recorded_;
  bool by_device_ = false, whole_file_ = false;
};

void Iteration::add(const Spent& spent, bool by_device) {
  activities[spent.activity] += seconds(spent.end - spent.start);
  if (!by_device) return;
  unmatched.add(spent);
  device_begin = works ? std::min(device_begin, spent.start) : spent.start;
  device_end = works ? std::max(device_end, spent.end) : spent.end;
  works = true;
}

Nanoseconds Iteration::length() const {
  return after ? device_end - *after : std::max(step.end - step.start, device_end - device_begin);
}

/// The mean of the middle two where there is no middle.
double middle_of(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Iterations::Iterations(const Recording& recording) : by_device_(!recording.work.empty()) {
  for (const RecordedStep& step : recording.steps) each_.push_back({.step = step});
  if (each_.empty()) each_.push_back({.step = {0, recording.begin, recording.end}});
  whole_file_ = recording.steps.empty();
}

void Iterations::add(const Spent& spent) {
  recorded_[spent.activity] += seconds(spent.end - spent.start);
  if (by_device_) {
    const bool is_known = spent.launched < spent.start;
    busy_.push_back({spent.device, spent.start, spent.end, is_known ? std::optional(spent.launched) : std::nullopt});
  }
  if (spent.cause == Cause::launch_missing) {
    lost_.push_back(spent);
  } else if (Iteration* const of = of_date(spent.launched)) {
    of->add(spent, by_device_);
  }
}

Iteration* Iterations::of_date(Nanoseconds date) {
  if (whole_file_) return &each_.front();
  const auto after = std::ranges::upper_bound(each_, date, {}, [](const Iteration& i) { return i.step.start; });
  if (after == each_.begin()) return nullptr;
  Iteration& last = *std::prev(after);
  return date < last.step.end ? &last : nullptr;
}

/// Devices run in the order of the launches: what began before a step's other work was over belongs to it, or to a step
/// before.
void Iterations::place_lost() {
  std::vector<std::pair<Nanoseconds, std::size_t>> ends;
  for (std::size_t i = 0; i < each_.size(); ++i) {
    if (each_[i].works && (ends.empty() || each_[i].device_end > ends.back().first)) {
      ends.emplace_back(each_[i].device_end, i);
    }
  }
  for (const Spent& spent : lost_) {
    const auto end = std::ranges::upper_bound(ends, spent.start, {}, &std::pair<Nanoseconds, std::size_t>::first);
    Iteration* const of = whole_file_ || end == ends.end() ? of_date(spent.start) : &each_[end->second];
    if (of != nullptr) of->add(spent, true);
  }
  lost_.clear();
}

void Iterations::find_ends_before() {
  for (std::size_t i = 1; i < each_.size(); ++i) {
    const Iteration& before = each_[i - 1];
    Iteration& step = each_[i];
    const bool follows = before.works && step.works && step.step.number == before.step.number + 1;
    if (follows && step.device_end > before.device_end) step.after = before.device_end;
  }
}

std::vector<std::string> Iterations::leave_out() {
  place_lost();
  std::vector<std::string> left_out;
  if (whole_file_) return left_out;
  find_ends_before();
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

bool Iterations::is_slow(std::size_t index) const {
  std::vector<double> following;
  for (std::size_t i = index + 1; i < each_.size(); ++i) following.push_back(each_[i].whole().value);
  return each_[index].whole().value > 1.5 * middle_of(following);
}

Unmatched Iterations::unmatched() const {
  Unmatched sum;
  for (const Iteration& each : each_) sum.add(each.unmatched);
  return sum;
}

IdleTime Iterations::idle(const Iteration& of, const BusyTimes& busy) const {
  if (of.after) return busy.idle(*of.after, of.device_end);
  return busy.idle(of.device_begin, of.device_end, of.length() - (of.device_end - of.device_begin));
}

IterationTime time_over(std::span<const Iteration> counted, const std::function<Seconds(const Iteration&)>& time) {
  std::vector<double> values;
  for (const Iteration& each : counted) values.push_back(time(each).value);
  return {{middle_of(values)}, {std::ranges::min(values)}, {std::ranges::max(values)}, {}};
}

Seconds time_of(const std::map<Activity, Seconds>& activities, Activity activity) {
  const auto found = activities.find(activity);
  return found == activities.end() ? Seconds{} : found->second;
}

std::string note_on_steps(const Iterations& iterations, const std::vector<std::string>& left_out,
                          const Recording& recording) {
  if (iterations.whole_file()) {
    return fmt::format(
        "no ProfilerStep in it: the whole recording was taken for one iteration; runs of Optimizer.step in it: {}",
        recording.updates);
  }
  const std::span<const Iteration> counted = iterations.counted();
  const std::int64_t first = counted.front().step.number, last = counted.back().step.number;
  const bool is_cut = !recording.cut_at.empty();
  std::string note =
      is_cut ? fmt::format("no ProfilerStep in it: cut behind each {}; ", printable(recording.cut_at)) : "";
  const std::string_view named = is_cut ? "step" : "ProfilerStep";
  note += counted.size() == 1 ? fmt::format("{}#{}", named, first)
                              : fmt::format("median of {} steps, {}#{} to #{}", counted.size(), named, first, last);
  for (std::size_t i = 0; i < left_out.size(); ++i) note += (i == 0 ? "; without " : ", ") + left_out[i];
  return note;
}

std::string_view words_of(Cause cause) {
  switch (cause) {
    case Cause::launch_missing:
      return "without a launch in the trace";
    case Cause::thread_unknown:
      return "launched by threads without operators";
    case Cause::of_whole_graph:
      return "launched as a whole CUDA graph";
    case Cause::direction_unknown:
      return "copied in an unknown direction";
    case Cause::known:
      break;
  }
  return "";
}

std::string reasons(const Unmatched& unmatched) {
  std::string text;
  for (const auto& [cause, time] : unmatched.times) {
    if (time.value > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", format_seconds(time), words_of(cause));
  }
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

void measure_idle(const Iterations& iterations, const BusyTimes& busy, TimelineSummary& summary) {
  const std::span<const Iteration> counted = iterations.counted();
  std::vector<IdleTime> idle;
  for (const Iteration& each : counted) idle.push_back(iterations.idle(each, busy));
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
    summary.idle = once(BusyTimes(recording.own_busy).idle(recording.begin, recording.end).idle);
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
  attribute(recording, [&](const Spent& spent) { iterations.add(spent); });
  const std::vector<std::string> left_out = iterations.leave_out();
  const std::span<const Iteration> counted = iterations.counted();
  if (counted.empty()) throw InputError(file.string() + ": nothing ran in any of its steps (ProfilerStep#)");
  const Unmatched unmatched = iterations.unmatched();
  TimelineSummary summary;
  summary.unmatched_share = unmatched.share();
  summary.iterations = counted.size();
  summary.notes.push_back(note_on_steps(iterations, left_out, recording));
  const bool has_work = !recording.work.empty();
  if (has_work) summary.notes.push_back(note_on_matching(unmatched, file.string()));
  const bool is_unknown = !recording.unknown.empty();
  if (is_unknown) summary.notes.push_back(unknown_text(recording.unknown) + ": left out");
  if (!has_work) {
    summary.notes.push_back(
        fmt::format("{}times are those of operators on the host", is_unknown ? "" : "no work of devices in it: "));
  }
  summary.whole = time_over(counted, [](const Iteration& i) { return i.whole(); });
  summary.whole.recorded = seconds(recording.end - recording.begin);
  for (const auto& recorded : iterations.recorded()) {
    IterationTime& time = summary.activities[recorded.first];
    time = time_over(counted, [&](const Iteration& i) { return time_of(i.activities, recorded.first); });
    time.recorded = recorded.second;
  }
  if (has_work) measure_idle(iterations, BusyTimes(iterations.take_busy()), summary);
  measure_memory(recording, counted, summary);
  return summary;
}

}  // namespace plimsoll
