#include "sim/model/update_launches.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

/// The operations of an update by lists, in PyTorch 2.x, each by how many lists it reads or writes in a kernel's
/// arguments, and how many times in all a list of numbers goes to or from memory.
struct Passes {
  std::span<const std::size_t> lists;
  double moves = 0;
};

Passes foreach_passes(Optimizer optimizer) {
  static constexpr std::array<std::size_t, 1> sgd{2};             // p += g
  static constexpr std::array<std::size_t, 3> momentum{1, 2, 2};  // v *= m; v += g; p += v
  // m lerp g; s *= b; s += g g; r = sqrt s; r /= c; r += e; p += m / r
  static constexpr std::array<std::size_t, 7> adam{2, 1, 2, 2, 1, 1, 3};
  switch (optimizer) {
    case Optimizer::none:
      return {};
    case Optimizer::sgd:
      return {sgd, 3};
    case Optimizer::momentum:
      return {momentum, 2 + 3 + 3};
    case Optimizer::adam:
      return {adam, 3 + 2 + 3 + 2 + 2 + 2 + 4};
  }
  return {};
}

/// Lists of each of Megatron-LM's passes around the update: of all parameters, of those with an fp32 copy, of fp16.
constexpr std::array<std::size_t, 3> megatron_passes{1, 2, 1};    // norm; clipping; zeros
constexpr std::array<std::size_t, 1> megatron_copies{2};          // from fp32
constexpr std::array<std::size_t, 2> megatron_fp16_passes{2, 1};  // to fp32; by the scale

/// What they move for each number: of fp16, where gradients are copied to fp32 and divided by the loss's scale; else,
/// where they are in fp32 from the first. Norm, clipping, the parameter's copy, zeros.
constexpr double around_fp16 = (2 + 4) + (4 + 4) + 4 + (4 + 4) + (2 + 4) + 2;
constexpr double around_bf16 = 4 + (4 + 4) + 4 + 4;

/// How many numbers an update's parameters have; of an unknown dtype: as if in fp32.
std::int64_t numbers_of(const Graph& graph, const Op& update) {
  std::int64_t numbers = 0;
  for (const TensorId t : update.mutates) {
    if (graph[t].kind != TensorKind::parameter) continue;
    numbers += graph[t].bytes.count / bytes_of_dtype(dtype_of(graph, graph[t])).value_or(4);
  }
  return numbers;
}

/// Of an update: bytes of the roots of its second moment, of parameters of the group.
Bytes root_of(const Graph& graph, const Op& op, const Optimizers& optimizers, std::size_t group) {
  if (op.phase != Phase::update || optimizers.of_group(group) != Optimizer::adam) return {};
  if (!optimizers.groups.empty()) {
    constexpr std::string_view first = "state 0 of ";
    Bytes roots;
    for (const TensorId t : op.mutates) {
      const Tensor& state = graph[t];
      if (state.kind != TensorKind::optimizer_state || !state.name.starts_with(first)) continue;
      if (optimizers.group_of(state.name.substr(first.size())) == group) roots += state.bytes;
    }
    return roots;
  }
  const auto state =
      std::ranges::find_if(op.mutates, [&](TensorId t) { return graph[t].kind == TensorKind::optimizer_state; });
  return state == op.mutates.end() ? Bytes{} : graph[*state].bytes;
}

/// Whether it changes an fp32 copy of a narrower parameter: that comes first of its states.
bool has_copies(const Graph& graph, const Op& update, Optimizer optimizer, std::int64_t numbers) {
  Bytes states;
  for (const TensorId t : update.mutates) {
    if (graph[t].kind == TensorKind::optimizer_state) states += graph[t].bytes;
  }
  return states.count >= (optimizer_states(optimizer) + 1) * bytes_of_fp32 * numbers;
}

bool is_of_fp16(const Graph& graph, const Op& update) {
  return std::ranges::any_of(update.mutates, [&](TensorId t) {
    const std::string& dtype = dtype_of(graph, graph[t]);
    return graph[t].kind == TensorKind::parameter && (dtype == "fp16" || dtype == "float16" || dtype == "half");
  });
}

