// Compression of what the stages of chains save, against counts of live bytes written here, and what is refused.

#include <catch2/catch.hpp>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "platforms/platform_file.h"
#include "sim/engine/event/event_engine.h"
#include "sim/io/input_error.h"
#include "sim/judge/check.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "traces/models/synthetic.h"

namespace plimsoll {
namespace {

constexpr double rate = 20'000, launch = 0.01;  // of the device's memory, B/s; s a kernel

Platform devices_with_slow_memory(std::uint32_t count) {
  Platform platform = gpus({.count = count});
  for (Device& device : platform.devices) {
    device.memory_bandwidth = BytesPerSecond{rate};
    device.launch_overhead = Seconds{launch};
  }
  return platform;
}

/// A random chain whose i-th parameter is of stage i only, with lists of what its stages save.
Chain listed_chain(std::uint64_t seed, std::size_t stages) {
  Chain chain = random_small_chain(seed, stages);
  for (std::size_t i = 0; i < chain.stages.size(); ++i) {
    chain.stages[i].parameters.clear();
    if (i < chain.parameters.size()) chain.stages[i].parameters = {static_cast<std::uint32_t>(i)};
  }
  return with_saved_tensors(std::move(chain), seed);
}

/// What `quantize(bits=4, group=16)` makes of pictures: a scale and a minimum for each 16 values; signs for ReLUs.
struct PackedValue {
  std::int64_t plain = 0;

  std::int64_t values() const { return plain / 4; }
  std::int64_t groups() const { return (values() + 15) / 16; }
  std::int64_t quantized() const { return (values() + 1) / 2 + 8 * groups(); }
  std::int64_t mask() const { return (values() + 7) / 8; }
};

/// One iteration on one device, stage by stage: live bytes and seconds.
class PackedWalk {
 public:
  explicit PackedWalk(const Chain& chain) : chain_(chain), n_(chain.stages.size()) {
    for (const Parameter& parameter : chain.parameters) live_ += parameter.bytes.count;
    live_ += chain.input.count;
    for (std::size_t i = 0; i < n_; ++i) forward(i);
    for (std::size_t i = n_; i-- > 0;) backward(i);
  }

  std::int64_t peak() const { return peak_; }
  double seconds() const { return seconds_; }

 private:
  /// A saved value: its uses by the backward of which stage.
  struct Value {
    PackedValue size;
    std::map<std::size_t, std::vector<LayerUse>> uses;
    bool restored = false, quantized = false, masked = false;

    bool is_masked_in(std::size_t stage) const {
      const auto found = uses.find(stage);
      const auto is_sign = [](const LayerUse& use) { return text_of(use) == "relu.output"; };
      return found != uses.end() && std::ranges::any_of(found->second, is_sign);
    }
    bool is_read_in(std::size_t stage) const {
      const auto found = uses.find(stage);
      const bool has_signs = is_masked_in(stage);  // which are of the value's shape
      const auto is_other = [&](const LayerUse& use) {
        return text_of(use) != "relu.output" && !(has_signs && text_of(use).ends_with(".shape"));
      };
      return found != uses.end() && std::ranges::any_of(found->second, is_other);
    }
  };

  void note(std::int64_t beside = 0) { peak_ = std::max(peak_, live_ + beside); }
  void convert(std::int64_t moved, int kernels) {
    seconds_ += static_cast<double>(moved) / rate + kernels * launch;
    note();
  }

  static bool is_picture(const std::string& dtype) { return dtype != "int64"; }

  const std::vector<LayerUse>& uses_of(std::size_t stage, std::size_t boundary) const {
    static const std::vector<LayerUse> none;
    for (const BoundaryUse& use : chain_.stages[stage].boundary_uses) {
      if (use.tensor == boundary) return use.uses;
    }
    return none;
  }

