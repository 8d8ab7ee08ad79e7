#include "sim/codec/predicted_error.h"

#include <algorithm>
#include <array>
#include <boost/math/special_functions/erf.hpp>
#include <boost/math/special_functions/gamma.hpp>
#include <cmath>
#include <optional>
#include <vector>

#include "sim/core/expects.h"
#include "sim/core/op_kind.h"

namespace plimsoll {
namespace {

/// Of a normal value after a ReLU: variance over mean square; mean square is half of the normal one's.
constexpr double rectified_variance = 0.6816901138162093;  // 1 - 1 / pi
constexpr double of_gelu = 0.605;                          // mean gelu''^2 / mean gelu'^2 over normal values

/// What stands for values or gradients: their own multiple, and the rest, which is as good as random to them.
struct Approximation {
  double mean = 1;    ///< (made . exact) / |exact|^2
  double energy = 1;  ///< |made|^2 / |exact|^2
  double alike = 1;   ///< of values: so many have become one

  double square() const { return std::max(0.0, energy - 2 * mean + 1); }  ///< |made - exact|^2 / |exact|^2
  Approximation operator*(const Approximation& b) const { return {mean * b.mean, energy * b.energy, alike * b.alike}; }
};

/// The exact values and something that has nothing to do with them.
Approximation with_noise(double square) {
  return {1, 1 + square};
}

/// A projection of the values, such as means of so many: what is left out, is missing.
Approximation without(double square, double alike = 1) {
  return {1 - square, 1 - square, alike};
}

/// The exact, and in a share of it the approximation.
Approximation in_part(double share, const Approximation& made) {
  return {1 + share * (made.mean - 1), 1 + share * (made.energy - 1)};
}

/// Of so many normal values the largest is this many deviations above the mean, nearly. Blom, 1958.
double expected_largest(double count) {
  const double below = (count - 0.375) / (count + 0.25);
  return count < 2 ? 0 : std::sqrt(2.0) * boost::math::erf_inv(2 * below - 1);
}

double square_of_cast(const Codec& codec) {
  constexpr double of_mantissa =
      0.541;  // mean of 1 / m^2 for a mantissa m in [1, 2), the logarithm of which is uniform
  const int mantissa = static_cast<int>(codec.bits) - 1 - static_cast<int>(codec.exponent);
  const double half_step = std::ldexp(1.0, -mantissa - 1);
  return codec.bits >= 32 ? 0 : half_step * half_step / 3 * of_mantissa;
}

/// Of GELU's derivative at normal values, when the best 2, 4, 8 or 16 steps between -4 and 4 stand for it (found
/// numerically; more steps: a quarter each time).
double square_of_steps(std::uint32_t bits) {
  constexpr std::array<double, 4> squares{0.1024, 0.01757, 0.00745, 0.001757};
  const std::size_t found = std::min<std::size_t>(bits, squares.size());
  return squares[found - 1] * std::ldexp(1.0, -2 * static_cast<int>(bits - found));
}

/// Of a sum over rows, half of the kept ones as they are, the others drawn with repetition from the rest: of n rows, m
/// for which d draws stand, m^2 / (d n).
double square_of_rows(double keep) {
  const double drawn = keep / 2;
  return keep >= 1 ? 0 : (1 - drawn) * (1 - drawn) / drawn;
}

/// Middles of 2^bits intervals stand for values within three deviations, the outermost for those beyond. After a ReLU
/// half of the error goes with half of the mean square.
double square_of_fixed_range(const Codec& codec) {
  constexpr double beyond = 0.0026998, mean_beyond = 0.00076431, square_beyond = 0.00040687;
  const double step = std::ldexp(6.0, -static_cast<int>(codec.bits)), half = step / 2;
  return (1 - beyond) * step * step / 12 + square_beyond + 2 * half * mean_beyond + half * half * beyond;
}

/// From one number to the next, in deviations. Where parts keep their largest value without a minimum, a bit is the
/// sign's, unless all values have the same.
double step_of(const Codec& codec, bool is_rectified) {
  const bool has_largest_only = codec.parts > 0 && codec.group_bytes == 4;
  const bool has_sign = has_largest_only && !codec.zero_mask;
  const double levels = std::ldexp(1.0, static_cast<int>(codec.bits) - (has_sign ? 1 : 0)) - 1;
  if (is_rectified) return expected_largest(codec.group) / levels;
  if (has_sign) return expected_largest(2.0 * codec.group) / levels;
  return 2 * expected_largest(codec.group) / levels;
}

Approximation quantized(const Codec& codec, Noise noise) {
  if (codec.group == 0) return with_noise(square_of_fixed_range(codec));
  const double means = codec.averaged;  // of so many values
  const bool is_rectified = noise == Noise::rectified;
  const double step = step_of(codec, is_rectified), mean_square = is_rectified ? 0.5 : 1;
  const double lost = (1 - 1 / means) * (is_rectified ? rectified_variance : 1);  // by the means
  const double rounded = is_rectified ? 1 - std::exp2(-means) : 1;                // 0 is a number itself
  return without(lost, means) * with_noise(rounded * step * step / 6 / mean_square);
}

/// The blocks with the least energy go: sums of squares of so many normal values.
double square_of_dropped(const Codec& codec) {
  if (codec.keep >= 1) return 0;
  const double half = 0.5 * codec.block * codec.block;
  return boost::math::gamma_p(half + 1, boost::math::gamma_p_inv(half, 1 - codec.keep));
}

Approximation packed_by(const Codec& codec, Noise noise) {
  switch (codec.kind) {
    case CodecKind::pool: {
      const double pixels = static_cast<double>(codec.window) * codec.window, lost = 1 - 1 / pixels;
      return without(lost * (noise == Noise::rectified ? rectified_variance : 1), pixels);
    }
    case CodecKind::quantize:
      return quantized(codec, noise);
    case CodecKind::block_sparse:
      return without(square_of_dropped(codec));
    case CodecKind::cast:
      return with_noise(square_of_cast(codec));
    case CodecKind::step:
      return without(square_of_steps(codec.bits));
    case CodecKind::rows:
      return with_noise(square_of_rows(codec.keep));
    case CodecKind::projection:
      return with_noise(1 / codec.keep);  // of a product of matrices of n rows, both by d sums of them: n / d
    case CodecKind::mask:                 // read as they are, by what needs no more
    case CodecKind::index:
    case CodecKind::zero_run:
    case CodecKind::compressed_rows:
      return {};
  }
  EXPECTS(false && "a codec of no kind");
}

double numbers_of(const Tensor& tensor) {
  double count = 1;
  for (const std::int64_t d : tensor.shape) count *= static_cast<double>(d);
  return count;
}

bool is_value(const Tensor& tensor) {
  return tensor.kind == TensorKind::activation || tensor.kind == TensorKind::input;
}

double numbers_of_scale(const Graph& graph, const Op& op) {
  for (const TensorId t : op.inputs) {
    if (graph[t].kind == TensorKind::parameter) return numbers_of(graph[t]);
  }
  return 0;
}

/// This project's own networks find statistics anew in the backward; PyTorch's norms keep the forward's.
bool finds_statistics_anew(const Graph& graph) {
  return std::ranges::any_of(graph.source.notes, [](const auto& note) { return note.first == "network"; });
}

/// Of values with mean 0, divided by a deviation that is found anew from them.
Approximation normalized(const Approximation& value) {
  return {value.mean / std::sqrt(value.energy), 1};
}

/// What a normalization's input becomes in the gradient of it, where so many values share their statistics: these enter
/// by 2 / n; and the gradient is divided by the deviation, which may be that of the approximation.
Approximation through_norm(const Approximation& value, double sharing, bool anew) {
  const double square = anew ? normalized(value).square() : value.square();
  const Approximation statistics = with_noise(std::min(1.0, 2 / sharing) * square);
  if (!anew) return statistics;
  return Approximation{1 / std::sqrt(value.energy), 1 / value.energy} * statistics;
}

/// A ReLU's gradient by the signs of its output: those of its smallest values are lost, of what is left out all; and
/// where means stand for it, all of their values are above 0 if one is.
Approximation through_signs(const Approximation& value) {
  const double noise = std::max(0.0, value.energy / value.mean - 1);
  const Approximation kept = without(std::min(1.0, 0.69 * std::sqrt(noise)));
  if (value.alike == 1) return kept * without(1 - value.mean);
  return kept * Approximation{1, 2 * (1 - std::exp2(-value.alike))};
}

/// A pooling's by the places of maxima, which it finds anew: where the two largest values of a window of nine are near
/// each other, the gradient may go to the other one.
Approximation through_places(const Approximation& value) {
  return {1 - std::min(1.0, 1.08 * std::sqrt(value.square())), 1};
}

/// A loss's by the probabilities of classes, or their logarithms, which are all alike before training: of p - 1 at the
/// label, p is the lesser part.
Approximation through_loss(const Tensor& probabilities, const Approximation& value, bool logarithms) {
  const double classes = probabilities.shape.empty() ? 1 : static_cast<double>(probabilities.shape.back());
  const double of_one = logarithms ? std::log(classes) : 1;  // of an error of each, what it is of p
  return with_noise(classes > 1 ? value.square() * of_one * of_one / (classes - 1) : value.square());
}

/// What an approximation of a value that the backward of a layer reads becomes in what it makes, beside the gradient.
Approximation passed_on(const Graph& graph, const Op& op, TensorId input, TensorId output, const Approximation& value) {
  const Tensor& made = graph[output];
  const std::optional<OpKind> kind = op_kind(op);
  const PassedOn rule = kind ? row_of(*kind).passed_on : PassedOn::as_noise;
  const bool anew = rule == PassedOn::by_new_statistics;
  if (made.kind == TensorKind::parameter_gradient) return anew ? normalized(value) : value;
  switch (rule) {
    case PassedOn::as_noise:
      return with_noise(value.square());
    case PassedOn::by_new_statistics:
    case PassedOn::by_kept_statistics: {
      const double scales = numbers_of_scale(graph, op), numbers = numbers_of(made);
      if (scales == 0) return with_noise(value.square());
      return through_norm(value, row_of(*kind).layer == SavedBy::bn ? numbers / scales : scales, anew);
    }
    case PassedOn::by_gelu:
      return with_noise(of_gelu * value.square());
    case PassedOn::by_signs:
      return through_signs(value);
    case PassedOn::by_places:
      return through_places(value);
    case PassedOn::by_probabilities:
      return through_loss(graph[input], value, false);
    case PassedOn::by_log_probabilities:
      return through_loss(graph[input], value, true);
  }
  EXPECTS(false && "an op passes errors on by no rule");
}

/// The same of a layer of a stage, in the gradient of the layer's input.
Approximation passed_by_layer(const Graph& graph, const InputUse& input, const Approximation& value) {
  const LayerUse& use = input.use;
  const std::vector<std::int64_t>& shape = graph[input.tensor].shape;
  if ((use.by == SavedBy::bn || use.by == SavedBy::ln) && !use.is_result && !shape.empty()) {
    const auto last = static_cast<double>(shape.back());
    const auto channels = shape.size() == 4 ? static_cast<double>(std::max(shape[1], shape[3])) : last;
    const double sharing = use.by == SavedBy::ln ? last : numbers_of(graph[input.tensor]) / channels;
    return through_norm(value, sharing, finds_statistics_anew(graph));
  }
  if (use.by == SavedBy::gelu) return with_noise(of_gelu * value.square());
  if (use.by == SavedBy::relu) return through_signs(value);
  if (use.by == SavedBy::pool && finds_statistics_anew(graph)) return through_places(value);
  if (use.by == SavedBy::loss) return through_loss(graph[input.tensor], value, !finds_statistics_anew(graph));
  return with_noise(value.square());
}

/// Of a stage it is not known which gradient is whose layer's. Each of its products (convolutions, linear layers)
/// counts as one share of the gradients of parameters, and what other layers pass on reaches those of half of them.
Approximation reaching_of_stage(const Graph& graph, const Op& op, TensorId value, TensorId output,
                                const Approximation& as, const std::optional<Codec>& beside) {
  double products = 0;
  for (const InputUse& each : op.uses) products += is_input_of_product(each.use) ? 1 : 0;
  Approximation own, passed;
  bool is_known = false;
  for (const InputUse& each : op.uses) {
    if (each.tensor != value) continue;
    is_known = true;
    if (each.use.shape_only || (beside && serves(*beside, each.use))) continue;
    if (is_input_of_product(each.use)) {
      own = own * in_part(1 / products, as);
    } else {
      passed = passed * passed_by_layer(graph, each, as);
    }
  }
  if (!is_known) return with_noise(as.square());
  if (graph[output].kind != TensorKind::parameter_gradient) return passed;
  return products > 0 ? own * in_part(0.5, passed) : passed;
}

/// What an approximation of a value that an op of the backward reads makes of what it makes, beside the gradient.
/// `beside`: the packed form that the op reads beside it.
Approximation reaching(const Graph& graph, const Op& op, TensorId value, TensorId output, const Approximation& as,
                       const std::optional<Codec>& beside = std::nullopt) {
  if (!op.uses.empty()) return reaching_of_stage(graph, op, value, output, as, beside);
  return depends_on(graph, op, value, output) ? passed_on(graph, op, value, output, as) : Approximation{};
}

Approximation packed_as(Codec codec, const Tensor& tensor, const std::vector<bool>& rectified) {
  if (codec.parts > 0) codec.group = static_cast<std::uint32_t>(std::ceil(numbers_of(tensor) / codec.parts));
  return packed_by(codec, rectified[tensor.storage.index] ? Noise::rectified : Noise::normal);
}

/// Those that hold what a ReLU makes.
std::vector<bool> rectified_storages(const Graph& graph) {
  std::vector<bool> rectified(graph.storages, false);
  for (const Op& op : graph.ops) {
    const bool is_relu =
        op.phase == Phase::forward && is_one_of(nearest_kind(op.kind), OpKind::relu, OpKind::relu_in_place);
    for (const TensorId t : op.outputs) {
      if (is_relu) rectified[graph[t].storage.index] = true;
    }
    for (const InputUse& each : op.uses) {  // of a stage
      if (each.use.by == SavedBy::relu && each.use.is_result) rectified[graph[each.tensor].storage.index] = true;
    }
  }
  return rectified;
}

class ErrorWalk {
 public:
  ErrorWalk(const Schedule& schedule, const Graph& graph)
      : schedule_(schedule),
        graph_(graph),
        held_(schedule.buffers.size()),
        sums_(held_.size(), 0),
        rectified_(rectified_storages(graph)) {}

