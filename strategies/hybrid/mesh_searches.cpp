// Cuts along two axes of a mesh, the cheapest of a table: `optcnn` by elimination, `alpa` by an integer
// program.

#include "strategies/hybrid/mesh_searches.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "strategies/api/pass.h"
#include "strategies/hybrid/elimination.h"
#include "strategies/hybrid/split_improvement.h"
#include "strategies/hybrid/split_search.h"
#include "strategies/list.h"

namespace plimsoll {
namespace {

constexpr auto optcnn_options = options_of<SplitOptions>(split_devices_option, work_model_option, split_memory_option,
                                                         split_replicas_option, collectives_option);

DecisionsOutcome optcnn_splits(const Problem& problem, const SplitOptions& options, const Deadline& deadline) {
  const auto search = [](const BspModel&, const SplitTable& table) {
    std::optional<EliminatedSplit> made = eliminated(table);
    if (!made) return SplitSearch{};
    if (made->is_proven && made->fits) return SplitSearch{std::move(made->choices), {}};
    if (made->is_proven) return SplitSearch{least_kept(table, made->choices), {}};
    ImprovedSplit other = improved(table, made->choices, {.rounds = 300});
    const bool is_better = other.fits && (!made->fits || table.priced(other.choices) < table.priced(made->choices));
    return SplitSearch{is_better || !made->fits ? std::move(other.choices) : std::move(made->choices),
                       "optcnn: within this memory the splits are not proven to be the cheapest"};
  };
  const SplitOnDevices splits = [&](const Problem& own, std::uint32_t devices) {
    return split_at_once(own, devices, options, search);
  };
  return in_replicas(problem, options, std::span(&splits, 1), deadline);
}

class SplitProgram {
 public:
  SplitProgram(const SplitTable& table, const SplitChoices& start) : table_(table), start_(start) {
    // Costs around one: the cost of the start.
    const double whole = table.priced(start).value;
    scale_ = whole > 0 ? 1 / whole : 1;
    for (std::size_t n = 0; n < table.nodes.size(); ++n) add_node(n);
    for (const SplitTable::Edge& edge : table.edges) add_edge(edge);
    if (table.limit) add_memory();
  }

  ProgrammedSplit solve(const MilpLimits& limits) {
    const MilpResult found = solve_milp(program_, values_, limits);
    ProgrammedSplit made{start_, {}, why_stopped(found.end, limits), found.end == MilpResult::End::out_of_time};
    made.bound = Seconds{std::max(0.0, found.bound / scale_)};
    if (found.values.empty()) return made;
    SplitChoices choices(table_.nodes.size(), 0);
    for (std::size_t n = 0; n < choices.size(); ++n) {
      for (std::uint32_t c = 0; c < table_.choices(n).size(); ++c) {
        if (found.values[first_[n] + c] > 0.5) choices[n] = c;
      }
    }
    if (table_.keeps_limit(choices) && table_.priced(choices) < table_.priced(start_))
      made.choices = std::move(choices);
    return made;
  }

 private:
  std::size_t variable(double seconds, bool whole, bool is_taken) {
    values_.push_back(is_taken ? 1 : 0);
    return program_.variable({.cost = scale_ * seconds, .whole = whole});
  }

  void add_node(std::size_t n) {
    LinearProgram::Terms one;
    for (std::uint32_t c = 0; c < table_.choices(n).size(); ++c) {
      const std::size_t choice =
          variable((table_.choices(n)[c].seconds + table_.choices(n)[c].sums).value, true, start_[n] == c);
      if (c == 0) first_.push_back(choice);
      one.emplace_back(choice, 1);
    }
    program_.row(std::move(one), 1, 1);
  }

  /// Pairs of choices sum to each end's choice. Where all pairs cost the same, or one end's choice says it, there are
  /// fewer to decide; the solver finds that itself.
  void add_edge(const SplitTable::Edge& edge) {
    const std::size_t rows = table_.choices(edge.from).size(), columns = table_.choices(edge.to).size();
    std::vector<LinearProgram::Terms> by_row(rows), by_column(columns);
    for (std::size_t a = 0; a < rows; ++a) {
      for (std::size_t b = 0; b < columns; ++b) {
        const bool is_taken = start_[edge.from] == a && start_[edge.to] == b;
        const std::size_t pair = variable((*edge.seconds)[a * columns + b].value, false, is_taken);
        by_row[a].emplace_back(pair, 1);
        by_column[b].emplace_back(pair, 1);
      }
    }
    for (std::size_t a = 0; a < rows; ++a) {
      by_row[a].emplace_back(first_[edge.from] + a, -1);
      program_.row(std::move(by_row[a]), 0, 0);
    }
    for (std::size_t b = 0; b < columns; ++b) {
      by_column[b].emplace_back(first_[edge.to] + b, -1);
      program_.row(std::move(by_column[b]), 0, 0);
    }
  }