  /// The value leaves the forward: packed for whoever reads it in the backward.
  void pack(Value& value) {
    const auto [first, last] = std::pair{value.uses.begin(), value.uses.end()};
    value.quantized = std::any_of(first, last, [&](const auto& use) { return value.is_read_in(use.first); });
    value.masked = std::any_of(first, last, [&](const auto& use) { return value.is_masked_in(use.first); });
    if (value.quantized) {
      live_ += value.size.quantized();
      convert(2 * value.size.plain + value.size.quantized() + 16 * value.size.groups(), 3);
    }
    if (value.masked) {
      live_ += value.size.mask();
      convert(value.size.mask(), 0);
    }
    live_ -= value.size.plain;
  }

  void forward(std::size_t i) {
    const Stage& stage = chain_.stages[i];
    live_ += stage.saved.count;
    note(stage.forward_workspace.count);
    seconds_ += stage.forward.value;
    std::int64_t opaque = (stage.saved - stage.output).count;
    for (const InnerTensor& inner : stage.inner) {
      opaque -= inner.bytes.count;
      if (!is_picture(inner.dtype)) {
        plain_[i] += inner.bytes.count;
        continue;
      }
      Value& value = values_[i].emplace_back();
      value.size = {inner.bytes.count};
      value.uses[i] = inner.uses;
      pack(value);
    }
    plain_[i] += opaque;
    if (i == 0) return;
    Value& x = values_[i].emplace_back();  // read by the backward of this stage, and by that of the one before
    x.size = {boundary_bytes(chain_, i).count};
    if (!uses_of(i, i).empty()) x.uses[i] = uses_of(i, i);
    if (!uses_of(i - 1, i).empty()) x.uses[i - 1] = uses_of(i - 1, i);
    pack(x);
  }

  void restore(Value& value, std::size_t stage) {
    if (!value.is_read_in(stage) || value.restored) return;
    value.restored = true;
    live_ += value.size.plain;
    convert(value.size.plain + value.size.quantized(), 1);
    live_ -= value.size.quantized();
  }

  /// After the backward of a stage; what the next one reads as well stays.
  void release(Value& value, std::size_t stage) {
    const bool is_read_later = stage > 0 && value.is_read_in(stage - 1);
    if (value.restored && !is_read_later) {
      live_ -= value.size.plain;
      value.restored = false;
    }
    if (value.masked && value.is_masked_in(stage)) live_ -= value.size.mask();
  }

  void backward(std::size_t i) {
    const Stage& stage = chain_.stages[i];
    for (const std::size_t of : {i, i + 1}) {
      for (Value& value : values_[of]) restore(value, i);
    }
    live_ += stage.input_gradient.count;
    for (const std::uint32_t p : stage.parameters) live_ += chain_.parameters[p].bytes.count;
    note(std::max<std::int64_t>(0, stage.backward_workspace.count));  // what dies early may be packed
    seconds_ += stage.backward.value;
    for (const std::size_t of : {i, i + 1}) {
      for (Value& value : values_[of]) release(value, i);
    }
    live_ -= plain_[i];
    if (i + 1 < n_) live_ -= chain_.stages[i + 1].input_gradient.count;
  }

