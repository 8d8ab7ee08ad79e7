// The transform `channel_prune`: a convolutional network whose convolutions have fewer channels.
// A layer of c channels keeps max(1, round((1 - ratio) c)). Memory follows the shapes; the time of a convolution goes
// in steps, those of a measured table (channel_times.h). Source: Li, Kadav, Durdanovic, Samet, Graf, "Pruning filters
// for efficient ConvNets", ICLR 2017 (whole filters, the network smaller from then on). That time goes in steps: Radu
// et al., "Performance aware convolutional neural network channel pruning for embedded GPUs", IISWC 2019.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
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
#include "strategies/transforms/channel_times.h"

namespace plimsoll {
namespace {

// Graphs of convolutional networks with fewer channels.

/// By its shape.
std::int64_t numbers_of(const Tensor& tensor) {
  return std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::int64_t{1}, std::multiplies<>());
}

/// Of a convolution.
struct ChannelCounts {
  std::int64_t inputs, outputs;
};

/// What share of its time and operations a convolution takes.
using ConvolutionShare = double (*)(ChannelCounts before, ChannelCounts after);

using DimensionList = std::vector<std::int64_t>;

/// Which dimension of pictures are their channels, and which of a convolution's weight its outputs and inputs.
struct PictureLayout {
  std::size_t channels, outputs, inputs;
};
constexpr PictureLayout channels_first{1, 0, 1}, channels_last{3, 3, 2};

struct Refusal {
  std::string why;
};

class ChannelPruning {
 public:
  ChannelPruning(Graph graph, double ratio, ConvolutionShare share)
      : whole_(std::move(graph)), ratio_(ratio), share_(share), shapes_(whole_.tensors.size()) {
    for (std::size_t t = 0; t < shapes_.size(); ++t) {
      shapes_[t] = whole_.tensors[t].shape;
      by_name_.try_emplace(whole_.tensors[t].name, id_at<TensorId>(t));
    }
  }

  Graph run() {
    find_layout();
    for (const Op& op : whole_.ops) {
      if (op.phase == Phase::forward) pass_on(op);
    }
    for (std::size_t t = 0; t < shapes_.size(); ++t) follow(id_at<TensorId>(t));
    Graph made = whole_;
    for (std::size_t t = 0; t < shapes_.size(); ++t) change(made.tensors[t], t);
    for (std::size_t o = 0; o < made.ops.size(); ++o) change(made.ops[o], whole_.ops[o], made);
    return made;
  }

 private:
  const DimensionList& shape(TensorId t) const { return whole_[t].shape; }
  std::int64_t kept(std::int64_t channels) const {
    return std::max<std::int64_t>(1, std::llround((1 - ratio_) * static_cast<double>(channels)));
  }
  bool is_pruned(TensorId t) const { return pruned_.contains(t); }

  static bool is_convolution(const Op& op) { return layer_of(op) == SavedBy::conv; }

  /// The weight that an op of a convolution reads or makes the gradient of.
  std::optional<TensorId> weight_of(const Op& op) const {
    for (const TensorId t : op.inputs) {
      if (whole_[t].kind == TensorKind::parameter && shape(t).size() == 4) return t;
    }
    for (const TensorId t : op.outputs) {
      if (whole_[t].kind == TensorKind::parameter_gradient && shape(t).size() == 4) return owner_of(t);
    }
    return std::nullopt;
  }

  bool fits(const Op& op, PictureLayout layout) const {
    const std::optional<TensorId> weight = weight_of(op);
    if (!weight || op.inputs.empty() || op.outputs.empty()) return false;
    const DimensionList &x = shape(op.inputs[0]), &y = shape(op.outputs[0]), &w = shape(*weight);
    return x.size() == 4 && y.size() == 4 && x[layout.channels] == w[layout.inputs] &&
           y[layout.channels] == w[layout.outputs];
  }

  void find_layout() {
    std::size_t convolutions = 0;
    std::array<bool, 2> fits_all{true, true};
    for (const Op& op : whole_.ops) {
      if (op.phase != Phase::forward || !is_convolution(op)) continue;
      ++convolutions;
      fits_all[0] = fits_all[0] && fits(op, channels_first);
      fits_all[1] = fits_all[1] && fits(op, channels_last);
    }
    if (convolutions == 0) throw Refusal{"'" + whole_.name + "' has no convolutions"};
    if (!fits_all[0] && !fits_all[1]) {
      throw Refusal{"the convolutions of '" + whole_.name + "' state no shapes, or have groups of channels"};
    }
    layout_ = fits_all[0] ? channels_first : channels_last;
  }

