#pragma once
// PyTorch's modules as eager mode launches them, op by op: in one type, or under autocast, where parameters and sums
// are fp32 and products read copies in bf16.

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/core/graph.h"
#include "traces/models/formula_graph.h"

namespace plimsoll {

class EagerModules : protected FormulaGraph {
 public:
  /// `amp`: torch.autocast in bf16.
  static constexpr std::array<std::string_view, 5> precisions{"amp", "bf16", "fp16", "fp32", "tf32"};
  /// Attention of one kernel, or from kernels that make scores, mask them, make weights and mix values.
  static constexpr std::array<std::string_view, 2> attentions{"fused", "eager"};
  static constexpr std::array<std::string_view, 2> no_or_yes{"no", "yes"};
  /// Until when whoever called the model keeps its logits: the loss's backward, or the whole.
  static constexpr std::array<std::string_view, 2> logits_kept{"loss", "end"};

 protected:
  /// `lora`: the rank of fp32 adapters of attention's projections, which alone are trained; 0: all is.
  EagerModules(std::string model, std::string_view precision, FlopsPerSecond rate, std::uint32_t lora = 0);

  struct Type {
    std::int64_t bytes = 0;
    std::string name;

    friend bool operator==(const Type&, const Type&) = default;
  };
  /// A value, and what makes the gradient of what it was made from.
  struct Made {
    TensorId out;
    std::function<TensorId(TensorId)> backward;
  };

  bool is_frozen() const { return lora_ > 0; }
  bool is_mixed() const { return is_mixed_; }
  bool is_narrow() const { return narrow_.bytes < 4; }
  /// Of parameters and of sums along the model.
  const Type& wide() const { return wide_; }
  /// Of what products read and make.
  const Type& narrow() const { return narrow_; }
  const Type& fp32() const { return fp32_; }

  TensorId made_value(std::string name, Shape shape, const Type& type) {
    return tensor(std::move(name), TensorKind::activation, std::move(shape), type.bytes, type.name);
  }
  TensorId weight(std::string name, Shape shape) {
    return tensor(std::move(name), TensorKind::parameter, std::move(shape), wide_.bytes, wide_.name);
  }
  TensorId like(std::string name, TensorId of, const Type& type) {
    return made_value(std::move(name), (*this)[of].shape, type);
  }
  Type type_of(TensorId id) const;

  /// x itself if it has the type. `axes` are those of its loop: "b s w".
  Made converted(TensorId x, const Type& type, const std::string& name, const std::string& axes);

  /// Loops of a product with a parameter, of operands apart; `made` is "b s f" or several of them.
  struct Product {
    std::string x, weight, bias, made;
    double flops = 0;
    std::vector<std::string> outputs;   ///< names of what it makes
    Shape shape;                        ///< of each of these
    std::optional<std::string> joined;  ///< axes of the gradient of several
  };
  /// Of what a product makes: one or several values; `backward` takes one gradient, of the joined ones if several.
  struct Products {
    std::vector<TensorId> outs;
    std::function<TensorId(TensorId)> backward;
  };
  /// With copies in bf16 of x and of parameters under autocast, and with its adapter, if it has one.
  Products product(const std::string& name, const Product& of, TensorId x, TensorId weight,
                   std::optional<TensorId> bias);

  /// Axes behind those of tokens: of the input, of what was made, and of that where it is one of several.
  struct AdapterAxes {
    std::string input, output, joined;
    bool sum_is_narrow = false;  ///< peft's Linear4bit adds to a copy of what was made, in its type
  };
  /// What a product made with what its adapter adds. `backward` makes the gradient of what the product made, and that
  /// part of its input's that the adapter makes.
  struct Adapted {
    Ids outs;
    std::function<std::pair<TensorId, TensorId>(TensorId)> backward;
  };
  /// Two products in fp32 on a copy of the input, as peft makes them of layers in bf16 (Hu et al., "LoRA", 2021).
  Adapted adapted(const Ids& made, TensorId x, const std::string& name, const AdapterAxes& axes);

