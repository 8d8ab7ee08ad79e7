// plimsoll fits

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/commands/commands.h"
#include "experiments/fits/fits_table.h"
#include "experiments/fits/training.h"
#include "experiments/study/build_name.h"
#include "experiments/study/model.h"
#include "experiments/study/planning_watch.h"
#include "experiments/study/share.h"
#include "experiments/study/understood.h"
#include "platforms/platform_file.h"
#include "sim/io/evaluation_words.h"
#include "sim/io/input_error.h"
#include "sim/io/json/json.h"
#include "sim/io/quantity.h"

namespace plimsoll {
namespace {

struct FitsArguments {
  std::string model, platform, train = "full", batch, sequence, optimizer = "adam", update_kernels = "fused", precision,
                               memory, evaluate, prefetch = "0", context = "450 MB", communicator = "688 MiB",
                               margin = "5 %";
  std::vector<std::string> parameter_groups;
  bool ema = false, clip_norm = false, no_changes = false, json = false;
};

/// The model with another value of one of its numbers, where the word is given.
void set_number(std::string& trace, std::string_view option, std::string_view name, const std::string& word) {
  if (word.empty()) return;
  const std::vector<ReferenceNumber> numbers = model_numbers(trace);
  const ReferenceNumber* number = number_named(numbers, name);
  if (number == nullptr) {
    throw InputError(fmt::format("{}: '{}' has no '{}'{}", option, trace, name,
                                 is_made_by_rule(trace) ? "" : ": a trace file is as it was measured"));
  }
  trace = with_number(trace, *number, understood_whole(option, word, number->range.least, number->range.most));
}

/// Of `full`, `lora(rank=8)` and `qlora(rank=8)`.
struct TrainedParts {
  std::string rank;        ///< of adapters; empty: there are none
  bool is_packed = false;  ///< what they leave frozen is in 4 bits a number
};

TrainedParts trained_parts(const std::string& train) {
  if (train == "full") return {};
  const bool is_packed = train.starts_with('q');
  const std::string name = is_packed ? "qlora" : "lora", before = name + "(rank=";
  if (train == name) return {"16", is_packed};
  if (train.starts_with(before) && train.ends_with(')')) {
    return {train.substr(before.size(), train.size() - before.size() - 1), is_packed};
  }
  throw InputError(fmt::format("--train: expected full, lora(rank=16) or qlora(rank=16), found '{}'", train));
}

bool has_dtype(const std::string& trace, std::string_view dtype) {
  try {
    load_model(with_option(trace, "dtype", dtype));
  } catch (const InputError&) {
    return false;
  }
  return true;
}

/// The type of numbers that a model by formula computes in, bf16 where nobody says, and what states then are.
void set_precision(AskedTraining& training, const std::string& word) {
  if (word.empty() && !is_made_by_rule(training.trace)) return;
  const auto precision = word.empty() ? Precision::bf16 : understood<Precision>("--precision", word);
  if (!is_made_by_rule(training.trace)) {
    throw InputError(
        fmt::format("--precision: '{}' is as it was measured: a model by formula has others", training.trace));
  }
  const bool is_mixed = precision == Precision::mixed;
  training.states = is_mixed ? States::by_dtype : States::as_parameters;
  const bool is_said = !word.empty() || training.trace.find("dtype=") != std::string::npos;
  if (!is_said && !has_dtype(training.trace, "bf16")) return;  // ResNets: fp32, their own default
  if (word.empty() && is_said) return;
  training.trace = with_option(training.trace, "dtype", is_mixed ? "bf16" : written(precision));
}

/// Of the precisions those whose products the device has a peak for.
std::vector<std::string_view> known_precisions(const Device& device) {
  std::vector<std::string_view> known;
  for (const auto& [precision, word] : Names<Precision>::all) {
    if (peak_of(device, computed_dtype(precision))) known.push_back(word);
  }
  return known;
}

/// Where the device computes in no such numbers, the question is wrong as it stands, whatever fits.
void refuse_unknown_precision(const FitsArguments& arguments, const AskedTraining& training, const Device& device,
                              const std::string& platform) {
  const std::string& word = arguments.precision;
  const bool has_own = arguments.model.find("dtype=") != std::string::npos ||
                       training.trace.find("dtype=") == std::string::npos;  // said, or its own default
  if (!is_made_by_rule(training.trace) || device.peak.empty() || (word.empty() && has_own)) return;
  const Precision precision = word.empty() ? Precision::bf16 : understood<Precision>("--precision", word);
  if (peak_of(device, computed_dtype(precision))) return;
  const std::vector<std::string_view> known = known_precisions(device);
  throw InputError(fmt::format("--precision: '{}' gives no peak for {}: expected {}", platform,
                               word.empty() ? "bf16, the default" : std::string(computed_dtype(precision)),
                               alternatives(known)));
}

double margin_of(const std::string& word) {
  std::string_view digits(word);
  if (is_share(word)) digits.remove_suffix(1);
  while (digits.ends_with(' ')) digits.remove_suffix(1);
  const Parsed<double> percent = parse_number(digits);
  if (is_share(word) && percent.fine() && percent.value >= 0 && percent.value <= 100) return percent.value / 100;
  throw InputError(fmt::format("--margin: expected a share from 0 % to 100 %, found '{}'", word));
}

Bytes size_of(std::string_view option, const std::string& word) {
  const Parsed<Bytes> size = parse_bytes(word);
  if (!size.fine()) throw InputError(fmt::format("{}: {}", option, size.complaint));
  return size.value;
}

/// One of the program's, `adamw`, or either Adam with states in 8 bits.
void set_optimizer(AskedTraining& training, const std::string& word) {
  if (word == "adam8bit" || word == "adamw8bit") {
    training.strategy = fmt::format("{}|store_all", states_in_8_bits);
    return;
  }
  if (word == "adamw") return;
  for (const auto& [optimizer, name] : Names<Optimizer>::all) {
    if (name != word) continue;
    training.optimizer = optimizer;
    return;
  }
  throw InputError(
      fmt::format("--optimizer: expected none, sgd, momentum, adam, adamw, adam8bit or adamw8bit, found "
                  "'{}'",
                  word));
}

AskedTraining training_of(const FitsArguments& arguments) {
  AskedTraining training{.trace = arguments.model, .platform = arguments.platform};
  set_optimizer(training, arguments.optimizer);
  training.update_kernels = understood<UpdateKernels>("--update-kernels", arguments.update_kernels);
  if (training.optimizer == Optimizer::none && training.update_kernels != UpdateKernels::fused) {
    throw InputError(fmt::format("--update-kernels: '{}' needs an --optimizer, found none", arguments.update_kernels));
  }
  load_model(training.trace);  // a name that nothing has is refused as such
  set_number(training.trace, "--batch", "batch", arguments.batch);
  set_number(training.trace, "--sequence", "sequence", arguments.sequence);
  const TrainedParts trained = trained_parts(arguments.train);
  set_number(training.trace, "--train", "lora", trained.rank);
  if (trained.is_packed) training.trace = with_option(training.trace, "base", "nf4");
  set_precision(training, arguments.precision);
  if (training.optimizer == Optimizer::none) training.states = States::by_dtype;
  training.parameter_groups = parameter_groups_of(arguments.parameter_groups, training.optimizer);
  training.ema = arguments.ema;
  training.clip_norm = arguments.clip_norm;
  training.evaluation = understood_evaluation("--evaluate", arguments.evaluate);
  if (training.evaluation) sized_for(training.trace, *training.evaluation);  // refused as such
  constexpr std::int64_t most_ahead = 1000;
  training.batches_ahead =
      static_cast<std::uint32_t>(understood_whole("--prefetch-batches", arguments.prefetch, 0, most_ahead));
  return training;
}

Reserves reserves_of(const FitsArguments& arguments, const Platform& platform) {
  Reserves reserves{.context = size_of("--context", arguments.context),
                    .margin = margin_of(arguments.margin),
                    .communicator = size_of("--communicator", arguments.communicator)};
  if (!arguments.memory.empty()) {
    reserves.capacity = size_of("--memory", arguments.memory);
  } else if (const std::optional<Bytes> capacity = platform[platform.devices.front().memory].capacity) {
    reserves.capacity = *capacity;
  } else {
    throw InputError(fmt::format("--memory: needed, since the memory of '{}' is unlimited", platform.name));
  }
  if (reserves.room() == Bytes{0}) {
    throw InputError(fmt::format("--context: expected less than the memory {}, found {}",
                                 format_bytes(reserves.capacity), format_bytes(reserves.context)));
  }
  return reserves;
}

int run_fits(const FitsArguments& arguments, const std::string& command_line) {
  const Platform platform = load_platform(arguments.platform);
  const Device& device = platform.devices.front();
  FitsAnswer answer{.training = training_of(arguments),
                    .reserves = reserves_of(arguments, platform),
                    .device = device.model.empty() ? platform.name : device.model,
                    .needs = {}};
  refuse_unknown_precision(arguments, answer.training, device, platform.name);
  answer.stored = stored_tensors_of(arguments.model);
  answer.needs = needs_of_plain(answer.training, answer.reserves);
  if (answer.training.optimizer == Optimizer::adam && answer.training.update_kernels == UpdateKernels::fused) {
    answer.by_foreach = needed_by_foreach(answer.training, answer.needs, answer.reserves);
  }
  answer.has_changes = !arguments.no_changes;
  if (!arguments.json) std::cout << needs_table(answer) << std::flush;
  if (answer.has_changes && !answer.needs.fits) {
    const PlanningWatch watch("looking for what makes it fit");
    answer.changes = changes_that_fit(answer.training, answer.needs, answer.reserves);
  }
  std::cout << (arguments.json ? json_text(fits_json(answer, made_by(command_line)), 2) + "\n" : changes_table(answer));
  return answer.needs.fits ? exit_fine : exit_no_result;
}

}  // namespace

void add_fits_command(CLI::App& app, int& exit_code, const std::string& command_line) {
  CLI::App* command = app.add_subcommand(
      "fits", "say whether a model's training fits a device, what takes the memory, and what makes it fit");
  command->footer(
      "Exit code 0: it fits, 1: it does not. Plain training is simulated with PyTorch's caching allocator. Where it "
      "does "
      "not\nfit, changes are simulated, too, alone and up to three together.\n"
      "  plimsoll fits qwen25_1_5b -p rtx_4090_pcie4 --sequence 2048\ndocs/fits.md explains the table.");
  auto arguments = std::make_shared<FitsArguments>();
  command
      ->add_option("model", arguments->model,
                   "a model by name (plimsoll list models), hf:config.json of transformers, a formula such as "
                   "gpt2:layers=24,\nor a trace")
      ->required()
      ->type_name("MODEL");
  command->add_option("-p,--platform", arguments->platform, "platform: a shipped name or a file")
      ->required()
      ->type_name("PLATFORM");
  command
      ->add_option("--train", arguments->train,
                   "trained parts: full, lora(rank=16) for adapters of attention's projections, or qlora(rank=16) for "
                   "adapters\non weights of 4 bits a number")
      ->capture_default_str()
      ->type_name("WHAT");
  command->add_option("--batch", arguments->batch, "samples at a time on a device (default: the model's)")
      ->type_name("N");
  command->add_option("--sequence", arguments->sequence, "tokens of a sample (default: the model's)")->type_name("N");
  command
      ->add_option("--optimizer", arguments->optimizer,
                   "optimizer: none, sgd, momentum, adam, adamw, or adam8bit with states in 8 bits")
      ->capture_default_str()
      ->type_name("NAME");
  command
      ->add_option("--update-kernels", arguments->update_kernels,
                   "kernels of an update: fused, foreach (torch.optim's default on a GPU: lists for each of its "
                   "operations) or single")
      ->capture_default_str()
      ->type_name("WORD");
  add_parameter_group_option(*command, arguments->parameter_groups);
  command->add_flag("--ema", arguments->ema, "keep an exponential moving average of each trained parameter");
  command->add_flag("--clip-norm", arguments->clip_norm, "clip gradients by the norm of all of them");
  command
      ->add_option("--evaluate", arguments->evaluate,
                   "an evaluation between iterations, every=N[,batches=N][,samples=N]: forwards without gradients, of "
                   "as many\nsamples as --batch or of so many")
      ->type_name("WORDS");
  command
      ->add_option("--prefetch-batches", arguments->prefetch,
                   "batches that are on the device before their turn (0: as in a loop that copies a batch when its "
                   "turn comes;\n1: a prefetcher on a stream of its own)")
      ->capture_default_str()
      ->type_name("N");
  command
      ->add_option(
          "--precision", arguments->precision,
          "bf16, fp16, tf32 or fp32 (parameters and states in that type), mixed (bf16 with states and a second "
          "copy\nof parameters in fp32) or amp (torch.autocast in bf16; default: bf16)")
      ->type_name("TYPE");
  command
      ->add_option("-m,--memory", arguments->memory, "memory of the device: a size such as '16 GB' (default: its own)")
      ->type_name("SIZE");
  command
      ->add_option("--context", arguments->context,
                   "memory that CUDA's context and loaded kernels take outside PyTorch's allocator")
      ->capture_default_str()
      ->type_name("SIZE");
  command
      ->add_option("--communicator", arguments->communicator,
                   "memory that NCCL takes outside it on each of several devices that work together")
      ->capture_default_str()
      ->type_name("SIZE");
  command
      ->add_option("--margin", arguments->margin,
                   "share of the reserved memory that is kept back, since predictions err")
      ->capture_default_str()
      ->type_name("SHARE");
  command->add_flag("--no-changes", arguments->no_changes, "do not look for what makes it fit");
  command->add_flag("--json", arguments->json, "print one JSON object instead of a table");
  command->callback([arguments, &exit_code, &command_line] { exit_code = run_fits(*arguments, command_line); });
}

}  // namespace plimsoll