  const Chain& chain_;
  std::size_t n_;
  std::map<std::size_t, std::vector<Value>> values_;  // by the stage whose forward uses them last
  std::map<std::size_t, std::int64_t> plain_;         // by stage: what is not packed
  std::int64_t live_ = 0, peak_ = 0;
  double seconds_ = 0;
};

TEST_CASE("a packed chain takes what a walk over its stages counts", "[compression]") {
  for (const RandomCase seed : random_cases(1, 200)) {
    Random random(seed);
    const Chain chain = listed_chain(seed, random.between(1, 7));
    const auto hands_on_nothing = [](const Stage& stage) { return stage.name != "loss" && stage.output == Bytes{0}; };
    if (std::ranges::any_of(chain.stages, hands_on_nothing) || !lists_saved(chain)) continue;
    INFO("seed " << seed);
    const Problem problem = problem_of(chain, devices_with_slow_memory(1), {.inner = Inner::apart});
    std::optional<Plan> made;
    try {
      made = std::get<Plan>(plan(problem, parse_spec("quantize(group=16)", "test"), std::nullopt));
    } catch (const InputError&) {
      continue;  // it has no picture
    }
    const PackedWalk walk(chain);
    const Timeline timeline = simulate_event(made->schedule, problem.platform);
    CHECK(timeline.peaks[0].bytes == Bytes{walk.peak()});
    CHECK(timeline.makespan.value == Approx(walk.seconds()).epsilon(1e-9));
  }
}

/// By device: packed bytes of its parts' pictures, for one micro-batch.
std::map<MemoryId, std::int64_t> packed_by_part(const Problem& problem, const Schedule& schedule) {
  std::map<MemoryId, std::set<TensorId>> tensors;
  for (const Buffer& buffer : schedule.buffers) {
    if (buffer.is_packed()) tensors[buffer.memory].insert(buffer.tensor);
  }
  std::map<MemoryId, std::int64_t> sums;
  for (const auto& [memory, all] : tensors) {
    for (const TensorId t : all) sums[memory] += PackedValue{problem.graph[t].bytes.count}.quantized();
  }
  return sums;
}

TEST_CASE("in a pipeline each micro-batch in flight has its packed forms, and no more", "[compression]") {
  std::size_t looked_at = 0;
  for (const RandomCase seed : random_cases(1, 60)) {
    for (const std::string pipe : {"1f1b", "gpipe"}) {
      Random random(seed);
      const std::uint32_t devices = random.between(2, 4), micro_batches = random.between(1, 8);
      Chain chain = listed_chain(seed, random.between(2 * devices, 2 * devices + 4));
      for (Stage& stage : chain.stages) {  // no masks
        for (InnerTensor& inner : stage.inner) std::erase(inner.uses, *layer_use("relu.output"));
        for (BoundaryUse& use : stage.boundary_uses) std::erase(use.uses, *layer_use("relu.output"));
        for (BoundaryUse& use : stage.boundary_uses) use.uses.push_back(*layer_use("gelu.input"));
      }
      INFO("seed " << seed << ", " << pipe);
      const Problem problem =
          problem_of(chain, devices_with_slow_memory(devices), {.micro_batches = micro_batches, .inner = Inner::apart});
      const Plan made = std::get<Plan>(plan(problem, parse_spec(pipe + "|quantize(group=16)", "test"), std::nullopt));
      CHECK(check(made.schedule, problem.graph, problem.platform).empty());
      std::map<MemoryId, std::int64_t> live, of_one = packed_by_part(problem, made.schedule);
      std::map<MemoryId, std::set<std::uint32_t>> in_flight;
      for (const Step& step : made.schedule.steps) {
        if (step.op == no_op || step.work.is_transfer()) {
          for (const BufferId b : made.schedule.buffers_in(step.allocates)) {
            const Buffer& buffer = made.schedule[b];
            if (buffer.is_packed()) live[buffer.memory] += buffer.bytes.count;
          }
        } else {
          const MemoryId memory = problem.platform[made.schedule[step.stream].device].memory;
          const bool is_forward = problem.graph[step.op].phase == Phase::forward;
          const bool begins = is_forward && !in_flight[memory].contains(step.micro_batch);
          if (begins) {  // of the others in flight all is packed, of this one nothing yet
            CHECK(live[memory] == static_cast<std::int64_t>(in_flight[memory].size()) * of_one[memory]);
            looked_at += in_flight[memory].size();
            in_flight[memory].insert(step.micro_batch);
          } else if (!is_forward) {
            in_flight[memory].erase(step.micro_batch);
          }
        }
        for (const BufferId b : made.schedule.buffers_in(step.frees)) {
          const Buffer& buffer = made.schedule[b];
          if (buffer.is_packed()) live[buffer.memory] -= buffer.bytes.count;
        }
      }
      for (const auto& [memory, bytes] : live) CHECK(bytes == 0);
    }
  }
  if (all_cases()) CHECK(looked_at > 500);
}

TEST_CASE("what is recomputed for later waits packed again, and a checkpoint is packed once it has been read",
          "[compression]") {
  const Chain chain =
      std::get<Chain>(synthetic_model("transformer:layers=8,width=64,heads=4,sequence=32,vocabulary=100"));
  const Problem problem = problem_of(chain, load_platform("h100_sxm_8"), {.inner = Inner::apart});
  const Plan made = std::get<Plan>(plan(problem, parse_spec("chen_sqrt|quantize", "test"), std::nullopt));
  const Schedule& schedule = made.schedule;
  std::size_t packed_in_backward = 0, checked = 0;
  bool has_turned = false;
  std::map<TensorId, std::set<bool>> live;  // by tensor: whether packed
  for (const Step& step : schedule.steps) {
    const bool computes = step.op != no_op;
    has_turned |= computes && is_backward(problem.graph[step.op].phase);
    if (step.kind == StepKind::pack && has_turned) ++packed_in_backward;
    for (const auto& [tensor, forms] : live) {
      if (!computes || problem.graph[step.op].phase != Phase::forward) continue;
      ++checked;
      CHECK(forms.size() < 2);  // not both as it is and packed
    }
    for (const BufferId b : schedule.buffers_in(step.allocates)) {
      live[schedule[b].tensor].insert(schedule[b].is_packed());
    }
    for (const BufferId b : schedule.buffers_in(step.frees)) {
      live[schedule[b].tensor].erase(schedule[b].is_packed());
    }
  }
  CHECK(packed_in_backward > 20);
  CHECK(checked > 100);
}

// In little memory a stage's input is made again within the backward, and is read again by later forwards before its
// own backward, with others' backwards in between: it waits packed all the while.
TEST_CASE("what is recomputed as a checkpoint waits packed until its own backward", "[compression]") {
  std::size_t packed_in_backward = 0;
  for (const RandomCase seed : random_cases(1, 12)) {
    const Problem problem = problem_of(listed_chain(seed, 7), devices_with_slow_memory(1), {.inner = Inner::apart});
    const PlanOutcome none = plan(problem, parse_spec("rotor", "test"), Bytes{0});
    std::vector<std::optional<Bytes>> budgets;
    for (const std::int64_t share : {4, 5, 6, 7}) {
      budgets.emplace_back(Bytes{std::get<Infeasible>(none).smallest->count * share / 4});
    }
    const std::vector<Pass> passes = parse_spec("rotor|quantize(bits=2,group=8,tensors=all+checkpoint)", "test");
    for (const PlanOutcome& outcome : plan(problem, passes, budgets)) {
      const Plan* made = std::get_if<Plan>(&outcome);
      if (made == nullptr) continue;
      CHECK(check(made->schedule, problem.graph, problem.platform).empty());
      bool has_turned = false;
      for (const Step& step : made->schedule.steps) {
        has_turned |= step.op != no_op && is_backward(problem.graph[step.op].phase);
        packed_in_backward += has_turned && step.kind == StepKind::pack ? 1 : 0;
      }
    }
  }
  if (all_cases()) CHECK(packed_in_backward > 10);
}

TEST_CASE("offloaded chunks of packed forms keep to the budget, to the byte", "[compression]") {
  std::size_t offloaded = 0;
  for (const RandomCase seed : random_cases(1, 40)) {
    Random random(seed);
    const Chain chain = listed_chain(seed, random.between(2, 6));
    const Problem problem = problem_of(chain, gpus({.to_host = BytesPerSecond{500}}), {.inner = Inner::apart});
    const std::vector<Pass> passes = parse_spec("quantize(bits=2, group=8)|offload_greedy(chunks=3)", "test");
    std::optional<Plan> all;
    try {
      all = std::get<Plan>(plan(problem, passes, std::nullopt));
    } catch (const InputError&) {
      continue;  // it has no picture
    }
    const PlanOutcome none = plan(problem, passes, Bytes{0});
    const Bytes least = *std::get<Infeasible>(none).smallest;
    std::vector<std::optional<Bytes>> budgets;  // the planner's own levels among them
    constexpr std::uint32_t levels = 48;
    for (std::uint32_t k = 0; k < levels; ++k) {
      budgets.emplace_back(least + range_of(all->peak - least, {k, levels}).offset);
    }
    for (const PlanOutcome& outcome : plan(problem, passes, budgets)) {
      const Plan* made = std::get_if<Plan>(&outcome);
      if (made == nullptr) continue;
      INFO("seed " << seed << ", " << made->schedule.budget->count);
      CHECK(made->peak <= *made->schedule.budget);
      for (const Step& step : made->schedule.steps) offloaded += step.kind == StepKind::offload ? 1 : 0;
    }
  }
  if (all_cases()) CHECK(offloaded > 1000);
}

std::string complaint(const Problem& problem, const std::string& spec) {
  try {
    plan(problem, parse_spec(spec, "test"), std::nullopt);
  } catch (const InputError& error) {
    return error.what();
  }
  return {};
}

TEST_CASE("chains that do not list what they save are refused, and lists without a match", "[compression]") {
  const Problem even = problem_of(even_chain(4), gpus({.count = 2}), {.micro_batches = 2, .inner = Inner::apart});
  const std::string none =
      "strategy 'quantize' chooses among the tensors that stages save, and the stages of 'even' list none";
  CHECK(complaint(even, "quantize") == none);
  CHECK(complaint(even, "1f1b|rotor|quantize") == none);
  const Chain transformer =
      std::get<Chain>(synthetic_model("transformer:layers=2,width=64,heads=4,sequence=32,vocabulary=100"));
  const Problem problem =
      problem_of(transformer, load_platform("h100_sxm_8"), {.micro_batches = 2, .inner = Inner::apart});
  CHECK(complaint(problem, "1f1b(stages=2)|quantize").empty());
  CHECK_THAT(complaint(problem, "1f1b(stages=2)|quantize(tensors=conv.input)"),
             Catch::Contains("tensors=conv.input matches no saved value of"));
  CHECK_THAT(complaint(problem, "1f1b(stages=2)|pool"), Catch::Contains("matches no saved value of"));
  CHECK(complaint(problem, "1f1b(stages=4)|quantize(tensors=loss)").empty());  // of one part only
  const auto split =
      make_problem(transformer, load_platform("h100_sxm_8"), {.backward = Backward::split, .inner = Inner::apart});
  REQUIRE(std::holds_alternative<std::string>(split));
  CHECK_THAT(std::get<std::string>(split), Catch::Contains("stay for its weight gradient is not known"));
}

// What a layer keeps packed, by its formula: of attention's 5 s b h + a s^2 b numbers the weights by their result and
// as factors, all in 4 bits and 8 bytes for 256; its input, normalized, waits as that of the layer norm.
TEST_CASE("a transformer's layers keep an eighth and a sixty-fourth of fp32, and a quarter of that of bf16",
          "[compression]") {
  const std::string shape = "transformer:layers=2,width=256,heads=4,sequence=128,vocabulary=512,dtype=";
  for (const auto& [dtype, element] : {std::pair{"fp32", 4}, std::pair{"bf16", 2}}) {
    const Chain chain = std::get<Chain>(synthetic_model(shape + dtype));
    const Problem problem = problem_of(chain, load_platform("h100_sxm_8"), {.inner = Inner::apart});
    const Plan made = std::get<Plan>(plan(problem, parse_spec("quantize", "test"), std::nullopt));
    std::map<TensorId, std::int64_t> packed;
    for (const Buffer& buffer : made.schedule.buffers) {
      if (buffer.is_packed()) packed[buffer.tensor] = buffer.bytes.count;
    }
    const std::int64_t s = 128, h = 256, a = 4, v = 512, layers = 2;
    const std::int64_t numbers = layers * (5 * s * h + a * s * s + 9 * s * h + 2 * s * h) + 2 * s * h + s * v;
    const std::int64_t all = std::accumulate(packed.begin(), packed.end(), std::int64_t{0},
                                             [](std::int64_t sum, const auto& one) { return sum + one.second; });
    INFO(dtype << ", " << element);
    CHECK(all == numbers / 2 + numbers / 256 * 8);
  }
}

}  // namespace
}  // namespace plimsoll
