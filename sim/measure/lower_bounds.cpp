#include "sim/measure/lower_bounds.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <vector>

#include "sim/core/expects.h"
#include "sim/core/op_attribute.h"
#include "sim/measure/least_costs.h"
#include "sim/measure/shared_work.h"
#include "sim/model/evaluation_forward.h"

namespace plimsoll {
namespace {

/// Which op makes each tensor, for values of a micro-batch (parameter gradients have many makers and readers wait
/// for all of them, at the update).
std::vector<std::optional<std::size_t>> makers_of(const Graph& graph) {
  std::vector<std::optional<std::size_t>> makers(graph.tensors.size());
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    for (const TensorId t : graph.ops[o].outputs) {
      if (graph[t].kind != TensorKind::parameter_gradient) makers[t.index] = o;
    }
  }
  return makers;
}

/// For every op, whether an op on its way from the sources (itself included) reads this input; then the same towards
/// the sinks. Where both hold, the input is live while the op runs.
std::vector<bool> input_is_live(const Graph& graph, const std::vector<std::optional<std::size_t>>& makers,
                                TensorId input) {
  const auto reads_input = [&](const Op& op) { return std::ranges::find(op.inputs, input) != op.inputs.end(); };
  std::vector<bool> from(graph.ops.size()), to(graph.ops.size());
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    from[o] = reads_input(graph.ops[o]);
    for (const TensorId t : graph.ops[o].inputs) {
      if (makers[t.index] && *makers[t.index] != o && from[*makers[t.index]]) from[o] = true;
    }
  }
  for (std::size_t o = graph.ops.size(); o-- > 0;) {
    if (reads_input(graph.ops[o])) to[o] = true;
    if (!to[o]) continue;
    for (const TensorId t : graph.ops[o].inputs) {
      if (makers[t.index]) to[*makers[t.index]] = true;
    }
  }
  for (std::size_t o = 0; o < from.size(); ++o) from[o] = from[o] && to[o];
  return from;
}

/// The storages of parameter gradients that an op or those before it make, as bits, and their bytes.
class GradientsBefore {
 public:
  /// Empty where that would take too much memory: then only an op's own count.
  GradientsBefore(const Graph& graph, const std::vector<std::optional<std::size_t>>& makers) : graph_(graph) {
    number_.resize(graph.storages, none);
    for (const Tensor& tensor : graph.tensors) {
      std::uint32_t& number = number_[tensor.storage.index];
      if (tensor.kind != TensorKind::parameter_gradient || number != none) continue;
      number = static_cast<std::uint32_t>(sizes_.size());
      sizes_.push_back(tensor.bytes);
    }
    words_ = (sizes_.size() + 63) / 64;
    if (sizes_.empty() || graph.ops.size() > most_words / words_) return;
    bits_.resize(graph.ops.size() * words_, 0);
    bytes_.resize(graph.ops.size());
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      for (const TensorId t : graph.ops[o].inputs) {
        if (makers[t.index] && *makers[t.index] != o) add_all(o, *makers[t.index]);
      }
      for (const TensorId t : graph.ops[o].outputs) {
        if (graph[t].kind == TensorKind::parameter_gradient) add(o, number_[graph[t].storage.index]);
      }
    }
  }

  bool has(std::size_t o, TensorId t) const {
    const std::uint32_t number = number_[graph_[t].storage.index];
    return !bits_.empty() && number != none && (bits_[o * words_ + number / 64] >> (number % 64) & 1U) != 0;
  }
  Bytes bytes(std::size_t o) const { return bytes_.empty() ? Bytes{0} : bytes_[o]; }

 private:
  static constexpr std::size_t most_words = std::size_t{1} << 25U;
  static constexpr std::uint32_t none = UINT32_MAX;

  void add(std::size_t o, std::uint32_t number) {
    std::uint64_t& word = bits_[o * words_ + number / 64];
    const std::uint64_t bit = std::uint64_t{1} << (number % 64);
    if ((word & bit) == 0) bytes_[o] += sizes_[number];
    word |= bit;
  }

  /// Looks at the bits of an earlier op that are new, and at words only where it has others.
  void add_all(std::size_t o, std::size_t earlier) {
    if (bytes_[o] == Bytes{0}) {
      std::copy_n(&bits_[earlier * words_], words_, &bits_[o * words_]);
      bytes_[o] = bytes_[earlier];
      return;
    }
    for (std::size_t w = 0; w < words_; ++w) {
      const std::uint64_t word = bits_[earlier * words_ + w];
      for (std::uint64_t added = word & ~bits_[o * words_ + w]; added != 0; added &= added - 1) {
        add(o, static_cast<std::uint32_t>(64 * w) + static_cast<std::uint32_t>(std::countr_zero(added)));
      }
    }
  }

  const Graph& graph_;
  std::vector<std::uint32_t> number_;  // by storage
  std::vector<Bytes> sizes_;           // by number
  std::size_t words_ = 0;              // an op
  std::vector<std::uint64_t> bits_;
  std::vector<Bytes> bytes_;  // by op
};