  /// Layer norm of the last of three axes: in fp32 under autocast.
  Made layer_norm(TensorId x, const std::string& name, std::int64_t width);
  /// GELU by tanh from eight kernels, as Hugging Face's `gelu_new`; its power, and so its result, are fp32 under
  /// autocast.
  Made gelu_of_kernels(TensorId x, const std::string& name);

  /// With a chance of one half or less each number is 0: x itself where `is_wanted` is not. `axes` are those of its
  /// loop.
  Made dropout(TensorId x, const std::string& name, const std::string& axes, bool is_wanted);

  /// How kernels make weights of the scores of all pairs of positions.
  enum class ScoreMask : std::uint8_t {
    chosen,  ///< what comes later is replaced: GPT-2
    added,   ///< a large negative number is added: BERT
    bounded  ///< likewise, and the sum is kept above the least number: OPT
  };
  struct EagerAttention {
    ScoreMask mask = ScoreMask::chosen;
    bool is_divided = true;      ///< by the root of the head size, in a kernel: else queries are scaled before
    bool has_dropout = false;    ///< of weights
    bool copies_heads = false;   ///< queries, keys and values are copied, so that each head's lie together
    std::optional<TensorId> of;  ///< what the mask is: bools or numbers
    std::string mask_axes;
  };
  /// What the queries' part of attention made, and what makes the gradients of queries, keys and values, all "b s a e".
  struct Mixed {
    TensorId out;
    std::function<std::array<TensorId, 3>(TensorId)> backward;
  };
  Mixed eager_attention(const std::array<TensorId, 3>& heads, const EagerAttention& of, const std::string& name);

  /// y + x, where x goes past a block; `backward` makes the gradient of y.
  Made past_block(TensorId y, TensorId x, const std::string& name);
  /// Of x from both ways.
  TensorId both_ways(TensorId through, TensorId past, const std::string& of);

  /// The losses of rows of logits, "b s" or "b", computed in this type; ends the stage of the loss. Whoever called the
  /// model keeps the logits.
  void loss_of_rows(TensorId logits, const std::string& rows, const Type& computed, bool keeps_to_the_end);
  /// The gradient of logits from whoever called the model, which has no loss.
  TensorId given_gradient(TensorId logits, bool keeps_to_the_end);
  /// Of the table of tokens: reads the logits too, if they are kept to the end.
  void token_table_backward(const std::string& of, TensorId tokens, TensorId d, TensorId table, bool adds);

 private:
  /// What a product made and what its adapter adds; `backward` makes the gradients of both.
  struct AdapterSum {
    Ids outs;
    std::function<std::pair<TensorId, TensorId>(TensorId)> backward;
  };
  /// In fp32, and then converted, as peft's Linear. `whole`: of the gradient of all that was made.
  AdapterSum added_wide(const Ids& made, const Ids& scaled, const std::string& name, const AdapterAxes& axes,
                        const Shape& whole);
  AdapterSum added_narrow(TensorId made, TensorId scaled, const std::string& name, const std::string& axes);
  /// Logits, until the last op of the backward.
  void keep(TensorId logits);
  Ids each_like(const Ids& of, const std::string& name, const Type& type);
  /// Attention's, to themselves and to an encoder.
  bool is_adapted(const std::string& product) const;
  Products plain_product(const std::string& name, const Product& of, TensorId x, TensorId weight,
                         std::optional<TensorId> bias);

  std::uint32_t lora_;
  bool is_mixed_;
  Type wide_, narrow_, fp32_{4, "fp32"};
  std::optional<TensorId> kept_logits_;
};

/// What a language model is asked for; of EagerModules's words which attention and type.
struct AskedSizes {
  std::uint32_t width = 1, heads = 1, sequence = 1, positions = 1, attention = 0, dtype = 0;
};
/// Throws where heads do not divide the width, the sequence has more tokens than positions, or where attention from
/// kernels is asked for under autocast, which changes types between them.
void refuse_sizes(std::string_view model, const AskedSizes&);

}  // namespace plimsoll
