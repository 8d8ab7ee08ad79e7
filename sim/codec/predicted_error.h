#pragma once
// How far gradients that are made from approximations will be from exact ones, in closed forms: as if values were white
// noise, the same for every layer. Nothing is known here of a network's real values; the replay measures with them.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "sim/core/schedule.h"

namespace plimsoll {

/// What values are like: normal with mean 0, or the same after a ReLU.
enum class Noise : std::uint8_t { normal, rectified };

/// |restored - packed| / |packed| of white noise, over all values of the tensor. Quantization rounds stochastically, as
/// the published systems do: e^2 = R^2 / (6 (2^b - 1)^2 mean x^2) with R the expected range of a group; pooling keeps
/// means: e^2 = (1 - 1 / k^2) var x / mean x^2; of blocks the energy of those that are dropped. Steps of a derivative
/// and sampled rows: of what is made from them, GELU's gradient and a weight's. 0 for codecs that lose nothing of what
/// their readers need.
double codec_error(const Codec&, Noise);

struct PredictedErrors {
  std::map<TensorId, double> of;  ///< by parameter gradient that the schedule calls approximate: |error| / |exact|
  double whole = 0;  ///< of all parameter gradients as one vector, as if all their numbers were equally large
};

/// What is approximate is a multiple of the exact and noise; both are multiplied where an op makes something of it, and
/// are means where gradients add up. An error of a convolution's or linear layer's input reaches the gradient
/// of its weight alone; that of a normalization's input the gradient of its scale and, by 2 / n of the square where n
/// values share their mean, the gradient of its input, which is moreover divided by the deviation of what was restored
/// where that is found anew (this project's networks): means of k values are less by the root of k, and so much larger
/// is each gradient on its way back. By 0.605 of the square an error of a GELU's input reaches the gradient of it (mean
/// of gelu''^2 over that of gelu'^2); that of a ReLU's output the signs of its smallest values, 0.69 of it,
/// or, where means stand for them, those of all values of a mean above 0; that of a
/// max pooling's input 1.08 of the maxima where they are found anew, 9 values a window; that of C probabilities which a
/// loss saves, by 1 / (C - 1) of the square, or of their logarithms by log^2 C / (C - 1); others wholly.
/// Of a chain's stage, whose gradients are not known layer by layer, each convolution or linear layer counts as an
/// equal share of the gradients of parameters, and what other layers pass on as reaching half of these.
PredictedErrors predicted_errors(const Schedule&, const Graph&);

/// What an error of one value that the backward of an op reads adds to the square of PredictedErrors::whole, in a
/// schedule that runs every op once.
class ErrorShares {
 public:
  explicit ErrorShares(const Graph&);

  /// `square`: of the relative error of the value. `beside`: the packed form that the op reads beside it.
  double of(OpId, TensorId value, double square, const std::optional<Codec>& beside = std::nullopt) const;

  /// Whether no error of other values makes that less: what the op makes of it is as large as the exact, and noise.
  bool adds_up(OpId, TensorId value, double square, const std::optional<Codec>& beside = std::nullopt) const;

  /// The same of an error of a gradient that it reads; and what share of its square is in what the op makes.
  double of_gradient(OpId, TensorId gradient, double square) const;
  double part_of(OpId, TensorId gradient) const;

  /// Square of the relative error in what the op makes of the value.
  double through(OpId, TensorId value, TensorId made, double square) const;

  /// Square of the relative error that packing a tensor makes.
  double of_packing(const Codec&, TensorId) const;

 private:
  const Graph& graph_;
  std::vector<bool> rectified_;  // by storage
  std::vector<double> share_;    // by tensor: of a gradient's squared error, how much reaches the whole
};

}  // namespace plimsoll