/// Parameters are at home between iterations, with all that stays and is there before the first backward.
void add_evaluation(const Problem& problem, Stays stay, LowerBounds& bounds) {
  Bytes needed = bytes_of_kind(problem.graph, TensorKind::parameter);
  if (stay == Stays::all) {
    needed += bytes_of_kind(problem.graph, TensorKind::optimizer_state);
    if (problem.gradients == Gradients::existing) {
      needed += bytes_of_kind(problem.graph, TensorKind::parameter_gradient);
    }
  }
  needed += evaluation_bytes(problem.graph, *problem.evaluation);
  if (needed <= bounds.memory) return;
  bounds.memory = needed;
  bounds.memory_by.reset();
}

/// What is on some device when an iteration begins, and stays.
Bytes resident_anywhere(const Graph& graph, Stays stay) {
  Bytes sum;
  if (stay != Stays::nothing) sum += bytes_of_kind(graph, TensorKind::parameter);
  if (stay == Stays::all) sum += bytes_of_kind(graph, TensorKind::optimizer_state);
  return sum;
}

}  // namespace

Stays stays_in(const Schedule& schedule, const Graph& graph, const Platform& platform) {
  std::vector<bool> on_device(graph.storages, false), elsewhere(graph.storages, false);
  for (const BufferId b : schedule.resident) {
    const Buffer& buffer = schedule[b];
    (platform[buffer.memory].device ? on_device : elsewhere)[graph[buffer.tensor].storage.index] = true;
  }
  Stays stays = schedule.updates.are_synchronous() ? Stays::all : Stays::parameters;  // gradients leave with updates
  for (const Tensor& tensor : graph.tensors) {
    const std::uint32_t s = tensor.storage.index;
    if (!elsewhere[s]) continue;
    if (tensor.kind == TensorKind::parameter && !on_device[s]) return Stays::nothing;
    stays = Stays::parameters;
  }
  for (const Step& step : schedule.steps) {  // an update within the backward leaves no gradient
    for (const BufferId b : schedule.buffers_in(step.frees)) {
      if (graph[schedule[b].tensor].kind == TensorKind::parameter_gradient) stays = Stays::parameters;
    }
  }
  for (const Buffer& buffer : schedule.buffers) {
    if (!buffer.is_packed() || per_micro_batch(graph[buffer.tensor].kind)) continue;
    if (graph[buffer.tensor].kind == TensorKind::parameter) return Stays::nothing;
    stays = Stays::parameters;
  }
  return stays;
}

