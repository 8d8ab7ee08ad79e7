#include "validate/profiler/attribution.h"

#include <algorithm>
#include <limits>
#include <span>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

/// The elements with this key of a list that is sorted by it: std::ranges::equal_range, which clang 14 cannot compile.
template <class Element, class Value, class Key>
std::span<const Element> all_with(const std::vector<Element>& sorted, const Value& value, Key key) {
  return {std::ranges::lower_bound(sorted, value, {}, key), std::ranges::upper_bound(sorted, value, {}, key)};
}

/// What the open ranges of a thread say together.
struct Context {
  Activity activity = Activity::forward;
  bool in_operator = false;

  Context within(RangeRole role) const {
    switch (role) {
      case RangeRole::op:
        return {activity, true};
      case RangeRole::recorded_op:
        return {activity == Activity::backward ? Activity::recompute : activity, true};
      case RangeRole::backward:
        return {Activity::backward, true};
      case RangeRole::checkpoint_backward:
        return {Activity::recompute, true};
      case RangeRole::update:
        return {Activity::update, in_operator};
      case RangeRole::zero_grad:
        return {Activity::zero_grad, in_operator};
      case RangeRole::communication:
        return {Activity::collective, true};
      case RangeRole::label:
        return *this;
    }
    return *this;
  }
};

/// Walks along a thread whose ranges come by start, outer ones first, and knows which are open.
class OpenRanges {
 public:
  using Segment = std::function<void(Context, Nanoseconds from, Nanoseconds to)>;

  /// `outside`: what holds where no range is open.
  OpenRanges(Segment segment, Context outside) : segment_(std::move(segment)), outside_(outside) {}

  void open(const HostRange& range) {
    go_to(range.start);
    stack_.push_back({range.end, now().within(range.role)});
  }

  /// Closes what has ended; a range that outlives the one around it is still within it.
  void go_to(Nanoseconds date) {
    while (!stack_.empty() && stack_.back().end <= date) {
      pass(stack_.back().end);
      stack_.pop_back();
    }
    pass(date);
  }

  Context now() const { return stack_.empty() ? outside_ : stack_.back().context; }

 private:
  struct Open {
    Nanoseconds end;
    Context context;
  };

  void pass(Nanoseconds date) {
    if (date <= at_) return;
    if (segment_ && !stack_.empty()) segment_(now(), at_, date);
    at_ = date;
  }

  Segment segment_;
  Context outside_;
  std::vector<Open> stack_;
  Nanoseconds at_ = std::numeric_limits<Nanoseconds>::min();
};

/// Calls each(ranges of one thread).
template <class Each>
void for_each_thread(std::span<const HostRange> ranges, Each each) {
  for (std::size_t first = 0; first < ranges.size();) {
    std::size_t last = first;
    while (last < ranges.size() && ranges[last].thread == ranges[first].thread) ++last;
    each(ranges.subspan(first, last - first));
    first = last;
  }
}

/// What is done on a thread outside of all its ranges.
Context outside_of(std::span<const HostRange> thread, const Recording& recording) {
  if (recording.names_engine) return {};
  bool runs_nodes = false;
  Nanoseconds nodes_end = std::numeric_limits<Nanoseconds>::min();
  for (const HostRange& range : thread) {
    const bool is_node = range.role == RangeRole::backward || range.role == RangeRole::checkpoint_backward;
    const bool is_neutral = range.role == RangeRole::op || range.role == RangeRole::label;
    if (!is_node && !is_neutral && range.start >= nodes_end) return {};  // of the thread that trains
    if (is_node) nodes_end = std::max(nodes_end, range.end);
    runs_nodes = runs_nodes || is_node;
  }
  return {runs_nodes ? Activity::backward : Activity::forward, false};
}

/// A launch whose kernel's activity is asked for.
struct Asked {
  std::uint32_t thread;
  Nanoseconds date;
  std::size_t work;
  bool of_graph;
};

class Attribution {
 public:
  Attribution(Recording& recording, const std::function<void(const Spent&)>& spend)
      : recording_(recording), spend_(spend) {
    std::ranges::sort(recording.ranges, {}, [](const HostRange& r) { return std::tuple(r.thread, r.start, -r.end); });
    std::ranges::sort(recording.launches, {}, [](const Launch& l) { return std::tuple(l.correlation, l.date); });
  }

  void run() {
    if (recording_.work.empty()) {
      spend_operators();
    } else {
      spend_work();
    }
  }

 private:
  void spend_operators() {
    for_each_thread(recording_.ranges, [&](std::span<const HostRange> ranges) {
      const auto segment = [&](Context context, Nanoseconds from, Nanoseconds to) {
        if (context.in_operator) spend_({.launched = from, .start = from, .end = to, .activity = context.activity});
      };
      OpenRanges open(segment, outside_of(ranges, recording_));
      for (const HostRange& range : ranges) open.open(range);
      open.go_to(std::numeric_limits<Nanoseconds>::max());
    });
  }