  void step(const Step& step) {
    if (step.op != no_op && !step.work.is_transfer()) return compute(step);
    const auto reads = schedule_.buffers_in(step.reads);
    if (reads.empty()) return;
    for (const BufferId to : schedule_.buffers_in(step.writes)) hand_on(reads.front(), to, true);
    for (const BufferId to : schedule_.buffers_in(step.allocates)) hand_on(reads.front(), to, false);
  }

  /// By tensor: of the squares of relative errors the largest that one of its buffers ends with.
  std::vector<double> squares() const {
    std::vector<double> most(graph_.tensors.size(), 0);
    for (std::size_t b = 0; b < held_.size(); ++b) {
      double& of_tensor = most[schedule_.buffers[b].tensor.index];
      of_tensor = std::max(of_tensor, held_[b].square());
    }
    return most;
  }

 private:
  /// Copied, packed, restored, or a gradient summed with another one's part.
  void hand_on(BufferId from, BufferId to, bool is_there) {
    Approximation held = held_[from.index];
    const Tensor& tensor = graph_[schedule_[to].tensor];
    if (schedule_[to].is_packed() && !schedule_[from].is_packed()) {
      held = held * packed_as(schedule_.codecs[schedule_[to].codec.index], tensor, rectified_);
    }
    fill(to, held, is_there);
  }