  void prune(TensorId t, std::size_t dimension) {
    std::int64_t& size = shapes_[t.index][dimension];
    if (size == shape(t)[dimension]) size = kept(size);
    pruned_.insert(t);
  }

  void pass_on(const Op& op) {
    if (is_convolution(op)) return pass_on_convolution(op);
    const auto first = std::ranges::find_if(op.inputs, [this](TensorId t) { return is_pruned(t); });
    if (first == op.inputs.end()) return;
    const DimensionList& x = shape(*first);
    const std::int64_t channels = x[x.size() == 4 ? layout_.channels : x.size() - 1];
    for (const TensorId t : op.inputs) {
      if (whole_[t].kind == TensorKind::parameter && shape(t).size() == 2) return prune_rows(op, t, channels);
    }
    for (const auto* list : {&op.inputs, &op.outputs}) {
      for (const TensorId t : *list) prune_channels(op, t, channels);
    }
    for (const auto& [name, value] : op.attributes) {
      if (name == "statistics") prune_statistics(value);
    }
  }

  void pass_on_convolution(const Op& op) {
    const TensorId x = op.inputs[0], weight = *weight_of(op), y = op.outputs[0];
    prune(weight, layout_.outputs);
    if (is_pruned(x)) prune(weight, layout_.inputs);
    prune(y, layout_.channels);
    for (const TensorId t : op.inputs) {
      if (whole_[t].kind == TensorKind::parameter && shape(t).size() == 1) prune(t, 0);
    }
  }

  /// A linear layer reads fewer numbers and makes as many as before.
  void prune_rows(const Op& op, TensorId weight, std::int64_t channels) {
    const DimensionList &w = shape(weight), &y = shape(op.outputs[0]);
    for (const std::size_t d : {std::size_t{1}, std::size_t{0}}) {
      if (w[d] == channels && w[1 - d] == y.back()) return prune(weight, d);
    }
    throw Refusal{"'" + op.name + "' reads pruned channels in a way that is not known"};
  }

  /// Pictures keep their place for channels; what else has a number a channel has it in its last dimension.
  void prune_channels(const Op& op, TensorId t, std::int64_t channels) {
    const DimensionList& s = shape(t);
    const bool is_value = whole_[t].kind != TensorKind::parameter;
    const std::size_t place = s.size() == 4 ? layout_.channels : s.size() - 1;
    const bool has_channels = !s.empty() && (s.size() == 4 || s.size() <= 2) && s[place] == channels;
    if (!has_channels) throw Refusal{"'" + op.name + "' does not pass channels on in a way that is known"};
    const bool is_read = is_value && std::ranges::find(op.inputs, t) != op.inputs.end();
    if (is_read && !is_pruned(t)) {
      throw Refusal{"'" + op.name + "' reads '" + whole_[t].name +
                    "', which is not pruned, together with pruned values"};
    }
    prune(t, place);
  }

  void prune_statistics(const std::string& name) {
    const auto found = std::ranges::find(whole_.tensors, name, &Tensor::name);
    if (found == whole_.tensors.end() || found->shape.empty()) return;
    prune(id_at<TensorId>(static_cast<std::size_t>(found - whole_.tensors.begin())), found->shape.size() - 1);
  }

  std::optional<TensorId> named(std::string_view name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? std::nullopt : std::optional(found->second);
  }

  /// Of a gradient: the tensor that it is of, which the gradient's name begins with and which has as many numbers.
  std::optional<TensorId> owner_of(TensorId gradient) const {
    const Tensor& tensor = whole_[gradient];
    if (tensor.gradient_of) return tensor.gradient_of;
    std::string_view rest = tensor.name;
    const auto begins = [&](std::string_view before) {
      const bool is_so = rest.starts_with(before);
      if (is_so) rest.remove_prefix(before.size());
      return is_so;
    };
    if (!begins("gradient of ") && !begins("sum of gradients of ")) return std::nullopt;
    for (std::size_t length = rest.size(); length > 0; --length) {
      const std::optional<TensorId> owner = named(rest.substr(0, length));
      if (owner && numbers_of(whole_[*owner]) == numbers_of(tensor)) return owner;
    }
    return std::nullopt;
  }

