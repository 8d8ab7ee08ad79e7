// What becomes an approximation because of packed forms, and who may read one as it is.

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

#include "sim/judge/judge.h"

namespace plimsoll {
namespace {

bool is_gradient_of_relu(const Op& op) {
  return op.kind == "threshold_backward" || op.kind == "relu_gradient";
}

/// Of the input or the result of an activation its gradient takes a factor for each value, and nothing else.
bool needs_derivative(const std::string& kind) {
  constexpr std::array<std::string_view, 9> activations{"gelu", "silu", "tanh",     "sigmoid",    "hardswish",
                                                        "elu",  "mish", "softplus", "log_sigmoid"};
  return std::ranges::any_of(activations, [&](std::string_view name) {
    const std::string activation(name);
    return kind == activation + "_backward" || kind == activation + "_gradient";
  });
}

/// Whether it tells which values are above 0.
bool has_signs(const Codec& codec) {
  return codec.kind == CodecKind::mask || (codec.kind == CodecKind::quantize && codec.keeps_signs);
}

/// Whether it stands for the values themselves, or for what is computed of each.
bool has_values(const Codec& codec) {
  return codec.kind == CodecKind::step || codec.kind == CodecKind::rows || codec.kind == CodecKind::projection ||
         codec.kind == CodecKind::pool || codec.kind == CodecKind::block_sparse;
}

/// Signs are all that a ReLU's gradient reads of what the ReLU has made, places all that a pooling's does.
bool can_do_with(const LayerUse& use, const Codec& codec) {
  if (codec.kind == CodecKind::mask) return use.shape_only || text_of(use) == "relu.output";
  return codec.kind == CodecKind::index && text_of(use) == "pool.output";
}

}  // namespace

bool Judge::may_read_packed(const Op& op, BufferId b) const {
  const Codec& codec = schedule_.codecs[schedule_[b].codec.index];
  const bool is_pooling = op.kind == "max_pool2d_with_indices_backward";  // of its input it needs the shape
  if (codec.kind == CodecKind::index) return is_pooling;
  if (codec.kind == CodecKind::step) return is_backward(op.phase) && needs_derivative(op.kind);
  if (codec.kind == CodecKind::pool) return codec.product > 0 && multiplies_pixels(op, schedule_[b].tensor);
  if (codec.kind == CodecKind::block_sparse && codec.product == 0) return false;
  const bool is_of_rows =
      codec.kind == CodecKind::rows || codec.kind == CodecKind::projection || codec.kind == CodecKind::block_sparse;
  if (is_of_rows) {  // a product summed over rows, or over sums of rows; what is left out is taken for 0
    const bool multiplies = op.kind == "mm" || op.kind == "linear_weight_gradient";
    const auto of_weight = [&](TensorId t) { return graph_[t].kind == TensorKind::parameter_gradient; };
    return multiplies && is_backward(op.phase) && std::ranges::any_of(op.outputs, of_weight);
  }
  return has_signs(codec) && (is_gradient_of_relu(op) || is_pooling);
}

/// Where a stage says how its layers use a value: all of them can do with the packed form, or some.
Judge::Does Judge::does(const Op& op, BufferId packed) const {
  if (op.uses.empty()) return may_read_packed(op, packed) ? Does::with_packed : Does::without;
  const Codec& codec = schedule_.codecs[schedule_[packed].codec.index];
  bool any = false, all = true;
  for (const InputUse& each : op.uses) {
    if (each.tensor != schedule_[packed].tensor) continue;
    const bool can = can_do_with(each.use, codec);
    any |= can;
    all &= can;
  }
  if (!any) return Does::without;
  return all ? Does::with_packed : Does::with_packed_beside;
}

/// Whether the step reads a packed form that the layer can do with.
bool Judge::is_served(const Step& step, const InputUse& use) const {
  return std::ranges::any_of(schedule_.buffers_in(step.reads), [&](BufferId b) {
    return schedule_[b].is_packed() && schedule_[b].tensor == use.tensor &&
           can_do_with(use.use, schedule_.codecs[schedule_[b].codec.index]);
  });
}

/// What an op makes from an approximation is one, unless that is not what it makes it from: the backward of a product
/// needs its input for the gradient of the weight alone, that of a normalization not for the gradient of its bias. Of a
/// stage's layers those count that do not read a packed form beside.
void Judge::judge_approximations(StepId s, const Op& op) {
  const Step& step = schedule_[s];
  if (op.phase == Phase::update) return;
  bool by_gradient = false, by_value = false, by_factor = false;  // of products in a stage
  for (const Slice& slice : {step.reads, step.writes}) {
    for (const BufferId b : schedule_.buffers_in(slice)) {
      const Held& held = held_in(b);
      const TensorKind kind = graph_[schedule_[b].tensor].kind;
      const auto of_buffer = [&](TensorId t) { return graph_[t].storage == graph_[schedule_[b].tensor].storage; };
      const bool is_input = std::ranges::any_of(op.inputs, of_buffer);
      if (!is_input || !held.approximate) continue;
      if (held.is_pooled && is_gradient_of_relu(op) && kind == TensorKind::activation) {
        report(Rule::lossy, s, b, "takes the signs of a ReLU's output from block means, in");
      }
      const bool is_form = schedule_[b].is_packed() && does(op, b) != Does::without;
      const bool needs_no_values = is_form && !has_values(schedule_.codecs[schedule_[b].codec.index]);
      if (needs_no_values) continue;
      const bool is_value = kind == TensorKind::activation || kind == TensorKind::input;
      bool is_used = false, is_factor = true;
      for (const InputUse& each : op.uses) {
        if (each.tensor != schedule_[b].tensor) continue;
        is_used = true;
        if (each.use.shape_only || is_served(step, each)) continue;
        if (held.is_pooled && each.use.by == SavedBy::relu && each.use.is_result) {
          report(Rule::lossy, s, b, "takes the signs of a ReLU's output from block means, in");
        }
        is_factor &= (each.use.by == SavedBy::conv || each.use.by == SavedBy::linear) && !each.use.is_result;
      }
      (!is_value || !is_backward(op.phase) ? by_gradient : is_used && is_factor ? by_factor : by_value) = true;
    }
  }
  if (!by_gradient && !by_value && !by_factor) return;
  const bool is_product = op.kind == "convolution_backward" || op.kind == "convolution_weight_gradient" ||
                          op.kind == "linear_weight_gradient";
  const bool is_norm = op.kind == "native_batch_norm_backward" || op.kind == "native_layer_norm_backward" ||
                       op.kind == "batch_norm_weight_gradient" || op.kind == "layer_norm_weight_gradient";
  std::vector<TensorId> of_parameters;
  for (const TensorId t : op.outputs) {
    if (!makers_[t.index].empty()) of_parameters.push_back(t);
  }
  for (const Slice& slice : {step.writes, step.allocates}) {
    for (const BufferId b : schedule_.buffers_in(slice)) {
      const TensorId t = schedule_[b].tensor;
      const bool is_of_parameter = std::ranges::find(of_parameters, t) != of_parameters.end();
      const bool is_bias = is_of_parameter && of_parameters.size() > 1 && t == of_parameters.back();
      const auto made = [&](TensorId out) { return graph_[out].storage == graph_[t].storage; };
      if (std::ranges::none_of(op.outputs, made)) continue;
      const bool spared = by_value ? (is_product && (!is_of_parameter || is_bias)) || (is_norm && is_bias)
                                   : !is_of_parameter;  // by a factor
      if (by_gradient || !spared) approximated(s, b);
    }
  }
}

void Judge::approximated(StepId s, BufferId b) {
  held_in(b).approximate = was_approximate_[b.index] = true;
  if (!schedule_[b].lossy) report(Rule::lossy, s, b, "fills from an approximation, without saying so,");
  if (!makers_[schedule_[b].tensor.index].empty()) approximated_.insert(schedule_[b].tensor);
}

/// Marks and list say no more than what is so.
void Judge::judge_approximate_list() {
  for (std::size_t b = 0; b < schedule_.buffers.size() && found_.size() < limit_; ++b) {
    if (!schedule_.buffers[b].lossy || was_approximate_[b]) continue;
    report(Rule::lossy, std::nullopt, id_at<BufferId>(b), text(id_at<BufferId>(b)) + " never holds an approximation");
  }
  std::vector<TensorId> missing, exact;
  std::ranges::set_difference(approximated_, schedule_.approximate, std::back_inserter(missing));
  std::ranges::set_difference(schedule_.approximate, approximated_, std::back_inserter(exact));
  for (const TensorId t : missing) {
    report(Rule::lossy, std::nullopt, std::nullopt,
           "'" + graph_[t].name + "' ends as an approximation, and 'approximate' does not list it");
  }
  for (const TensorId t : exact) {
    report(Rule::lossy, std::nullopt, std::nullopt, "'" + graph_[t].name + "' is exact, though 'approximate' lists it");
  }
}

}  // namespace plimsoll
