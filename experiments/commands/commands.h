#pragma once
// The commands of the program, one function each: declares its options on the parser and, when the command is run,
// leaves its exit code.

#include <CLI/CLI.hpp>
#include <span>
#include <string>

#include "experiments/study/choice/several_devices.h"
#include "experiments/study/exit_code.h"
#include "experiments/study/run.h"
#include "sim/judge/check.h"

namespace plimsoll {

void add_simulate_command(CLI::App&, int& exit_code, const std::string& command_line);
void add_plan_command(CLI::App&, int& exit_code, const std::string& command_line);
void add_explain_command(CLI::App&, int& exit_code);
void add_check_command(CLI::App&, int& exit_code, const std::string& command_line);
void add_verify_command(CLI::App&, int& exit_code);
void add_bounds_command(CLI::App&, int& exit_code, const std::string& command_line);
void add_fits_command(CLI::App&, int& exit_code, const std::string& command_line);
void add_load_command(CLI::App&, int& exit_code, const std::string& command_line);
void add_list_command(CLI::App&, int& exit_code, const std::string& command_line);
void add_describe_command(CLI::App&, int& exit_code, const std::string& command_line);
void add_export_command(CLI::App&, int& exit_code, const std::string& command_line);
void add_import_command(CLI::App&, int& exit_code, const std::string& command_line);
void add_replay_command(CLI::App&, int& exit_code, const std::string& command_line);
void add_replay_log_command(CLI::App&, int& exit_code);
void add_reproduce_command(CLI::App&, int& exit_code, const std::string& command_line);
void add_report_command(CLI::App& app, int& exit_code, const std::string& command_line);
void add_splits_command(CLI::App&, int& exit_code);
void add_stages_command(CLI::App&, int& exit_code);
void add_sweep_command(CLI::App& app, int& exit_code, const std::string& command_line);
void add_merge_command(CLI::App& app, const std::string& command_line);
void add_train_command(CLI::App&, int& exit_code);
void add_completion_command(CLI::App&, int& exit_code);
void add_man_command(CLI::App&, int& exit_code);
void add_calibrate_command(CLI::App&, int& exit_code, const std::string& command_line);
void add_validate_command(CLI::App&, int& exit_code, const std::string& command_line);
void add_compare_command(CLI::App&, int& exit_code, const std::string& command_line);

/// A question as words of the command line, before they are understood.
struct QuestionArguments {
  std::string trace, platform, strategy, memory, micro_batches = "1", engine = "simgrid", allocator = "exact",
                                                 optimizer = "none", states = "by_dtype", update_kernels = "fused",
                                                 gradients = "new", transfers = "link", within = "live", evaluate;
  std::vector<std::string> parameter_groups;
  bool ema = false, clip_norm = false;
};

/// Which options a command takes beside --trace and --platform.
enum class Asks { problem, strategy };
void add_question_options(CLI::App&, QuestionArguments&, Asks);

/// --schedule, which says itself what the other options of a question ask.
void add_schedule_option(CLI::App&, std::string& schedule, const std::string& help,
                         const std::string& names = "--schedule");

/// Throws InputError where a word is not understood. A strategy may be left out where only a problem is asked about.
Question question_of(const QuestionArguments&, Asks);

/// The answer with transfers as the question has them. Of a cluster, and of a portfolio on several devices, the
/// question becomes that of the strategy which was chosen. After `timeout`, or interrupted, the search of `cluster`
/// ends with the best so far; throws InputError where another strategy has a timeout.
AnsweredQuestion answered(Question, std::optional<Seconds> timeout = {});

/// The answer whose plan PyTorch runs; a plan that PyTorch could not be told is refused before it is made.
AnsweredQuestion answered_for_pytorch(Question);

/// --timeout: more than 0 s; nothing where the word is empty. Throws InputError.
std::optional<Seconds> timeout_of(const std::string& word);

/// A schedule from a file, whoever made it: judged, then simulated as one that is planned here, with what the words say
/// of engine, allocator and transfers. Nothing where it breaks rules, which lines on stderr then name.
std::optional<AnsweredQuestion> answered_file(const std::string& file, const QuestionArguments&);

/// A line on stderr where that schedule does not fit.
void report_beyond(const std::string& file, const Answer&);

/// --parameter-group, which may be repeated.
void add_parameter_group_option(CLI::App&, std::vector<std::string>& words);
std::vector<ParameterGroup> parameter_groups_of(const std::vector<std::string>& words, Optimizer rest);

/// --jobs: 0 is one for each core.
std::size_t jobs_of(const std::string& word);

/// check --policy.
struct PolicyArguments {
  std::string file, trace, platform, memory;
};

/// What a policy of another program comes to on a trace and a machine, on stdout; returns the exit code.
int judge_policy(const PolicyArguments&, bool json);

/// Lines on stderr: what is wrong with a schedule from a file.
void report_violations(const std::string& file, std::span<const Violation>);

/// What problem_of gives for a schedule from a file, with a line on stderr where its strategy has to decide again.
Problem problem_of_file(const Schedule&, const std::string& file, const Question&);

/// Lines on stderr where times are not the trace's own.
void note_times(const Problem&);

}  // namespace plimsoll