  /// What a gradient has is as large as what comes to it, each time.
  void fill(BufferId b, const Approximation& comes, bool adds) {
    const bool is_sum = adds && graph_[schedule_[b].tensor].kind == TensorKind::parameter_gradient;
    sums_[b.index] = is_sum ? sums_[b.index] + 1 : 1;
    Approximation& held = held_[b.index];
    held.mean += (comes.mean - held.mean) / sums_[b.index];
    held.energy += (comes.energy - held.energy) / sums_[b.index];
    held.alike = comes.alike;
  }

  void compute(const Step& step) {
    const Op& op = graph_[step.op];
    if (op.phase == Phase::update) return;
    const auto fill_made = [&](BufferId b, bool is_there) {
      const StorageId storage = graph_[schedule_[b].tensor].storage;
      const auto made = std::ranges::find_if(op.outputs, [&](TensorId t) { return graph_[t].storage == storage; });
      if (made != op.outputs.end()) fill(b, made_by(step, op, *made), is_there);
    };
    for (const BufferId b : schedule_.buffers_in(step.writes)) fill_made(b, true);
    for (const BufferId b : schedule_.buffers_in(step.allocates)) fill_made(b, false);
  }

  /// Gradients that an op adds up are equally large, and have nothing to do with each other.
  Approximation made_by(const Step& step, const Op& op, TensorId output) const {
    Approximation of_values, of_gradients{0, 0};
    double gradients = 0;
    for (const Slice& slice : {step.reads, step.writes}) {
      for (const BufferId b : schedule_.buffers_in(slice)) {
        const Tensor& held = graph_[schedule_[b].tensor];
        const auto input =
            std::ranges::find_if(op.inputs, [&](TensorId t) { return graph_[t].storage == held.storage; });
        if (input == op.inputs.end() || held.kind == TensorKind::parameter) continue;
        if (held.kind == TensorKind::parameter_gradient) continue;
        const bool is_exact = schedule_[b].is_packed() && reads_exactly(op, schedule_.codecs[schedule_[b].codec.index]);
        const Approximation as = is_exact ? Approximation{} : held_[b.index];
        if (is_backward(op.phase) && is_value(held)) {
          if (!schedule_[b].is_packed()) {
            of_values = of_values * reaching(graph_, op, *input, output, as, packed_beside(step, held.storage));
          } else if (depends_on(graph_, op, *input, output)) {
            of_values = of_values * as;
          }
        } else {
          const double size = static_cast<double>(schedule_[b].range_length.count);
          of_gradients.mean += as.mean * size;
          of_gradients.energy += as.energy * size;
          gradients += size;
        }
      }
    }
    if (gradients == 0) return of_values;
    return of_values * Approximation{of_gradients.mean / gradients, of_gradients.energy / gradients};
  }

