#include "experiments/sweep/slurm_jobs.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <ostream>

#include "sim/io/input_error.h"
#include "sim/io/output_error.h"
#include "sim/io/text_file.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

/// As one word of a shell.
std::string shell_word(const std::string& text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

/// A bundle's program is started by a script, which says so (cmake/start.sh).
std::string this_program() {
  if (const char* const script = std::getenv("PLIMSOLL_STARTED_AS")) return script;
  return fs::read_symlink("/proc/self/exe");
}

std::string head(const SlurmArray& of, std::string_view name, std::string_view output) {
  std::string text = fmt::format("#!/bin/bash\n#SBATCH --job-name={}\n#SBATCH --output={}\n", name,
                                 shell_word(fs::absolute(of.folder) / output));
  if (!of.options.empty()) text += fmt::format("#SBATCH {}\n", of.options);
  return text;
}

/// The output of a command and how it ended, as waitpid() says it.
struct CommandEnd {
  std::string output;
  int status = 0;
};

CommandEnd ended(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw OutputError("cannot start a shell");
  CommandEnd end;
  char block[4096];
  for (std::size_t got = 0; (got = fread(block, 1, sizeof block, pipe)) > 0;) end.output.append(block, got);
  end.status = pclose(pipe);
  return end;
}

/// The number of the job that a script has become.
std::string submitted(const fs::path& script, const std::string& options) {
  const CommandEnd end = ended("sbatch --parsable " + options + " " + shell_word(script));
  if (end.status != 0) throw InputError("--slurm: sbatch refuses " + script.string() + ", see above");
  return end.output.substr(0, end.output.find_first_of(";\n"));
}

}  // namespace

std::string array_script(const SlurmArray& of) {
  std::string text = head(of, "plimsoll", "slurm-%A_%a.log");
  text += fmt::format("#SBATCH --array=1-{}\n", of.tasks);
  text += fmt::format(
      "exec {} sweep {} -o {} --resume -j \"${{SLURM_CPUS_PER_TASK:-1}}\" --shard \"$SLURM_ARRAY_TASK_ID\"/{}",
      shell_word(this_program()), shell_word(fs::absolute(of.experiment)),
      shell_word(fs::absolute(of.folder) / "shards"), of.tasks);
  for (const std::string& setting : of.changes.settings) text += " --set " + shell_word(setting);
  if (!of.changes.preset.empty()) text += " --preset " + shell_word(of.changes.preset);
  if (!of.cache.empty()) text += " --cache " + shell_word(fs::absolute(of.cache));
  return text + "\n";
}

std::string merge_script(const SlurmArray& of) {
  const fs::path folder = fs::absolute(of.folder);
  return head(of, "plimsoll-merge", "slurm-merge-%j.log") +
         fmt::format("exec {} merge {} -o {} --replace\n", shell_word(this_program()), shell_word(folder / "shards"),
                     shell_word(folder / "merged"));
}

void submit_array(const SlurmArray& of, std::ostream& out) {
  if (ended("command -v sbatch").status != 0) {  // before anything is written
    throw InputError("--slurm: there is no sbatch here; --slurm-script prints the scripts instead");
  }
  std::error_code error;
  fs::create_directories(of.folder, error);
  if (error) throw OutputError(located(of.folder.string(), {}, "", "cannot make the folder: " + error.message()));
  const fs::path array = of.folder / "array.sbatch", merge = of.folder / "merge.sbatch";
  write_text_file(array, array_script(of));
  write_text_file(merge, merge_script(of));
  const std::string of_array = submitted(array, "");
  const std::string of_merge = submitted(merge, "--dependency=afterany:" + of_array);
  out << fmt::format("job {}: {} tasks, results in {}\njob {}: merges them behind it, into {}\n", of_array, of.tasks,
                     (of.folder / "shards").string(), of_merge, (of.folder / "merged").string());
}

}  // namespace plimsoll
