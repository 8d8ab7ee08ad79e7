#include "strategies/hybrid/split_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include "strategies/api/option_rules.h"
#include "strategies/compose/levels/plan_on_devices.h"
#include "strategies/hybrid/built.h"
#include "strategies/hybrid/split_improvement.h"
#include "strategies/list.h"

namespace plimsoll {
namespace {

constexpr std::string_view too_large =
    "its tables would have more than 4 million entries: operators have too many neighbours";

/// What both ways of searching begin with.
struct Searched {
  BspModel model;
  CollectiveTimes times;
  SplitCuts cuts;
};

std::variant<Searched, std::string> begin(const Problem& problem, const SplitOptions& options, const Mesh& mesh) {
  if (problem.chain) return no_operators(*problem.chain);
  if (mesh.ranks() > problem.platform.devices.size()) {
    return fmt::format("{} ranks, but '{}' has {} devices", mesh.ranks(), problem.platform.name,
                       problem.platform.devices.size());
  }
  const bool is_simulated = options.simulated;
  std::variant<BspModel, std::string> model =
      BspModel::of(problem, is_simulated ? WorkModel::simulated : WorkModel::symbolic);
  if (std::string* why = std::get_if<std::string>(&model)) return std::move(*why);
  std::variant<CollectiveTimes, std::string> times = CollectiveTimes::on(problem.platform, mesh);
  if (std::string* why = std::get_if<std::string>(&times)) return std::move(*why);
  Searched made{std::get<BspModel>(std::move(model)), std::get<CollectiveTimes>(std::move(times)), {}};
  made.cuts.resize(made.model.operators());
  return made;
}

void take(const SplitTable& table, const SplitChoices& choices, SplitCuts& cuts) {
  for (std::size_t o = 0; o < cuts.size(); ++o) {
    const auto& chosen = table.choices(o)[choices[o]].cuts;
    cuts[o].insert(cuts[o].end(), chosen.begin(), chosen.end());
  }
}

/// A search level by level, begun.
struct Halving {
  Mesh mesh;
  Searched searched;
};

std::variant<Halving, std::string> begin_halving(const Problem& problem, std::uint32_t devices,
                                                 const SplitOptions& options) {
  if (!std::has_single_bit(devices)) {
    return fmt::format("{} devices cannot be halved again and again; {} or {} can", devices, std::bit_floor(devices),
                       std::bit_ceil(devices));
  }
  Mesh mesh;
  for (std::uint32_t ranks = 1; ranks < devices; ranks *= 2) {
    mesh.axes.push_back({"half" + std::to_string(mesh.axes.size()), 2, false, options.collectives});
  }
  std::variant<Searched, std::string> begun = begin(problem, options, mesh);
  if (std::string* why = std::get_if<std::string>(&begun)) return std::move(*why);
  return Halving{std::move(mesh), std::get<Searched>(std::move(begun))};
}

/// By level, and behind the last one with all axes in view: the table that was made last, and the cuts before it. Other
/// weights of sums often come to the same.
struct KnownTable {
  SplitCuts cuts;
  SplitTable table;
};
using KnownTables = std::vector<std::optional<KnownTable>>;

template <class Make>
SplitTable& table_of(std::optional<KnownTable>& known, const SplitCuts& cuts, const Make& make) {
  if (!known || known->cuts != cuts) known = KnownTable{cuts, make()};
  return known->table;
}

/// Whether the search found cuts. What is kept may be halved once more at each level that is left.
bool cut_in_halves(const Mesh& mesh, Searched& searched, const LevelSearch& search, double weight,
                   std::optional<Bytes> row, KnownTables& known) {
  for (std::size_t level = 0; level < mesh.axes.size(); ++level) {
    SplitTable& table = table_of(known[level], searched.cuts, [&] {
      return searched.model.table(mesh, level, level + 1, searched.cuts, searched.times);
    });
    if (row) {
      if (table.held.empty()) searched.model.add_memory(table, mesh, level, searched.cuts);
      table.limit = (std::int64_t{1} << (mesh.axes.size() - 1 - level)) * *row;
    }
    const std::optional<SplitChoices> choices = search(searched.model, table, weight);
    if (!choices) return false;
    take(table, *choices, searched.cuts);
  }
  return true;
}

/// Devices of each node, where all of these nodes have as many.
std::uint32_t devices_of_a_node(const Platform& platform, std::uint32_t devices) {
  std::map<std::uint32_t, std::uint32_t> counts;
  for (std::uint32_t d = 0; d < devices; ++d) ++counts[platform.devices[d].node];
  const std::uint32_t first = counts.begin()->second;
  const auto is_other = [&](const auto& node) { return node.second != first; };
  return std::ranges::any_of(counts, is_other) ? devices : first;
}

/// Whether what a rank keeps is in the row.
bool keeps(const Mesh& mesh, const Searched& searched, std::optional<Bytes> row) {
  if (!row) return true;
  SplitTable table;
  for (const auto& cuts : searched.cuts) {
    table.nodes.push_back(std::make_shared<const std::vector<SplitTable::Choice>>(1, SplitTable::Choice{cuts, {}, {}}));
  }
  searched.model.add_memory(table, mesh, 0, SplitCuts(searched.cuts.size()));
  table.limit = row;
  return table.keeps_limit(SplitChoices(table.nodes.size(), 0));
}

/// Splits, and whether what they keep is in the row.
struct SplitInRow {
  DecisionsOutcome made;
  bool fits = true;
};

/// Splits that keep what the options allow. What the row of the table leaves out makes it smaller and smaller, until
/// what is simulated fits.
DecisionsOutcome within_memory(const Problem& problem, const SplitOptions& options, const Mesh& mesh,
                               const std::function<SplitInRow(std::optional<Bytes>)>& search) {
  constexpr int most = 12;
  if (options.is_judged) return Decisions{.strategy = {}, .mesh = mesh};
  const std::optional<Bytes> limit = memory_limit(problem, options);
  if (!limit) return search(std::nullopt).made;
  std::optional<Decisions> least;
  Bytes least_peak, row = *limit;
  for (int k = 0; k < most; ++k) {
    SplitInRow found = search(row);
    Decisions* made = std::get_if<Decisions>(&found.made);
    if (made == nullptr) return std::move(found.made);
    const std::variant<Problem, CannotBuild> of_rank = built(problem, *made);
    if (const CannotBuild* cannot = std::get_if<CannotBuild>(&of_rank)) return cannot->why;
    const Bytes peak = plain_training(std::get<Problem>(of_rank)).peak;
    if (!least || peak < least_peak) {
      least = std::move(*made);
      least_peak = peak;
    }
    if (least_peak <= *limit || !found.fits) break;
    const double more = static_cast<double>(limit->count) / static_cast<double>(peak.count);
    row = Bytes{static_cast<std::int64_t>(0.99 * more * static_cast<double>(row.count))};
  }
  if (least_peak > *limit) {
    least->notes.push_back(
        fmt::format("no splits were found that keep {} B; these keep {} B", limit->count, least_peak.count));
  }
  return std::move(*least);
}

/// By what copies are compared: those that fit come first.
struct Merit {
  bool is_too_large = false;
  Seconds makespan;

