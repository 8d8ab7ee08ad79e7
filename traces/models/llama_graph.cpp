// Norms, rotations, attention of grouped queries and gated MLPs, and the decoder of them.

#include "traces/models/llama_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "sim/io/input_error.h"
#include "traces/models/llama_blocks.h"

namespace plimsoll {

double LlamaBlocks::pairs() const {
  const auto all = static_cast<double>(tokens_);
  const double seen = window_ == 0 ? all : std::min(all, static_cast<double>(window_));
  return static_cast<double>(samples_) * (all * seen - seen * seen / 2);
}

LlamaBlocks::Norm LlamaBlocks::norm(TensorId x, const std::string& name, std::int64_t width, char axis,
                                    const std::string& rows) {
  const Type type = type_of(x), scaled = is_gemma() ? type : scaled_type(type);
  Shape shape = (*this)[x].shape;
  const bool is_whole = shape.back() == width;
  shape.back() = width;
  const Shape by_row(shape.begin(), shape.end() - 1);
  double all = 1;
  for (const std::int64_t extent : shape) all *= static_cast<double>(extent);
  Norm made{.x = x,
            .scale = weight(name + ".scale", {width}),
            .wide = x,
            .roots = tensor(name + ".roots", TensorKind::activation, by_row, 4, "fp32"),
            .normed = made_value(name + ".normed", shape, is_gemma() ? fp32() : type),
            .out = made_value(name + ".out", shape, scaled),
            .name = name,
            .width = width,
            .rows = rows,
            .axis = axis,
            .numbers = all};
  // The square, its mean, the quotient; the product with the scale; both conversions.
  const double scaling = static_cast<double>(is_gemma() ? 8 : type.bytes + scaled.bytes);
  const bool is_converted = type != fp32();
  const double moved = all * (8 + 4 + 8 + scaling + (is_converted ? 12 : 0));
  Ids outputs{made.normed, made.out, made.roots};
  const std::string row = fmt::format("{} {}", rows, axis), read = is_whole ? row + "!" : rows + " -";
  std::string loop = fmt::format("{}, {} -> {}, {}, {}", read, axis, row, row, rows);
  if (is_converted) {
    made.wide = tensor(name + ".wide", TensorKind::activation, shape, 4, "fp32");
    outputs.push_back(made.wide);
    loop += ", " + row;
  }
  made.factor = made.scale;
  if (is_gemma()) {
    made.factor = made_value(name + ".factor", {width}, fp32());
    outputs.push_back(made.factor);
    loop += fmt::format(", {}", axis);
  }
  forward(name, {.kind = "rms_norm", .loop = loop, .moved = moved}, {x, made.scale}, std::move(outputs));
  return made;
}

// A product of unlike types makes the wider one, and its gradient is converted to each.
double LlamaBlocks::scale_back(const Norm& of) const {
  const std::int64_t made = is_gemma() ? 4 : type_of(of.out).bytes, read = type_of(of.normed).bytes;
  const std::int64_t converted = made == read ? 0 : made + read;
  const std::int64_t to_input = 2 * made + converted, to_scale = made + read + made + made;
  return static_cast<double>(is_frozen() ? to_input : to_input + to_scale);
}

TensorId LlamaBlocks::norm_backward(const Norm& of, TensorId d, std::optional<TensorId> past) {
  const bool is_part = (*this)[of.x].shape != (*this)[of.normed].shape;  // of x, whose gradient is joined later
  const Type type = type_of(of.x);
  const TensorId dx = gradient(is_part ? of.normed : of.x);
  const std::string row = fmt::format("{} {}", of.rows, of.axis);
  const std::string wide_row = type != fp32() || !is_part ? row : of.rows + " -";
  Ids inputs{d, of.wide, of.roots, of.factor}, outputs{dx};
  std::string loop = fmt::format("{}!, {}, {}, {}", row, wide_row, of.rows, of.axis);
  if (!is_frozen()) {
    inputs.push_back(of.normed);
    outputs.push_back(gradient(of.scale));
    loop += ", " + row;
  }
  if (past) {
    inputs.push_back(*past);
    loop += ", " + row;
  }
  loop += " -> " + row + (is_frozen() ? "" : fmt::format(", {}", of.axis));
  // Both factors of the scale's product and the sum over tokens, or the one factor; both factors of the quotient and
  // their sum; the mean handed out; power, double and product of the square; the sum of both ways, and of the way past
  // the block; both conversions.
  constexpr double in_fp32 = 20 + 4 + 4 + 28 + 12;
  const double element = static_cast<double>(type.bytes);
  const double moved = of.numbers * (scale_back(of) + in_fp32 + (past ? 3 * element : 0) + (type != fp32() ? 12 : 0));
  backward(of.name, "", {.kind = "rms_norm", .loop = loop, .moved = moved}, std::move(inputs), std::move(outputs));
  return dx;
}

TensorId LlamaBlocks::rotated(TensorId x, const std::string& name, std::string_view loop, double numbers) {
  const TensorId turned = like(name + ".out", x, scaled_type(type_of(x)));
  forward(name, {.kind = "rotary", .loop = loop, .moved = rotation(x).there * this->numbers() * numbers}, {x},
          {turned});
  return turned;
}

TensorId LlamaBlocks::rotated_back(TensorId of, TensorId d, const std::string& name, std::string_view loop,
                                   double numbers) {
  const TensorId dx = gradient(of);
  backward(name, "", {.kind = "rotary", .loop = loop, .moved = rotation(of).back * this->numbers() * numbers}, {d},
           {dx});
  return dx;
}

// Of numbers of one type 10 and 14 of it. Tables in fp32 make fp32 of bf16 (PyTorch 2.6, traces/kept_by_llama.py).
LlamaBlocks::Rotation LlamaBlocks::rotation(TensorId x) const {
  if (type_of(x) != scaled_type(type_of(x))) return {.there = 30, .back = 48};
  const auto element = static_cast<double>(type_of(x).bytes);
  return {.there = 10 * element, .back = 14 * element};
}

TensorId LlamaBlocks::added(TensorId one, TensorId other, const std::string& of, const std::string& part,
                            const std::string& axes) {
  const Type type = type_of(one);
  const TensorId sum =
      tensor((*this)[one].name + part, TensorKind::gradient, (*this)[one].shape, type.bytes, type.name);
  backward(of, part, {"add", axes + ", " + axes + " -> " + axes}, {one, other}, {sum});
  return sum;
}

void LlamaBlocks::multiply(const std::string& name, const Operands& of, const Output& to, double flops) {
  const TensorId x = operand(of.x, name + input_of, of.axes), weight = read_weight(of.weight, of.weight_axes);
  const std::string loop = of.axes + of.whole + ", " + of.weight_axes + " -> " + to.axes;
  forward(name, {"linear", loop, flops}, {x, weight}, {to.out});
}

void LlamaBlocks::multiply_back(const std::string& name, const Operands& of, const Output& to, double flops) {
  const TensorId d = operand_back(of.x, name, " (gradient to fp8)", of.axes),
                 weight = read_weight_back(of.weight, of.weight_axes);
  backward(name, " (input)", {"linear", of.axes + ", " + of.weight_axes + " -> " + to.axes, flops}, {d, weight},
           {to.out});
}

TensorId LlamaBlocks::from_projection(const std::string& name, const std::string& made, const std::string& weight,
                                      const Projected& of, double flops, std::optional<TensorId> others) {
  const Made input = copy_of(name + input_of, of.input);
  const TensorId dn = gradient(input.out);
  const std::string axes(of.input_axes), to_weight = axes + ", " + made + " -> " + weight;
  multiply_back(name, {of.d, made, "", of.weight, weight}, {dn, axes}, flops);
  if (!is_frozen()) weight_backward(name, {of.d, of.weight, of.input}, {axes, made, to_weight}, flops);
  const TensorId whole = input.backward(dn);
  return others ? added(*others, whole, name, " (sum)") : whole;
}

void LlamaBlocks::weight_backward(const std::string& name, const Projected& of, const WeightLoop& loop, double flops) {
  const Made input = copy_of(name + input_of, of.input), weight = copy_of((*this)[of.weight].name, of.weight);
  const ScaledBy by = loop.is_of_experts ? ScaledBy::groups_of_rows : ScaledBy::tensor;
  const TensorId d = operand_back(of.d, name, " (gradient to fp8 again)", loop.made, by),
                 x = operand_back(input.out, name, " (input to fp8)", loop.input, by), dweight = gradient(weight.out);
  backward(name, " (weight)", {"linear", loop.whole, flops}, {x, d}, {dweight});
  weight.backward(dweight);
}

TensorId LlamaBlocks::narrowed_back(TensorId d, TensorId term, const std::string& of) {
  if (type_of(d) == type_of(term)) return d;
  const TensorId dterm = gradient(term);
  backward(of, "", {"to", "b s w -> b s w"}, {d}, {dterm});
  return dterm;
}

void LlamaBlocks::project(HeadPart& of, TensorId normed) {
  const TensorId read = operand(normed, of.name + input_of, "b s w");
  Ids inputs{read, read_weight(of.weight, "w " + of.axes)};
  std::string loop = "b s w!, w " + of.axes;
  if (of.bias) {
    inputs.push_back(is_mixed() ? narrowed(*of.bias, of.name + bias_of, of.axes) : *of.bias);
    loop += ", " + of.axes;
  }
  forward(of.name, {"linear", loop + " -> " + of.made_axes(), of.flops}, std::move(inputs), {of.out});
}

void LlamaBlocks::project_back(const HeadPart& of, TensorId normed, TensorId d, std::optional<TensorId>& dn) {
  const auto [dbase, beside] = of.own.backward(d);
  if (beside) dn = dn ? added(*dn, *beside, of.name, " (adapter)") : *beside;
  dn = from_projection(of.name, of.made_axes(), "w " + of.axes, {dbase, of.weight, normed}, of.flops, dn);
  if (!of.bias || is_frozen()) return;
  const Made bias = copy_of(of.name + bias_of, *of.bias);
  const TensorId dbias = gradient(bias.out);
  backward(of.name, " (bias)", {"sum", of.made_axes() + " -> " + of.axes}, {dbase}, {dbias});
  bias.backward(dbias);
}

std::array<LlamaBlocks::HeadPart, 3> LlamaBlocks::head_parts(TensorId normed, const std::string& name) {
  const std::int64_t kv = of_.kv_heads, shared_by = of_.heads / kv;
  const Shape by_query{kv, shared_by, head_size_}, by_key{kv, head_size_};
  std::array<HeadPart, 3> parts{
      {{name + ".q", "a g e", by_query}, {name + ".k", "a e", by_key}, {name + ".v", "a e", by_key}}};
  const auto shape_of = [](Shape first, const HeadPart& part) {
    first.insert(first.end(), part.heads.begin(), part.heads.end());
    return first;
  };
  for (HeadPart& part : parts) {
    part.weight = layer_weight(part.name + ".weight", shape_of({width_}, part));
    if (of_.bias == 1) part.bias = weight(part.name + ".bias", part.heads);
    for (const std::int64_t extent : part.heads) part.numbers *= static_cast<double>(extent);
    part.flops = product(static_cast<double>(width_), part.numbers);
  }
  constexpr std::array names{".queries", ".keys", ".values"};
  for (std::size_t i = 0; i < 3; ++i) parts[i].out = value(name + names[i], shape_of({samples_, tokens_}, parts[i]));
  for (HeadPart& part : parts) project(part, normed);
  for (HeadPart& part : parts) {
    part.own = with_adapter(part.out, normed, part.name, "w", part.axes);
    part.out = part.own.out;
  }
  return parts;
}

TensorId LlamaBlocks::turned(HeadPart& of) {
  if (of_.qk_norm == 1) {
    const std::string rows = of.made_axes().substr(0, of.made_axes().size() - 2);
    of.norm = norm(of.out, of.name + "_norm", head_size_, 'e', rows);
    of.out = of.norm->out;
  }
  const TensorId made = rotated(of.out, of.name + ".rotary", of.turn(), of.numbers);
  of.turned = converted(made, narrow(), of.name + ".rotary.to", of.made_axes());
  return of.turned.out;
}

TensorId LlamaBlocks::turned_back(const HeadPart& of, TensorId d) {
  const TensorId dmade = of.turned.backward(d),
                 dout = rotated_back(of.out, dmade, of.name + ".rotary", of.turn(), of.numbers);
  return of.norm ? norm_backward(*of.norm, dout, std::nullopt) : dout;
}

LlamaBlocks::Block LlamaBlocks::attention(TensorId normed, const std::string& name) {
  std::array<HeadPart, 3> parts = head_parts(normed, name);
  const TensorId turned_q = turned(parts[0]), turned_k = turned(parts[1]);
  const auto [q, k, v] = parts;
  const Attended made = attended(turned_q, turned_k, v.out, name);
  return {made.y, [=, this](TensorId given) {
            const auto [dturned_q, dturned_k, dv] = made.backward(given);
            const TensorId dq = turned_back(q, dturned_q), dk = turned_back(k, dturned_k);
            std::optional<TensorId> dn;
            project_back(q, normed, dq, dn);
            project_back(k, normed, dk, dn);
            project_back(v, normed, dv, dn);
            return *dn;
          }};
}

LlamaBlocks::WithAdapter LlamaBlocks::with_adapter(TensorId made, TensorId x, const std::string& name,
                                                   const std::string& input, const std::string& output) {
  if (!is_frozen()) {
    return {made, [](TensorId d) { return std::pair<TensorId, std::optional<TensorId>>{d, std::nullopt}; }};
  }
  const Adapted own = adapted({made}, x, name, {input, output, output, is_packed()});
  return {own.outs.front(), own.backward};
}

LlamaBlocks::Attended LlamaBlocks::attended(TensorId turned_q, TensorId turned_k, TensorId v, const std::string& name) {
  const std::int64_t shared_by = of_.heads / of_.kv_heads, kv = of_.kv_heads;
  const double q_numbers = static_cast<double>(kv * shared_by * head_size_),
               k_numbers = static_cast<double>(kv * head_size_);
  const double out_flops = product(static_cast<double>(width_), q_numbers);
  const TensorId mixed = value(name + ".mixed", (*this)[turned_q].shape);
  const TensorId sums = tensor(name + ".sums", TensorKind::activation, {samples_, kv, shared_by, tokens_}, 4, "fp32");
  // Two products of the pairs that see each other.
  const double half = 2 * pairs() * q_numbers;
  const bool is_view = (*this)[v].shape != (*this)[turned_k].shape;
  const std::string of_values = is_view ? "b t a - e" : "b t a e";
  const double of_sums = static_cast<double>((*this)[sums].bytes.count);
  const double moved = bytes_of(2 * q_numbers + 2 * k_numbers) + of_sums,
               moved_back = bytes_of(4 * q_numbers + 4 * k_numbers) + of_sums;
  forward(name + ".flash",
          {.kind = "_scaled_dot_product_flash_attention",
           .loop = "b s~ a g e!, b t! a e, " + of_values + " -> b s a g e, b a g s",
           .flops = 2 * half,
           .moved = moved},
          {turned_q, turned_k, v}, {mixed, sums});
  const TensorId out_weight = layer_weight(name + ".out.weight", {kv, shared_by, head_size_, width_});
  const TensorId y = value(name + ".y", token_shape());
  // Turned values that are joined lie head by head, and so does what attention makes of them; the product takes a copy.
  TensorId ordered = mixed;
  if (is_joined()) {
    ordered = value(name + ".clone.out", (*this)[mixed].shape);
    forward(name + ".clone", {"clone", "b s a g e -> b s a g e"}, {mixed}, {ordered});
  }
  multiply(name + ".out", {ordered, "b s a g e", "", out_weight, "a g e w"}, {y, "b s w"}, out_flops);
  const WithAdapter own_y = with_adapter(y, ordered, name + ".out", "a g e", "w");
  return {own_y.out, [=, this](TensorId given) -> std::array<TensorId, 3> {
            const auto [d, dmixed_beside] = own_y.backward(given);
            const TensorId dmade = gradient(mixed), dturned_q = gradient(turned_q), dturned_k = gradient(turned_k),
                           dv = is_view ? tensor("gradient of " + name + ".values", TensorKind::gradient,
                                                 (*this)[turned_k].shape, element_)
                                        : gradient(v);
            multiply_back(name + ".out", {d, "b s w", "", out_weight, "a g e w"}, {dmade, "b s a g e"}, out_flops);
            if (!is_frozen()) {
              weight_backward(name + ".out", {d, out_weight, ordered},
                              {"b s a g e", "b s w", "b s a g e, b s w -> a g e w"}, out_flops);
            }
            const TensorId dmixed =
                dmixed_beside ? added(dmade, *dmixed_beside, name + ".out", " (sum)", "b s a g e") : dmade;
            backward(name + ".flash", "",
                     {.kind = "_scaled_dot_product_flash_attention_backward",
                      .loop = "b s~ a g e!, b s a g e, b t! a e, " + of_values +
                              ", b s a g e, b a g s -> b s a g e, b t a e, b t a e",
                      .flops = 5 * half,
                      .moved = moved_back},
                     {dmixed, turned_q, turned_k, v, mixed, sums}, {dturned_q, dturned_k, dv});
            return {dturned_q, dturned_k, dv};
          }};
}

LlamaBlocks::Block LlamaBlocks::gated_mlp(TensorId normed, const std::string& name, std::int64_t inner) {
  const Shape wide{samples_, tokens_, inner};
  const double flops = product(static_cast<double>(width_), static_cast<double>(inner));
  const TensorId gate_weight = layer_weight(name + ".gate.weight", {width_, inner}),
                 up_weight = layer_weight(name + ".up.weight", {width_, inner}),
                 down_weight = layer_weight(name + ".down.weight", {inner, width_});
  const TensorId gate = value(name + ".gate.out", wide), up = value(name + ".up.out", wide),
                 bent = value(name + ".act.out", wide), gated = value(name + ".mul.out", wide);
  multiply(name + ".gate", {normed, "b s w", "!", gate_weight, "w f"}, {gate, "b s f"}, flops);
  multiply(name + ".up", {normed, "b s w", "!", up_weight, "w f"}, {up, "b s f"}, flops);
  const std::string_view act = LlamaGraph::acts.at(of_.act);
  forward(name + ".act", {act, "b s f -> b s f"}, {gate}, {bent});
  forward(name + ".mul", {"mul", "b s f, b s f -> b s f"}, {bent, up}, {gated});
  const TensorId y = value(name + ".y", token_shape());
  multiply(name + ".down", {gated, "b s f", "", down_weight, "f w"}, {y, "b s w"}, flops);
  return {
      y, [=, this](TensorId d) {
        const TensorId dgated = gradient(gated), dbent = gradient(bent), dup = gradient(up), dgate = gradient(gate);
        multiply_back(name + ".down", {d, "b s w", "", down_weight, "f w"}, {dgated, "b s f"}, flops);
        if (!is_frozen()) {
          weight_backward(name + ".down", {d, down_weight, gated}, {"b s f", "b s w", "b s f, b s w -> f w"}, flops);
        }
        backward(name + ".mul", " (act)", {"mul", "b s f, b s f -> b s f"}, {dgated, up}, {dbent});
        backward(name + ".mul", " (up)", {"mul", "b s f, b s f -> b s f"}, {dgated, bent}, {dup});
        TensorId dn = from_projection(name + ".up", "b s f", "w f", {dup, up_weight, normed}, flops, {});
        backward(name + ".act", "", {act, "b s f, b s f -> b s f"}, {dbent, gate}, {dgate});
        dn = from_projection(name + ".gate", "b s f", "w f", {dgate, gate_weight, normed}, flops, dn);
        return dn;
      }};
}

namespace {

class LlamaBuilder : private LlamaBlocks {
 public:
  explicit LlamaBuilder(const LlamaGraph& of) : LlamaBlocks(of) {
    note("formula", "operators of Llama's decoder as eager PyTorch runs Hugging Face's, with fused causal attention");
  }

