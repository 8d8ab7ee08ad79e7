#pragma once
// Plain training in which an op of the backward gets what a codec makes of a value, not the value.

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/validate/op_loop.h"
#include "validate/cpu/kernels/codec_kernels.h"
#include "validate/reference/few_bits.h"
#include "validate/reference/sampled_rows.h"

namespace plimsoll {

inline bool begins_with(const Op& op, const std::string& prefix) {
  return op.kind.starts_with(prefix);
}

/// One micro-batch after the other. An op of the backward gets a forward's value
/// as `codec` says; nothing: as it is.
class PackedLoop : public OneThreadLoop {
 public:
  /// Who reads a value that a forward has made.
  using Rule = std::function<std::optional<Codec>(const Op& reader, const Op& maker, const Tensor&)>;

  PackedLoop(const std::string& reference, Rule rule, Chance chance = {})
      : OneThreadLoop(with_kernels(named_network(reference).network)), rule_(std::move(rule)), chance_(chance) {}

  void train(std::uint32_t micro_batches) {
    const std::vector<std::vector<std::byte>> inputs = input_values(made_.network, micro_batches);
    for (const std::vector<std::byte>& input : inputs) {
      for (std::size_t t = 0; t < values_.size(); ++t) {
        if (graph().tensors[t].kind == TensorKind::input) values_[t] = input;
      }
      for (const Op& op : graph().ops) {
        if (op.phase != Phase::update) run(op);
      }
    }
    for (const Op& op : graph().ops) {
      if (op.phase == Phase::update) run(op);
    }
  }

  void check_trained(const Replayed& run) const {
    std::size_t compared = 0;
    for (const auto& [name, value] : run.values) {
      const auto t = std::ranges::find(graph().tensors, name, &Tensor::name) - graph().tensors.begin();
      INFO(name);
      CHECK(value == values_[static_cast<std::size_t>(t)]);
      ++compared;
    }
    CHECK(compared > 4);
  }

  std::size_t replaced() const { return replaced_; }
  std::size_t products_of_means() const { return products_; }

 private:
  /// By which codec a reader of the backward gets a value that the forward made and kept for it.
  std::optional<Codec> codec_of(const Op& reader, TensorId t) const {
    const auto makes = [&](const Op& op) {
      return op.phase == Phase::forward && std::ranges::find(op.outputs, t) != op.outputs.end();
    };
    const auto maker = std::ranges::find_if(graph().ops, makes);
    if (reader.phase == Phase::forward || reader.phase == Phase::update || maker == graph().ops.end()) return {};
    const Tensor& tensor = graph()[t];
    const std::optional<Codec> codec = rule_(reader, *maker, tensor);
    if (!codec || cannot_pack(*codec, graph(), tensor)) return {};
    return packed_bytes(*codec, graph(), tensor) < tensor.bytes ? codec : std::nullopt;
  }

  /// What a reader of the backward gets of a value.
  std::vector<std::byte> as_read(const Op& reader, TensorId t) {
    const std::vector<std::byte>& value = values_[t.index];
    const Tensor& tensor = graph()[t];
    const std::optional<Codec> codec = codec_of(reader, t);
    if (!codec || codec->kind == CodecKind::step || codec->kind == CodecKind::rows) return value;
    if (codec->kind == CodecKind::projection || is_product_of_means(reader, *codec)) return value;
    if (codec->keeps_signs && reader.kind == "relu_gradient") {  // all that it needs
      ++replaced_;
      return value;
    }
    std::vector<std::byte> packed(static_cast<std::size_t>(layout_bytes(*codec, tensor).count)), restored(value.size());
    std::vector<std::byte> workspace(static_cast<std::size_t>(pack_cost(*codec, graph(), tensor).workspace.count));
    pack(*codec, tensor, chance_, value.data(), packed.data(), workspace.data());
    unpack(*codec, tensor, packed.data(), restored.data());
    ++replaced_;
    return restored;
  }

  static bool is_product_of_means(const Op& op, const Codec& form) {
    return form.kind == CodecKind::pool && form.product > 0 && op.kind == "convolution_weight_gradient";
  }

