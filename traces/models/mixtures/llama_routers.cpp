// Routers of mixtures: which experts a token passes, and their shares.

#include <string>

#include "traces/models/llama_blocks.h"

namespace plimsoll {

LlamaBlocks::Routed LlamaBlocks::routed(TensorId normed, const std::string& name) {
  return of_.router == 0 ? routed_by_softmax(normed, name) : routed_by_sigmoid(normed, name);
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

LlamaBlocks::Routed LlamaBlocks::routed_by_softmax(TensorId normed, const std::string& name) {
  const TensorId router = weight(name + ".router.weight", {width_, of_.experts});
  const Made by = converted(router, narrow(), name + ".router.weight.to", "w x"),
             input = converted(normed, narrow(), name + ".router.input.to", "b s w");
  const TensorId logits = value(name + ".logits", {samples_, tokens_, of_.experts});
  const double routing = product(static_cast<double>(width_), of_.experts);
  forward(name + ".router", {"linear", "b s w!, w x -> b s x", routing}, {input.out, by.out}, {logits});
  const Choice made = choice(name);
  forward(name + ".choose", {"softmax", "b s x! -> b s x, b s k, b s k, b s, b s k"}, {logits},
          {made.scores, made.chosen, made.best, made.sums, made.shares});
  return {
      made.chosen, made.shares, [=, this](TensorId dshares, TensorId dn) {
        const TensorId dlogits = gradient(logits), dinput = gradient(input.out), dweight = gradient(by.out);
        backward(name + ".choose", "", {"softmax", "b s k, b s x!, b s k, b s k, b s -> b s x"},
                 {dshares, made.scores, made.chosen, made.best, made.sums}, {dlogits});
        backward(name + ".router", " (input)", {"linear", "b s x, w x -> b s w", routing}, {dlogits, by.out}, {dinput});
        backward(name + ".router", " (weight)", {"linear", "b s w, b s x -> w x", routing}, {input.out, dlogits},
                 {dweight});
        by.backward(dweight);
        return added(dn, input.backward(dinput), name + ".router", " (sum)");
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
