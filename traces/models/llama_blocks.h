#pragma once
// Blocks of decoders like Llama's, op by op, with their backwards; layers of them are put together in llama_graph.cpp.

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "traces/models/eager_modules.h"
#include "traces/models/llama_graph.h"
#include "traces/models/mixtures/expert_rows.h"

namespace plimsoll {

// Loops name samples b, positions s and t, width w, heads of keys a, queries a head of keys g, numbers of a head e,
// inner numbers f, words v, experts x, places of a token among them k, rows of experts with a capacity n, compressed
// queries r and keys c.

class LlamaBlocks : protected EagerModules {
 protected:
  static constexpr std::uint32_t latent_head_size = 128;

  explicit LlamaBlocks(const LlamaGraph& of)
      : EagerModules("llama", LlamaGraph::dtypes.at(of.dtype), of.rate, of.lora),
        of_(of),
        samples_(of.batch),
        tokens_(of.sequence),
        width_(of.width),
        head_size_(of.head_size > 0 ? of.head_size
                   : of.kv_rank > 0 ? latent_head_size
                                    : of.width / of.heads) {}

  double numbers() const { return static_cast<double>(samples_) * static_cast<double>(tokens_); }
  Shape token_shape() const { return {samples_, tokens_, width_}; }
  /// 2 flops for each number of the weight and each token.
  double product(double inputs, double outputs) const { return 2 * numbers() * inputs * outputs; }
  /// Pairs of a query and a key that it sees, of all samples: the causal half, or a band of it.
  double pairs() const;

  struct Norm {
    TensorId x, scale, wide, roots, normed, out;
    TensorId factor;  ///< of the normed values: the scale, or one more than it
    std::string name;
    std::int64_t width = 0;
    std::string rows;  ///< axes before the last
    char axis = 'w';
    double numbers = 0;  ///< that are normed
  };
  /// The first `width` numbers of x's last axis in fp32, over the root of their mean square, then times the scale in
  /// the type of x.
  Norm norm(TensorId x, const std::string& name, std::int64_t width, char axis = 'w', const std::string& rows = "b s");
  /// What a product with an fp32 number makes of a type: itself, and fp32 under autocast, whose tables and scales are.
  const Type& scaled_type(const Type& of) const { return is_mixed() ? fp32() : of; }
  /// Bytes a number that the gradients of the scaled value and of the scale move.
  double scale_back(const Norm& of) const;
  /// With the gradient that goes past the block, if there is one.
  TensorId norm_backward(const Norm& of, TensorId d, std::optional<TensorId> past);

  /// `numbers` a token of queries or keys, turned by their positions: two products with tables, halves changed and
  /// joined, a sum.
  struct Rotation {
    double there, back;  ///< bytes that are moved a number
  };
  Rotation rotation(TensorId x) const;
  TensorId rotated(TensorId x, const std::string& name, std::string_view loop, double numbers);
  TensorId rotated_back(TensorId of, TensorId d, const std::string& name, std::string_view loop, double numbers);
  Kind unpacking(TensorId weight, const std::string& loop) const;
  double bytes_of(double each) const { return numbers() * each * static_cast<double>(element_); }

  /// What a product reads, and the axes of both; `whole`: "!" where a rank needs all of the input's last axis.
  struct Operands {
    TensorId x;
    std::string axes;
    const char* whole;
    TensorId weight;
    std::string weight_axes;
  };
  struct Output {
    TensorId out;
    std::string axes;
  };
  void multiply(const std::string& name, const Operands& of, const Output& to, double flops);
  /// The gradient of the input, in the type of products, from that of what was made.
  void multiply_back(const std::string& name, const Operands& of, const Output& to, double flops);
  /// The gradients of a projection's weight and, added to that of other projections, of its input.
  struct Projected {
    TensorId d, weight, input;
    std::string_view input_axes = "b s w";
  };
  /// Axes of the input, of what was made, and the loop of the product of both.
  struct WeightLoop {
    std::string input, made, whole;
    bool is_of_experts = false;
  };
  /// The gradient of the weight alone.
  void weight_backward(const std::string& name, const Projected& of, const WeightLoop& loop, double flops);
  TensorId from_projection(const std::string& name, const std::string& made, const std::string& weight,
                           const Projected& of, double flops, std::optional<TensorId> others);
  /// The gradient of a term of a sum from that of the sum, which may be wider.
  TensorId narrowed_back(TensorId d, TensorId term, const std::string& of);
  TensorId added(TensorId one, TensorId other, const std::string& of, const std::string& part,
                 const std::string& axes = "b s w");

