#include "strategies/offloading/snapshot/segment_plans.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "strategies/models/fullest_moment.h"
#include "strategies/models/recompute_order.h"

namespace plimsoll {
namespace {

constexpr std::size_t most_units = 64;
constexpr std::size_t lengths[] = {1, 2, 3, 4, 6, 8, 12, 16};  // of segments, in units
/// Values that are read this share of the forward later than they are made do not lie between segments.
constexpr std::uint32_t long_share = 8;
/// Of all profiles, in ops: larger models have fewer and longer units.
constexpr std::size_t most_work = 8'000'000;
/// Of the dynamic program: steps of the bytes saved.
constexpr std::size_t saved_steps = 1000;

}  // namespace

SegmentPlans::SegmentPlans(const OpModel& model, std::uint32_t instant, std::span<const SnapshotBend> bends)
    : model_(model), instant_(instant) {
  for (const ModelOp& op : model_.ops) {
    again_seconds_.resize(std::max<std::size_t>(again_seconds_.size(), op.id.index + 1), 0);
    again_seconds_[op.id.index] = seconds_again(op);
  }
  find_units();
  find_backward_units();
  const std::size_t units = begins_.size() - 1;
  segments_.resize(units);
  const std::optional<Profile> plain = profile_of({});
  if (!plain) return;
  plain_ = *plain;
  std::size_t left = most_work / model_.ops.size();
  for (std::size_t first = 0; first < units; ++first) measure(first, first + 1, {}, false);
  for (const std::size_t length : lengths) {
    for (std::size_t first = 0; first + length <= units; ++first) {
      std::vector<std::vector<std::uint32_t>> tried{{}};
      for (std::size_t k = 0; k < 2 * bends.size(); ++k) {
        std::vector<std::uint32_t> again = run_again(bends[k / 2].again, first, first + length, k % 2 == 1);
        if (std::ranges::find(tried, again) != tried.end()) continue;
        if (left == 0) return;
        --left;
        measure(first, first + length, again, k % 2 == 1);
        tried.push_back(std::move(again));
      }
    }
  }
}

/// The last op up to the instant that reads it.
std::optional<std::uint32_t> SegmentPlans::last_read(std::uint32_t value) const {
  const std::vector<std::uint32_t>& readers = model_.values[value].readers;
  const auto after = std::ranges::upper_bound(readers, instant_);
  if (after == readers.begin()) return std::nullopt;
  return *std::prev(after);
}

bool SegmentPlans::is_short(std::uint32_t value) const {
  const std::uint32_t maker = *model_.values[value].maker;
  return last_read(value).value_or(maker) - maker <= std::max(instant_ / long_share, 1U);
}

/// Where the fewest bytes lie between what comes before and after, not too close to each other.
void SegmentPlans::find_units() {
  std::vector<std::int64_t> between(instant_ + 2, 0);  // by op: right before it
  for (std::uint32_t v = 0; v < model_.values.size(); ++v) {
    const ModelValue& value = model_.values[v];
    if (!value.maker || *value.maker > instant_ || !is_short(v)) continue;
    const std::int64_t bytes = model_.storages[value.storage].count;
    between[*value.maker + 1] += bytes;
    between[last_read(v).value_or(*value.maker) + 1] -= bytes;
  }
  std::partial_sum(between.begin(), between.end(), between.begin());
  std::vector<std::uint32_t> order(instant_);
  std::iota(order.begin(), order.end(), 1U);
  std::ranges::stable_sort(order, {}, [&](std::uint32_t o) { return between[o]; });
  const std::size_t apart = std::max<std::size_t>(instant_ / most_units, 1);
  std::vector<bool> is_near(instant_ + 1, false);
  begins_ = {0};
  for (const std::uint32_t o : order) {
    if (is_near[o] || o < apart) continue;
    begins_.push_back(o);
    for (std::size_t k = o - std::min<std::size_t>(o, apart - 1); k < std::min<std::size_t>(o + apart, instant_ + 1);
         ++k)
      is_near[k] = true;
  }
  begins_.push_back(instant_ + 1);
  std::ranges::sort(begins_);
}

/// A backward op is of the latest unit of which it reads values, but of none later than the op before it. What is read
/// much later than it is made says nothing.
void SegmentPlans::find_backward_units() {
  unit_of_.assign(model_.ops.size(), begins_.size() - 2);
  for (std::size_t u = 0; u + 1 < begins_.size(); ++u) {
    for (std::uint32_t o = begins_[u]; o < begins_[u + 1]; ++o) unit_of_[o] = u;
  }
  for (std::uint32_t o = instant_ + 1; o < model_.ops.size(); ++o) {
    std::optional<std::size_t> latest;
    for (const std::uint32_t v : model_.ops[o].reads) {
      const std::optional<std::uint32_t> maker = model_.values[v].maker;
      if (maker && *maker <= instant_ && is_short(v)) latest = std::max(latest.value_or(0), unit_of_[*maker]);
    }
    unit_of_[o] = std::min(unit_of_[o - 1], latest.value_or(unit_of_[o - 1]));
  }
}

/// Of those ops the ones of the units. Values that lie behind the last stay; with `from_kept` they run again, too, but
/// for those that are made from values that lie before the first: no segment asks for more than the one before it.
std::vector<std::uint32_t> SegmentPlans::run_again(const Again& all, std::size_t first, std::size_t end,
                                                   bool from_kept) const {
  const std::uint32_t from = begins_[first], to = begins_[end];
  std::vector<std::uint32_t> again;
  std::vector<bool> needs_before(to - from, false);  // by op: it runs again from values of units before
  for (std::uint32_t o = from; o < to; ++o) {
    if (!all[o]) continue;
    const auto lies_behind = [&](std::uint32_t v) { return is_short(v) && last_read(v).value_or(o) >= to; };
    const bool needs = !from_kept || std::ranges::any_of(model_.ops[o].reads, [&](std::uint32_t v) {
      const std::optional<std::uint32_t> maker = model_.values[v].maker;
      return maker && is_short(v) && (*maker < from || needs_before[*maker - from]);
    });
    if (needs && std::ranges::any_of(model_.ops[o].ways.front().makes, lies_behind)) continue;
    needs_before[o - from] = needs;
    again.push_back(o);
  }
  return again;
}

std::optional<SegmentPlans::Profile> SegmentPlans::profile_of(std::span<const std::uint32_t> again) const {
  Evicted evicted(model_.values.size(), false);
  for (const std::uint32_t o : again) {
    for (const std::uint32_t v : model_.ops[o].ways.front().makes) evicted[v] = true;
  }
  const std::optional<OpSequence> sequence = recompute_order_at(model_, evicted, instant_);
  if (!sequence) return std::nullopt;
  const std::vector<MemoryOfRun> memory = memory_of_runs(model_, *sequence);
  Profile profile{.bytes = std::vector<std::int64_t>(model_.ops.size(), 0), .seconds = 0};
  std::uint32_t next = 0;  // that has not run
  for (std::size_t r = 0; r < sequence->size(); ++r) {
    profile.bytes[next] = std::max(profile.bytes[next], memory[r].during.count);
    profile.seconds += model_.ops[next].id == (*sequence)[r].op ? 0 : again_seconds_[(*sequence)[r].op.index];
    next += model_.ops[next].id == (*sequence)[r].op ? 1 : 0;
  }
  return profile;
}

void SegmentPlans::measure(std::size_t first, std::size_t end, std::vector<std::uint32_t> again, bool from_kept) {
  const std::optional<Profile> profile = again.empty() ? plain_ : profile_of(again);
  if (!profile) return;
  Segment segment{
      .first = first, .end = end, .again = std::move(again), .from_kept = from_kept, .seconds = profile->seconds};
  segment.saved = plain_.bytes[instant_] - profile->bytes[instant_];
  for (std::uint32_t o = 0; o < model_.ops.size(); ++o) {
    if (unit_of_[o] >= first && unit_of_[o] < end) segment.needs = std::max(segment.needs, profile->bytes[o]);
    if (o > instant_ && unit_of_[o] >= end)
      segment.saved = std::min(segment.saved, plain_.bytes[o] - profile->bytes[o]);
  }
  segments_[first].push_back(std::move(segment));
}

std::optional<Again> SegmentPlans::within(Bytes budget, bool from_kept) const {
  /// The fastest way to save so much by the begin of a unit.
  struct State {
    double seconds = std::numeric_limits<double>::infinity();
    std::int64_t saved = 0;
    const Segment* last = nullptr;
    std::size_t before = 0;  // step
  };
  const std::size_t units = begins_.size() - 1;
  std::int64_t most = 1;
  for (const std::vector<Segment>& from : segments_) {
    for (const Segment& segment : from) most = std::max(most, segment.needs - budget.count);
  }
  std::vector<std::vector<State>> states(units + 1, std::vector<State>(saved_steps + 1));
  states[0][0].seconds = 0;
  for (std::size_t unit = 0; unit < units; ++unit) {
    for (std::size_t step = 0; step <= saved_steps; ++step) {
      const State& now = states[unit][step];
      if (now.seconds == std::numeric_limits<double>::infinity()) continue;
      for (const Segment& segment : segments_[unit]) {
        if ((segment.from_kept && !from_kept) || segment.needs - now.saved > budget.count) continue;
        const std::int64_t saved = std::clamp<std::int64_t>(now.saved + segment.saved, 0, most);
        const auto at = static_cast<std::size_t>(static_cast<double>(saved) / static_cast<double>(most) * saved_steps);
        State& then = states[segment.end][at];
        const double seconds = now.seconds + segment.seconds;
        if (seconds < then.seconds || (seconds == then.seconds && saved > then.saved)) {
          then = {.seconds = seconds, .saved = saved, .last = &segment, .before = step};
        }
      }
    }
  }
  const auto best = std::ranges::min_element(states[units], {}, &State::seconds);
  if (best->seconds == std::numeric_limits<double>::infinity()) return std::nullopt;
  Again again(model_.ops.size(), false);
  for (const State* at = &*best; at->last != nullptr; at = &states[at->last->first][at->before]) {
    for (const std::uint32_t o : at->last->again) again[o] = true;
  }
  return again;
}

}  // namespace plimsoll
