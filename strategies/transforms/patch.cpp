// The transform `patch`: inference whose first stages run patch by patch, so that their large pictures are never there
// whole. Patches overlap by their windows' halo, which is computed again in each.
// A patch of p x p of the result needs (p - 1) s + r squared of the input, s the product of the strides, r the
// receptive field; operations grow to the sum of the patches' areas over the whole; memory is the result and one
// patch's values. Source: Lin, Chen, Cai, Gan, Han, "MCUNetV2: memory-efficient patch-based inference for tiny deep
// learning", NeurIPS 2021.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "sim/core/graph.h"
#include "sim/ops/layers.h"
#include "strategies/api/strategy.h"
#include "strategies/transforms/smaller_problem.h"

namespace plimsoll {
namespace {

// Graphs of which the first stages run forward patch by patch, and nothing runs backward.

struct PatchChoice {
  std::int64_t side = 2;           ///< patches in a row and in a column
  std::uint32_t first_behind = 1;  ///< the first stage that runs whole
  std::int64_t pool_window = 3;    ///< side of a pooling's windows, which graphs do not state
};

struct PatchedGraph {
  Graph graph;
  Flops before, after;  ///< operations of the first stages
};

struct Unknown {
  std::string what;
};

/// Of an op's windows on its pictures.
struct Windows {
  std::int64_t side = 1, stride = 1;
};

/// Rows and columns of pictures of four dimensions.
struct PictureSides {
  std::size_t rows, columns;
};
constexpr PictureSides of_channels_first{2, 3}, of_channels_last{1, 2};

class Patching {
 public:
  Patching(const Graph& graph, const PatchChoice& choice) : graph_(graph), choice_(choice) {}

  PatchedGraph run() {
    made_.graph.name = graph_.name;
    made_.graph.source = graph_.source;
    made_.graph.tensors = graph_.tensors;
    made_.graph.storages = graph_.storages;
    split_ops();
    find_layout();
    find_regions();
    for (std::int64_t patch = 0; patch < choice_.side * choice_.side; ++patch) add_patch(patch);
    for (const Op* op : behind_) add_behind(*op);
    std::vector<bool> keeps = named_tensors(made_.graph);
    for (std::size_t t = 0; t < keeps.size(); ++t) {
      const TensorKind kind = made_.graph.tensors[t].kind;
      keeps[t] = keeps[t] || kind == TensorKind::parameter || kind == TensorKind::input;
    }
    keep_tensors(made_.graph, keeps);
    return std::move(made_);
  }

 private:
  const Tensor& tensor(TensorId t) const { return graph_[t]; }
  bool is_picture(TensorId t) const {
    const bool is_value = tensor(t).kind == TensorKind::input || tensor(t).kind == TensorKind::activation;
    return is_value && tensor(t).shape.size() == 4;
  }
  std::int64_t rows(TensorId t) const { return tensor(t).shape[sides_.rows]; }

  void split_ops() {
    for (const Op& op : graph_.ops) {
      if (op.phase != Phase::forward) continue;
      (op.stage < choice_.first_behind ? first_ : behind_).push_back(&op);
    }
    for (const Op* op : behind_) {
      for (const TensorId t : op->inputs) read_behind_.insert(t);
    }
  }

  const Tensor* weight_of(const Op& op) const {
    for (const TensorId t : op.inputs) {
      if (tensor(t).kind == TensorKind::parameter && tensor(t).shape.size() == 4) return &tensor(t);
    }
    return nullptr;
  }

  /// The weight of a convolution says where channels are.
  void find_layout() {
    for (const Op* op : first_) {
      const Tensor* weight = weight_of(*op);
      if (weight == nullptr || op->outputs.empty() || !is_picture(op->outputs[0])) continue;
      const std::vector<std::int64_t>& y = tensor(op->outputs[0]).shape;
      sides_ = y[1] == weight->shape[0] ? of_channels_first : of_channels_last;
      return;
    }
    throw Unknown{"the first stages of '" + graph_.name + "' have no convolution whose shapes are stated"};
  }

  Windows windows_of(const Op& op, TensorId x, TensorId y) const {
    const Tensor* weight = weight_of(op);
    if (weight == nullptr && tensor(x).shape == tensor(y).shape) return {};
    const bool pools = layer_of(op) == SavedBy::pool;
    if (weight == nullptr && !pools) throw Unknown{"'" + op.name + "' has no windows that are known"};
    const bool first = sides_.rows == of_channels_first.rows;
    const std::int64_t side = weight == nullptr ? choice_.pool_window : weight->shape[first ? 2 : 0];
    const std::int64_t in = rows(x), out = rows(y);
    for (std::int64_t stride = 1; stride <= in; ++stride) {
      for (std::int64_t padding = side / 2; padding >= 0; --padding) {
        const std::int64_t room = in + 2 * padding - side;
        if (room >= 0 && room / stride + 1 == out) return {side, stride};
      }
    }
    throw Unknown{"'" + op.name + "' has windows of " + std::to_string(side) + " that do not make " +
                  std::to_string(out) + " rows of " + std::to_string(in)};
  }

