#include "strategies/pipelining/planners/pipedream.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

namespace plimsoll {
namespace {

constexpr double no_pipeline = std::numeric_limits<double>::infinity();
constexpr std::size_t most_states = 10'000, most_states_of_levels = 4'000;

/// Sets of nodes that may be done before a stage begins.
struct Prefixes {
  std::vector<std::vector<std::uint64_t>> sets;
  std::vector<double> seconds, parameters, activations, output;  // sums over the set; bytes that leave it
  std::vector<std::vector<std::uint32_t>> before;                // those within each, ascending

  std::uint32_t count() const { return static_cast<std::uint32_t>(sets.size()); }
};

bool has(const std::vector<std::uint64_t>& set, std::uint32_t node) {
  return (set[node / 64] >> node % 64 & 1U) != 0;
}

/// The nodes that the paths from the source reach from which most nodes are reached.
std::vector<std::uint32_t> spanned(const Dag& dag, const std::vector<std::vector<std::uint64_t>>& ancestors) {
  std::vector<std::uint32_t> best;
  for (std::uint32_t source = 0; source < dag.nodes; ++source) {
    std::vector<std::uint32_t> reached{source};
    for (std::uint32_t n = 0; n < dag.nodes; ++n) {
      if (has(ancestors[n], source)) reached.push_back(n);
    }
    if (reached.size() > best.size()) best = std::move(reached);
  }
  std::ranges::sort(best);
  return best;
}

/// All downsets of the nodes of the list, each with the nodes that must come before; the empty one first.
std::optional<Prefixes> prefixes_among(const PipedreamProblem& problem, const std::vector<std::uint32_t>& listed,
                                       const std::vector<std::vector<std::uint64_t>>& ancestors, std::size_t most) {
  const Dag& dag = problem.dag;
  Dag part{.nodes = static_cast<std::uint32_t>(listed.size()), .edges = {}};
  std::vector<std::optional<std::uint32_t>> number(dag.nodes);
  for (std::uint32_t l = 0; l < part.nodes; ++l) number[listed[l]] = l;
  for (const auto& [from, to] : dag.edges) {
    if (number[from] && number[to]) part.edges.emplace_back(*number[from], *number[to]);
  }
  const std::optional<Downsets> all = downsets_of(part, most + 1);
  if (!all) return std::nullopt;
  Prefixes made;
  for (std::size_t s = 0; s < all->count(); ++s) {
    std::vector<std::uint64_t>& set = made.sets.emplace_back(words_of(dag.nodes));
    for (std::uint32_t l = 0; l < part.nodes; ++l) {
      if (!all->has(s, l)) continue;
      const std::uint32_t n = listed[l];
      set[n / 64] |= std::uint64_t{1} << n % 64;
      for (std::size_t w = 0; w < set.size(); ++w) set[w] |= ancestors[n][w];
    }
    double seconds = 0, parameters = 0, activations = 0, output = 0;
    std::vector<bool> leaves(dag.nodes, false);
    for (const auto& [from, to] : dag.edges) leaves[from] = leaves[from] || (has(set, from) && !has(set, to));
    for (std::uint32_t n = 0; n < dag.nodes; ++n) {
      if (!has(set, n)) continue;
      seconds += problem.seconds[n];
      parameters += problem.parameter_bytes[n];
      activations += problem.activation_bytes[n];
      if (leaves[n]) output += problem.output_bytes[n];
    }
    made.seconds.push_back(seconds);
    made.parameters.push_back(parameters);
    made.activations.push_back(activations);
    made.output.push_back(output);
    std::vector<std::uint32_t>& before = made.before.emplace_back();
    for (std::uint32_t k = 0; k < s; ++k) {
      if (all->within(k, s)) before.push_back(k);
    }
  }
  return made;
}

/// All sets that may come first; where these are too many, those that grow from one source, every other node coming
/// with the first that needs it.
std::optional<Prefixes> prefixes_of(const PipedreamProblem& problem) {
  const std::size_t most = problem.levels.size() > 1 ? most_states_of_levels : most_states;
  const auto ancestors = ancestors_of(problem.dag);
  std::vector<std::uint32_t> all(problem.dag.nodes);
  std::iota(all.begin(), all.end(), 0U);
  std::optional<Prefixes> made;
  if (!problem.published) made = prefixes_among(problem, all, ancestors, most);
  if (made) return made;
  const std::vector<std::uint32_t> part = spanned(problem.dag, ancestors);
  if (part.size() == all.size() && !problem.published) return std::nullopt;
  made = prefixes_among(problem, part, ancestors, most);
  // What no path from that source reaches, and nothing reached needs, would never come.
  const auto is_all = [&](const std::vector<std::uint64_t>& set) {
    return std::ranges::all_of(all, [&](std::uint32_t n) { return has(set, n); });
  };
  if (made && !is_all(made->sets.back())) made.reset();
  return made;
}

/// Devices behind a replica, as a fraction of whole numbers.
struct Behind {
  std::uint64_t devices = 0, replicas = 1;
  friend auto operator<=>(const Behind&, const Behind&) = default;