  bool is_gemma() const { return of_.norm == 1; }
  bool is_packed() const { return of_.base == 1; }
  bool is_joined() const { return of_.joined == 1; }
  bool is_float8() const { return of_.products == 1; }
  /// The weight of a product in a layer: packed in 4 bits a number where the model has it so (llama_narrow.cpp).
  TensorId layer_weight(const std::string& name, Shape shape);
  // Behind the name of a product: what it reads beside its weight.
  static constexpr const char *input_of = ".input", *bias_of = ".bias";
  /// Under autocast: a copy for a product in its type, of an input for it alone.
  TensorId narrowed(TensorId x, std::string name, const std::string& axes);
  /// That copy; where there is none x itself.
  Made copy_of(const std::string& name, TensorId x) const;
  /// What a product reads of it, there and back: the weight, numbers that are unpacked, or a copy in 8 bits, each time
  /// for it alone.
  TensorId read_weight(TensorId weight, const std::string& axes);
  TensorId read_weight_back(TensorId weight, const std::string& axes);
  /// What numbers in 8 bits have one scale; groups of rows: those of each expert, column by column.
  enum class ScaledBy : std::uint8_t { tensor, groups_of_rows };
  /// What a product of a layer reads of a value, there and in a part of the backward of the op `of`: the value, or a
  /// copy in 8 bits for it alone (llama_narrow.cpp).
  TensorId operand(TensorId x, const std::string& name, const std::string& axes);
  TensorId operand_back(TensorId x, const std::string& of, const std::string& part, const std::string& axes,
                        ScaledBy by = ScaledBy::tensor);
  Kind scaling(TensorId x, const std::string& loop, ScaledBy by = ScaledBy::tensor) const;
  /// What a projection makes with what its adapter adds, if it has one. `backward` makes the gradient of what the
  /// projection made, and that part of its input's that the adapter makes.
  struct WithAdapter {
    TensorId out;
    std::function<std::pair<TensorId, std::optional<TensorId>>(TensorId)> backward;
  };
  /// `input` and `output`: axes behind those of tokens.
  WithAdapter with_adapter(TensorId made, TensorId x, const std::string& name, const std::string& input,
                           const std::string& output);

  /// What a block makes of a normed value, before it is added to what goes past; `backward` makes the gradient of the
  /// normed value.
  struct Block {
    TensorId y;
    std::function<TensorId(TensorId)> backward;
  };
  /// Queries, keys or values, on their way from a normed value to attention.
  struct HeadPart {
    std::string name, axes;  ///< axes: those of a token
    Shape heads;
    TensorId weight, out;  ///< out: of the last op so far
    std::optional<TensorId> bias;
    WithAdapter own{};
    std::optional<Norm> norm;  ///< of each head
    Made turned{};             ///< by positions, in the type of products
    double numbers = 1, flops = 0;

