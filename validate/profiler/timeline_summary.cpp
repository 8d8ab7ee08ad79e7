#include "validate/profiler/timeline_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "sim/io/input_error.h"
#include "sim/io/printable.h"
#include "sim/io/quantity.h"
#include "validate/profiler/iterations.h"

namespace plimsoll {
namespace {

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
