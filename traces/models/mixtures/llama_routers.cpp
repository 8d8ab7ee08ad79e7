// Routers of mixtures: which experts a token passes, and their shares.

#include <string>

#include "traces/models/llama_blocks.h"

namespace plimsoll {

LlamaBlocks::Routed LlamaBlocks::routed(TensorId normed, const std::string& name) {
  const std::string_view router = LlamaGraph::routers.at(of_.router);
  if (router == "plain_softmax") return routed_by_plain_softmax(normed, name);
  return router == "softmax" ? routed_by_softmax(normed, name) : routed_by_sigmoid(normed, name);
}

// Autocast computes softmaxes in fp32, and what is else asked for in fp32 in bf16, where it is a product.
const LlamaBlocks::Type& LlamaBlocks::score_type() const {
  return is_mixed() && of_.router == 1 ? narrow() : fp32();
}

LlamaBlocks::Choice LlamaBlocks::choice(const std::string& name) {
  const Shape by_place{samples_, tokens_, of_.top_k};
  const Type& type = score_type();
  return {made_value(name + ".scores", {samples_, tokens_, of_.experts}, type),
          tensor(name + ".chosen", TensorKind::activation, by_place, 8, "int64"),
          made_value(name + ".best", by_place, type), made_value(name + ".sums", {samples_, tokens_}, type),
          made_value(name + ".shares", by_place, type)};
}

LlamaBlocks::RouterScores LlamaBlocks::router_scores(TensorId normed, const std::string& name) {
  const TensorId router = weight(name + ".router.weight", {width_, of_.experts});
  const Made by = converted(router, narrow(), name + ".router.weight.to", "w x"),
             input = converted(normed, narrow(), name + ".router.input.to", "b s w");
  const TensorId logits = value(name + ".logits", {samples_, tokens_, of_.experts});
  const double routing = product(static_cast<double>(width_), of_.experts);
  forward(name + ".router", {"linear", "b s w!, w x -> b s x", routing}, {input.out, by.out}, {logits});
  return {
      logits, [=, this](TensorId dlogits, TensorId dn) {
        const TensorId dinput = gradient(input.out), dweight = gradient(by.out);
        backward(name + ".router", " (input)", {"linear", "b s x, w x -> b s w", routing}, {dlogits, by.out}, {dinput});
        backward(name + ".router", " (weight)", {"linear", "b s w, b s x -> w x", routing}, {input.out, dlogits},
                 {dweight});
        by.backward(dweight);
        return added(dn, input.backward(dinput), name + ".router", " (sum)");
      }};
}

LlamaBlocks::Routed LlamaBlocks::routed_by_plain_softmax(TensorId normed, const std::string& name) {
  const RouterScores read = router_scores(normed, name);
  const Choice made = choice(name);
  forward(name + ".choose", {"softmax", "b s x! -> b s x, b s k, b s k"}, {read.logits},
          {made.scores, made.chosen, made.shares});
  return {made.chosen, made.shares, [=, this](TensorId dshares, TensorId dn) {
            const TensorId dlogits = gradient(read.logits);
            backward(name + ".choose", "", {"softmax", "b s k, b s x!, b s k -> b s x"},
                     {dshares, made.scores, made.chosen}, {dlogits});
            return read.backward(dlogits, dn);
          }};
}

// The product with a number a token: back the gradient of that number is summed from a product of all.
LlamaBlocks::Gated LlamaBlocks::gated_by_token(TensorId y, TensorId normed, const std::string& name) {
  const TensorId own = weight(name + ".weight", {width_});
  const Made by = converted(own, narrow(), name + ".weight.to", "w"),
             input = converted(normed, narrow(), name + ".input.to", "b s w");
  const Shape by_token{samples_, tokens_};
  const TensorId logits = value(name + ".logits", by_token), gate = value(name + ".sigmoid.out", by_token),
                 out = value(name + ".mul.out", token_shape());
  const double flops = product(static_cast<double>(width_), 1), all = bytes_of(static_cast<double>(width_));
  forward(name, {"linear", "b s w!, w -> b s", flops}, {input.out, by.out}, {logits});
  forward(name + ".sigmoid", {"sigmoid", "b s -> b s"}, {logits}, {gate});
  forward(name + ".mul", {"mul", "b s w, b s -> b s w"}, {y, gate}, {out});
  return {out, [=, this](TensorId d) -> std::pair<TensorId, TensorId> {
            const TensorId dgate = gradient(gate), dy = gradient(y), dlogits = gradient(logits),
                           dinput = gradient(input.out), dweight = gradient(by.out);
            backward(name + ".mul", " (gate)", {.kind = "mul", .loop = "b s w!, b s w -> b s", .moved = 4 * all},
                     {d, y}, {dgate});
            backward(name + ".mul", "", {"mul", "b s w, b s -> b s w"}, {d, gate}, {dy});
            backward(name + ".sigmoid", "", {"sigmoid", "b s, b s -> b s"}, {dgate, gate}, {dlogits});
            backward(name, " (input)", {"linear", "b s, w -> b s w", flops}, {dlogits, by.out}, {dinput});
            backward(name, " (weight)", {"linear", "b s w, b s -> w", flops}, {input.out, dlogits}, {dweight});
            by.backward(dweight);
            return {dy, input.backward(dinput)};
          }};
}

LlamaBlocks::Routed LlamaBlocks::routed_by_softmax(TensorId normed, const std::string& name) {
  const RouterScores read = router_scores(normed, name);
  const TensorId logits = read.logits;
  const Choice made = choice(name);
  forward(name + ".choose", {"softmax", "b s x! -> b s x, b s k, b s k, b s, b s k"}, {logits},
          {made.scores, made.chosen, made.best, made.sums, made.shares});
  return {made.chosen, made.shares, [=, this](TensorId dshares, TensorId dn) {
            const TensorId dlogits = gradient(logits);
            backward(name + ".choose", "", {"softmax", "b s k, b s x!, b s k, b s k, b s -> b s x"},
                     {dshares, made.scores, made.chosen, made.best, made.sums}, {dlogits});
            return read.backward(dlogits, dn);
          }};
}

LlamaBlocks::Routed LlamaBlocks::routed_by_sigmoid(TensorId normed, const std::string& name) {
  const TensorId router = weight(name + ".router.weight", {width_, of_.experts});
  const Type& type = score_type();
  const Made by = converted(router, type, name + ".router.weight.to", "w x"),
             input = converted(normed, type, name + ".router.input.to", "b s w");
  const double routing = product(static_cast<double>(width_), of_.experts);
  const TensorId logits = made_value(name + ".logits", {samples_, tokens_, of_.experts}, type);
  forward(name + ".router", {"linear", "b s w!, w x -> b s x", routing}, {input.out, by.out}, {logits});
  const Choice made = choice(name);
  forward(name + ".router.sigmoid", {"sigmoid", "b s x -> b s x"}, {logits}, {made.scores});
  forward(name + ".choose", {"index", "b s x! -> b s k, b s k"}, {made.scores}, {made.chosen, made.best});
  forward(name + ".shares", {"div", "b s k! -> b s k, b s"}, {made.best}, {made.shares, made.sums});
  return {
      made.chosen, made.shares, [=, this](TensorId dshares, TensorId dn) {
        const TensorId dbest = gradient(made.best), dscores = gradient(made.scores), dlogits = gradient(logits),
                       dinput = gradient(input.out), dweight = gradient(by.out);
        backward(name + ".shares", "", {"div", "b s k!, b s k, b s -> b s k"}, {dshares, made.best, made.sums},
                 {dbest});
        backward(name + ".choose", "", {"index", "b s k!, b s k -> b s x"}, {dbest, made.chosen}, {dscores});
        backward(name + ".router.sigmoid", "", {"sigmoid", "b s x, b s x -> b s x"}, {dscores, made.scores}, {dlogits});
        backward(name + ".router", " (input)", {"linear", "b s x, w x -> b s w", routing}, {dlogits, by.out}, {dinput});
        backward(name + ".router", " (weight)", {"linear", "b s w, b s x -> w x", routing}, {input.out, dlogits},
                 {dweight});
        by.backward(dweight);
        return added(dn, input.backward(dinput), name + ".router", " (sum)");
      }};
}

}  // namespace plimsoll