  std::optional<Codec> packed_beside(const Step& step, StorageId storage) const {
    for (const BufferId b : schedule_.buffers_in(step.reads)) {
      if (!schedule_[b].is_packed() || graph_[schedule_[b].tensor].storage != storage) continue;
      return schedule_.codecs[schedule_[b].codec.index];
    }
    return std::nullopt;
  }

  const Schedule& schedule_;
  const Graph& graph_;
  std::vector<Approximation> held_;  // by buffer
  std::vector<double> sums_;         // by buffer: how often something was added
  std::vector<bool> rectified_;      // by storage
};

}  // namespace

double codec_error(const Codec& codec, Noise noise) {
  return std::sqrt(packed_by(codec, noise).square());
}

PredictedErrors predicted_errors(const Schedule& schedule, const Graph& graph) {
  PredictedErrors errors;
  if (schedule.approximate.empty()) return errors;
  ErrorWalk walk(schedule, graph);
  for (const Step& step : schedule.steps) walk.step(step);
  const std::vector<double> squares = walk.squares();
  double all = 0, wrong = 0;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind == TensorKind::parameter_gradient) all += static_cast<double>(tensor.bytes.count);
  }
  for (const TensorId t : schedule.approximate) {
    const double square = squares[t.index];
    errors.of[t] = std::sqrt(square);
    wrong += square * static_cast<double>(graph[t].bytes.count);
  }
  if (all > 0) errors.whole = std::sqrt(wrong / all);
  return errors;
}