  Graph run() {
    TensorId x = embedding();
    for (std::uint32_t layer = 0; layer < of_.layers; ++layer) {
      layer_ = layer;
      const bool is_dense = of_.experts == 0 || layer < of_.dense_layers;
      const bool is_full = of_.full_every > 0 && (layer + 1) % of_.full_every == 0;
      window_ = is_full ? 0 : of_.window;
      x = block(x, fmt::format("layer{}.attention", layer), [&](TensorId normed, const std::string& name) {
        if (of_.kv_rank > 0) return latent_attention(normed, name);
        return is_joined() ? joined_attention(normed, name) : attention(normed, name);
      });
      x = block(x, fmt::format("layer{}.mlp", layer), [&](TensorId normed, const std::string& name) {
        if (!is_dense) return experts(normed, name);
        return is_joined() ? joined_mlp(normed, name, of_.inner) : gated_mlp(normed, name, of_.inner);
      });
    }
    loss_of_rows(head(x), "b s", fp32(), of_.logits == 1);
    return finished();
  }

 private:
  /// Of a stage: behind a norm, added to its input.
  template <class Make>
  TensorId block(TensorId x, const std::string& name, const Make& make) {
    const Norm normed = norm(x, name + ".norm", width_);
    const Block made = make(normed.out, name);
    std::optional<Norm> behind;
    if (of_.post_norms == 1) behind = norm(made.y, name + ".post_norm", width_);
    const TensorId out = like(name + ".add.out", x, wide()), y = behind ? behind->out : made.y;
    forward(name + ".add", {"add", "b s w, b s w -> b s w"}, {x, y}, {out});
    end_stage([=, this](TensorId d) {
      const TensorId dsecond = narrowed_back(d, y, name + ".add");
      const TensorId dy = behind ? norm_backward(*behind, dsecond, std::nullopt) : dsecond;
      return norm_backward(normed, made.backward(dy), d);
    });
    return out;
  }