  /// The gradient of a 1x1 convolution's weight: a sum over the blocks of pixels of both pictures.
  void run_means(const Op& op, std::int64_t window, const KernelArguments& arguments) {
    const std::vector<std::int64_t>& x = graph()[op.inputs[0]].shape;
    const std::int64_t height = x[1], width = x[2], outputs = graph()[op.outputs[0]].shape.back();
    const auto of_block = [&](const float* picture, std::int64_t channels, std::int64_t n, std::int64_t top,
                              std::int64_t left, std::int64_t c) {
      float sum = 0, pixels = 0;
      for (std::int64_t h = top; h < std::min(top + window, height); ++h) {
        for (std::int64_t w = left; w < std::min(left + window, width); ++w) {
          sum += picture[((n * height + h) * width + w) * channels + c];
          pixels += 1;
        }
      }
      return std::pair(sum / pixels, pixels);
    };
    for (std::int64_t i = 0; i < x[3]; ++i) {
      for (std::int64_t o = 0; o < outputs; ++o) {
        float& sum = arguments.out(0)[i * outputs + o] = 0;
        for (std::int64_t n = 0; n < x[0]; ++n) {
          for (std::int64_t top = 0; top < height; top += window) {
            for (std::int64_t left = 0; left < width; left += window) {
              const auto [mean, pixels] = of_block(arguments.in(0), x[3], n, top, left, i);
              sum += pixels * mean * of_block(arguments.in(1), outputs, n, top, left, o).first;
            }
          }
        }
      }
    }
    ++replaced_;
    ++products_;
  }

  /// The gradient of a GELU by steps of its derivative, straight from the value.
  void run_stepped(const Op& op, std::uint32_t bits, const KernelArguments& arguments) {
    const DerivativeSteps steps = plain::gelu_steps(static_cast<int>(bits));
    const std::int64_t n = graph()[op.outputs[0]].bytes.count / 4;
    for (std::int64_t i = 0; i < n; ++i) {
      std::size_t step = 0;
      for (const float bound : steps.bounds) step += arguments.in(0)[i] >= bound ? 1 : 0;
      arguments.out(0)[i] = arguments.in(1)[i] * steps.levels[step];
    }
    ++replaced_;
  }

  /// The gradients of a linear layer's weight, by sampled rows, and of its bias, by all.
  void run_sampled(const Op& op, double keep, const KernelArguments& arguments) {
    const Tensor &x = graph()[op.inputs[0]], &weight = graph()[op.outputs[0]];
    const std::int64_t columns = x.shape.back(), rows = x.bytes.count / 4 / columns;
    const std::int64_t k = weight.shape[0], n = weight.shape[1];
    const std::int64_t kept = std::llround(keep * static_cast<double>(rows));
    std::vector<float> norms(static_cast<std::size_t>(rows)), values(static_cast<std::size_t>(kept * columns));
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(kept));
    const std::uint64_t seed = seed_for(chance_.seed, arguments.in(0), rows * columns);
    plain::sample_rows(arguments.in(0), {rows, columns, kept}, seed, norms.data(), numbers.data(), values.data());
    for (std::int64_t o = 0; o < n; ++o) {
      for (std::int64_t i = 0; i < k; ++i) {
        float sum = 0;
        for (std::size_t s = 0; s < numbers.size(); ++s) {
          sum += values[s * static_cast<std::size_t>(columns) + static_cast<std::size_t>(i)] *
                 arguments.in(1)[numbers[s] * n + o];
        }
        arguments.out(0)[i * n + o] = sum;
      }
      arguments.out(1)[o] = arguments.in(1)[o];
      for (std::int64_t r = 1; r < rows; ++r) arguments.out(1)[o] += arguments.in(1)[r * n + o];
    }
    ++replaced_;
  }

