#include "strategies/pipelining/planners/madpipe.h"

#include <algorithm>
#include <limits>

#include "strategies/pipelining/planners/shortest.h"

namespace plimsoll {
namespace {

constexpr std::size_t most_states_a_cell = 2'000;

/// What has been placed of the layers from some one on, on some number of devices beside the special one.
struct Placed {
  std::uint32_t group = 1;
  double load = 0;  ///< of the group that is being filled
  double special_load = 0, special_bytes = 0;
  double fullest = 0;  ///< load of any group, or of the special device: the period that this needs
  bool last_is_special = false, has_special = false;
  // How it came about: the stage in front, and what is behind it.
  std::uint32_t end = 0;
  std::uint32_t before_devices = 0, before = 0;

  bool is_no_worse(const Placed& other) const {
    return (group < other.group || (group == other.group && load <= other.load)) &&
           special_load <= other.special_load && special_bytes <= other.special_bytes &&
           last_is_special <= other.last_is_special;
  }
};

class MadpipeSearch {
 public:
  explicit MadpipeSearch(const MadpipeProblem& problem)
      : p_(problem), n_(static_cast<std::uint32_t>(problem.layers.size())) {
    seconds_ = fixed_ = kept_ = std::vector<double>(n_ + 1, 0);
    for (std::uint32_t l = 0; l < n_; ++l) {
      seconds_[l + 1] = seconds_[l] + p_.layers[l].seconds;
      fixed_[l + 1] = fixed_[l] + p_.layers[l].fixed_bytes;
      kept_[l + 1] = kept_[l] + p_.layers[l].kept_bytes;
    }
  }

  std::optional<MadpipePlan> plan() {
    // One stage, or no group shared: a longer period changes nothing.
    double longest = seconds_[n_];
    for (const MadpipeProblem::Layer& layer : p_.layers) longest += link(layer.output_bytes);
    std::optional<MadpipePlan> best = within(longest);
    if (!best) return best;
    best = shortest_plan(*std::move(best), 0, [this](double period) { return within(period); });
    best->exact = exact_;
    return best;
  }

 private:
  double link(double bytes) const { return 2 * bytes / p_.bytes_per_second; }

  /// Layers [first, last) on a device that keeps so many micro-batches, with buffers at its inner borders.
  double bytes_of(std::uint32_t first, std::uint32_t last, std::uint32_t in_flight) const {
    if (p_.bytes) return p_.bytes(first, last, in_flight);
    double bytes = fixed_[last] - fixed_[first] + in_flight * (kept_[last] - kept_[first]);
    if (first > 0) bytes += 2 * p_.layers[first - 1].output_bytes;
    if (last < n_) bytes += 2 * p_.layers[last - 1].output_bytes;
    return bytes;
  }

  /// Devices beside the special one.
  std::uint32_t normal() const { return p_.devices - (p_.special ? 1 : 0); }

  bool fits(double bytes) const { return !p_.memory_bytes || bytes <= *p_.memory_bytes; }

  static void pack(Placed& placed, double load, double period) {
    if (placed.load + load > period) {
      ++placed.group;
      placed.load = 0;
    }
    placed.load += load;
    placed.fullest = std::max(placed.fullest, placed.load);
  }

  std::vector<Placed>& cell(std::uint32_t first, std::uint32_t devices) {
    return cells_[std::size_t{first} * (p_.devices + 1) + devices];
  }

  /// Where every device must have a stage, so must the special one.
  bool is_no_worse(const Placed& a, const Placed& b) const {
    return a.is_no_worse(b) && (!p_.all_devices || a.has_special >= b.has_special);
  }

  /// Keeps the states of a cell of which none is no worse than another.
  void add(std::vector<Placed>& states, const Placed& state) {
    for (const Placed& other : states) {
      if (is_no_worse(other, state)) return;
    }
    std::erase_if(states, [&](const Placed& other) { return is_no_worse(state, other); });
    if (states.size() >= most_states_a_cell) {
      exact_ = false;
      return;
    }
    states.push_back(state);
  }

  void extend(std::uint32_t first, std::uint32_t end, std::uint32_t devices, std::uint32_t which, double period) {
    const Placed behind = cell(end, devices)[which];
    const double load = seconds_[end] - seconds_[first];
    if (load > period) return;
    Placed placed = behind;
    if (end < n_) {
      const double transfer = link(p_.layers[end - 1].output_bytes);
      if (transfer > period) return;
      pack(placed, transfer, period);
    }
    pack(placed, load, period);
    placed.end = end;
    placed.before_devices = devices;
    placed.before = which;
    const double bytes = bytes_of(first, end, placed.group);
    placed.last_is_special = false;
    const bool is_fine = p_.fits ? p_.fits(first, end, devices + 1) : fits(bytes);
    if (devices < normal() && is_fine) add(cell(first, devices + 1), placed);
    if (!p_.special || behind.last_is_special) return;
    placed.special_load += load;
    placed.special_bytes += bytes;
    placed.fullest = std::max(placed.fullest, placed.special_load);
    placed.last_is_special = placed.has_special = true;
    if (placed.special_load <= period && fits(placed.special_bytes)) add(cell(first, devices), placed);
  }

  std::optional<MadpipePlan> within(double period) {
    cells_.assign(std::size_t{n_ + 1} * (p_.devices + 1), {});
    cell(n_, 0).push_back({});
    for (std::uint32_t first = n_; first-- > 0;) {
      for (std::uint32_t end = first + 1; end <= n_; ++end) {
        for (std::uint32_t d = 0; d <= p_.devices; ++d) {
          for (std::uint32_t k = 0; k < cell(end, d).size(); ++k) extend(first, end, d, k, period);
        }
      }
    }
    std::optional<MadpipePlan> best;
    for (std::uint32_t d = 0; d <= p_.devices; ++d) {
      for (std::uint32_t k = 0; k < cell(0, d).size(); ++k) {
        const Placed& all = cell(0, d)[k];
        if (p_.all_devices && (d < normal() || (p_.special && !all.has_special))) continue;
        if (!best || all.fullest < best->seconds) best = unfolded(d, k);
      }
    }
    return best;
  }

  MadpipePlan unfolded(std::uint32_t devices, std::uint32_t k) {
    MadpipePlan plan{.seconds = cell(0, devices)[k].fullest, .stages = {}};
    for (std::uint32_t first = 0; first < n_;) {
      const Placed& placed = cell(first, devices)[k];
      plan.stages.push_back({.first = first,
                             .last = placed.end,
                             .in_flight = placed.group,
                             .special = placed.last_is_special,
                             .seconds = seconds_[placed.end] - seconds_[first],
                             .bytes = bytes_of(first, placed.end, placed.group)});
      first = placed.end;
      devices = placed.before_devices;
      k = placed.before;
    }
    return plan;
  }

  const MadpipeProblem& p_;
  std::uint32_t n_;
  std::vector<double> seconds_, fixed_, kept_;  ///< of the layers before each
  std::vector<std::vector<Placed>> cells_;      ///< by first layer and devices
  bool exact_ = true;
};

}  // namespace

std::optional<MadpipePlan> plan_madpipe(const MadpipeProblem& problem) {
  return MadpipeSearch(problem).plan();
}

}  // namespace plimsoll
