#pragma once
// Blocks of encoders, and of OPT, as Hugging Face has them: attention that sees all positions, an MLP with a GELU of
// one kernel, and what a classifier reads of the first position.

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "sim/core/graph.h"
#include "traces/models/eager_modules.h"

namespace plimsoll {

/// Sizes of an encoder's layers.
struct EncoderSizes {
  std::int64_t samples = 1, positions = 1, width = 1, heads = 1, inner = 1;
  bool is_eager = false, has_dropout = false;
  bool is_decoder = false;  ///< OPT: attention is causal, queries are scaled by a kernel, weights are not dropped
  std::uint32_t lora = 0;   ///< as EagerModules takes it
};

// Loops name samples b, positions s and t, width w, heads a, numbers of a head e, inner numbers f, classes v.

class EncoderBlocks : protected EagerModules {
 protected:
  EncoderBlocks(std::string model, std::string_view precision, FlopsPerSecond rate, const EncoderSizes& sizes)
      : EagerModules(std::move(model), precision, rate, sizes.lora), sizes_(sizes) {}

  struct Attends {
    bool is_causal = false;
    bool scales_queries = false;  ///< by a kernel
    bool has_key_bias = true;
    bool copies_heads = false;  ///< of fused attention: what it reads lies head by head, and what it makes
    std::int64_t turned = 0;    ///< numbers of a head's queries and keys that positions turn, which then lie likewise
    std::optional<TensorId> memory = {};  ///< what keys and values are made of, where it is not x
  };
  /// Of x, without what goes past it. Queries, keys and values have a product each.
  Made attention(TensorId x, const std::string& name) {
    return attention(x, name, {.is_causal = sizes_.is_decoder, .scales_queries = sizes_.is_decoder});
  }
  Made attention(TensorId x, const std::string& name, const Attends& how);
  /// Likewise.
  Made mlp(TensorId x, const std::string& name);
  /// A product of each position, with a bias.
  Products dense(const std::string& name, TensorId x, std::int64_t inputs, std::int64_t outputs);
  /// Logits of each position by the table of tokens, whose rows are `vocabulary`.
  Products word_logits(TensorId x, TensorId table, std::int64_t vocabulary, std::optional<TensorId> bias);
  /// GELU by erf: one kernel, in the type of x.
  Made gelu(TensorId x, const std::string& name);
  /// A product of the first position of each sample, with a bias; `backward` makes the gradient of all positions.
  /// `slices_words`: it is read as a slice of all its numbers, too.
  Products of_first_position(const std::string& name, TensorId x, std::int64_t outputs, bool slices_words = false);
  /// A product of one row a sample, with a bias.
  Products of_row(const std::string& name, TensorId row, std::int64_t inputs, std::int64_t outputs);

  const EncoderSizes sizes_;
  /// Of eager attention: "b t" of words that count, or "b s t" of what comes before.
  std::optional<TensorId> mask_;
  std::optional<TensorId> memory_gradient_;  ///< the sum of those that attentions have given

 private:
  Products read_by_heads(TensorId x, const std::string& name, bool has_bias);
  Mixed mixed(const std::array<TensorId, 3>& heads, const Attends& how, const std::string& name);
  /// The first `numbers` of each head turned by positions, joined to the others.
  Made turned_part(TensorId x, std::int64_t numbers, const std::string& name);
  Mixed fused_of_turned(std::array<TensorId, 3> heads, const Attends& how, const std::string& name);
  Mixed fused(const std::array<TensorId, 3>& heads, bool is_causal, const std::string& name);
  /// On copies of queries, keys and values that lie head by head; the result is copied back.
  Mixed fused_by_head(const std::array<TensorId, 3>& heads, bool is_causal, const std::string& name);
  /// Rows that the op reads of x: "b - w" of all positions, or "b w" of rows apart.
  Products row_product(const std::string& name, TensorId x, const std::string& axes, std::int64_t inputs,
                       std::int64_t outputs);
};

}  // namespace plimsoll