  bool is_tied() const { return of_.tied == 1; }

  TensorId embedding() {
    const TensorId tokens = tensor("tokens", TensorKind::input, {samples_, tokens_}, 8, "int64");
    table_ = weight("embedding.table", {of_.vocabulary, width_});
    const TensorId found = made_value("embedding.out", token_shape(), wide());
    forward("embedding", {"embedding", "b s, v w -> b s w"}, {tokens, table_}, {found});
    const Made scaled = is_gemma() ? scaled_embedding(found) : Made{found, [](TensorId d) { return d; }};
    end_stage([=, this](TensorId d) {
      const TensorId dfound = scaled.backward(d);
      token_table_backward("embedding", tokens, dfound, table_, is_tied());
      return dfound;
    });
    return scaled.out;
  }

  /// By the root of the width.
  Made scaled_embedding(TensorId found) {
    const TensorId scaled = like("embedding.mul.out", found, wide());
    forward("embedding.mul", {"mul", "b s w -> b s w"}, {found}, {scaled});
    return {scaled, [=, this](TensorId d) {
              const TensorId dfound = gradient(found);
              backward("embedding.mul", "", {"mul", "b s w -> b s w"}, {d}, {dfound});
              return dfound;
            }};
  }

  TensorId head(TensorId x) {
    const double flops = product(static_cast<double>(width_), of_.vocabulary);
    const Norm normed = norm(x, "head.norm", width_);
    const std::string axes = is_tied() ? "v w" : "w v";
    const TensorId own = is_tied() ? table_ : weight("head.weight", {width_, of_.vocabulary});
    const TensorId logits = value("logits", {samples_, tokens_, of_.vocabulary});
    const Made read = converted(normed.out, narrow(), "head.input.to", "b s w"),
               by = converted(own, narrow(), "head.weight.to", axes);
    forward("head", {"linear", "b s w, " + axes + " -> b s v", flops}, {read.out, by.out}, {logits});
    const Made bounded = of_.logit_cap == 1 ? capped(logits) : Made{logits, [](TensorId d) { return d; }};
    end_stage([=, this](TensorId given) {
      const TensorId d = bounded.backward(given), dn = gradient(read.out);
      backward("head", " (input)", {"linear", "b s v, " + axes + " -> b s w", flops}, {d, by.out}, {dn});
      if (!is_frozen()) {
        const TensorId dweight = gradient(by.out);
        backward("head", " (weight)", {"linear", "b s w, b s v -> " + axes, flops}, {read.out, d}, {dweight});
        by.backward(dweight);
      }
      return norm_backward(normed, read.backward(dn), std::nullopt);
    });
    return bounded.out;
  }

