#include "sim/judge/approximations.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "sim/core/op_kind.h"
#include "sim/judge/packed_use.h"

namespace plimsoll {
namespace {

/// Whether it stands for the values themselves, or for what is computed of each.
bool has_values(const Codec& codec) {
  return codec.kind == CodecKind::step || codec.kind == CodecKind::rows || codec.kind == CodecKind::projection ||
         codec.kind == CodecKind::pool || codec.kind == CodecKind::block_sparse;
}

}  // namespace

/// What an op makes from an approximation is one, unless that is not what it makes it from: the backward of a product
/// needs its input for the gradient of the weight alone, that of a normalization not for the gradient of its bias. Of a
/// stage's layers those count that do not read a packed form beside.
void ApproximationJudge::runs_op(StepId s) {
  const Step& step = schedule_[s];
  const Op& op = graph_[step.op];
  if (op.phase == Phase::update) return;
  bool by_gradient = false, by_value = false, by_factor = false;  // of products in a stage
  for (const Slice& slice : {step.reads, step.writes}) {
    for (const BufferId b : schedule_.buffers_in(slice)) {
      const HeldValue& held = holdings_[b];
      if (!held.approximate) continue;
      const TensorKind kind = graph_[schedule_[b].tensor].kind;
      const auto of_buffer = [&](TensorId t) { return graph_[t].storage == graph_[schedule_[b].tensor].storage; };
      const bool is_input = std::ranges::any_of(op.inputs, of_buffer);
      if (!is_input) continue;
      if (held.is_pooled && is_gradient_of_relu(op) && kind == TensorKind::activation) {
        report(Rule::lossy, s, b, "takes the signs of a ReLU's output from block means, in");
      }
      const bool is_form = schedule_[b].is_packed() && does(walk_, op, b) != Does::without;
      const bool needs_no_values = is_form && !has_values(schedule_.codecs[schedule_[b].codec.index]);
      if (needs_no_values) continue;
      const bool is_value = kind == TensorKind::activation || kind == TensorKind::input;
      bool is_used = false, is_factor = true;
      for (const InputUse& each : op.uses) {
        if (each.tensor != schedule_[b].tensor) continue;
        is_used = true;
        if (each.use.shape_only || is_served(walk_, step, each)) continue;
        if (held.is_pooled && each.use.by == SavedBy::relu && each.use.is_result) {
          report(Rule::lossy, s, b, "takes the signs of a ReLU's output from block means, in");
        }
        is_factor &= (each.use.by == SavedBy::conv || each.use.by == SavedBy::linear) && !each.use.is_result;
      }
      (!is_value || !is_backward(op.phase) ? by_gradient : is_used && is_factor ? by_factor : by_value) = true;
    }
  }
  if (!by_gradient && !by_value && !by_factor) return;
  using enum OpKind;
  const std::optional<OpKind> kind_of_op = op_kind(op);
  const bool is_product =
      is_one_of(kind_of_op, convolution_backward, convolution_weight_gradient, linear_weight_gradient);
  const bool is_norm = is_one_of(kind_of_op, native_batch_norm_backward, native_layer_norm_backward,
                                 batch_norm_weight_gradient, layer_norm_weight_gradient);
  std::vector<TensorId> of_parameters;
  for (const TensorId t : op.outputs) {
    if (!walk_.makers[t.index].empty()) of_parameters.push_back(t);
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

void ApproximationJudge::approximated(StepId s, BufferId b) {
  holdings_[b].approximate = was_approximate_[b.index] = true;
  if (!schedule_[b].lossy) report(Rule::lossy, s, b, "fills from an approximation, without saying so,");
  if (!walk_.makers[schedule_[b].tensor.index].empty()) approximated_.insert(schedule_[b].tensor);
}

void ApproximationJudge::end() {
  for (std::size_t b = 0; b < schedule_.buffers.size() && !findings_.are_enough(); ++b) {
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
