#include "experiments/fits/changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <tuple>
#include <variant>

#include "experiments/fits/training.h"
#include "experiments/study/model.h"
#include "platforms/platform_file.h"
#include "sim/core/expects.h"
#include "sim/io/input_error.h"
#include "sim/io/reference_options.h"
#include "traces/models/synthetic.h"

namespace plimsoll {
namespace {

constexpr std::size_t most_changes = 3, enough = 3;
constexpr std::int64_t adapter_rank = 16;

/// The modules that are attention's projections, as peft's `target_modules` takes them, by formula (transformers 5.15).
struct Projections {
  std::string_view formula, modules;
};
constexpr Projections projections[] = {{"bert", R"("query", "key", "value", "attention.output.dense")"},
                                       {"gpt2", R"("c_attn", "attn.c_proj")"},
                                       {"llama", R"("q_proj", "k_proj", "v_proj", "o_proj")"},
                                       {"opt", R"("q_proj", "k_proj", "v_proj", "out_proj")"},
                                       {"phi", R"("q_proj", "k_proj", "v_proj", "dense")"},
                                       {"t5", R"("q", "k", "v", "o")"},
                                       {"vit", R"("q_proj", "k_proj", "v_proj", "o_proj")"},
                                       {"whisper", R"("q_proj", "k_proj", "v_proj", "out_proj")"}};
constexpr std::string_view of_distilbert = R"("q_lin", "k_lin", "v_lin", "out_lin")";

/// What changes set, from which training and strategy are made.
struct Choices {
  std::string trace;
  std::string states, replicas, activations, place;  ///< passes of the strategy, in their order
  bool is_planned = false;                           ///< its activations, within a budget
  std::uint32_t micro_batches = 1;
  std::uint32_t devices = 1;
  std::int64_t batch = 1, sequence = 0;
};

/// Two of one group exclude each other.
struct ChangeOption {
  std::size_t group = 0;
  TrainingChange change;
  std::function<void(Choices&)> apply;
};

AskedTraining training_of(const AskedTraining& asked, const Choices& choices) {
  AskedTraining made = asked;
  made.trace = choices.trace;
  made.micro_batches = choices.micro_batches;
  made.devices = choices.devices;
  std::string passes;
  const auto add = [&](const std::string& pass) {
    if (!pass.empty()) passes += (passes.empty() ? "" : "|") + pass;
  };
  add(choices.states);
  add(choices.replicas);
  add(choices.activations);
  add(choices.place);
  if (passes.empty() || passes == choices.states) add("store_all");
  made.strategy = passes;
  return made;
}

class ChangeOptions {
 public:
  ChangeOptions(const AskedTraining& asked, bool has_states)
      : asked_(asked), has_states_(has_states), numbers_(model_numbers(asked.trace)) {
    first_.trace = asked.trace;
    first_.micro_batches = asked.micro_batches;
    if (asked.strategy.starts_with(states_in_8_bits)) first_.states = states_in_8_bits;
    if (const ReferenceNumber* batch = number_named(numbers_, "batch")) first_.batch = batch->value;
    if (const ReferenceNumber* sequence = number_named(numbers_, "sequence")) first_.sequence = sequence->value;
  }

  std::vector<ChangeOption> all() {
    recompute();
    ++group_;
    store_states();
    ++group_;
    shrink_batch();
    ++group_;
    adapt();
    ++group_;
    shorten();
    ++group_;
    share();
    return std::move(options_);
  }

  const Choices& first() const { return first_; }

 private:
  void add(TrainingChange change, std::function<void(Choices&)> apply) {
    options_.push_back({group_, std::move(change), std::move(apply)});
  }

  void recompute() {
    const bool is_chain = std::holds_alternative<Chain>(load_model(asked_.trace).model);
    const auto pass = [&](std::string what, std::string how, const char* of_chain, const char* of_graph, bool plans) {
      const std::string chosen = is_chain ? of_chain : of_graph;
      add({std::move(what), std::move(how)}, [chosen, plans](Choices& c) {
        c.activations = chosen;
        c.is_planned = plans;
      });
    };
    const std::string by_plan = "plimsoll plan --for pytorch, and plimsoll.torch.apply";
    pass("recompute every block",
         "Hugging Face: gradient_checkpointing=True; torchtitan: activation_checkpoint.mode = \"full\"",
         "full_recompute", "policy(rule=huggingface.full)", false);
    pass("recompute the cheapest values", by_plan, "rotor", "snapshot(offload=no)", true);
    pass("recompute and offload the cheapest values", by_plan, "rotor|offload_greedy", "snapshot", true);
  }