  /// Between a bound and its opposite, as Gemma 2's: a quotient, its tanh, which is kept, and a product.
  Made capped(TensorId logits) {
    const auto step = [&](const char* what, const char* kind, TensorId from) {
      const TensorId out = value(fmt::format("head.{}.out", what), (*this)[from].shape);
      forward(fmt::format("head.{}", what), {kind, "b s v -> b s v"}, {from}, {out});
      return out;
    };
    const TensorId scaled = step("div", "div", logits), bent = step("tanh", "tanh", scaled),
                   out = step("cap", "mul", bent);
    return {out, [=, this](TensorId d) {
              const TensorId dbent = gradient(bent), dscaled = gradient(scaled), dlogits = gradient(logits);
              backward("head.cap", "", {"mul", "b s v -> b s v"}, {d}, {dbent});
              backward("head.tanh", "", {"tanh_backward", "b s v, b s v -> b s v"}, {dbent, bent}, {dscaled});
              backward("head.div", "", {"div", "b s v -> b s v"}, {dscaled}, {dlogits});
              return dlogits;
            }};
  }

  TensorId table_;
};

}  // namespace

namespace {

void refuse_capacity(const LlamaGraph& sizes) {
  if (!(sizes.capacity >= 0 && sizes.capacity <= LlamaGraph::most_capacity)) {
    throw InputError(
        fmt::format("llama: capacity: expected 0 to {}, found {}", LlamaGraph::most_capacity, sizes.capacity));
  }
  if (sizes.capacity > 0 && sizes.experts == 0)
    throw InputError("llama: capacity: expected experts, whose rows it limits");
  if (sizes.shared_gate == 1 && (sizes.shared == 0 || sizes.experts == 0))
    throw InputError("llama: shared_gate: expected shared experts, which it scales");
  if (sizes.padded == 1 && sizes.capacity == 0)
    throw InputError("llama: padded: expected a capacity, to which rows are padded");
}

void refuse_under_autocast(const LlamaGraph& sizes) {
  if (sizes.base == 1)
    throw InputError("llama: dtype=amp: not with base=nf4, whose products choose their type themselves");
  if (sizes.products == 1) throw InputError("llama: dtype=amp: not with products=fp8, which copy from one dtype");
}

}  // namespace

Graph llama_graph(const LlamaGraph& sizes) {
  if (sizes.kv_rank == 0 && sizes.head_size == 0 && sizes.width % sizes.heads != 0) {
    throw InputError(fmt::format("llama: heads: must divide width {}, found {}", sizes.width, sizes.heads));
  }
  if (sizes.kv_rank == 0 && sizes.heads % sizes.kv_heads != 0) {
    throw InputError(fmt::format("llama: kv_heads: must divide heads {}, found {}", sizes.heads, sizes.kv_heads));
  }
  if (sizes.experts > 0 && sizes.top_k > sizes.experts) {
    throw InputError(fmt::format("llama: top_k: at most experts {}, found {}", sizes.experts, sizes.top_k));
  }
  if (!(sizes.skew >= 0 && sizes.skew <= LlamaGraph::most_skew)) {
    throw InputError(fmt::format("llama: skew: expected 0 to {}, found {}", LlamaGraph::most_skew, sizes.skew));
  }
  if (sizes.skew > 0 && sizes.experts == 0) throw InputError("llama: skew: expected experts, among which rows differ");
  refuse_capacity(sizes);
  if (sizes.lora > 0 && (sizes.experts > 0 || sizes.kv_rank > 0 || sizes.logits == 1)) {
    throw InputError("llama: lora: not with experts, kv_rank or logits=end");
  }
  if (sizes.base == 1 && sizes.lora == 0) {
    throw InputError("llama: base=nf4: expected adapters (lora), since weights of 4 bits are not trained");
  }
  if (LlamaGraph::dtypes.at(sizes.dtype) == "amp") refuse_under_autocast(sizes);
  if (sizes.products == 1 && sizes.base == 1) {
    throw InputError("llama: products=fp8: not with base=nf4, whose products compute in what they unpack");
  }
  if (sizes.products == 1 && sizes.view == 1) {
    throw InputError("llama: products=fp8: not with view=chain, whose stages compute in one type; try view=graph");
  }
  if (sizes.kv_rank > 0 && (sizes.bias == 1 || sizes.qk_norm == 1)) {
    throw InputError("llama: bias, qk_norm: not with kv_rank, whose attention has none");
  }
  if (sizes.joined == 1 && (sizes.lora > 0 || sizes.kv_rank > 0 || sizes.bias == 1 || sizes.qk_norm == 1)) {
    throw InputError("llama: joined: not with lora, kv_rank, bias or qk_norm");
  }
  if (sizes.kv_rank > 0 && sizes.norm == 1) throw InputError("llama: norm=gemma: not with kv_rank");
  if (sizes.full_every > 0 && sizes.window == 0) throw InputError("llama: full_every: expected a window");
  return LlamaBuilder(sizes).run();
}

}  // namespace plimsoll