void launch_as_megatron(const Graph& graph, Optimizer optimizer, const std::vector<Op*>& updates,
                        const std::vector<std::int64_t>& numbers) {
  const auto kernels_of = [&](std::span<const std::size_t> passes, const std::vector<std::int64_t>& of) {
    std::size_t kernels = 0;
    for (const std::size_t lists : passes) kernels += kernels_for_lists(of, lists);
    return kernels;
  };
  std::vector<std::int64_t> copied, scaled;
  for (std::size_t u = 0; u < updates.size(); ++u) {
    if (!has_copies(graph, *updates[u], optimizer, numbers[u])) continue;
    copied.push_back(numbers[u]);
    if (is_of_fp16(graph, *updates[u])) scaled.push_back(numbers[u]);
  }
  const std::size_t launches = kernels_for_lists(numbers, 2 + static_cast<std::size_t>(optimizer_states(optimizer))) +
                               kernels_of(megatron_passes, numbers) + kernels_of(megatron_copies, copied) +
                               kernels_of(megatron_fp16_passes, scaled);
  for (std::size_t u = 0; u < updates.size(); ++u) {
    Op& update = *updates[u];
    EXPECTS(update.bytes_moved);
    const auto moved = static_cast<double>(update.bytes_moved->count);
    double around = 0;
    if (has_copies(graph, update, optimizer, numbers[u])) {
      const bool is_fp16 = is_of_fp16(graph, update);
      around = (is_fp16 ? around_fp16 : around_bf16) * static_cast<double>(numbers[u]);
      if (is_fp16) update.workspace = Bytes{numbers[u] * bytes_of_fp32};
    } else {
      for (const TensorId t : update.inputs) {  // norm, clipping read and written, zeros
        if (graph[t].kind == TensorKind::parameter_gradient) around += 4 * static_cast<double>(graph[t].bytes.count);
      }
    }
    update.launches = static_cast<double>(launches) / static_cast<double>(updates.size());
    update.traffic = moved > 0 ? (moved + around) / moved : 1;
  }
}

/// Adds to the updates what passes around them move, by update, each with so many lists.
void add_passes(Graph& graph, UpdateKernels kernels, const std::vector<Bytes>& moved, double passes,
                std::size_t lists) {
  std::vector<std::int64_t> numbers;
  for (const Op& op : graph.ops) {
    if (op.phase == Phase::update) numbers.push_back(numbers_of(graph, op));
  }
  const bool are_together = kernels != UpdateKernels::single;
  const auto together = static_cast<double>(kernels_for_lists(numbers, lists)) / static_cast<double>(numbers.size());
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    Op& update = graph.ops[o];
    if (update.phase != Phase::update) continue;
    EXPECTS(update.bytes_moved);
    const Bytes own = *update.bytes_moved, all = own + moved[o];
    if (all > Bytes{0}) {
      const double traffic = update.traffic * static_cast<double>(own.count) + static_cast<double>(moved[o].count);
      update.traffic = traffic / static_cast<double>(all.count);
    }
    update.bytes_moved = all;
    update.launches += passes * (are_together ? together : 1);
  }
}

/// Of one group of parameters.
struct UpdatesOfGroup {
  Optimizer optimizer = Optimizer::none;
  std::vector<Op*> updates = {};
  std::vector<std::int64_t> numbers = {};
  Bytes roots = {};  ///< of second moments
};

void launch_group(const Graph& graph, const UpdatesOfGroup& of, UpdateKernels kernels) {
  if (kernels == UpdateKernels::megatron) return launch_as_megatron(graph, of.optimizer, of.updates, of.numbers);
  const auto moves = static_cast<double>(optimizer_moves(of.optimizer));
  std::size_t launches = 0;
  double traffic = 1;
  if (kernels == UpdateKernels::fused) {
    launches = kernels_for_lists(of.numbers, 2 + static_cast<std::size_t>(optimizer_states(of.optimizer)));
  } else {
    const Passes passes = foreach_passes(of.optimizer);
    for (const std::size_t lists : passes.lists) launches += kernels_for_lists(of.numbers, lists);
    traffic = passes.moves / moves;
  }
  for (Op* const update : of.updates) {
    update->launches = static_cast<double>(launches) / static_cast<double>(of.updates.size());
    update->traffic = traffic;
    if (kernels == UpdateKernels::foreach && of.optimizer == Optimizer::adam) update->workspace = of.roots;
  }
}

}  // namespace

