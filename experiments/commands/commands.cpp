#include "experiments/commands/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <thread>

#include "experiments/study/allocator_spec.h"
#include "experiments/study/planning_watch.h"
#include "experiments/study/understood.h"
#include "sim/core/device_name.h"
#include "sim/core/expects.h"
#include "sim/core/names.h"
#include "sim/core/scaling.h"
#include "sim/io/evaluation_words.h"
#include "sim/io/input_error.h"
#include "sim/io/one_of.h"
#include "sim/io/parameter_groups.h"
#include "sim/io/quantity.h"
#include "strategies/compose/plan.h"

namespace plimsoll {

void add_question_options(CLI::App& command, QuestionArguments& words, Asks asks) {
  command
      .add_option(
          "-t,--trace", words.trace,
          "model: a trace file, the name of a shipped trace, a synthetic chain (uniform:16,\ntransformer:layers=24) or "
          "graph (rnn:layers=8), or a network that 'replay' can run (mlp:layers=8)")
      ->required()
      ->type_name("TRACE");
  command.add_option("-p,--platform", words.platform, "platform: a platform file, or the name of a shipped platform")
      ->required()
      ->type_name("PLATFORM");
  if (asks == Asks::strategy) {
    command
        .add_option("-s,--strategy", words.strategy, "strategy: name(option=value, ...); several are joined with '|'")
        ->required()
        ->type_name("SPEC");
    command
        .add_option("-m,--memory", words.memory,
                    "memory budget of each device: a size such as '16 GB', or a share such as '50 %' of the peak "
                    "of\nstore_all (default: the capacity of the device)")
        ->type_name("SIZE");
    command
        .add_option("--engine", words.engine,
                    "engine that simulates: simgrid (the reference) or event (faster, equal dates to 1e-9)")
        ->capture_default_str()
        ->type_name("ENGINE");
    command
        .add_option("--allocator", words.allocator,
                    "allocator for reserved memory: exact (live bytes), cuda (PyTorch's caching allocator), "
                    "cuda-expandable\n(the same with expandable segments), cuda-stitching (free blocks become one, as "
                    "in GMLake) or static\n(offsets planned before the run); options such as cuda(max_split=200 MB): "
                    "sim/memory/README.md")
        ->capture_default_str()
        ->type_name("NAME");
  }
  command
      .add_option("--micro-batches", words.micro_batches,
                  "number of micro-batches in an iteration; they run one after the other")
      ->capture_default_str()
      ->type_name("M");
  command
      .add_option("--optimizer", words.optimizer,
                  "optimizer whose updates and states are added: none, sgd, momentum or adam")
      ->capture_default_str()
      ->type_name("NAME");
  add_parameter_group_option(command, words.parameter_groups);
  command
      .add_option(
          "--states", words.states,
          "size of optimizer states: fp32 (and an fp32 copy of each narrower parameter), as_parameters (each\nstate "
          "has the bytes of its parameter) or by_dtype (fp32 for bf16, fp16 and fp8 parameters, else\nas_parameters)")
      ->capture_default_str()
      ->type_name("HOW");
  command
      .add_option("--update-kernels", words.update_kernels,
                  "how devices launch those updates: fused (a few kernels that do all), foreach (a few for each "
                  "operation,\nwith more traffic, and for Adam more memory), single (a kernel for each parameter) or "
                  "megatron (as its\noptimizer in "
                  "mixed precision: gradients copied to fp32, unscaled, clipped, parameters copied back)")
      ->capture_default_str()
      ->type_name("HOW");
  command.add_flag("--ema", words.ema,
                   "keep an exponential moving average of each trained parameter, which its update renews");
  command.add_flag("--clip-norm", words.clip_norm,
                   "clip gradients by the norm of all of them: updates wait for it, and gradients are read twice and "
                   "written once more");
  command
      .add_option("--evaluate", words.evaluate,
                  "an evaluation between iterations, every=N[,batches=N][,samples=N]: forwards without gradients, of\n"
                  "batches as large as a micro-batch or of so many samples; all memory of it counts, of its time the "
                  "share\nof an iteration")
      ->type_name("WORDS");
  command
      .add_option("--gradients", words.gradients,
                  "parameter gradients: new (allocated in the iteration) or existing (there before it begins)")
      ->capture_default_str()
      ->type_name("WHEN");
}

void add_parameter_group_option(CLI::App& command, std::vector<std::string>& words) {
  command
      .add_option("--parameter-group", words,
                  "parameters that another optimizer updates, such as '*norm*=adam'; may be repeated, and the first "
                  "whose pattern\nmatches a parameter's name (*, ? and [a-z], the whole name) takes it")
      ->type_name("PATTERN=OPTIMIZER")
      ->allow_extra_args(false);
}

std::vector<ParameterGroup> parameter_groups_of(const std::vector<std::string>& words, Optimizer rest) {
  std::vector<ParameterGroup> groups;
  for (const std::string& word : words) {
    const Parsed<std::vector<ParameterGroup>> parsed = parse_parameter_groups(word);
    if (!parsed.fine()) throw InputError(fmt::format("--parameter-group: {}", parsed.complaint));
    groups.insert(groups.end(), parsed.value.begin(), parsed.value.end());
  }
  if (groups.empty() || rest != Optimizer::none) return groups;
  throw InputError(fmt::format("--parameter-group: '{}' needs an --optimizer for the rest, found none", words.front()));
}

void add_schedule_option(CLI::App& command, std::string& schedule, const std::string& help, const std::string& names) {
  CLI::Option* option = command.add_option(names, schedule, help);
  option->type_name("FILE");
  std::vector<CLI::Option*> required;
  for (const char* name : {"--trace", "--platform", "--strategy"}) {
    CLI::Option* each = command.get_option(name);
    if (each->get_required()) required.push_back(each);
  }
  option->each([required](const std::string&) {
    for (CLI::Option* each : required) each->required(false);
  });
  for (const char* name : {"--strategy", "--memory", "--micro-batches", "--optimizer", "--parameter-group", "--states",
                           "--update-kernels", "--ema", "--clip-norm", "--evaluate", "--gradients"}) {
    if (CLI::Option* each = command.get_option_no_throw(name)) option->excludes(each);
  }
}

namespace {

StatedBudget budget_of(const std::string& memory) {
  if (memory.empty()) return std::nullopt;
  if (is_share(memory)) {
    const Parsed<Share> share = parse_share(memory);
    if (!share.fine()) throw InputError(fmt::format("--memory: {}", share.complaint));
    return share.value;
  }
  const Parsed<Bytes> budget = parse_bytes(memory);
  if (!budget.fine()) throw InputError(fmt::format("--memory: {}", budget.complaint));
  return budget.value;
}

}  // namespace

Question question_of(const QuestionArguments& words, Asks asks) {
  const Parsed<std::int64_t> count = parse_integer(words.micro_batches);
  if (!count.fine() || count.value < 1 || count.value > 1'000'000) {
    throw InputError(
        fmt::format("--micro-batches: expected a whole number from 1 to 1000000, found '{}'", words.micro_batches));
  }
  const auto states = understood<States>("--states", words.states);
  if (states != States::by_dtype && words.optimizer == written(Optimizer::none)) {
    throw InputError(fmt::format("--states: '{}' needs an --optimizer, found none", words.states));
  }
  const auto update_kernels = understood<UpdateKernels>("--update-kernels", words.update_kernels);
  if (update_kernels != UpdateKernels::fused && words.optimizer == written(Optimizer::none)) {
    throw InputError(fmt::format("--update-kernels: '{}' needs an --optimizer, found none", words.update_kernels));
  }
  const auto optimizer = understood<Optimizer>("--optimizer", words.optimizer);
  Question question{.trace = words.trace,
                    .platform = words.platform,
                    .strategy = {},
                    .micro_batches = static_cast<std::uint32_t>(count.value),
                    .optimizer = optimizer,
                    .parameter_groups = parameter_groups_of(words.parameter_groups, optimizer),
                    .states = states,
                    .update_kernels = update_kernels,
                    .ema = words.ema,
                    .clip_norm = words.clip_norm,
                    .evaluation = understood_evaluation("--evaluate", words.evaluate),
                    .gradients = understood<Gradients>("--gradients", words.gradients),
                    .engine = understood<Engine>("--engine", words.engine),
                    .allocator = parse_allocator(words.allocator, "--allocator"),
                    .transfers = understood<Transfers>("--transfers", words.transfers)};
  question.within = understood<Within>("--within", words.within);
  if (question.within == Within::reserved && question.allocator.kind == AllocatorKind::exact) {
    throw InputError("--within: 'reserved' needs an --allocator that reserves more than is live, found 'exact'");
  }
  if (asks == Asks::strategy || !words.strategy.empty()) {
    question.strategy = parse_pipeline(words.strategy, "--strategy");
  }
  question.memory = budget_of(words.memory);
  return question;
}

std::size_t jobs_of(const std::string& word) {
  constexpr std::int64_t most = 4096;
  const std::int64_t jobs = understood_whole("-j", word, 0, most);
  return jobs == 0 ? std::max(1U, std::thread::hardware_concurrency()) : static_cast<std::size_t>(jobs);
}

void report_violations(const std::string& file, std::span<const Violation> violations) {
  for (const Violation& violation : violations) {
    std::cerr << fmt::format("{}: {}: {}\n", file, name_of(violation.rule), violation.what);
  }
}

Problem problem_of_file(const Schedule& schedule, const std::string& file, const Question& question) {
  if (!schedule.decisions.empty() || deciding(question.strategy.passes) == 0) {
    return problem_of(schedule, file, question);
  }
  std::cerr << fmt::format("note: {}: has no decisions (plimsoll.schedule.v3): '{}' decides again\n", file,
                           schedule.strategy);
  const PlanningWatch watch("deciding with " + schedule.strategy);
  return problem_of(schedule, file, question);
}

void note_times(const Problem& problem) {
  if (problem.view_time > Seconds{0}) {
    std::cerr << fmt::format("note: views take no time; the {} that '{}' gives for them are left out\n",
                             format_seconds(problem.view_time), problem.graph.name);
  }
  if (!problem.times_rescaled) return;
  const Graph& timed =
      problem.of_ops ? *problem.of_ops : problem.graph;  // a chain made of a graph names the platform's
  const std::string& device = timed.source.device;
  const std::string of = device.empty() ? "are of no device" : fmt::format("were measured on '{}'", device);
  const std::shared_ptr<const KernelTimes> efficiency = problem.platform.devices.front().efficiency;
  const std::string by =
      efficiency ? fmt::format("by the efficiencies '{}', measured on '{}'", efficiency->name, efficiency->model)
                 : "max(flops / peak, bytes moved / memory bandwidth) + launch overhead";
  std::cerr << fmt::format("note: times of '{}' {}; here they are re-scaled: {}\n", problem.graph.name, of, by);
  if (device.empty() && !efficiency && problem.graph.name.starts_with("transformer")) {
    std::cerr
        << "note: by formula a transformer takes 1.3 to 2.1 times as long operator by operator (view=graph) as in "
           "stages, which\nmove and launch nothing in between: compare plans of one view only\n";
  }
  for (const Device& here : problem.platform.devices) {
    if (!seems_same_device(device, here.model)) continue;
    std::cerr << fmt::format(
        "note: '{}' of platform '{}' seems to be that hardware under another name; if it is, set its model to '{}' and "
        "the times hold\n",
        here.model, problem.platform.name, device);
    break;
  }
}

}  // namespace plimsoll
