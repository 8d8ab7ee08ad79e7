#include "traces/models/encoder_blocks.h"

#include <array>
#include <utility>

namespace plimsoll {

EagerModules::Products EncoderBlocks::dense(const std::string& name, TensorId x, std::int64_t inputs,
                                            std::int64_t outputs) {
  const std::int64_t positions = (*this)[x].shape[1];
  const double numbers = static_cast<double>(sizes_.samples) * static_cast<double>(positions);
  return product(name,
                 {.x = "b s w!",
                  .weight = "f w",
                  .bias = "f",
                  .made = "b s f",
                  .flops = 2 * numbers * static_cast<double>(inputs) * static_cast<double>(outputs),
                  .outputs = {name + ".y"},
                  .shape = {sizes_.samples, positions, outputs}},
                 x, weight(name + ".weight", {outputs, inputs}), weight(name + ".bias", {outputs}));
}

EagerModules::Products EncoderBlocks::word_logits(TensorId x, TensorId table, std::int64_t vocabulary,
                                                  std::optional<TensorId> bias) {
  const std::int64_t positions = (*this)[x].shape[1];
  const double numbers = static_cast<double>(sizes_.samples) * static_cast<double>(positions);
  return product("head",
                 {.x = "b s w!",
                  .weight = "v w",
                  .bias = bias ? "v" : "",
                  .made = "b s v",
                  .flops = 2 * numbers * static_cast<double>(sizes_.width) * static_cast<double>(vocabulary),
                  .outputs = {"logits"},
                  .shape = {sizes_.samples, positions, vocabulary}},
                 x, table, bias);
}

EagerModules::Products EncoderBlocks::read_by_heads(TensorId x, const std::string& name, bool has_bias) {
  const std::int64_t head_size = sizes_.width / sizes_.heads, positions = (*this)[x].shape[1];
  const auto width = static_cast<double>(sizes_.width);
  const TensorId by = weight(name + ".weight", {sizes_.heads, head_size, sizes_.width});
  return product(name,
                 {.x = "b s w!",
                  .weight = "a e w",
                  .bias = "a e",
                  .made = "b s a e",
                  .flops = 2 * static_cast<double>(sizes_.samples * positions) * width * width,
                  .outputs = {name + ".y"},
                  .shape = {sizes_.samples, positions, sizes_.heads, head_size}},
                 x, by, has_bias ? std::optional(weight(name + ".bias", {sizes_.heads, head_size})) : std::nullopt);
}

EagerModules::Made EncoderBlocks::attention(TensorId x, const std::string& name, const Attends& how) {
  const std::int64_t head_size = sizes_.width / sizes_.heads, positions = (*this)[x].shape[1];
  const auto width = static_cast<double>(sizes_.width);
  const TensorId from = how.memory.value_or(x);
  const std::array read{read_by_heads(x, name + ".query", true), read_by_heads(from, name + ".key", how.has_key_bias),
                        read_by_heads(from, name + ".value", true)};
  TensorId queries = read[0].outs[0];
  const TensorId made = queries;
  if (how.scales_queries) {
    queries = like(name + ".scale.out", made, narrow());
    forward(name + ".scale", {"mul", "b s a e -> b s a e"}, {made}, {queries});
  }
  const Mixed mixed = this->mixed({queries, read[1].outs[0], read[2].outs[0]}, how, name);
  const Products out = product(name + ".out",
                               {.x = "b s a! e!",
                                .weight = "w a e",
                                .bias = "w",
                                .made = "b s w",
                                .flops = 2 * static_cast<double>(sizes_.samples * positions) * width * width,
                                .outputs = {name + ".y"},
                                .shape = {sizes_.samples, positions, sizes_.width}},
                               mixed.out, weight(name + ".out.weight", {sizes_.width, sizes_.heads, head_size}),
                               weight(name + ".out.bias", {sizes_.width}));
  return {out.outs[0], [=, this](TensorId d) {
            auto [dq, dk, dv] = mixed.backward(out.backward(d));
            if (how.scales_queries) {
              const TensorId dmade = gradient(made);
              backward(name + ".scale", "", {"mul", "b s a e -> b s a e"}, {dq}, {dmade});
              dq = dmade;
            }
            const TensorId of_values = read[2].backward(dv);
            const TensorId of_two = both_ways(read[1].backward(dk), of_values, name + ".key");
            const TensorId of_queries = read[0].backward(dq);
            if (!how.memory) return both_ways(of_queries, of_two, name + ".query");
            memory_gradient_ = memory_gradient_ ? both_ways(*memory_gradient_, of_two, name + ".memory") : of_two;
            return of_queries;
          }};
}

EagerModules::Mixed EncoderBlocks::mixed(const std::array<TensorId, 3>& heads, const Attends& how,
                                         const std::string& name) {
  if (how.turned > 0) return fused_of_turned(heads, how, name);
  if (!sizes_.is_eager) {
    return how.copies_heads ? fused_by_head(heads, how.is_causal, name) : fused(heads, how.is_causal, name);
  }
  return eager_attention(heads,
                         {.mask = sizes_.is_decoder ? ScoreMask::bounded : ScoreMask::added,
                          .is_divided = !sizes_.is_decoder,
                          .has_dropout = sizes_.has_dropout && !sizes_.is_decoder,
                          .copies_heads = sizes_.is_decoder || sizes_.samples > 1,
                          .of = mask_,
                          .mask_axes = sizes_.is_decoder ? "b s t" : "b t"},
                         name);
}

EagerModules::Mixed EncoderBlocks::fused_by_head(const std::array<TensorId, 3>& heads, bool is_causal,
                                                 const std::string& name) {
  constexpr const char* same = "b s a e -> b s a e";
  constexpr std::array names{".queries", ".keys", ".values"};
  std::array<TensorId, 3> read{};
  for (std::size_t i = 0; i < heads.size(); ++i) {
    read[i] = like(name + names[i] + ".by head", heads[i], narrow());
    forward(name + names[i] + ".clone", {"clone", same}, {heads[i]}, {read[i]});
  }
  const Mixed made = fused(read, is_causal, name);
  const TensorId out = like(name + ".clone.out", made.out, narrow());
  forward(name + ".clone", {"clone", same}, {made.out}, {out});
  return {out, [=, this](TensorId d) {
            std::array<TensorId, 3> of_heads = made.backward(d);
            for (std::size_t i = 0; i < of_heads.size(); ++i) {
              const TensorId back = gradient(heads[i]);
              backward(name + names[i] + ".clone", "", {"clone", same}, {of_heads[i]}, {back});
              of_heads[i] = back;
            }
            return of_heads;
          }};
}

// Bytes that are moved: 10 numbers there and 14 back of each that is turned, as in a whole rotation, two there where
// both parts are joined; back each part is put into zeros, and both are added. Tables in fp32 make fp32 of bf16, and
// both parts of what they join (PyTorch 2.6, transformers 5.15; traces/kept_by_models.py).
EagerModules::Made EncoderBlocks::turned_part(TensorId x, std::int64_t numbers, const std::string& name) {
  constexpr const char* loop = "b s a e! -> b s a e";
  const double all = static_cast<double>((*this)[x].bytes.count) / static_cast<double>(narrow().bytes),
               share = static_cast<double>(numbers) / static_cast<double>((*this)[x].shape.back());
  const bool is_widened = !(type_of(x) == wide());
  const auto element = static_cast<double>(narrow().bytes);
  const double there = is_widened ? 30 * share + 6 * (1 - share) + 8 : (10 * share + 2) * element,
               parts = share < 1 ? 6 : 4,
               back = is_widened ? 48 * share + 6 * (1 - share) + parts * element : (14 * share + parts) * element;
  const TensorId out = like(name + ".out", x, wide());
  forward(name, {.kind = "rotary", .loop = loop, .moved = there * all}, {x}, {out});
  const Made read = converted(out, narrow(), name + ".to", "b s a e");
  return {read.out, [=, this](TensorId d) {
            const TensorId dout = read.backward(d), dx = gradient(x);
            backward(name, "", {.kind = "rotary", .loop = loop, .moved = back * all}, {dout}, {dx});
            return dx;
          }};
}

EagerModules::Mixed EncoderBlocks::fused_of_turned(std::array<TensorId, 3> heads, const Attends& how,
                                                   const std::string& name) {
  const Made queries = turned_part(heads[0], how.turned, name + ".query.rotary"),
             keys = turned_part(heads[1], how.turned, name + ".key.rotary");
  const Mixed made = fused({queries.out, keys.out, heads[2]}, how.is_causal, name);
  const TensorId out = like(name + ".clone.out", made.out, narrow());
  forward(name + ".clone", {"clone", "b s a e -> b s a e"}, {made.out}, {out});
  return {out, [=, this](TensorId d) {
            std::array<TensorId, 3> of_heads = made.backward(d);
            // Gradients of turned values lie head by head, too, and are copied for products.
            const auto token_by_token = [&](const Made& of, TensorId given, TensorId head, const char* part) {
              const TensorId by_head = of.backward(given), ordered = gradient(head);
              backward(name + part, " (order)", {"clone", "b s a e -> b s a e"}, {by_head}, {ordered});
              return ordered;
            };
            of_heads[1] = token_by_token(keys, of_heads[1], heads[1], ".key.rotary");
            of_heads[0] = token_by_token(queries, of_heads[0], heads[0], ".query.rotary");
            return of_heads;
          }};
}

EagerModules::Mixed EncoderBlocks::fused(const std::array<TensorId, 3>& heads, bool is_causal,
                                         const std::string& name) {
  const auto [q, k, v] = heads;
  const std::int64_t positions = (*this)[q].shape[1], keys = (*this)[k].shape[1];
  const TensorId mixed = like(name + ".mixed", q, narrow());
  const TensorId sums = made_value(name + ".sums", {sizes_.samples, sizes_.heads, positions}, fp32());
  // Two products, of the causal half of the square in a decoder. There is no flash attention of fp32.
  const double square =
      (is_causal ? 1 : 2) * static_cast<double>(sizes_.samples * positions) * static_cast<double>(keys * sizes_.width);
  const std::string kernel =
      is_narrow() ? "_scaled_dot_product_flash_attention" : "_scaled_dot_product_efficient_attention";
  const std::string queries = is_causal ? "b s~ a e!" : "b s a e!";
  forward(name + ".flash", {kernel, queries + ", b t! a e, b t a e -> b s a e, b a s", 2 * square}, {q, k, v},
          {mixed, sums});
  return {mixed, [=, this, q = q, k = k, v = v](TensorId dmixed) -> std::array<TensorId, 3> {
            const TensorId dq = gradient(q), dk = gradient(k), dv = gradient(v);
            backward(
                name + ".flash", "",
                {kernel + "_backward",
                 queries + ", b s a e, b t! a e, b t a e, b s a e, b a s -> b s a e, b t a e, b t a e", 5 * square},
                {dmixed, q, k, v, mixed, sums}, {dq, dk, dv});
            return {dq, dk, dv};
          }};
}

EagerModules::Made EncoderBlocks::gelu(TensorId x, const std::string& name) {
  const TensorId out = like(name + ".out", x, type_of(x));
  forward(name, {"gelu", "b s f -> b s f"}, {x}, {out});
  return {out, [=, this](TensorId d) {
            const TensorId dx = gradient(x);
            backward(name, "", {"gelu_backward", "b s f, b s f -> b s f"}, {d, x}, {dx});
            return dx;
          }};
}

EagerModules::Made EncoderBlocks::mlp(TensorId x, const std::string& name) {
  const Products up = dense(name + ".up", x, sizes_.width, sizes_.inner);
  const Made bent = gelu(up.outs[0], name + ".gelu");
  const Products down = dense(name + ".down", bent.out, sizes_.inner, sizes_.width);
  return {down.outs[0], [=](TensorId d) { return up.backward(bent.backward(down.backward(d))); }};
}

EagerModules::Products EncoderBlocks::row_product(const std::string& name, TensorId x, const std::string& axes,
                                                  std::int64_t inputs, std::int64_t outputs) {
  const std::string weight_axes = "v w", made = "b v";
  const Made w = converted(weight(name + ".weight", {outputs, inputs}), narrow(), name + ".weight.to", weight_axes);
  const Made b = converted(weight(name + ".bias", {outputs}), narrow(), name + ".bias.to", "v");
  const Shape row_shape{sizes_.samples, inputs};
  const bool is_converted = !(type_of(x) == narrow());
  TensorId row = x;
  std::string row_axes = axes;
  if (is_converted) {
    row = made_value(name + ".input.to.out", row_shape, narrow());
    row_axes = "b w";
    forward(name + ".input.to", {"to", axes + " -> " + row_axes}, {x}, {row});
  }
  const double flops =
      2 * static_cast<double>(sizes_.samples) * static_cast<double>(inputs) * static_cast<double>(outputs);
  const TensorId out = made_value(name + ".y", {sizes_.samples, outputs}, narrow());
  forward(name, {"linear", row_axes + ", " + weight_axes + ", v -> " + made, flops}, {row, w.out, b.out}, {out});
  return {{out}, [=, this](TensorId d) {
            const auto row_gradient = [&](const char* what, const Type& type) {
              return tensor("gradient of " + name + what, TensorKind::gradient, row_shape, type.bytes, type.name);
            };
            TensorId drow = row_gradient(".input", narrow());
            const TensorId dw = gradient(w.out), db = gradient(b.out);
            backward(name, " (input)", {"linear", "b v, v w -> b w", flops}, {d, w.out}, {drow});
            backward(name, " (weight)", {"linear", row_axes + ", b v -> v w", flops}, {row, d}, {dw});
            backward(name, " (bias)", {"sum", "b v -> v"}, {d}, {db});
            b.backward(db);
            if (is_converted) {
              const TensorId widened = row_gradient(".input, as read", type_of(x));
              backward(name + ".input.to", "", {"to", "b w -> b w"}, {drow}, {widened});
              drow = widened;
            }
            w.backward(dw);
            return drow;
          }};
}

EagerModules::Products EncoderBlocks::of_row(const std::string& name, TensorId row, std::int64_t inputs,
                                             std::int64_t outputs) {
  return row_product(name, row, "b w", inputs, outputs);
}

EagerModules::Products EncoderBlocks::of_first_position(const std::string& name, TensorId x, std::int64_t outputs,
                                                        bool slices_words) {
  Products made = row_product(name, x, "b - w", sizes_.width, outputs);
  return {std::move(made.outs), [=, this, of_rows = std::move(made.backward)](TensorId d) {
            const TensorId drow = of_rows(d);
            // Zeros of all positions with the first one's gradient, twice: of the position, and of all samples.
            const TensorId placed = gradient(x), dx = gradient(x);
            TensorId of_row = drow;
            if (slices_words) {
              of_row = gradient(drow);
              backward(name, " (words)", {"slice_backward", "b w -> b w"}, {drow}, {of_row});
            }
            backward(name, " (position)", {"select_backward", "b w -> b - w"}, {of_row}, {placed});
            backward(name, " (samples)", {"slice_backward", "b s w -> b s w"}, {placed}, {dx});
            return dx;
          }};
}

}  // namespace plimsoll