LowerBounds lower_bounds(const Problem& problem, std::size_t devices, Stays stay, std::span<const Codec> codecs) {
  EXPECTS(devices > 0);
  const Graph& graph = problem.graph;
  const auto makers = makers_of(graph);
  LowerBounds bounds;

  const DeviceClasses classes = device_classes(problem.platform, problem.platform.devices.size());
  IterationWork work;
  work.micro_batches = static_cast<double>(problem.micro_batches);
  std::vector<Seconds> finish(graph.ops.size()), unsaved(graph.ops.size());  // of a run that saves; of the fastest
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    OnEachClass times;
    for (const DeviceId device : classes.one) times.push_back(fastest_on(problem, id_at<OpId>(o), device, codecs));
    const Seconds fastest = *std::ranges::min_element(times);
    if (op.phase == Phase::update) {
      if (stay == Stays::all) work.updates.push_back(std::move(times));
      continue;
    }
    if (!is_pinned_to_host(op)) work.micro_batch.push_back(std::move(times));
    Seconds start, fastest_unsaved = fastest;
    for (const TensorId t : op.inputs) {
      if (!makers[t.index] || *makers[t.index] == o) continue;
      const std::size_t maker = *makers[t.index];
      const bool is_saved = std::ranges::find(graph.ops[maker].saved, t) != graph.ops[maker].saved.end();
      start = std::max(start, is_saved ? finish[maker] : unsaved[maker]);
    }
    for (const DeviceId device : classes.one) {
      if (op.saved.empty()) break;
      fastest_unsaved = std::min(fastest_unsaved, fastest_on(problem, id_at<OpId>(o), device, codecs, Saving::nothing));
    }
    finish[o] = start + fastest;
    unsaved[o] = start + fastest_unsaved;
    bounds.critical_path = std::max(bounds.critical_path, unsaved[o]);
  }
  bounds.work = shared_work(work, classes, devices);
  if (problem.evaluation) {  // all else waits for it
    Seconds least = evaluation_share(problem, classes.one.front());
    for (const DeviceId device : classes.one) least = std::min(least, evaluation_share(problem, device));
    bounds.work += least;
    bounds.critical_path += least;
  }

  std::vector<TensorId> gradients;
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    if (graph.tensors[t].kind == TensorKind::parameter_gradient) gradients.push_back(id_at<TensorId>(t));
  }
  const bool all_exist = problem.gradients == Gradients::existing || (problem.micro_batches > 1 && stay == Stays::all);
  std::vector<TensorId> inputs;
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    if (graph.tensors[t].kind == TensorKind::input) inputs.push_back(id_at<TensorId>(t));
  }
  std::vector<std::vector<bool>> input_live;  // by input, by op
  for (const TensorId t : inputs) input_live.push_back(input_is_live(graph, makers, t));

  StorageSum set(graph);
  const auto add_residents = [&] {
    if (devices > 1) return;
    for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
      const TensorKind kind = graph.tensors[t].kind;
      const bool stays = (kind == TensorKind::parameter && stay != Stays::nothing) ||
                         (kind == TensorKind::optimizer_state && stay == Stays::all);
      if (stays || (kind == TensorKind::parameter_gradient && all_exist)) set.add(id_at<TensorId>(t));
    }
  };
  set.restart();
  add_residents();
  const bool gradients_stay = devices == 1 && stay == Stays::all;
  std::optional<GradientsBefore> before;
  if (gradients_stay && !all_exist) before.emplace(graph, makers);
  if (gradients_stay) std::ranges::for_each(gradients, [&](TensorId t) { set.add(t); });  // when all is done
  bounds.memory = set.sum();
  set.restart();
  add_residents();
  const Bytes resident = set.sum();
  if (devices > 1) bounds.memory = Bytes{resident_anywhere(graph, stay).count / static_cast<std::int64_t>(devices)};
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    if (op.phase == Phase::update && stay != Stays::all) continue;  // it may run elsewhere
    set.restart();
    const auto add = [&](TensorId t) {
      const TensorKind kind = graph[t].kind;
      const bool is_resident = devices == 1 && ((kind == TensorKind::parameter && stay != Stays::nothing) ||
                                                (kind == TensorKind::optimizer_state && stay == Stays::all) ||
                                                (kind == TensorKind::parameter_gradient && all_exist));
      const bool counted = is_resident || (before && before->has(o, t));
      if (!counted) set.add(t);
    };
    for (const TensorId t : op.inputs) {
      const Bytes least = smallest_form(graph, t, codecs, &op);
      least < graph[t].bytes ? set.add(t, least) : add(t);
    }
    std::ranges::for_each(op.outputs, add);
    for (std::size_t i = 0; i < inputs.size() && devices == 1; ++i) {
      if (input_live[i][o]) set.add(inputs[i], smallest_form(graph, inputs[i], codecs, nullptr));
    }
    const Bytes needed = resident + set.sum() + least_workspace(op) + (before ? before->bytes(o) : Bytes{0});
    if (needed <= bounds.memory) continue;
    bounds.memory = needed;
    bounds.memory_by = id_at<OpId>(o);
  }
  if (problem.evaluation && devices == 1) add_evaluation(problem, stay, bounds);
  return bounds;
}

}  // namespace plimsoll
