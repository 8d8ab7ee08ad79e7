#pragma once
// The written names of the core's enumerations: in files, on the command line and in plots, the same everywhere.

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "sim/core/graph.h"
#include "sim/core/kernels/gpu_kernel.h"
#include "sim/core/schedule.h"

namespace plimsoll {

template <class Enum>
struct Names;

template <>
struct Names<TensorKind> {
  static constexpr std::array all{std::pair{TensorKind::input, "input"},
                                  std::pair{TensorKind::parameter, "parameter"},
                                  std::pair{TensorKind::activation, "activation"},
                                  std::pair{TensorKind::gradient, "gradient"},
                                  std::pair{TensorKind::parameter_gradient, "parameter_gradient"},
                                  std::pair{TensorKind::optimizer_state, "optimizer_state"}};
};

template <>
struct Names<Phase> {
  static constexpr std::array all{std::pair{Phase::forward, "forward"}, std::pair{Phase::backward, "backward"},
                                  std::pair{Phase::backward_input, "backward_input"},
                                  std::pair{Phase::backward_weight, "backward_weight"},
                                  std::pair{Phase::update, "update"}};
};

template <>
struct Names<KernelKind> {
  static constexpr std::array all{std::pair{KernelKind::elementwise, "elementwise"},
                                  std::pair{KernelKind::norm, "norm"},
                                  std::pair{KernelKind::softmax, "softmax"},
                                  std::pair{KernelKind::product, "product"},
                                  std::pair{KernelKind::batched_product, "batched_product"},
                                  std::pair{KernelKind::attention, "attention"},
                                  std::pair{KernelKind::attention_backward, "attention_backward"},
                                  std::pair{KernelKind::optimizer, "optimizer"},
                                  std::pair{KernelKind::convolution, "convolution"},
                                  std::pair{KernelKind::convolution_input_gradient, "convolution_input_gradient"},
                                  std::pair{KernelKind::convolution_weight_gradient, "convolution_weight_gradient"},
                                  std::pair{KernelKind::convolution_backward, "convolution_backward"},
                                  std::pair{KernelKind::other, "other"}};
};

template <>
struct Names<StepKind> {
  static constexpr std::array all{std::pair{StepKind::forward, "forward"},
                                  std::pair{StepKind::backward, "backward"},
                                  std::pair{StepKind::update, "update"},
                                  std::pair{StepKind::recompute, "recompute"},
                                  std::pair{StepKind::offload, "offload"},
                                  std::pair{StepKind::prefetch, "prefetch"},
                                  std::pair{StepKind::send, "send"},
                                  std::pair{StepKind::collective, "collective"},
                                  std::pair{StepKind::pack, "pack"},
                                  std::pair{StepKind::unpack, "unpack"},
                                  std::pair{StepKind::evaluation, "evaluation"}};
};

template <>
struct Names<CodecKind> {
  static constexpr std::array all{std::pair{CodecKind::pool, "pool"},
                                  std::pair{CodecKind::quantize, "quantize"},
                                  std::pair{CodecKind::mask, "mask"},
                                  std::pair{CodecKind::block_sparse, "block_sparse"},
                                  std::pair{CodecKind::zero_run, "zero_run"},
                                  std::pair{CodecKind::cast, "cast"},
                                  std::pair{CodecKind::index, "index"},
                                  std::pair{CodecKind::compressed_rows, "compressed_rows"},
                                  std::pair{CodecKind::step, "step"},
                                  std::pair{CodecKind::rows, "rows"},
                                  std::pair{CodecKind::projection, "projection"}};
};

template <>
struct Names<QuantizedBy> {
  static constexpr std::array all{std::pair{QuantizedBy::groups, "groups"},
                                  std::pair{QuantizedBy::whole_groups, "whole_groups"},
                                  std::pair{QuantizedBy::means, "means"},
                                  std::pair{QuantizedBy::parts, "parts"},
                                  std::pair{QuantizedBy::channels, "channels"},
                                  std::pair{QuantizedBy::above_zero, "above_zero"},
                                  std::pair{QuantizedBy::fixed_range, "fixed_range"}};
};

template <>
struct Names<Projection> {
  static constexpr std::array all{std::pair{Projection::rademacher, "rademacher"},
                                  std::pair{Projection::gaussian, "gaussian"}, std::pair{Projection::dct, "dct"}};
};

template <>
struct Names<PoolType> {
  static constexpr std::array all{std::pair{PoolType::average, "average"}, std::pair{PoolType::max, "max"},
                                  std::pair{PoolType::soft, "soft"}};
};

template <>
struct Names<Padding> {
  static constexpr std::array all{std::pair{Padding::none, "none"}, std::pair{Padding::tensor, "tensor"},
                                  std::pair{Padding::sample, "sample"}};
};

template <>
struct Names<CollectiveKind> {
  static constexpr std::array all{
      std::pair{CollectiveKind::all_reduce, "all_reduce"}, std::pair{CollectiveKind::reduce_scatter, "reduce_scatter"},
      std::pair{CollectiveKind::all_gather, "all_gather"}, std::pair{CollectiveKind::broadcast, "broadcast"},
      std::pair{CollectiveKind::all_to_all, "all_to_all"}, std::pair{CollectiveKind::shift, "shift"}};
};

template <>
struct Names<Versions> {
  static constexpr std::array all{std::pair{Versions::synchronous, "synchronous"},
                                  std::pair{Versions::stashed, "stashed"},
                                  std::pair{Versions::double_buffered, "double_buffered"}};
};

template <>
struct Names<CollectiveWay> {
  static constexpr std::array all{
      std::pair{CollectiveWay::fastest, "fastest"}, std::pair{CollectiveWay::nccl, "nccl"},
      std::pair{CollectiveWay::ring, "ring"},       std::pair{CollectiveWay::halving, "halving"},
      std::pair{CollectiveWay::trees, "trees"},     std::pair{CollectiveWay::levels, "levels"}};
};

template <>
struct Names<MainGradients> {
  static constexpr std::array all{std::pair{MainGradients::as_parameters, "as_parameters"},
                                  std::pair{MainGradients::fp32, "fp32"}, std::pair{MainGradients::automatic, "auto"}};
};

template <>
struct Names<Optimizer> {
  static constexpr std::array all{std::pair{Optimizer::none, "none"}, std::pair{Optimizer::sgd, "sgd"},
                                  std::pair{Optimizer::momentum, "momentum"}, std::pair{Optimizer::adam, "adam"}};
};

template <>
struct Names<UpdateKernels> {
  static constexpr std::array all{
      std::pair{UpdateKernels::fused, "fused"}, std::pair{UpdateKernels::foreach, "foreach"},
      std::pair{UpdateKernels::single, "single"}, std::pair{UpdateKernels::megatron, "megatron"}};
};

template <>
struct Names<States> {
  static constexpr std::array all{std::pair{States::by_dtype, "by_dtype"}, std::pair{States::fp32, "fp32"},
                                  std::pair{States::as_parameters, "as_parameters"}};
};

template <>
struct Names<Gradients> {
  static constexpr std::array all{std::pair{Gradients::fresh, "new"}, std::pair{Gradients::existing, "existing"}};
};

template <class Enum>
constexpr std::string_view written(Enum value) {
  for (const auto& [each, name] : Names<Enum>::all) {
    if (each == value) return name;
  }
  return "unknown";
}

template <class Enum>
constexpr std::optional<Enum> from_name(std::string_view text) {
  for (const auto& [each, name] : Names<Enum>::all) {
    if (text == name) return each;
  }
  return std::nullopt;
}

}  // namespace plimsoll