  void store_states() {
    if (asked_.optimizer != Optimizer::adam || !has_states_) return;
    if (first_.states.empty()) {
      add({"Adam's states in 8 bits", "Hugging Face: optim=\"adamw_bnb_8bit\"", false},
          [](Choices& c) { c.states = states_in_8_bits; });
    }
    add({"states and updates on the host",
         "DeepSpeed: zero_optimization.stage = 2, zero_optimization.offload_optimizer.device = \"cpu\"; accelerate: "
         "{distributed_type: DEEPSPEED, deepspeed_config: {zero_stage: 2, offload_optimizer_device: cpu}}"},
        [](Choices& c) { c.place = "zero_offload"; });
  }

  void shrink_batch() {
    const ReferenceNumber* batch = number_named(numbers_, "batch");
    if (batch == nullptr) return;
    std::vector<std::int64_t> sizes;
    for (std::int64_t size = batch->value; size > 1 && size % 2 == 0;) sizes.push_back(size /= 2);
    if (sizes.size() > 2) sizes = {sizes.front(), sizes.back()};
    for (const std::int64_t size : sizes) {
      const auto parts = static_cast<std::uint32_t>(batch->value / size);
      add({fmt::format("{} {} at a time, gradients of {} added up", size, size == 1 ? "sample" : "samples", parts),
           fmt::format("Hugging Face: per_device_train_batch_size={0}, gradient_accumulation_steps={1}; accelerate: "
                       "Accelerator(gradient_accumulation_steps={1})",
                       size, parts * asked_.micro_batches)},
          [size, parts, number = *batch](Choices& c) {
            c.trace = with_number(c.trace, number, size);
            c.micro_batches *= parts;
            c.batch = size;
          });
    }
  }

  void adapt() {
    const ReferenceNumber* lora = number_named(numbers_, "lora");
    if (lora == nullptr || lora->value != 0) return;
    const std::string formula = formula_of(asked_.trace);
    const auto found = std::ranges::find(projections, formula, &Projections::formula);
    EXPECTS(found != std::ranges::end(projections));
    add({fmt::format("train adapters of rank {} only (LoRA)", adapter_rank),
         fmt::format("peft: LoraConfig(r={}, target_modules=[{}]){}", adapter_rank, found->modules,
                     formula == "bert" ? fmt::format("; of DistilBERT [{}]", of_distilbert) : ""),
         false},
        [number = *lora](Choices& c) { c.trace = with_number(c.trace, number, adapter_rank); });
    if (formula != "llama") return;  // the one with weights of 4 bits
    add({fmt::format("train adapters of rank {} on weights of 4 bits (QLoRA)", adapter_rank),
         "transformers: BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=\"nf4\", "
         "bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.bfloat16), with peft's LoraConfig as for LoRA",
         false},
        [number = *lora](Choices& c) {
          c.trace = with_option(with_number(c.trace, number, adapter_rank), "base", "nf4");
        });
  }

  void shorten() {
    const ReferenceNumber* sequence = number_named(numbers_, "sequence");
    if (sequence == nullptr || sequence->value < 256) return;
    const std::int64_t half = sequence->value / 2;
    add({fmt::format("{} tokens a sample", half), "the tokenizer's or data set's max_length", false},
        [half, number = *sequence](Choices& c) {
          c.trace = with_number(c.trace, number, half);
          c.sequence = half;
        });
  }

  void share() {
    const auto devices = static_cast<std::uint32_t>(load_platform(asked_.platform).devices.size());
    if (devices > 2) share(2);
    if (devices >= 2) share(devices);
  }

  void share(std::uint32_t devices) {
    add({fmt::format("{} devices share parameters, gradients and states, each with samples of its own", devices),
         fmt::format("Hugging Face: fsdp=\"full_shard\" by torchrun --nproc-per-node={}; torchtitan: "
                     "parallelism.data_parallel_shard_degree = {}; accelerate: {{distributed_type: FSDP, "
                     "num_processes: {}, fsdp_config: {{fsdp_version: 2, fsdp_reshard_after_forward: true, "
                     "fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP}}}}",
                     devices, devices, devices),
         false},
        [devices](Choices& c) {
          c.replicas = fmt::format("zero3(ranks={})", devices);
          c.micro_batches *= devices;
          c.devices = devices;
        });
  }

