// The strategy `compress_plan`: a number of bits for each saved value, for a bound on the error of all gradients. Own;
// that bits should differ by what they cost in error is from Chen et al., ActNN (ICML 2021), and Liu et al., GACT
// (ICML 2022), which give bits to a budget of bits, without time.

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/core/expects.h"
#include "sim/core/lowering.h"
#include "sim/engine/event/event_engine.h"
#include "sim/io/input_error.h"
#include "strategies/common/op_sequence.h"
#include "strategies/common/option_rules.h"
#include "strategies/compression/compression_choice.h"
#include "strategies/offloading/activations/tape_pool.h"

namespace plimsoll {
namespace {

constexpr Codec bits_of_plan(std::uint32_t bits) {
  return {.kind = CodecKind::quantize, .bits = bits, .group = 256, .group_bytes = 8};
}
constexpr std::array codecs_of_plan{bits_of_plan(8), bits_of_plan(4), bits_of_plan(2)};

/// How many levels of memory are planned for, and prices of the whole squared error, in iteration times.
constexpr std::uint32_t levels_of_plan = 24;
constexpr std::array prices_of_plan{0.0, 0.1, 1.0};

class CompressPlanner {
 public:
  CompressPlanner(const PartTask& task, const OffloadModel& model, double largest_error)
      : task_(task),
        model_(model),
        saved_(saved_tensors(task.problem.graph, model)),
        menu_(task.problem.graph, saved_, codecs_of_plan, task.problem.platform[task.part().device]),
        largest_error_(largest_error) {}

  TapePool pool() {
    add_same_everywhere();
    Seconds all;
    for (const Seconds time : model_.time) all += time;
    for (const double price : prices_of_plan) {
      for (const auto& forms :
           forms_of_levels(menu_, model_, levels_of_plan, largest_error_ * largest_error_, price * all.value)) {
        add(forms);
      }
    }
    return std::move(pool_);
  }

 private:
  /// As the methods that know one number of bits.
  void add_same_everywhere() {
    std::size_t most = 0;
    for (std::size_t i = 0; i < menu_.size(); ++i) most = std::max(most, menu_[i].forms.size());
    for (std::size_t form = 0; form < std::max<std::size_t>(1, most); ++form) {
      std::vector<std::uint32_t> forms(menu_.size());
      for (std::size_t i = 0; i < forms.size(); ++i) {  // the same number of bits is as far from the end everywhere
        const std::size_t count = menu_[i].forms.size();
        forms[i] = static_cast<std::uint32_t>(count + form > most ? count + form - most : 0);
      }
      add(forms);
    }
  }

  void add(const std::vector<std::uint32_t>& forms) {
    if (std::ranges::find(tried_, forms) != tried_.end()) return;
    tried_.push_back(forms);
    Tape tape = packed_tape(task_.problem.graph, model_, saved_, menu_.choice(forms));
    const std::variant<Schedule, std::string> lowered =
        lower(task_.problem, task_.partition, std::span<const Tape>(&tape, 1));
    if (const std::string* why = std::get_if<std::string>(&lowered)) throw InputError(*why);
    const auto& schedule = std::get<Schedule>(lowered);
    if (predicted_errors(schedule, task_.problem.graph).whole > largest_error_) return;
    const Timeline timeline = simulate_event(schedule, task_.problem.platform);
    const MemoryId memory = task_.problem.platform[task_.part().device].memory;
    pool_.add(PlannedTape{std::move(tape), timeline.peaks[memory.index].bytes, timeline.makespan, std::nullopt});
  }

  const PartTask& task_;
  const OffloadModel& model_;
  std::vector<SavedTensor> saved_;
  CompressionMenu menu_;
  double largest_error_;
  std::vector<std::vector<std::uint32_t>> tried_;
  TapePool pool_;
};

constexpr std::array compress_plan_options{
    OptionInfo{"error", "0.1", "a number from 0.000001 to 10",
               "the largest relative error of all gradients as one vector, as `gradient_error` predicts it",
               number_between<1, 10'000'000, 1'000'000>}};

/// Nothing where the tape before cannot be packed, for the reason.
std::variant<TapePool, std::string> pool_of(const PartTask& task, const Options& options, const Tape* before) {
  const std::variant<OffloadModel, std::string> made = offload_model(task, before);
  if (const std::string* why = std::get_if<std::string>(&made)) return *why;
  const auto& model = std::get<OffloadModel>(made);
  refuse_if_unfit("compress_plan", task.problem.graph, saved_tensors(task.problem.graph, model), "all",
                  codecs_of_plan.front());
  return CompressPlanner(task, model, options.number("error")).pool();
}

std::vector<TapeOutcome> compress_plan_tapes(const PartTask& task, const Options& options,
                                             std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const std::variant<TapePool, std::string> made = pool_of(task, options, before);
  if (const std::string* why = std::get_if<std::string>(&made)) return refused(*why, budgets);
  std::vector<TapeOutcome> outcomes = std::get<TapePool>(made).outcomes(
      budgets, fmt::format("no choice of bits that was tried needs less with an error of {}", options.text("error")));
  for (TapeOutcome& outcome : outcomes) {
    if (Infeasible* none = std::get_if<Infeasible>(&outcome)) none->smallest_is_proven = false;
  }
  return outcomes;
}

std::vector<Bytes> compress_plan_candidates(const PartTask& task, const Options& options) {
  const std::variant<TapePool, std::string> made = pool_of(task, options, nullptr);
  return std::holds_alternative<TapePool>(made) ? std::get<TapePool>(made).peaks() : std::vector<Bytes>{};
}

}  // namespace

extern constinit const StrategyInfo compress_plan_strategy{
    .name = "compress_plan",
    .family = Family::compression,
    .summary = "gives each saved value 8, 4, 2 or all its bits, for the least time within a bound on gradients' error",
    .source = "own; bits by what they cost: Chen et al., ActNN, ICML 2021; Liu et al., GACT, ICML 2022",
    .chains_only = false,
    .options = compress_plan_options,
    .tapes = compress_plan_tapes,
    .candidates = compress_plan_candidates,
};

}  // namespace plimsoll