std::size_t kernels_for_lists(const std::vector<std::int64_t>& numbers, std::size_t lists) {
  constexpr std::int64_t chunk = 65536;
  constexpr std::size_t most_chunks = 320;
  constexpr std::array<std::size_t, 5> most_tensors{110, 64, 48, 36, 30};  // by lists
  EXPECTS(lists > 0);
  const std::size_t room = most_tensors[std::min(lists, most_tensors.size()) - 1];
  std::size_t kernels = 0, tensors = 0, chunks = 0;
  for (const std::int64_t n : numbers) {
    std::int64_t left = (n + chunk - 1) / chunk;
    if (left > 0) ++tensors;
    for (; left > 0; --left) {
      ++chunks;
      const bool is_full = chunks == most_chunks || (tensors == room && left == 1);
      if (!is_full) continue;
      ++kernels;
      chunks = 0;
      tensors = left == 1 ? 0 : 1;  // the rest of this one goes on in the next kernel
    }
  }
  return kernels + (chunks > 0 ? 1 : 0);
}

void keep_own_roots(Graph& graph, const Optimizers& optimizers, UpdateKernels kernels) {
  if (kernels != UpdateKernels::foreach) return;
  std::vector<std::optional<Bytes>> most(graph.ops.size());  // an update of a whole stage may be of several groups
  for (std::size_t group = 0; group <= optimizers.groups.size(); ++group) {
    if (optimizers.of_group(group) != Optimizer::adam) continue;
    Bytes roots;
    for (const Op& op : graph.ops) roots += root_of(graph, op, optimizers, group);
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      const Op& op = graph.ops[o];
      const bool is_of_all = optimizers.groups.empty() && op.phase == Phase::update;
      if (is_of_all || root_of(graph, op, optimizers, group) > Bytes{})
        most[o] = std::max(most[o].value_or(Bytes{}), roots);
    }
  }
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    if (most[o]) graph.ops[o].workspace = *most[o];
  }
}

void keep_averages(Graph& graph, States states, UpdateKernels kernels) {
  std::vector<Bytes> moved(graph.ops.size());
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    if (graph.ops[o].phase != Phase::update) continue;
    const std::vector<TensorId> changed = graph.ops[o].mutates;
    for (const TensorId t : changed) {
      if (graph[t].kind != TensorKind::parameter) continue;
      const std::string dtype = dtype_of(graph, graph[t]);
      const bool is_wide = has_fp32_copy(states, dtype);
      Tensor average{.name = "average of " + graph[t].name,
                     .kind = TensorKind::optimizer_state,
                     .bytes = average_bytes(states, graph[t].bytes, dtype),
                     .storage = id_at<StorageId>(graph.storages++),
                     .shape = {},
                     .dtype = is_wide ? "fp32" : graph[t].dtype};
      moved[o] += 3 * average.bytes;
      const auto id = id_at<TensorId>(graph.tensors.size());
      graph.tensors.push_back(std::move(average));
      graph.ops[o].inputs.push_back(id);
      graph.ops[o].mutates.push_back(id);
    }
  }
  add_passes(graph, kernels, moved, 1, 2);
}

void count_clipping(Graph& graph, UpdateKernels kernels) {
  std::vector<Bytes> moved(graph.ops.size());
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    if (graph.ops[o].phase != Phase::update) continue;
    std::vector<TensorId> gradients;
    std::ranges::copy_if(graph.ops[o].inputs, std::back_inserter(gradients),
                         [&](TensorId t) { return graph[t].kind == TensorKind::parameter_gradient; });
    moved[o] = clipping_bytes_moved(graph, gradients);
  }
  add_passes(graph, kernels, moved, 2, 1);
}

void launch_together(Graph& graph, const Optimizers& optimizers, UpdateKernels kernels) {
  if (optimizers.rest == Optimizer::none || kernels == UpdateKernels::single) return;
  for (std::size_t group = 0; group <= optimizers.groups.size(); ++group) {
    UpdatesOfGroup of{.optimizer = optimizers.of_group(group)};
    for (Op& op : graph.ops) {
      if (op.phase != Phase::update || group_of(graph, op, optimizers) != group) continue;
      of.updates.push_back(&op);
      of.numbers.push_back(numbers_of(graph, op));
      of.roots += root_of(graph, op, optimizers, group);
    }
    if (!of.updates.empty()) launch_group(graph, of, kernels);
  }
}

}  // namespace plimsoll