  const AskedTraining& asked_;
  bool has_states_;  ///< that are worth a change
  std::vector<ReferenceNumber> numbers_;
  Choices first_;
  std::size_t group_ = 0;
  std::vector<ChangeOption> options_;
};

/// Whether states, and a second copy of weights, are more than a twentieth of what lives at the peak.
bool has_states(const TrainingNeeds& plain) {
  constexpr std::int64_t least_share = 20;
  Bytes states;
  for (const NeedPart& part : plain.parts) {
    if (part.name == states_part || part.name == main_weights_part || part.name == averages_part) states += part.bytes;
  }
  return states.count * least_share > plain.live.count;
}

/// Where this set of options makes a training: nothing where a strategy refuses it.
std::optional<ChangedTraining> changed(const AskedTraining& asked, const Choices& first, const Reserves& reserves,
                                       const std::vector<const ChangeOption*>& chosen) {
  Choices choices = first;
  ChangedTraining made;
  for (const ChangeOption* option : chosen) {
    option->apply(choices);
    made.changes.push_back(option->change);
  }
  // PyTorch runs plans of one device and one micro-batch that leave updates where they are.
  const bool is_plain_step = choices.place.empty() && choices.replicas.empty() && choices.micro_batches == 1;
  if (choices.is_planned && !is_plain_step) return std::nullopt;
  made.training = training_of(asked, choices);
  made.samples = static_cast<double>(choices.batch) * choices.micro_batches;
  made.tokens = made.samples * static_cast<double>(choices.sequence);
  try {
    made.needs =
        choices.is_planned ? needs_of_planned(made.training, reserves) : needs_within_room(made.training, reserves);
  } catch (const InputError&) {  // the strategies do not go together, or not with this model
    return std::nullopt;
  }
  return made;
}

/// All sets of `count` options of different groups, in the order of the options.
void each_set(const std::vector<ChangeOption>& options, std::size_t count, std::size_t from,
              std::vector<const ChangeOption*>& chosen,
              const std::function<void(const std::vector<const ChangeOption*>&)>& tell) {
  if (chosen.size() == count) return tell(chosen);
  for (std::size_t o = from; o < options.size(); ++o) {
    if (!chosen.empty() && chosen.back()->group == options[o].group) continue;
    chosen.push_back(&options[o]);
    each_set(options, count, o + 1, chosen, tell);
    chosen.pop_back();
  }
}

}  // namespace

bool ChangedTraining::is_same() const {
  return std::ranges::all_of(changes, &TrainingChange::is_same);
}

Seconds ChangedTraining::time_of_one() const {
  return Seconds{needs.time.value / (tokens > 0 ? tokens : samples)};
}

std::vector<ChangedTraining> changes_that_fit(const AskedTraining& asked, const TrainingNeeds& plain,
                                              const Reserves& reserves) {
  ChangeOptions made(asked, has_states(plain));
  const std::vector<ChangeOption> options = made.all();
  std::vector<ChangedTraining> fitting;
  std::vector<std::vector<const ChangeOption*>> found;
  const auto has_found_part = [&](const std::vector<const ChangeOption*>& set) {
    return std::ranges::any_of(found, [&](const auto& part) { return std::ranges::includes(set, part); });
  };
  const auto is_enough = [&](std::size_t count) { return count <= 2 ? fitting.size() >= enough : !fitting.empty(); };
  for (std::size_t count = 1; count <= most_changes && !is_enough(count); ++count) {
    std::vector<const ChangeOption*> chosen;
    each_set(options, count, 0, chosen, [&](const std::vector<const ChangeOption*>& set) {
      if (has_found_part(set)) return;
      std::optional<ChangedTraining> each = changed(asked, made.first(), reserves, set);
      if (!each || !each->needs.fits) return;
      fitting.push_back(*std::move(each));
      found.push_back(set);
    });
  }
  std::ranges::stable_sort(fitting, {},
                           [](const ChangedTraining& each) { return std::tuple(!each.is_same(), each.time_of_one()); });
  return fitting;
}

}  // namespace plimsoll