  /// By tensor: the side of its region for one patch, from the last op to the first.
  void find_regions() {
    for (auto op = first_.rbegin(); op != first_.rend(); ++op) {
      std::int64_t needed = 0;
      for (const TensorId y : (*op)->outputs) {
        if (!is_picture(y)) continue;
        const bool is_result = read_behind_.contains(y);
        if (is_result && rows(y) < choice_.side) {
          throw Unknown{"'" + tensor(y).name + "' has " + std::to_string(rows(y)) + " rows, too few for " +
                        std::to_string(choice_.side) + " patches"};
        }
        std::int64_t& region = region_[y];
        if (is_result) region = std::max(region, (rows(y) + choice_.side - 1) / choice_.side);
        needed = std::max(needed, region);
      }
      if (needed == 0) throw Unknown{"'" + (*op)->name + "' makes no pictures"};
      const TensorId y = *std::ranges::find_if((*op)->outputs, [this](TensorId t) { return is_picture(t); });
      for (const TensorId x : (*op)->inputs) {
        if (!is_picture(x)) continue;
        const Windows windows = windows_of(**op, x, y);
        std::int64_t& region = region_[x];
        region = std::max(region, std::min(rows(x), (needed - 1) * windows.stride + windows.side));
      }
    }
  }

  /// Of its area.
  double share_of(TensorId t) const {
    const auto found = region_.find(t);
    if (found == region_.end()) return 1;
    const auto part = static_cast<double>(found->second);
    const std::vector<std::int64_t>& shape = tensor(t).shape;
    return std::min(1.0, part / static_cast<double>(shape[sides_.rows])) *
           std::min(1.0, part / static_cast<double>(shape[sides_.columns]));
  }

  /// The region of a patch; inputs and parameters are there whole.
  TensorId of_patch(TensorId t, std::map<TensorId, TensorId>& here, std::map<StorageId, StorageId>& storages,
                    std::int64_t patch) {
    if (tensor(t).kind != TensorKind::activation) return t;
    const auto [place, is_new] = here.try_emplace(t, id_at<TensorId>(made_.graph.tensors.size()));
    if (!is_new) return place->second;
    Tensor made = tensor(t);
    made.name += " of patch " + std::to_string(patch);
    if (const auto region = region_.find(t); region != region_.end() && is_picture(t)) {
      const std::int64_t before = made.shape[sides_.rows] * made.shape[sides_.columns];
      for (const std::size_t d : {sides_.rows, sides_.columns}) made.shape[d] = std::min(made.shape[d], region->second);
      made.bytes = Bytes{made.bytes.count / before * (made.shape[sides_.rows] * made.shape[sides_.columns])};
    }
    const auto [storage, is_first] = storages.try_emplace(made.storage, id_at<StorageId>(made_.graph.storages));
    if (is_first) ++made_.graph.storages;
    made.storage = storage->second;
    made_.graph.tensors.push_back(std::move(made));
    return place->second;
  }

  /// What only the backward reads is not made.
  bool is_kept(const Op& op, TensorId t) const {
    return std::ranges::find(op.saved, t) == op.saved.end() || is_read(t);
  }

  bool is_read(TensorId t) const {
    const auto reads = [t](const Op* op) { return std::ranges::find(op->inputs, t) != op->inputs.end(); };
    return std::ranges::any_of(first_, reads) || std::ranges::any_of(behind_, reads);
  }

  void add_patch(std::int64_t patch) {
    std::map<TensorId, TensorId> here;
    std::map<StorageId, StorageId> storages;
    for (const Op* op : first_) {
      const double share = share_of(*std::ranges::find_if(op->outputs, [this](TensorId t) { return is_picture(t); }));
      Op made = without_backward(*op);
      made.name += " of patch " + std::to_string(patch);
      for (std::vector<TensorId>* list : {&made.inputs, &made.outputs, &made.saved, &made.mutates}) {
        for (TensorId& t : *list) t = of_patch(t, here, storages, patch);
      }
      for (std::optional<Seconds>* time : {&made.duration, &made.nograd_duration}) {
        if (*time) *time = share * **time;
      }
      if (made.flops) {
        made_.before = Flops{made_.before.count + made.flops->count / static_cast<double>(choice_.side * choice_.side)};
        made.flops = Flops{share * made.flops->count};
        made_.after = Flops{made_.after.count + made.flops->count};
      }
      if (made.bytes_moved) made.bytes_moved = moved_by(*op, made);
      made_.graph.ops.push_back(std::move(made));
    }
    for (const TensorId t : read_behind_) {
      if (here.contains(t)) results_[t].push_back(here.at(t));
    }
  }

