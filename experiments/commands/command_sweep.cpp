#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "experiments/commands/commands.h"
#include "experiments/study/understood.h"
#include "experiments/sweep/sweep.h"
#include "sim/io/input_error.h"

namespace plimsoll {
namespace {

struct SweepArguments {
  std::string experiment, folder, jobs = "1", shard = "1/1";
  ExperimentChanges changes;
  bool resume = false, dry_run = false;
};

Shard shard_of(const std::string& word) {
  constexpr std::int64_t most = 100'000;
  const std::size_t slash = word.find('/');
  if (slash == std::string::npos) throw InputError("--shard: expected k/n such as 2/8, found '" + word + "'");
  const std::int64_t n = understood_whole("--shard", std::string_view(word).substr(slash + 1), 1, most);
  const auto k = understood_whole("--shard", std::string_view(word).substr(0, slash), 1, n);
  return {.k = static_cast<std::uint32_t>(k), .n = static_cast<std::uint32_t>(n)};
}

}  // namespace

void add_sweep_command(CLI::App& app, int& exit_code, const std::string& command_line) {
  CLI::App* command = app.add_subcommand(
      "sweep", "run every point of an experiment on several processes; it can be interrupted and resumed");
  command->footer(
      "Each result is written to DIR/results.jsonl at once. After an interruption (Ctrl-C, exit code 130) --resume "
      "runs\nonly the missing points, also if strategies or budgets were added to the experiment meanwhile. An "
      "infeasible\npoint is a result too:\n  plimsoll sweep experiments/demo.yaml --dry-run\n  plimsoll sweep "
      "experiments/demo.yaml -o out/demo -j 0\n  plimsoll report out/demo\nShards may share one DIR. In the job array "
      "of a cluster, k is the number of the task, such as $SLURM_ARRAY_TASK_ID:\n  plimsoll sweep "
      "experiments/demo.yaml -o out/shards --shard 1/64 --resume");
  auto arguments = std::make_shared<SweepArguments>();
  command->add_option("experiment", arguments->experiment, "experiment file, see experiments/README.md")
      ->required()
      ->type_name("EXPERIMENT.yaml");
  command
      ->add_option("-o,--output", arguments->folder,
                   "folder for the results, created if missing; required unless --dry-run is given")
      ->type_name("DIR");
  command
      ->add_option("-j,--jobs", arguments->jobs,
                   "number of worker processes; 0: one for each core; results do not depend on it")
      ->capture_default_str()
      ->type_name("N");
  command->add_flag("--resume", arguments->resume,
                    "keep the results of this build in DIR and run only the missing points");
  command->add_flag("--dry-run", arguments->dry_run,
                    "check every name and file, list the points and their number, and plan nothing");
  command
      ->add_option("--set", arguments->changes.settings,
                   "change a key of the experiment, such as micro_batches=8 or 'memory=[8 GB, 16 GB]'; can be repeated")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  command->add_option("--preset", arguments->changes.preset, "take the keys of this preset of the experiment")
      ->type_name("NAME");
  command->add_option("--shard", arguments->shard, "run only share k of n, k from 1 to n")
      ->capture_default_str()
      ->type_name("k/n");
  command->callback([arguments, &exit_code, &command_line] {
    const Shard shard = shard_of(arguments->shard);
    const SweepOptions options{.experiment = arguments->experiment,
                               .folder = arguments->folder,
                               .changes = arguments->changes,
                               .jobs = jobs_of(arguments->jobs),
                               .resume = arguments->resume,
                               .shard = shard,
                               .command_line = command_line};
    if (!arguments->dry_run && arguments->folder.empty()) throw CLI::RequiredError("--output");
    exit_code = arguments->dry_run ? list_sweep(options, std::cout) : sweep(options);
  });
}

}  // namespace plimsoll
