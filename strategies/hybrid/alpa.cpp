#include <fmt/format.h>

#include "strategies/api/pass.h"
#include "strategies/hybrid/split_improvement.h"
#include "strategies/hybrid/split_program.h"
#include "strategies/hybrid/split_search.h"
#include "strategies/list.h"

namespace plimsoll {
namespace {

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
                                .help = "limit of the whole search",
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