  /// A row a moment, in shares of the limit.
  void add_memory() {
    const double whole = std::max(1.0, static_cast<double>(table_.limit->count));
    std::vector<LinearProgram::Terms> held(table_.moments);
    for (std::size_t n = 0; n < table_.nodes.size(); ++n) {
      for (std::uint32_t c = 0; c < table_.choices(n).size(); ++c) {
        std::vector<Bytes> bytes(table_.moments);
        for (const SplitTable::Held& each : table_.held[n]) {
          for (std::uint32_t m = each.from; m < each.to; ++m) bytes[m] += (*each.bytes)[c];
        }
        for (std::uint32_t m = 0; m < table_.moments; ++m) {
          if (bytes[m] > Bytes{0}) held[m].emplace_back(first_[n] + c, static_cast<double>(bytes[m].count) / whole);
        }
      }
    }
    const double limit = static_cast<double>(table_.limit->count) / whole;
    for (LinearProgram::Terms& terms : held) {
      if (!terms.empty()) program_.row(std::move(terms), -unbounded, limit);
    }
  }

  const SplitTable& table_;
  const SplitChoices& start_;
  double scale_ = 1;
  LinearProgram program_;
  std::vector<std::size_t> first_;  // by node: the variable of its first choice
  std::vector<double> values_;      // of the start
};

struct AlpaOptions : SplitOptions {
  std::int64_t seconds = 60;
  bool pipeline = false;
};

constexpr auto alpa_options =
    options_of<AlpaOptions>(split_devices_option, work_model_option, split_memory_option, split_replicas_option,
                            option_of<&AlpaOptions::seconds>({
                                .name = "seconds",
                                .least = 1,
                                .most = 86'400,
                                .help = "time limit of the whole search",
                            }),
                            option_of<&AlpaOptions::pipeline>({
                                .name = "pipeline",
                                .words = "no yes",
                                .help = "yes: stages by its inter-operator pass in the order of 1f1b, operators cut "
                                        "within each: as 'alpa|1f1b(cut=alpa)'",
                            }),
                            collectives_option);

DecisionsOutcome alpa_splits(const Problem& problem, const AlpaOptions& options, const Deadline& deadline) {
  const std::string time_is_over = fmt::format("the search stopped after its share of {} s (seconds)", options.seconds);
  const auto search = [&](const BspModel& model, const SplitTable& table) {
    SplitChoices start = swept(table, model.uniform_starts(table, table.choices(0).front().cuts.size() - 1, 1), 10);
    ImprovedSplit better = improved(table, start, {.rounds = 100, .deadline = &deadline});
    if (deadline.passed()) return SplitSearch{std::move(better.choices), "alpa: " + time_is_over};
    if (!better.fits) return SplitSearch{std::move(better.choices), {}};
    start = std::move(better.choices);
    const ProgrammedSplit made = solve_split_program(table, start, {.seconds = deadline.left()});
    std::string note;
    if (!made.stopped.empty()) {
      note = fmt::format("alpa: {}; the integer program proves no more than {:.3g} s",
                         made.out_of_time ? time_is_over : made.stopped, made.bound.value);
    }
    return SplitSearch{made.choices, std::move(note)};
  };
  const SplitOnDevices splits = [&](const Problem& own, std::uint32_t devices) {
    return split_at_once(own, devices, options, search);
  };
  return in_replicas(problem, options, std::span(&splits, 1), deadline);
}

double seconds_of(const AlpaOptions& options) {
  return static_cast<double>(options.seconds);
}

std::vector<Pass> inter_operator_pass(const AlpaOptions& options) {
  if (!options.pipeline) return {};
  return {pass_of(one_forward_one_backward_strategy, {{"cut", "alpa"}})};
}

}  // namespace

extern constinit const StrategyInfo optcnn_strategy{
    .name = "optcnn",
    .family = Family::hybrid,
    .summary =
        "Operators are cut over nodes and devices of a node at once, at the least cost by node and edge elimination.",
    .source = "Jia et al., Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks, ICML 2018",
    .options = optcnn_options,
    .kind = SplitStrategy{.decide = by_options<optcnn_splits>, .ranks = by_options<split_ranks>},
};

ProgrammedSplit solve_split_program(const SplitTable& table, const SplitChoices& start, const MilpLimits& limits) {
  return SplitProgram(table, start).solve(limits);
}

extern constinit const StrategyInfo alpa_strategy{
    .name = "alpa",
    .family = Family::hybrid,
    .summary = "Operators are cut over nodes and devices of a node at once, at the least cost by an integer program.",
    .source = "Zheng et al., Alpa: Automating Inter- and Intra-Operator Parallelism, OSDI 2022 (intra-operator)",
    .options = alpa_options,
    .kind =
        SplitStrategy{
            .decide = by_options<alpa_splits>,
            .seconds = by_options<seconds_of>,
            .ranks = by_options<split_ranks>,
            .followed_by = by_options<inter_operator_pass>,
        },
};

}  // namespace plimsoll