  Op without_backward(const Op& op) const {
    Op made = op;
    std::erase_if(made.outputs, [&](TensorId t) { return !is_kept(op, t); });
    std::erase_if(made.saved, [&](TensorId t) { return !is_kept(op, t); });
    return made;
  }

  /// Regions of pictures, and all of everything else.
  Bytes moved_by(const Op& op, const Op& of_patch) const {
    Bytes moved;
    for (const TensorId t : op.inputs) {
      if (tensor(t).kind == TensorKind::input) {
        moved += Bytes{std::llround(share_of(t) * static_cast<double>(tensor(t).bytes.count))};
      }
    }
    for (const auto* list : {&of_patch.inputs, &of_patch.outputs}) {
      for (const TensorId t : *list) {
        if (made_.graph[t].kind != TensorKind::input) moved += made_.graph[t].bytes;
      }
    }
    return moved;
  }

  /// Reads the patches' results side by side.
  void add_behind(const Op& op) {
    Op made = without_backward(op);
    std::vector<TensorId> inputs;
    for (const TensorId t : made.inputs) {
      const auto found = results_.find(t);
      if (found == results_.end()) {
        inputs.push_back(t);
      } else {
        inputs.insert(inputs.end(), found->second.begin(), found->second.end());
      }
    }
    for (const TensorId t : made.mutates) {
      if (results_.contains(t)) throw Unknown{"'" + op.name + "' overwrites the patches' result in place"};
    }
    made.inputs = std::move(inputs);
    made_.graph.ops.push_back(std::move(made));
  }

  const Graph& graph_;
  PatchChoice choice_;
  PatchedGraph made_;
  std::vector<const Op*> first_, behind_;
  std::set<TensorId> read_behind_;
  std::map<TensorId, std::int64_t> region_;
  std::map<TensorId, std::vector<TensorId>> results_;
  PictureSides sides_ = of_channels_first;
};

/// The forward ops. Those of the first stages once for each patch, on regions of their tensors: what the patch of p x p
/// of a stage's result needs of its input is (p - 1) s + k squared, s and k the stride and side of an op's windows, and
/// never more than all. In one sentence, where an op has no windows that are known.
std::variant<PatchedGraph, std::string> patched_graph(const Graph& graph, const PatchChoice& choice) {
  try {
    return Patching(graph, choice).run();
  } catch (const Unknown& unknown) {
    return unknown.what;
  }
}

struct PatchOptions {
  std::int64_t patches = 2;
  std::size_t stages = 1;
  std::int64_t pool = 3;
};

std::variant<Problem, std::string> patch(const Problem& problem, const PatchOptions& options) {
  if (problem.chain)
    return "'" + problem.graph.name + "' is a chain, whose stages do not say how their pictures overlap";
  const std::vector<std::uint32_t> stages = forward_stages(problem.graph);
  const std::size_t first = options.stages;
  if (first >= stages.size()) {
    return fmt::format("'{}' has {} stages, and one must be behind the {} in patches", problem.graph.name,
                       stages.size(), first);
  }
  const PatchChoice choice{options.patches, stages[first], options.pool};
  std::variant<PatchedGraph, std::string> made = patched_graph(problem.graph, choice);
  if (std::string* why = std::get_if<std::string>(&made)) return std::move(*why);
  auto& patched = std::get<PatchedGraph>(made);
  Problem changed = problem;
  changed.graph = std::move(patched.graph);
  changed.optimizer = Optimizer::none;
  changed.parameter_groups.clear();
  changed.states.reset();
  changed.notes.push_back(fmt::format(
      "patch runs {} stages in {} x {} patches with {:.3f} times their operations; this is "
      "inference: nothing runs backward",
      first, choice.side, choice.side, patched.before.count > 0 ? patched.after.count / patched.before.count : 1.0));
  return changed;
}

constexpr auto patch_options =
    options_of<PatchOptions>(option_of<&PatchOptions::patches>({
                                 .name = "patches",
                                 .least = 1,
                                 .most = 64,
                                 .help = "patches in a row and in a column",
                             }),
                             option_of<&PatchOptions::stages>({
                                 .name = "stages",
                                 .least = 1,
                                 .most = 1'000'000,
                                 .values = "a whole number from 1",
                                 .help = "how many of the first stages run patch by patch",
                             }),
                             option_of<&PatchOptions::pool>({
                                 .name = "pool",
                                 .least = 1,
                                 .most = 64,
                                 .help = "side of pooling windows, which graphs do not state",
                             }));

}  // namespace

extern constinit const StrategyInfo patch_strategy{
    .name = "patch",
    .family = Family::transform,
    .summary = "inference whose first stages run patch by patch, the patches' halos again in each",
    .source = "Lin et al., 'MCUNetV2: memory-efficient patch-based inference for tiny deep learning', NeurIPS 2021",
    .needs_shapes = true,
    .options = patch_options,
    .kind = TransformStrategy{.transform = by_options<patch>},
};

}  // namespace plimsoll
