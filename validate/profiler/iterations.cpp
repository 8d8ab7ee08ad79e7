#include "validate/profiler/iterations.h"

#include <fmt/format.h>

#include <algorithm>

namespace plimsoll {

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

}  // namespace plimsoll