  /// The same by random sums of all rows, each of a matrix of numbers, which is not kept.
  void run_projected(const Op& op, const Codec& form, const KernelArguments& arguments) {
    const Tensor &x = graph()[op.inputs[0]], &weight = graph()[op.outputs[0]];
    const std::int64_t columns = x.shape.back(), rows = x.bytes.count / 4 / columns, n = weight.shape[1];
    const std::int64_t kept = std::llround(form.keep * static_cast<double>(rows));
    const std::uint64_t seed = seed_for(chance_.seed, arguments.in(0), rows * columns);
    std::vector<float> numbers;
    for (std::int64_t k = 0; k < kept; ++k) {
      for (std::int64_t r = 0; r < rows; ++r) {
        const bool is_negative = unit_of(seed, static_cast<std::uint64_t>(k * rows + r)) >= 0.5F;
        numbers.push_back(form.sums == Projection::rademacher
                              ? (is_negative ? -1.0F : 1.0F)
                              : plain::number_in_sum({rows, columns, kept, form.sums}, seed, k, r));
      }
    }
    const float scale = 1 / std::sqrt(static_cast<float>(kept));
    const auto sum_of = [&](const float* matrix, std::int64_t width, std::int64_t k, std::int64_t c) {
      float sum = 0;
      for (std::int64_t r = 0; r < rows; ++r) {
        sum += numbers[static_cast<std::size_t>(k * rows + r)] * matrix[r * width + c];
      }
      return sum * scale;
    };
    for (std::int64_t o = 0; o < n; ++o) {
      std::vector<float> of_gradient;
      for (std::int64_t k = 0; k < kept; ++k) of_gradient.push_back(sum_of(arguments.in(1), n, k, o));
      for (std::int64_t i = 0; i < weight.shape[0]; ++i) {
        float sum = 0;
        for (std::int64_t k = 0; k < kept; ++k) {
          sum += sum_of(arguments.in(0), columns, k, i) * of_gradient[static_cast<std::size_t>(k)];
        }
        arguments.out(0)[i * n + o] = sum;
      }
      arguments.out(1)[o] = arguments.in(1)[o];
      for (std::int64_t r = 1; r < rows; ++r) arguments.out(1)[o] += arguments.in(1)[r * n + o];
    }
    ++replaced_;
  }

  /// The gradients of a linear layer's weight, from what its input is restored to, and of its bias: in plain loops, as
  /// a product of blocks has them.
  void run_restored(const Op& op, const KernelArguments& arguments) const {
    const Tensor &x = graph()[op.inputs[0]], &weight = graph()[op.outputs[0]];
    const std::int64_t columns = x.shape.back(), rows = x.bytes.count / 4 / columns, n = weight.shape[1];
    for (std::int64_t o = 0; o < n; ++o) {
      for (std::int64_t i = 0; i < weight.shape[0]; ++i) {
        float sum = 0;
        for (std::int64_t r = 0; r < rows; ++r) sum += arguments.in(0)[r * columns + i] * arguments.in(1)[r * n + o];
        arguments.out(0)[i * n + o] = sum;
      }
      arguments.out(1)[o] = arguments.in(1)[o];
      for (std::int64_t r = 1; r < rows; ++r) arguments.out(1)[o] += arguments.in(1)[r * n + o];
    }
  }

  /// `form`: of the first input; any that is restored is there as its values.
  void run_on(const Op& op, const Codec& form, const Run& run) {
    if (form.kind == CodecKind::step) return run_stepped(op, form.bits, run.arguments);
    if (form.kind == CodecKind::rows) return run_sampled(op, form.keep, run.arguments);
    if (form.kind == CodecKind::projection) return run_projected(op, form, run.arguments);
    if (is_product_of_means(op, form)) return run_means(op, form.window, run.arguments);
    const bool by_blocks = form.product > 0 && op.kind == "linear_weight_gradient";
    by_blocks ? run_restored(op, run.arguments) : run_kernel(op, run);
  }

  void run(const Op& op) {
    std::vector<std::vector<std::byte>> read;
    for (const TensorId t : op.inputs) read.push_back(as_read(op, t));
    Run run = run_of(op);
    for (std::size_t i = 0; i < read.size(); ++i) {
      run.arguments.inputs.push_back(op.phase == Phase::update ? values_[op.inputs[i].index].data() : read[i].data());
    }
    run_on(op, op.inputs.empty() ? Codec{} : codec_of(op, op.inputs[0]).value_or(Codec{}), run);
    add_parts(op, run);
  }

  Rule rule_;
  Chance chance_;
  std::size_t replaced_ = 0, products_ = 0;
};

}  // namespace plimsoll