  /// Gradients have the shapes of what they are of. States have none where --optimizer made them.
  void follow(TensorId t) {
    const TensorKind kind = whole_[t].kind;
    if (kind == TensorKind::gradient || kind == TensorKind::parameter_gradient) {
      const std::optional<TensorId> owner = owner_of(t);
      if (owner) shapes_[t.index] = shape_like(t, *owner);
      const bool is_unknown = !owner && shape(t).size() == 4;
      if (is_unknown) throw Refusal{"it is not known what '" + whole_[t].name + "' is the gradient of"};
    }
    if (kind != TensorKind::optimizer_state) return;
    const std::string& name = whole_[t].name;
    const std::size_t of = name.find(" of ");
    const std::optional<TensorId> owner = of == std::string::npos ? std::nullopt : named(name.substr(of + 4));
    if (!owner || numbers_of(whole_[*owner]) == 0 || whole_[t].bytes.count % numbers_of(whole_[*owner]) != 0) {
      throw Refusal{"'" + name + "' does not have one number for each number of a parameter: prune channels first"};
    }
    state_of_[t] = *owner;
  }

  /// As the owner's, or with its channels in another place.
  DimensionList shape_like(TensorId t, TensorId owner) const {
    if (shape(t) == shape(owner)) return shapes_[owner.index];
    DimensionList made = shape(t);
    for (std::size_t d = 0; d < shape(owner).size(); ++d) {
      if (shapes_[owner.index][d] == shape(owner)[d]) continue;
      const auto place = std::find(made.rbegin(), made.rend(), shape(owner)[d]);
      if (place == made.rend()) throw Refusal{"the channels of '" + whole_[t].name + "' are in no known place"};
      *place = shapes_[owner.index][d];
    }
    return made;
  }

  static std::int64_t product_of(const DimensionList& list) {
    return std::accumulate(list.begin(), list.end(), std::int64_t{1}, std::multiplies<>());
  }

  /// Numbers of the tensor over those before; of a state, of its parameter's.
  double share_of(TensorId t) const {
    const auto found = state_of_.find(t);
    const std::size_t at = found == state_of_.end() ? t.index : found->second.index;
    return static_cast<double>(product_of(shapes_[at])) / static_cast<double>(product_of(whole_.tensors[at].shape));
  }

  void change(Tensor& tensor, std::size_t t) const {
    const auto found = state_of_.find(id_at<TensorId>(t));
    const std::size_t at = found == state_of_.end() ? t : found->second.index;
    const std::int64_t before = product_of(whole_.tensors[at].shape);
    if (before > 0 && shapes_[at] != whole_.tensors[at].shape) {
      tensor.bytes = Bytes{tensor.bytes.count / before * product_of(shapes_[at])};
    }
    if (!tensor.shape.empty()) tensor.shape = shapes_[at];
  }

  ChannelCounts counts(const DimensionList& weight) const { return {weight[layout_.inputs], weight[layout_.outputs]}; }

  /// The smallest of its tensors'.
  double share_of_numbers(const Op& op) const {
    double share = 1;
    for (const auto* list : {&op.inputs, &op.outputs}) {
      for (const TensorId t : *list) share = std::min(share, share_of(t));
    }
    return share;
  }

  /// Of its time and operations.
  double share_of(const Op& op) const {
    if (const std::optional<TensorId> weight = is_convolution(op) ? weight_of(op) : std::nullopt) {
      return share_(counts(shape(*weight)), counts(shapes_[weight->index]));
    }
    return share_of_numbers(op);
  }

  void change(Op& op, const Op& before, const Graph& made) const {
    const double share = share_of(before);
    for (std::optional<Seconds>* time : {&op.duration, &op.nograd_duration}) {
      if (*time) *time = share * **time;
    }
    if (op.flops) op.flops = Flops{share * op.flops->count};
    if (op.bytes_moved) op.bytes_moved = moved_by(before, *op.bytes_moved, made);
    for (Alternative& other : op.alternatives) {
      if (other.duration) other.duration = share * *other.duration;
      if (other.flops) other.flops = Flops{share * other.flops->count};
      if (other.bytes_moved) other.bytes_moved = moved_by(before, *other.bytes_moved, made);
    }
  }