  /// What is behind one of `replicas` machines of a level that has `more` devices behind them.
  Behind of_one(std::uint64_t more, std::uint32_t machines) const {
    const std::uint64_t above = devices + more * replicas, below = replicas * machines, common = std::gcd(above, below);
    return {above / common, below / common};
  }
  std::uint32_t in_flight() const { return static_cast<std::uint32_t>(1 + (devices + replicas - 1) / replicas); }
};

class PipedreamOptimizer {
 public:
  PipedreamOptimizer(const PipedreamProblem& problem, const Prefixes& states) : problem_(problem), states_(states) {
    std::uint64_t devices = 1;
    for (const PipedreamProblem::Level& level : problem.levels) {
      devices_.push_back(devices);
      devices *= level.machines;
    }
    tables_.resize(problem.levels.size());
  }

  std::optional<PipedreamPlan> plan() {
    const std::size_t top = problem_.levels.size() - 1;
    const Row row = row_after(top, 0, {});
    PipedreamPlan plan;
    plan.seconds = row.best(states_.count() - 1, problem_.levels[top].machines);
    if (plan.seconds == no_pipeline) return std::nullopt;
    plan.states = states_.count() - 1;
    unfold(top, 0, states_.count() - 1, {}, 1, plan.stages);
    return plan;
  }

 private:
  struct Choice {
    double seconds = no_pipeline;
    std::uint32_t state = 0,
                  machines = 0;  // of the last stage: what is done before it, and its machines; none: no split
  };
  struct Row {  // of the states after a start, by state and number of machines
    std::uint32_t machines = 0;
    std::vector<char> follows;  // whether a state comes after the start
    std::vector<Choice> choices;

    Choice& at(std::uint32_t state, std::uint32_t m) { return choices[state * machines + m - 1]; }
    const Choice& at(std::uint32_t state, std::uint32_t m) const { return choices[state * machines + m - 1]; }
    double best(std::uint32_t state, std::uint32_t m) const { return at(state, m).seconds; }
  };

  double between(const std::vector<double>& sums, std::uint32_t start, std::size_t state) const {
    return sums[state] - sums[start];
  }

  /// Time of one mini-batch on one machine of the level below.
  double on_one(std::size_t level, std::uint32_t start, std::uint32_t state, Behind behind) {
    if (level == 0) {
      if (problem_.memory_bytes && !problem_.published && bytes_of(start, state, behind) > *problem_.memory_bytes) {
        return no_pipeline;
      }
      return between(states_.seconds, start, state);
    }
    return table(level - 1, behind)[start * states_.count() + state];
  }

  double bytes_of(std::uint32_t start, std::uint32_t state, Behind behind) const {
    return behind.in_flight() *
           (between(states_.activations, start, state) + between(states_.parameters, start, state));
  }

  /// A stage on `replicas` machines of its level, with `behind` of them after it. States of a chain are its lengths.
  bool refuses(std::uint32_t start, std::uint32_t state, std::uint32_t behind, std::uint32_t replicas) const {
    if (problem_.fits && !problem_.fits(start, state, 1 + (behind + replicas - 1) / replicas)) return true;
    if (!problem_.memory_bytes || !problem_.published) return false;
    const std::uint32_t stashes = (behind + replicas - 1) / replicas;
    const double of_one = between(states_.activations, start, state) + between(states_.parameters, start, state);
    return stashes * of_one > *problem_.memory_bytes;
  }

  /// What is behind matters to the check of what is in flight only.
  Behind behind_of_one(std::size_t level, Behind behind, std::uint32_t after, std::uint32_t replicas) const {
    if (!problem_.memory_bytes || problem_.published) return {};
    return behind.of_one(after * devices_[level], replicas);
  }

  /// A[start..state][all machines of the level], by start and state.
  const std::vector<double>& table(std::size_t level, Behind behind) {
    const auto [found, is_new] = tables_[level].try_emplace(behind);
    if (!is_new) return found->second;
    const std::size_t n = states_.count();
    std::vector<double> best(n * n, no_pipeline);
    for (std::uint32_t start = 0; start < n; ++start) {
      const Row row = row_after(level, start, behind);
      for (std::uint32_t j = 0; j < n; ++j) best[start * n + j] = row.best(j, problem_.levels[level].machines);
    }
    return found->second = std::move(best);
  }

  Row row_after(std::size_t level, std::uint32_t start, Behind behind);
  void split_last(std::size_t level, Behind behind, std::uint32_t state, Row&);
  void unfold(std::size_t level, std::uint32_t start, std::uint32_t state, Behind behind, std::uint32_t replicas,
              std::vector<PipedreamStage>& stages);