  friend auto operator<=>(const Merit&, const Merit&) = default;
};

Merit merit_of(const Problem& of_rank, std::optional<Bytes> limit) {
  const PlainlyTrained made = plain_training(of_rank);
  return {limit && made.peak > *limit, made.makespan};
}

/// With copies of what the search cuts on the devices that each of them has.
DecisionsOutcome with_copies(const Problem& problem, const SplitOptions& options, std::uint32_t devices,
                             std::uint32_t copies, const SplitOnDevices& split) {
  if (copies == 1) return split(problem, devices);
  if (devices % copies != 0) return fmt::format("{} replicas do not share out {} devices equally", copies, devices);
  Decisions of_copy;
  if (copies < devices) {
    Problem own = problem;
    own.micro_batches = std::max(problem.micro_batches / copies, 1U);
    DecisionsOutcome made = split(own, devices / copies);
    if (std::holds_alternative<std::string>(made)) return made;
    of_copy = std::get<Decisions>(std::move(made));
  }
  of_copy.mesh.axes.insert(of_copy.mesh.axes.begin(), {"replicas", copies, true, options.collectives});
  return of_copy;
}

}  // namespace

bool is_split_devices(std::string_view text) {
  return text == "auto" || text == "all" || integer_between<1, 65'536>(text);
}

bool is_split_memory(std::string_view text) {
  return text == "none" || text == "capacity" || parse_bytes(text).fine();
}

std::uint32_t split_ranks(const SplitOptions& options, std::uint32_t devices) {
  const bool is_number = options.devices != "auto" && options.devices != "all";
  return is_number ? static_cast<std::uint32_t>(std::stoul(options.devices)) : devices;
}

std::optional<Bytes> memory_limit(const Problem& problem, const SplitOptions& options) {
  const std::string& asked = options.memory;
  if (asked == "none") return std::nullopt;
  if (asked == "capacity") return problem.platform[problem.platform.devices.front().memory].capacity;
  return parse_bytes(asked).value;
}

PlainlyTrained plain_training(const Problem& of_rank) {
  const Problem folded = for_planners(of_rank, false, Backward::whole, "store_all");
  const Pass store_all = pass_of(store_all_strategy);
  const std::optional<Bytes> unlimited;
  const PartsOutcome outcome = plan_by_simulation(folded, std::span(&store_all, 1), std::span(&unlimited, 1)).front();
  const PlannedParts& made = std::get<PlannedParts>(outcome);
  return {made.peak, made.makespan};
}

DecisionsOutcome split_in_halves(const Problem& problem, std::uint32_t devices, const SplitOptions& options,
                                 const LevelSearch& search) {
  std::variant<Halving, std::string> begun = begin_halving(problem, devices, options);
  if (std::string* why = std::get_if<std::string>(&begun)) return std::move(*why);
  Mesh& mesh = std::get<Halving>(begun).mesh;
  Searched& searched = std::get<Halving>(begun).searched;
  return within_memory(problem, options, mesh, [&](std::optional<Bytes> row) -> SplitInRow {
    searched.cuts.assign(searched.cuts.size(), {});
    KnownTables known(mesh.axes.size());
    if (!cut_in_halves(mesh, searched, search, 1, row, known)) return {std::string(too_large)};
    return {decisions_of(problem.graph, searched.model.plan(mesh, searched.cuts)), keeps(mesh, searched, row)};
  });
}

DecisionsOutcome split_in_halves_and_swept(const Problem& problem, std::uint32_t devices, const SplitOptions& options,
                                           const LevelSearch& search, std::uint32_t sweeps, bool sums_hide) {
  std::variant<Halving, std::string> begun = begin_halving(problem, devices, options);
  if (std::string* why = std::get_if<std::string>(&begun)) return std::move(*why);
  Mesh& mesh = std::get<Halving>(begun).mesh;
  Searched& searched = std::get<Halving>(begun).searched;
  const std::uint32_t inner = devices_of_a_node(problem.platform, mesh.ranks());
  const auto outer = static_cast<std::size_t>(std::bit_width(mesh.ranks() / inner) - 1);
  return within_memory(problem, options, mesh, [&](std::optional<Bytes> row) -> SplitInRow {
    std::optional<std::pair<bool, Seconds>> least;  // what does not fit comes after what does
    SplitCuts best;
    KnownTables known(mesh.axes.size() + 1);
    for (const double weight : {1.0, 0.5, 0.0}) {
      searched.cuts.assign(searched.cuts.size(), {});
      if (!cut_in_halves(mesh, searched, search, weight, row, known)) return {std::string(too_large)};
      SplitTable& table = table_of(known.back(), searched.cuts, [&] {
        return searched.model.table(mesh, searched.model.choices_around(searched.cuts, outer), searched.times);
      });
      SplitChoices choices = swept(table, searched.model.uniform_starts(table, outer, weight), sweeps, weight);
      if (row) {
        if (table.held.empty()) searched.model.add_memory(table, mesh, 0, SplitCuts(searched.cuts.size()));
        table.limit = row;
        if (!table.keeps_limit(choices)) choices = improved(table, choices, {.rounds = 300}, weight).choices;
      }
      const Seconds price = sums_hide ? table.priced_with_overlap(choices) : table.priced(choices);
      const std::pair cost(!table.keeps_limit(choices), price);
      if (least && !(cost < *least)) continue;
      least = cost;
      best.assign(searched.cuts.size(), {});
      take(table, choices, best);
    }
    return {decisions_of(problem.graph, searched.model.plan(mesh, best)), !least->first};
  });
}

DecisionsOutcome split_at_once(const Problem& problem, std::uint32_t devices, const SplitOptions& options,
                               const std::function<SplitSearch(const BspModel&, const SplitTable&)>& search) {
  if (devices > problem.platform.devices.size()) {
    return fmt::format("{} ranks, but '{}' has {} devices", devices, problem.platform.name,
                       problem.platform.devices.size());
  }
  const std::uint32_t inner = devices_of_a_node(problem.platform, devices);
  Mesh mesh;
  if (devices > inner) mesh.axes.push_back({"nodes", devices / inner, false, options.collectives});
  mesh.axes.push_back({"devices", inner, false, options.collectives});
  std::variant<Searched, std::string> begun = begin(problem, options, mesh);
  if (std::string* why = std::get_if<std::string>(&begun)) return std::move(*why);
  BspModel& model = std::get<Searched>(begun).model;
  const SplitCuts& none = std::get<Searched>(begun).cuts;
  SplitTable table;
  if (!options.is_judged) table = model.table(mesh, 0, mesh.axes.size(), none, std::get<Searched>(begun).times);
  return within_memory(problem, options, mesh, [&](std::optional<Bytes> row) -> SplitInRow {
    if (row && table.held.empty()) model.add_memory(table, mesh, 0, none);
    table.limit = row;
    SplitSearch found = search(model, table);
    if (!found.choices) return {std::string(too_large)};
    SplitCuts cuts(model.operators());
    take(table, *found.choices, cuts);
    Decisions made = decisions_of(problem.graph, model.plan(mesh, cuts));
    if (!found.note.empty()) made.notes.push_back(std::move(found.note));
    return {std::move(made), table.keeps_limit(*found.choices)};
  });
}

DecisionsOutcome in_replicas(const Problem& problem, const SplitOptions& options,
                             std::span<const SplitOnDevices> searches, const Deadline& deadline) {
  if (problem.mesh) return std::string(cuts_first);
  const std::uint32_t devices = split_ranks(options, devices_left(problem));
  const bool compares = devices == problem.platform.devices.size() && problem.micro_batches > 1;
  const bool chooses = !options.replicas;
  const std::uint32_t asked = options.replicas.value_or(1);
  DecisionsOutcome best = with_copies(problem, options, devices, asked, searches.front());
  if (!compares || options.is_judged || !std::holds_alternative<Decisions>(best)) return best;
  std::optional<Bytes> limit = memory_limit(problem, options);
  if (!limit) limit = problem.platform[problem.platform.devices.front().memory].capacity;
  std::optional<Merit> least;
  std::optional<std::string> why_not;
  const auto take_if_better = [&](DecisionsOutcome other) {
    const Decisions* made = std::get_if<Decisions>(&other);
    if (made == nullptr) return;
    const std::variant<Problem, CannotBuild> of_rank = built(problem, *made);
    if (const CannotBuild* cannot = std::get_if<CannotBuild>(&of_rank)) {
      why_not = cannot->why;
      return;
    }
    const Merit merit = merit_of(std::get<Problem>(of_rank), limit);
    if (least && !(merit < *least)) return;
    least = merit;
    best = std::move(other);
  };
  take_if_better(best);
  if (!least) return *why_not;
  const std::uint32_t most = chooses ? devices : asked;
  for (std::uint32_t copies = asked; copies <= most && !deadline.passed(); copies *= 2) {
    if (devices % copies != 0 || problem.micro_batches % copies != 0) break;
    for (const SplitOnDevices& search : searches) {
      const bool is_first = &search == searches.data();
      const bool is_alone = copies == devices && !is_first;  // nothing is left to cut
      const bool is_known = copies == asked && is_first;
      if (!is_alone && !is_known) take_if_better(with_copies(problem, options, devices, copies, search));
    }
  }
  return best;
}

}  // namespace plimsoll
