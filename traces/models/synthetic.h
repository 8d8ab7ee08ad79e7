#pragma once
// Chains, and graphs of transformers, made by rule or by formula: for tests, for teaching, and for models that nobody
// has measured yet. On the command line: `uniform:16`, `random:stages=20,seed=3`,
// `transformer:layers=12,width=768,...`.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "sim/core/chain.h"
#include "sim/core/graph.h"
#include "sim/io/reference_options.h"

namespace plimsoll {

/// Equal stages and a loss that takes no time: what papers reason about.
struct UniformChain {
  std::uint32_t stages = 16;  ///< without the loss
  Seconds forward{1e-3}, backward{2e-3};
  Bytes activation{1'000'000};  ///< every boundary tensor
  Bytes inner{0};               ///< saved beside the output
  Bytes parameters{0};          ///< of each stage
};
Chain uniform_chain(const UniformChain&);

/// Heterogeneous stages; the same seed gives the same chain everywhere.
struct RandomChain {
  std::uint32_t stages = 20;  ///< without the loss
  std::uint64_t seed = 1;
};
Chain random_chain(const RandomChain&);

/// A decoder of pre-norm transformer layers, each one an attention and an MLP stage, with an embedding before and a
/// vocabulary head and a loss behind them; by operators also an encoder with a decoder. Work and sizes follow from the
/// shapes, times from a stated rate.
struct TransformerChain {
  std::uint32_t layers = 12, width = 768, heads = 12, sequence = 1024, batch = 1, vocabulary = 50257;
  static constexpr std::array<std::string_view, 4> dtypes{"by_bytes", "bf16", "fp16", "fp32"};
  std::uint32_t dtype = 0;        ///< of activations and parameters: which of `dtypes`
  std::uint32_t dtype_bytes = 2;  ///< by bytes: 2 is bf16, 4 is fp32
  FlopsPerSecond rate{100e12};    ///< how fast the device is taken to compute
  static constexpr std::array<std::string_view, 2> views{"chain", "graph"};
  std::uint32_t view = 0;  ///< which of `views`: stages, or their operators
  static constexpr std::array<std::string_view, 2> dropouts{"no", "yes"};
  std::uint32_t dropout = 0;  ///< of operators: which of `dropouts`
  static constexpr std::array<std::string_view, 2> op_lists{"joined", "megatron"};
  std::uint32_t ops = 0;  ///< of operators: which of `op_lists`
  std::uint32_t decoder =
      0;  ///< of operators: `layers` are an encoder's, which so many layers with cross attention read
};
Chain transformer_chain(const TransformerChain&);

/// A pre-norm decoder: an embedding, `layers` times attention and MLP, a final norm and vocabulary head, a loss; one
/// forward, and backward ops for the gradient of the input and of the parameters. What is kept for the backward is that
/// of Korthikanti et al. 2022, section 4.1: with dropout 34sbh + 5as^2b bytes a layer of two-byte numbers. Stages are
/// those of the chain. With `decoder` layers these follow an encoder of `layers`: behind its last norm and an embedding
/// of their own each is an attention, an attention to what the encoder made, and an MLP. Work is that of matrix
/// products, as in the chain; times are work / `rate`. With `ops` of megatron there are, besides, the copies, sums of
/// biases and additions that Megatron-LM of 2021 launches one by one, the embedding's dropout, and a loss in fp32.
/// Throws where the heads do not divide the width.
Graph transformer_graph(const TransformerChain&);

/// Of activations and parameters: the stated one, else bf16 or fp32 by the stated size. Throws where they contradict.
std::string dtype_of(const TransformerChain&);

/// Whether a trace reference means a synthetic chain rather than a file.
bool is_synthetic(std::string_view reference);

/// The model of a reference such as `transformer:layers=24,width=1024`; throws where it is wrong.
std::variant<Chain, Graph> synthetic_model(std::string_view reference);

/// The formula of a model, of one with a published name or of a file too: `llama` of `llama3_8b`. Empty of any other.
std::string formula_of(std::string_view reference);

/// How many samples a micro-batch of the reference has, where its model has the option `batch`; and the reference with
/// another number.
std::optional<std::uint32_t> samples_of(std::string_view reference);
std::string with_samples(std::string_view reference, std::uint32_t samples);

/// How many layers its model has, where it has the option `layers`; and the reference with another number.
std::optional<std::uint32_t> layers_of(std::string_view reference);
std::string with_layers(std::string_view reference, std::uint32_t layers);

/// The number that a synthetic chain or graph has as `sequence`; likewise.
std::optional<std::uint32_t> positions_of(std::string_view reference);

/// The whole numbers of such a reference; throws where it is wrong. None of any other.
std::vector<ReferenceNumber> synthetic_numbers(std::string_view reference);

/// One line of help a generator: name, keys and defaults.
std::vector<std::string> synthetic_help();

/// Of all formulas: `llama`.
std::vector<std::string> synthetic_names();

}  // namespace plimsoll