/// Backwards: a gradient's share is what it adds to those that are made of it.
ErrorShares::ErrorShares(const Graph& graph)
    : graph_(graph), rectified_(rectified_storages(graph)), share_(graph.tensors.size(), 0) {
  double all = 0;
  std::vector<double> makers(graph.tensors.size(), 0);
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind == TensorKind::parameter_gradient) all += static_cast<double>(tensor.bytes.count);
  }
  for (const Op& op : graph.ops) {
    for (const TensorId t : op.outputs) ++makers[t.index];
  }
  for (std::size_t t = 0; t < share_.size(); ++t) {
    if (graph.tensors[t].kind != TensorKind::parameter_gradient || makers[t] == 0 || all == 0) continue;
    share_[t] = static_cast<double>(graph.tensors[t].bytes.count) / all / makers[t];
  }
  for (std::size_t o = graph.ops.size(); o-- > 0;) {
    const Op& op = graph.ops[o];
    if (!is_backward(op.phase)) continue;
    double shares = 0, gradients = 0;
    for (const TensorId t : op.outputs) shares += share_[t.index];
    for (const TensorId t : op.inputs) {
      if (graph[t].kind == TensorKind::gradient) gradients += static_cast<double>(graph[t].bytes.count);
    }
    for (const TensorId t : op.inputs) {
      if (graph[t].kind != TensorKind::gradient || gradients == 0) continue;
      share_[t.index] += shares * static_cast<double>(graph[t].bytes.count) / gradients;
    }
  }
}