  /// Its tensors once; what it moved beside them, in proportion.
  Bytes moved_by(const Op& op, Bytes moved, const Graph& made) const {
    Bytes tensors, left;
    for (const auto* list : {&op.inputs, &op.outputs}) {
      for (const TensorId t : *list) {
        tensors += whole_[t].bytes;
        left += made[t].bytes;
      }
    }
    const double beside = static_cast<double>((moved - tensors).count);
    return left + Bytes{std::llround(share_of_numbers(op) * beside)};
  }

  Graph whole_;
  double ratio_;
  ConvolutionShare share_;
  std::vector<DimensionList> shapes_;  // by tensor
  std::map<std::string_view, TensorId> by_name_;
  std::set<TensorId> pruned_;
  std::map<TensorId, TensorId> state_of_;
  PictureLayout layout_ = channels_first;
};

/// Every convolution keeps max(1, round((1 - ratio) c)) of its c output channels, and so does what follows until a
/// linear layer, whose outputs stay. Shapes and bytes of all tensors, bytes moved and times of ops follow; workspaces
/// stay. In one sentence, where an op is not known to pass channels on, or what would change has no shape.
std::variant<Graph, std::string> pruned_graph(Graph graph, double ratio, ConvolutionShare share) {
  try {
    return ChannelPruning(std::move(graph), ratio, share).run();
  } catch (const Refusal& refusal) {
    return refusal.why;
  }
}

struct ChannelPruneOptions {
  double ratio = 0.5;
  bool by_table = true;
};

double share_by_table(ChannelCounts before, ChannelCounts after) {
  return time_with_outputs(after.outputs) / time_with_outputs(before.outputs) * time_with_inputs(after.inputs) /
         time_with_inputs(before.inputs);
}

double share_by_operations(ChannelCounts before, ChannelCounts after) {
  const auto product = [](ChannelCounts c) { return static_cast<double>(c.outputs) * static_cast<double>(c.inputs); };
  return product(after) / product(before);
}

std::int64_t numbers_of_parameters(const Graph& graph) {
  std::int64_t sum = 0;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind == TensorKind::parameter) sum += numbers_of(tensor);
  }
  return sum;
}

std::variant<Problem, std::string> channel_prune(const Problem& problem, const ChannelPruneOptions& options) {
  if (problem.chain) return "'" + problem.graph.name + "' is a chain, and only graphs have channels to prune";
  std::variant<Graph, std::string> made =
      pruned_graph(problem.graph, options.ratio, options.by_table ? share_by_table : share_by_operations);
  if (std::string* why = std::get_if<std::string>(&made)) return std::move(*why);
  Problem changed = problem;
  changed.graph = std::get<Graph>(std::move(made));
  changed.notes.push_back(fmt::format(
      "channel_prune keeps {} of {} numbers of parameters; convolutions take {}", numbers_of_parameters(changed.graph),
      numbers_of_parameters(problem.graph),
      options.by_table ? "the share of their time that was measured on a CPU" : "the share of their operations"));
  return changed;
}

constexpr auto channel_prune_options = options_of<ChannelPruneOptions>(
    option_of<&ChannelPruneOptions::ratio>({
        .name = "ratio",
        .least = 0,
        .most = 0.99,
        .help = "share of the channels of every convolution that is removed",
    }),
    option_of<&ChannelPruneOptions::by_table>({
        .name = "times",
        .words = "proportional measured",
        .values = "measured or proportional",
        .help = "times of convolutions: in the measured steps, or in proportion to their operations",
    }));

}  // namespace

extern constinit const StrategyInfo channel_prune_strategy{
    .name = "channel_prune",
    .family = Family::transform,
    .summary = "removes a share of the channels from every convolution; its time falls in measured steps",
    .source = "Li et al., 'Pruning filters for efficient ConvNets', ICLR 2017",
    .needs_shapes = true,
    .options = channel_prune_options,
    .kind = TransformStrategy{.transform = by_options<channel_prune>},
};

}  // namespace plimsoll
