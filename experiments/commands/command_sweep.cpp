#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "experiments/commands/commands.h"
#include "experiments/study/understood.h"
#include "experiments/sweep/slurm_jobs.h"
#include "experiments/sweep/sweep.h"
#include "experiments/sweep/sweep_inputs.h"
#include "sim/io/input_error.h"

namespace plimsoll {
namespace {

struct SweepArguments {
  std::string experiment, folder, jobs = "1", shard = "1/1";
  std::string slurm, slurm_options, cache;
  ExperimentChanges changes;
  bool resume = false, quiet = false, dry_run = false, slurm_script = false;
};

Shard shard_of(const std::string& word) {
  constexpr std::int64_t most = 100'000;
  const std::size_t slash = word.find('/');
  if (slash == std::string::npos) throw InputError("--shard: expected k/n such as 2/8, found '" + word + "'");
  const std::int64_t n = understood_whole("--shard", std::string_view(word).substr(slash + 1), 1, most);
  const auto k = understood_whole("--shard", std::string_view(word).substr(0, slash), 1, n);
  return {.k = static_cast<std::uint32_t>(k), .n = static_cast<std::uint32_t>(n)};
}

SlurmArray slurm_array_of(const SweepArguments& arguments) {
  constexpr std::int64_t most = 100'000;
  return {.experiment = arguments.experiment,
          .folder = arguments.folder,
          .changes = arguments.changes,
          .cache = arguments.cache,
          .tasks = static_cast<std::uint32_t>(understood_whole("--slurm", arguments.slurm, 1, most)),
          .options = arguments.slurm_options};
}

/// What can be wrong with the experiment is told here, not in a job's log.
void give_to_slurm(const SweepArguments& arguments) {
  const SlurmArray array = slurm_array_of(arguments);
  const SweepInputs inputs(read_experiment(array.experiment, array.changes));
  if (!arguments.slurm_script) return submit_array(array, std::cout);
  std::cout << array_script(array) << '\n' << merge_script(array);
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
      "experiments/demo.yaml -o out/shards --shard 1/64 --resume\nSlurm and MPI do the same by themselves (rank 0 "
      "hands "
      "out the groups, the others answer):\n  plimsoll sweep experiments/demo.yaml -o out/demo --slurm 64\n  mpirun -n "
      "64 plimsoll sweep experiments/demo.yaml -o out/demo");
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
  command->add_flag("-q,--quiet", arguments->quiet, "say nothing on standard error but what goes wrong");
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
  command
      ->add_option("--cache", arguments->cache,
                   "folder of answers that several sweeps share, created if missing: points that are there are taken "
                   "from it, all others are kept there")
      ->type_name("DIR");
  CLI::Option* const slurm =
      command
          ->add_option("--slurm", arguments->slurm,
                       "submit the sweep to Slurm as an array of N tasks, and a job behind them that merges their "
                       "results into DIR/merged")
          ->type_name("N");
  command
      ->add_option("--slurm-options", arguments->slurm_options,
                   "options of sbatch for both jobs, such as '--time=1:00:00'")
      ->needs(slurm)
      ->type_name("TEXT");
  command->add_flag("--slurm-script", arguments->slurm_script, "print the scripts of these jobs, and submit nothing")
      ->needs(slurm);
  command->callback([arguments, &exit_code, &command_line] {
    const Shard shard = shard_of(arguments->shard);
    const SweepOptions options{.experiment = arguments->experiment,
                               .folder = arguments->folder,
                               .changes = arguments->changes,
                               .jobs = jobs_of(arguments->jobs),
                               .resume = arguments->resume,
                               .quiet = arguments->quiet,
                               .shard = shard,
                               .command_line = command_line,
                               .cache = arguments->cache};
    if (!arguments->dry_run && arguments->folder.empty()) throw CLI::RequiredError("--output");
    if (!arguments->dry_run && !arguments->slurm.empty()) return give_to_slurm(*arguments);
    exit_code = arguments->dry_run ? list_sweep(options, std::cout) : sweep(options);
  });
}

}  // namespace plimsoll