  const PipedreamProblem& problem_;
  const Prefixes& states_;
  std::vector<std::uint64_t> devices_;  // of one machine of the level below
  std::vector<std::map<Behind, std::vector<double>>> tables_;
};

PipedreamOptimizer::Row PipedreamOptimizer::row_after(std::size_t level, std::uint32_t start, Behind behind) {
  const PipedreamProblem::Level& machine = problem_.levels[level];
  const std::uint32_t below = level == 0 ? 1 : problem_.levels[level - 1].machines;
  Row row{.machines = machine.machines,
          .follows = std::vector<char>(states_.count()),
          .choices = std::vector<Choice>(states_.count() * machine.machines)};
  for (std::uint32_t j = start + 1; j < states_.count(); ++j) {
    const std::vector<std::uint32_t>& before = states_.before[j];
    if (!std::ranges::binary_search(before, start)) continue;
    row.follows[j] = 1;
    const double parameters = between(states_.parameters, start, j);
    for (std::uint32_t r = 1; r <= (problem_.straight ? 1 : machine.machines); ++r) {
      const std::uint32_t after = machine.machines - r;
      if (refuses(start, j, after, r)) continue;
      const double exchange = 4.0 * (r - 1) * parameters / (machine.bytes_per_second * r) / below;
      row.at(j, r).seconds = (on_one(level, start, j, behind_of_one(level, behind, after, r)) + exchange) / r;
    }
    split_last(level, behind, j, row);
  }
  return row;
}

/// The last stage from a state k on, with r' machines of r, the others for what is before k.
void PipedreamOptimizer::split_last(std::size_t level, Behind behind, std::uint32_t state, Row& row) {
  const PipedreamProblem::Level& machine = problem_.levels[level];
  for (const std::uint32_t k : states_.before[state]) {
    if (!row.follows[k]) continue;
    for (std::uint32_t last = 1; last < (problem_.straight ? 2 : machine.machines); ++last) {
      const double parameters = between(states_.parameters, k, state);
      const double exchange = 4.0 * (last - 1) * parameters / (machine.bytes_per_second * last);
      for (std::uint32_t r = last + 1; r <= machine.machines; ++r) {
        const double first = row.best(k, r - last);
        Choice& choice = row.at(state, r);
        if (!(first < choice.seconds)) continue;
        const std::uint32_t after = machine.machines - r;
        double time =
            std::max(first, (on_one(level, k, state, behind_of_one(level, behind, after, last)) + exchange) / last);
        if (problem_.compression) {
          const double rate = machine.bytes_per_second * last * *problem_.compression;
          time = std::max(time, 2 * states_.output[k] / rate);
          if (state + 1 < states_.count()) time = std::max(time, 2 * states_.output[state] / rate);
        }
        if (time < choice.seconds && !refuses(k, state, after, last)) {
          choice = {.seconds = time, .state = k, .machines = last};
        }
      }
    }
  }
}

void PipedreamOptimizer::unfold(std::size_t level, std::uint32_t start, std::uint32_t state, Behind behind,
                                std::uint32_t replicas, std::vector<PipedreamStage>& stages) {
  const std::uint32_t machines = problem_.levels[level].machines;
  const Row row = row_after(level, start, behind);
  const auto stage = [&](std::uint32_t from, std::uint32_t to, std::uint32_t r, std::uint32_t used) {
    const Behind of_one = behind.of_one((machines - used) * devices_[level], r);
    if (level > 0) {
      unfold(level - 1, from, to, of_one, replicas * r, stages);
      return;
    }
    PipedreamStage& made = stages.emplace_back();
    for (std::uint32_t n = 0; n < problem_.dag.nodes; ++n) {
      if (has(states_.sets[to], n) && !has(states_.sets[from], n)) made.nodes.push_back(n);
    }
    made.replicas = replicas * r;
    made.in_flight = of_one.in_flight();
    made.bytes = bytes_of(from, to, of_one);
  };
  struct Last {
    std::uint32_t state;
    std::uint32_t machines, used;
    std::uint32_t from;
  };
  std::vector<Last> found;
  std::uint32_t left = machines;
  for (std::uint32_t to = state;;) {
    const Choice& choice = row.at(to, left);
    if (choice.machines == 0) {
      found.push_back({to, left, left, start});
      break;
    }
    found.push_back({to, choice.machines, left, choice.state});
    left -= choice.machines;
    to = choice.state;
  }
  for (auto last = found.rbegin(); last != found.rend(); ++last) {
    stage(last->from, last->state, last->machines, last->used);
  }
}

}  // namespace

PipedreamOutcome plan_pipedream(const PipedreamProblem& problem) {
  const std::optional<Prefixes> states = prefixes_of(problem);
  if (!states) {
    return {.plan = {},
            .reason = "more than " + std::to_string(problem.levels.size() > 1 ? most_states_of_levels : most_states) +
                      " states, sets of layers that may come first"};
  }
  PipedreamOutcome outcome;
  outcome.plan = PipedreamOptimizer(problem, *states).plan();
  if (!outcome.plan) {
    outcome.reason = "no stages keep within the memory";
    return outcome;
  }
  PipedreamPlan& plan = *outcome.plan;
  plan.one_device = plan.data_parallel = states->seconds.back();
  std::uint32_t below = 1;
  for (const PipedreamProblem::Level& level : problem.levels) {
    const double exchange =
        4.0 * (level.machines - 1) * states->parameters.back() / (level.bytes_per_second * level.machines) / below;
    plan.data_parallel = (plan.data_parallel + exchange) / level.machines;
    below = level.machines;
  }
  return outcome;
}

}  // namespace plimsoll