double ErrorShares::of(OpId op, TensorId value, double square, const std::optional<Codec>& beside) const {
  double sum = 0;
  for (const TensorId made : graph_[op].outputs) {
    sum += share_[made.index] * reaching(graph_, graph_[op], value, made, with_noise(square), beside).square();
  }
  return sum;
}

bool ErrorShares::adds_up(OpId op, TensorId value, double square, const std::optional<Codec>& beside) const {
  return std::ranges::all_of(graph_[op].outputs, [&](TensorId made) {
    return reaching(graph_, graph_[op], value, made, with_noise(square), beside).mean == 1;
  });
}

double ErrorShares::part_of(OpId op, TensorId gradient) const {
  double gradients = 0;
  for (const TensorId t : graph_[op].inputs) {
    if (graph_[t].kind == TensorKind::gradient) gradients += static_cast<double>(graph_[t].bytes.count);
  }
  return gradients > 0 ? static_cast<double>(graph_[gradient].bytes.count) / gradients : 0;
}

double ErrorShares::of_gradient(OpId op, TensorId gradient, double square) const {
  double shares = 0;
  for (const TensorId made : graph_[op].outputs) shares += share_[made.index];
  return shares * part_of(op, gradient) * square;
}

double ErrorShares::through(OpId op, TensorId value, TensorId made, double square) const {
  return reaching(graph_, graph_[op], value, made, with_noise(square)).square();
}

double ErrorShares::of_packing(const Codec& codec, TensorId t) const {
  return packed_as(codec, graph_[t], rectified_).square();
}

}  // namespace plimsoll