  void spend_work() {
    std::vector<Asked> asked;
    for (std::size_t w = 0; w < recording_.work.size(); ++w) {
      const DeviceWork& work = recording_.work[w];
      const Launch* const launch = launch_of(work);
      if (!work.is_kernel) {
        const Cause cause = work.activity == Activity::unmatched ? Cause::direction_unknown : Cause::known;
        spend(work, launch == nullptr ? work.start : launch->date, work.activity, cause);
      } else if (launch == nullptr) {
        spend(work, work.start, Activity::unmatched, Cause::launch_missing);
      } else if (const std::optional<std::uint32_t> thread = thread_of(*launch)) {
        asked.push_back({*thread, launch->date, w, launch->of_graph});
      } else {
        spend(work, launch->date, Activity::unmatched, Cause::thread_unknown);
      }
    }
    answer(asked);
  }

  void answer(std::vector<Asked>& asked) {
    std::ranges::sort(asked, {}, [](const Asked& a) { return std::tuple(a.thread, a.date, a.work); });
    auto next = asked.begin();
    for_each_thread(recording_.ranges, [&](std::span<const HostRange> ranges) {
      OpenRanges open(nullptr, outside_of(ranges, recording_));
      auto range = ranges.begin();
      for (; next != asked.end() && next->thread == ranges.front().thread; ++next) {
        for (; range != ranges.end() && range->start <= next->date; ++range) open.open(*range);
        open.go_to(next->date);
        answer(*next, open.now());
      }
    });
    EXPECTS(next == asked.end());
  }

  void answer(const Asked& asked, Context context) {
    const DeviceWork& work = recording_.work[asked.work];
    const bool is_unknown = asked.of_graph && !context.in_operator && context.activity == Activity::forward;
    if (is_unknown) return spend(work, asked.date, Activity::unmatched, Cause::of_whole_graph);
    spend(work, asked.date, context.activity, Cause::known);
  }

  void spend(const DeviceWork& work, Nanoseconds launched, Activity activity, Cause cause) {
    spend_({launched, work.start, work.start + work.duration, activity, work.device, cause});
  }

  /// The last launch of that correlation before the work began, or the first where clocks are that far apart.
  const Launch* launch_of(const DeviceWork& work) const {
    const auto same = all_with(recording_.launches, work.correlation, &Launch::correlation);
    if (same.empty()) return nullptr;
    const auto later = [](Nanoseconds date, const Launch& launch) { return date < launch.date; };
    const auto after = std::upper_bound(same.begin(), same.end(), work.start, later);
    return after == same.begin() ? &*after : &*std::prev(after);
  }

  /// The launch's own thread; where nothing else was recorded there (profilers have named threads in two ways), that of
  /// the operator with its external id, if that ran at the time.
  std::optional<std::uint32_t> thread_of(const Launch& launch) {
    const auto same = all_with(recording_.ranges, launch.thread, &HostRange::thread);
    if (!same.empty()) return launch.thread;
    if (launch.external_id < 0 || launch.external_id == launch.correlation) return std::nullopt;
    for (const std::uint32_t r : ranges_by_external_id(launch.external_id)) {
      const HostRange& range = recording_.ranges[r];
      if (range.start <= launch.date && launch.date <= range.end) return range.thread;
    }
    return std::nullopt;
  }

  std::span<const std::uint32_t> ranges_by_external_id(std::int64_t id) {
    const auto id_of = [&](std::uint32_t r) { return recording_.ranges[r].external_id; };
    if (by_external_id_.empty()) {
      by_external_id_.resize(recording_.ranges.size());
      for (std::uint32_t r = 0; r < by_external_id_.size(); ++r) by_external_id_[r] = r;
      std::ranges::sort(by_external_id_, {}, [&](std::uint32_t r) { return std::pair(id_of(r), r); });
    }
    return all_with(by_external_id_, id, id_of);
  }

  Recording& recording_;
  const std::function<void(const Spent&)>& spend_;
  std::vector<std::uint32_t> by_external_id_;
};

}  // namespace

void Unmatched::add(const Spent& spent) {
  const Seconds time = seconds(spent.end - spent.start);
  if (spent.activity != Activity::collective && spent.activity != Activity::send) of += time;
  if (spent.cause != Cause::known) times[spent.cause] += time;
}

void Unmatched::add(const Unmatched& other) {
  of += other.of;
  for (const auto& [cause, time] : other.times) times[cause] += time;
}

Seconds Unmatched::sum() const {
  Seconds sum;
  for (const auto& [cause, time] : times) sum += time;
  return sum;
}

void attribute(Recording& recording, const std::function<void(const Spent&)>& spend) {
  Attribution(recording, spend).run();
}

}  // namespace plimsoll
