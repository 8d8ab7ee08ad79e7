// The strategy `auto`: asks the planners that are quick enough for the graph, simulates the best of what they give on
// the platform with its shared links, moves ops where that makes the simulated iteration shorter, and takes the fastest
// that fits.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "strategies/api/front.h"
#include "strategies/placement/auto/placement_front.h"
#include "strategies/placement/clusters/clusters.h"
#include "strategies/placement/clusters/partitioners.h"
#include "strategies/placement/lists/list_schedulers.h"
#include "strategies/placement/pardnn/pardnn.h"
#include "strategies/placement/placed_parts.h"

namespace plimsoll {
namespace {

struct AutoOptions : PlacingOptions {
  double effort = 1;
  std::uint64_t seed = 1;
};

struct AutoMember {
  std::string_view name;
  std::uint32_t least_ops;  ///< of a graph that it is asked about
  double most_ops;          ///< with effort=1
  PlacementOutcome (*place)(const OpDag&, const Machine&);
};

constexpr double any_size = 1e18;

constexpr AutoMember members[] = {
    {"one_device", 0, any_size, place_on_one},
    {"contiguous", 0, any_size, place_contiguous},
    {"heft", 0, any_size, placed_from<heft_schedule>},
    {"etf", 0, any_size, placed_from<etf_schedule>},
    {"pardnn", 0, any_size, [](const OpDag& d, const Machine& m) { return place_pardnn(d, m, {}); }},
    {"cpop", 0, 50'000, placed_from<cpop_schedule>},
    {"critical_path", 0, 50'000, place_critical_path},
    {"dsc", 0, 50'000, place_dominant_sequence},
    {"linear_clustering", 0, 2'000, place_linear_clusters},
    {"acyclic", 0, 50'000, [](const OpDag& d, const Machine& m) { return place_acyclic(d, m, 1); }},
    {"metis", 2'000, any_size, [](const OpDag& d, const Machine& m) { return place_by_metis(d, m, 1); }},
};

/// A placement that has been simulated.
struct Simulated {
  std::shared_ptr<const Partition> partition;
  Seconds makespan;
  Bytes fullest;  ///< of the devices
};

class AutoPlacement {
 public:
  AutoPlacement(const Problem& problem, const AutoOptions& options)
      : problem_(problem),
        effort_(options.effort),
        seed_(options.seed),
        graph_(asked_graph(problem, options, "auto")),
        whole_(machine_of(problem, graph_, std::nullopt, 1)) {}

  std::vector<PartitionOutcome> within(std::span<const std::optional<Bytes>> budgets) {
    std::variant<Units, Infeasible> units = units_of(graph_.dag, whole_);
    if (const Infeasible* none = std::get_if<Infeasible>(&units)) {
      return std::vector<PartitionOutcome>(budgets.size(), *none);
    }
    units_ = std::get<Units>(std::move(units));
    search(whole_, whole_);
    is_noted_ = true;
    search_least();
    if (is_small()) {
      search_levels();
    } else {
      for (const std::optional<Bytes>& budget : budgets) {
        const Simulated* made = budget ? fitting_.at(*budget) : nullptr;
        if (made != nullptr && made->fullest < most_) search(limited(*budget), limited(*budget));
      }
    }
    for (Simulated& made : std::exchange(fitting_, {}).plans()) {
      Partition partition = *made.partition;
      partition.note = note_;
      fitting_.add(made.fullest, made.makespan,
                   {std::make_shared<const Partition>(std::move(partition)), made.makespan, made.fullest});
    }
    std::vector<PartitionOutcome> outcomes;
    for (const std::optional<Bytes>& budget : budgets) outcomes.push_back(outcome(budget));
    return outcomes;
  }

 private:
  /// Where there is time to look for placements that the asked budgets do not ask for.
  bool is_small() const { return graph_.dag.size <= 2'000 * effort_; }

  /// Where there is time for all devices only, not for half of them and so on.
  bool is_large() const { return graph_.dag.size > 50'000 * effort_; }

  Machine limited(Bytes budget) const {
    Machine machine = whole_;
    const std::size_t devices = graph_.classes.of.size();
    for (std::size_t p = 0; p < devices; ++p) {
      if (machine.memory[p] > 0) machine.memory[p] = std::clamp<std::int64_t>(budget.count, 1, machine.memory[p]);
    }
    return machine;
  }

  /// Without the devices behind the first `most`.
  Machine first_devices(Machine machine, std::uint32_t most) const {
    const auto begin = machine.memory.begin();
    std::fill(begin + most, begin + static_cast<std::ptrdiff_t>(graph_.classes.of.size()), 0);
    return machine;
  }

  /// What the members give when they are asked about the first devices of a machine.
  void ask(const Machine& machine, const Machine& asked, std::uint32_t most, std::vector<ScoredPlacement>& found) {
    const bool are_all = most == graph_.classes.of.size();
    const std::size_t before = found.size();
    for (const AutoMember& member : members) {
      const bool is_alone = member.place == place_on_one;
      if (graph_.dag.size < member.least_ops || graph_.dag.size > member.most_ops * effort_) continue;
      if (!are_all && (is_alone || member.most_ops < any_size)) continue;  // the others take long, once is enough
      PlacementOutcome made = member.place(graph_.dag, first_devices(asked, most));
      if (std::holds_alternative<Infeasible>(made)) made = member.place(graph_.dag, first_devices(whole_, most));
      Placement* placement = std::get_if<Placement>(&made);
      if (placement == nullptr) continue;
      if (is_alone || (are_all && !is_noted_)) simulate({*placement, QueueOrder::fifo, {}});  // as it is on its own
      found.push_back(best_ordered(graph_.dag, machine, std::move(*placement)));
      if (are_all) note(member.name, found.back());
    }
    if (are_all || found.size() == before) return;
    const auto first = found.begin() + static_cast<std::ptrdiff_t>(before);
    note(fmt::format("the best on {}", most),
         *std::ranges::min_element(first, found.end(), {}, &ScoredPlacement::score));
  }

  /// What the members give when they are asked about all devices of one machine, a half of them, a quarter, and so on;
  /// the best of it on another machine improved and simulated.
  void search(const Machine& machine, const Machine& asked) {
    std::vector<ScoredPlacement> found;
    const auto devices = static_cast<std::uint32_t>(graph_.classes.of.size());
    const std::uint32_t fewest = is_large() ? devices : 2;
    ask(machine, asked, devices, found);
    for (std::uint32_t most = devices / 2; most >= fewest; most /= 2) ask(machine, asked, most, found);
    std::ranges::stable_sort(found, {}, &ScoredPlacement::score);
    if (found.empty()) return;
    const auto by_emulation = [&](std::span<const std::uint32_t> on, const Emulation& times) {
      return score_of(graph_.dag, machine, on, times);
    };
    const std::size_t starts = is_small() ? std::min<std::size_t>(3, found.size()) : 1;
    for (std::size_t k = 0; k < starts; ++k) {
      found.push_back(
          improved(graph_.dag, machine, units_, found[k], by_emulation, evaluations(4e5) / starts, seed_ + k));
    }
    std::ranges::stable_sort(found, {}, &ScoredPlacement::score);
    constexpr double steps_simulated = 6e5;
    const std::size_t simulations =
        is_small() ? 6 : 2 + static_cast<std::size_t>(effort_ * steps_simulated / graph_.dag.size);
    for (std::size_t k = 0; k < std::min(simulations, found.size()); ++k) {
      simulate(found[k]);
      const bool is_fifo = found[k].placement.order.empty() && found[k].order == QueueOrder::fifo;
      if (!is_fifo) simulate({{found[k].placement.on, {}}, QueueOrder::fifo, {}});  // contention may reverse
    }
    refine(machine, found.front());
  }

  /// By the event engine.
  void refine(const Machine& machine, ScoredPlacement from) {
    const auto by_engine = [&](std::span<const std::uint32_t> on, const Emulation& times) {
      return judged(machine, simulate(on, times));
    };
    from.score = by_engine(from.placement.on, emulate(graph_.dag, machine, from));
    improved(graph_.dag, machine, units_, std::move(from), by_engine, evaluations(4e4), seed_);
  }

  static Nanoseconds nanoseconds_of(const Simulated& made) {
    constexpr double per_second = 1e9;
    return static_cast<Nanoseconds>(per_second * made.makespan.value);
  }

  PlacementScore judged(const Machine& machine, const Simulated& made) const {
    PlacementScore score{0, nanoseconds_of(made)};
    const std::int64_t limit = std::ranges::max(std::span(machine.memory).first(graph_.classes.of.size()));
    if (limit != unlimited_bytes) score.too_full = std::max<std::int64_t>(0, made.fullest.count - limit);
    return score;
  }

  std::size_t evaluations(double work) const {
    constexpr double most = 3'000;
    return static_cast<std::size_t>(std::min(most, effort_ * work / (1 + graph_.dag.size)));
  }

  /// Placements that need little memory, however long they take; and all of them, where those are few.
  void search_least() {
    constexpr std::size_t most_placements = 7'000, most_near = 50'000;
    const auto most_steps = static_cast<std::size_t>(effort_ * 1e6);
    PlacementFront front = placement_front(graph_.dag, whole_, units_, most_placements, most_steps);
    for (FrontPlacement& each : front.placements) simulate({std::move(each.placement), {}, {}});
    const auto is_beaten = [&](std::int64_t bytes, Nanoseconds makespan) {
      const Simulated* made = fitting_.at(Bytes{bytes});
      return made != nullptr && nanoseconds_of(*made) <= makespan;
    };
    // Where links are shared, others may be faster than those that are best without that.
    std::size_t simulations = std::min<std::size_t>(300, evaluations(4e4));
    for (NearPlacement& each :
         near_placements(graph_.dag, whole_, units_, most_placements, most_steps, most_near, is_beaten)) {
      if (simulations-- == 0) break;
      simulate({std::move(each.placement), {}, {}});
    }
    search(limited(Bytes{1}), whole_);
    most_ = all_.at(std::nullopt)->fullest;
  }

  void search_levels() {
    constexpr std::uint32_t levels = 4;
    if (fitting_.empty() || fitting_.least() >= most_) return;
    const std::vector<Bytes> budgets = budgets_between(fitting_.least(), most_, levels);
    for (const Bytes budget : std::span(budgets).subspan(1)) {
      const Machine machine = limited(budget);
      search(machine, machine);
    }
  }

  Simulated simulate(const ScoredPlacement& scored) {
    return simulate(scored.placement.on, emulate(graph_.dag, whole_, scored));
  }

  Simulated simulate(std::span<const std::uint32_t> on, const Emulation& times) {
    Partition partition = placed_parts(problem_, graph_, on, times);
    const PlainRun run = plain_run(problem_, partition);
    bool is_beyond = false;  // a device holds more than its memory
    for (std::size_t d = 0; d < run.peaks.size(); ++d) {
      const std::optional<Bytes> capacity = problem_.platform[problem_.platform.devices[d].memory].capacity;
      is_beyond |= capacity && run.peaks[d] > *capacity;
    }
    Simulated made{std::make_shared<const Partition>(std::move(partition)), run.makespan, std::ranges::max(run.peaks)};
    all_.add(made.fullest, made.makespan, made);
    if (!is_beyond) fitting_.add(made.fullest, made.makespan, made);
    return made;
  }

  void note(std::string_view name, const ScoredPlacement& scored) {
    if (is_noted_) return;
    constexpr double per_second = 1e9;
    note_ += fmt::format("{}{} {:.4g} s", note_.empty() ? "without contention: " : ", ", name,
                         static_cast<double>(scored.score.makespan) / per_second);
  }

  PartitionOutcome outcome(const std::optional<Bytes>& budget) const {
    if (fitting_.empty()) return Infeasible{"no placement that was tried fits the devices", std::nullopt};
    if (const Simulated* made = fitting_.at(budget)) return made->partition;
    return Infeasible{"no placement that was tried needs less", fitting_.least(), false};
  }

  const Problem& problem_;
  double effort_;
  std::uint64_t seed_;
  GraphDag graph_;
  Machine whole_;  // limited by the devices' memory alone
  Units units_;
  FrontOf<Simulated> all_, fitting_;  // the second: those that no device is too small for
  Bytes most_;                        // what the fastest placement needs
  bool is_noted_ = false;
  std::string note_;
};

constexpr auto auto_options = options_of<AutoOptions>(place_on_option, homes_option,
                                                      option_of<&AutoOptions::effort>({
                                                          .name = "effort",
                                                          .least = 0.01,
                                                          .most = 100,
                                                          .help = "work of the search, as a multiple of the default",
                                                      }),
                                                      option_of<&AutoOptions::seed>({
                                                          .name = "seed",
                                                          .least = 0,
                                                          .most = 1'000'000'000,
                                                          .values = "a whole number from 0",
                                                          .help = "seed of the order in which moves are tried",
                                                      }));

std::vector<PartitionOutcome> auto_partition(const Problem& problem, const AutoOptions& options,
                                             std::span<const std::optional<Bytes>> budgets) {
  AutoPlacement search(problem, options);  // refuses
  return budgets.empty() ? std::vector<PartitionOutcome>{} : search.within(budgets);
}

}  // namespace

extern constinit const StrategyInfo auto_strategy{
    .name = "auto",
    .family = Family::placement,
    .summary = "the fastest placement of all that quick planners and a search by simulation find",
    .source = "own",
    .options = auto_options,
    .kind = PartitionStrategy{.partition = by_options<auto_partition>},
};

}  // namespace plimsoll
