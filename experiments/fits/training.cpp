#include "experiments/fits/training.h"

#include <fmt/format.h>

#include "experiments/study/allocator_spec.h"
#include "sim/io/evaluation_words.h"
#include "sim/io/reference_options.h"
#include "strategies/compose/spec.h"

namespace plimsoll {
namespace {

constexpr std::string_view fits_allocator = "cuda(cublas_workspace=yes)",
                           with_expandable = "cuda-expandable(cublas_workspace=yes)";

/// As a shell takes it.
std::string quoted(const std::string& word) {
  const bool is_plain =
      word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.,:=/+-") ==
      std::string::npos;
  return is_plain ? word : fmt::format("\"{}\"", word);
}

/// The platform with so much memory on each device.
std::string within(const std::string& platform, Bytes memory) {
  return with_option(platform, "memory", fmt::format("{} B", memory.count));
}

}  // namespace

Question question_of(const AskedTraining& training, Bytes memory) {
  return {.trace = training.trace,
          .platform = within(training.platform, memory),
          .strategy = parse_pipeline(training.strategy, "--strategy"),
          .memory = training.budget ? StatedBudget(*training.budget) : std::nullopt,
          .micro_batches = training.micro_batches,
          .optimizer = training.optimizer,
          .parameter_groups = training.parameter_groups,
          .states = training.states,
          .update_kernels = training.update_kernels,
          .ema = training.ema,
          .clip_norm = training.clip_norm,
          .evaluation = training.evaluation,
          .engine = Engine::event,
          .allocator = parse_allocator(std::string(fits_allocator), "--allocator")};
}

AllocatorChoice expandable_segments() {
  return parse_allocator(std::string(with_expandable), "--allocator");
}

std::string command_of(const AskedTraining& training, Bytes memory) {
  std::string command =
      fmt::format("plimsoll simulate -t {} -p {} -s {} --optimizer {}", quoted(training.trace),
                  quoted(within(training.platform, memory)), quoted(training.strategy), written(training.optimizer));
  for (const ParameterGroup& group : training.parameter_groups) {
    command += fmt::format(" --parameter-group \"{}={}\"", group.pattern, written(group.optimizer));
  }
  if (training.states != States::by_dtype) command += fmt::format(" --states {}", written(training.states));
  if (training.update_kernels != UpdateKernels::fused)
    command += fmt::format(" --update-kernels {}", written(training.update_kernels));
  if (training.ema) command += " --ema";
  if (training.clip_norm) command += " --clip-norm";
  if (training.evaluation) command += fmt::format(" --evaluate {}", written(*training.evaluation));
  if (training.micro_batches > 1) command += fmt::format(" --micro-batches {}", training.micro_batches);
  if (training.budget) command += fmt::format(" -m \"{} B\"", training.budget->count);
  return command + fmt::format(" --allocator {} --engine event", quoted(std::string(fits_allocator)));
}

}  // namespace plimsoll