    std::string made_axes() const { return "b s " + axes; }
    std::string turn() const { return made_axes() + "! -> " + made_axes(); }
  };
  /// All three, projected.
  std::array<HeadPart, 3> head_parts(TensorId normed, const std::string& name);
  void project(HeadPart& of, TensorId normed);
  /// From the gradient of what the projection and its adapter made; `dn`: of the normed value, so far.
  void project_back(const HeadPart& of, TensorId normed, TensorId d, std::optional<TensorId>& dn);
  /// Normed if the model does so, and turned by positions.
  TensorId turned(HeadPart& of);
  TensorId turned_back(const HeadPart& of, TensorId d);
  /// Of turned queries and keys and of values, with the projection behind it; `backward` makes the gradients of all
  /// three. Values may be a part of what one product made.
  struct Attended {
    TensorId y;
    std::function<std::array<TensorId, 3>(TensorId)> backward;
  };
  Attended attended(TensorId q, TensorId k, TensorId v, const std::string& name);
  /// With queries that share keys and values, of Llama (grouped queries; llama_graph.cpp).
  Block attention(TensorId normed, const std::string& name);
  /// Likewise of views of one product, of Phi-3 (llama_joined.cpp).
  Block joined_attention(TensorId normed, const std::string& name);
  /// The gradient of the whole from those of the views of queries, keys and values: each is put into zeros.
  TensorId of_views(TensorId whole, const std::array<TensorId, 3>& views, const std::string& name);
  /// Of keys and values that are products of few numbers a token (DeepSeek-AI, "DeepSeek-V2", 2024, section 2.1).
  Block latent_attention(TensorId normed, const std::string& name);
  Block gated_mlp(TensorId normed, const std::string& name, std::int64_t inner);
  /// Likewise, gate and up as views of one product, of Phi-3 (llama_joined.cpp).
  Block joined_mlp(TensorId normed, const std::string& name, std::int64_t inner);
  /// The experts that each token passes, and their shares, in fp32; `backward` makes the gradient of the normed value
  /// from those of the shares and of what goes to experts.
  struct Routed {
    TensorId chosen, shares;
    std::function<TensorId(TensorId dshares, TensorId dn)> backward;
  };
  /// Each token in `top_k` gated MLPs of `experts`, which products of groups of rows compute, beside those that all
  /// tokens pass (Jiang et al., "Mixtral of Experts", 2024; shared experts as DeepSeek's).
  Block experts(TensorId normed, const std::string& name);
  /// Rows in the order of their experts, on their way there and back.
  struct Rows {
    std::string axes;
    Shape shape;
    double count;
    TensorId taken;  ///< what experts read
    std::function<TensorId(TensorId downs)> combined;
    /// The gradients of what experts made, and of the shares.
    std::function<std::pair<TensorId, TensorId>(TensorId d, TensorId downs)> combined_back;
    /// Those of the normed value and of the router's shares.
    std::function<std::pair<TensorId, TensorId>(TensorId dtaken, TensorId dshares)> back;
  };
  /// All of them, as transformers' Mixtral gathers them.
  Rows dropless_rows(TensorId normed, const Routed& to, const std::string& name);
  /// Likewise under autocast, or those that experts have room for, or as many as that (looped_experts.cpp).
  Rows looped_rows(TensorId normed, const Routed& to, const std::string& name);
  /// Of the layer that is made.
  ExpertLoad load() const;

  Routed routed(TensorId normed, const std::string& name);
  /// The experts with the largest shares of a softmax, which then sum up to 1, as Mixtral's.
  Routed routed_by_softmax(TensorId normed, const std::string& name);
  /// Those with the largest of scores between 0 and 1 each, to which a bias that is not trained adds, from the best
  /// groups; all in fp32, of fp32 copies (DeepSeek-AI, "DeepSeek-V3", 2024, section 2.1.2). What only the choice of
  /// groups needs is not there: nothing of it is kept, and its kernels are small.
  Routed routed_by_sigmoid(TensorId normed, const std::string& name);
  /// What both keep of a choice: all scores, places, scores of the best, their sum, and shares.
  struct Choice {
    TensorId scores, chosen, best, sums, shares;
  };
  /// Those with the largest shares of a softmax, as they are.
  Routed routed_by_plain_softmax(TensorId normed, const std::string& name);
  /// A projection of a normed value to the scores of all experts.
  struct RouterScores {
    TensorId logits;
    std::function<TensorId(TensorId dlogits, TensorId dn)> backward;
  };
  RouterScores router_scores(TensorId normed, const std::string& name);
  /// y, of each token times a number between 0 and 1 that a product of the normed value gives.
  struct Gated {
    TensorId out;
    std::function<std::pair<TensorId, TensorId>(TensorId d)> backward;  ///< gradients of y and of the normed value
  };
  Gated gated_by_token(TensorId y, TensorId normed, const std::string& name);
  /// The gradient of the normed value from what all tokens pass.
  TensorId shared_backward(const Block& shared, const std::optional<Gated>& scaled, TensorId d,
                           const std::string& name);
  Choice choice(const std::string& name);
  const Type& score_type() const;

  const LlamaGraph& of_;
  std::int64_t samples_, tokens_, width_, head_size_;
  std::uint32_t window_ = 0, layer_ = 0;  ///< of the layer that is made
  std::map<std::string, Made> copies_;    ///< for products under autocast, by names of parameters and of inputs
};

}  // namespace plimsoll
