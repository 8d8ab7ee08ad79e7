// Routers of mixtures: which experts a token passes, and their shares.

#include <string>

#include "traces/models/llama_blocks.h"

namespace plimsoll {

LlamaBlocks::Routed LlamaBlocks::routed(TensorId normed, const std::string& name) {
  return of_.router == 0 ? routed_by_softmax(normed, name) : routed_by_sigmoid(normed, name);
}

LlamaBlocks::Choice LlamaBlocks::choice(const std::string& name) {
  const Shape by_place{samples_, tokens_, of_.top_k};
  return {made_value(name + ".scores", {samples_, tokens_, of_.experts}, fp32()),
          tensor(name + ".chosen", TensorKind::activation, by_place, 8, "int64"),
          made_value(name + ".best", by_place, fp32()), made_value(name + ".sums", {samples_, tokens_}, fp32()),
          made_value(name + ".shares", by_place, fp32())};
}

LlamaBlocks::Routed LlamaBlocks::routed_by_softmax(TensorId normed, const std::string& name) {
  const TensorId router = parameter(name + ".router.weight", {width_, of_.experts}),
                 logits = value(name + ".logits", {samples_, tokens_, of_.experts});
  const double routing = product(static_cast<double>(width_), of_.experts);
  forward(name + ".router", {"linear", "b s w!, w x -> b s x", routing}, {normed, router}, {logits});
  const Choice made = choice(name);
  forward(name + ".choose", {"softmax", "b s x! -> b s x, b s k, b s k, b s, b s k"}, {logits},
          {made.scores, made.chosen, made.best, made.sums, made.shares});
  return {made.chosen, made.shares, [=, this](TensorId dshares, TensorId dn) {
            const TensorId dlogits = gradient(logits);
            backward(name + ".choose", "", {"softmax", "b s k, b s x!, b s k, b s k, b s -> b s x"},
                     {dshares, made.scores, made.chosen, made.best, made.sums}, {dlogits});
            const TensorId dnormed = gradient(normed);
            backward(name + ".router", " (input)", {"linear", "b s x, w x -> b s w", routing}, {dlogits, router},
                     {dnormed});
            backward(name + ".router", " (weight)", {"linear", "b s w, b s x -> w x", routing}, {normed, dlogits},
                     {gradient(router)});
            return added(dn, dnormed, name + ".router", " (sum)");
          }};
}

LlamaBlocks::Routed LlamaBlocks::routed_by_sigmoid(TensorId normed, const std::string& name) {
  const TensorId router = parameter(name + ".router.weight", {width_, of_.experts});
  const Made weight = converted(router, fp32(), name + ".router.weight.to", "w x"),
             input = converted(normed, fp32(), name + ".router.input.to", "b s w");
  const double routing = product(static_cast<double>(width_), of_.experts);
  const TensorId logits = made_value(name + ".logits", {samples_, tokens_, of_.experts}, fp32());
  forward(name + ".router", {"linear", "b s w!, w x -> b s x", routing}, {input.out, weight.out}, {logits});
  const Choice made = choice(name);
  forward(name + ".router.sigmoid", {"sigmoid", "b s x -> b s x"}, {logits}, {made.scores});
  forward(name + ".choose", {"index", "b s x! -> b s k, b s k"}, {made.scores}, {made.chosen, made.best});
  forward(name + ".shares", {"div", "b s k! -> b s k, b s"}, {made.best}, {made.shares, made.sums});
  return {
      made.chosen, made.shares, [=, this](TensorId dshares, TensorId dn) {
        const TensorId dbest = gradient(made.best), dscores = gradient(made.scores), dlogits = gradient(logits),
                       dinput = gradient(input.out), dweight = gradient(weight.out);
        backward(name + ".shares", "", {"div", "b s k!, b s k, b s -> b s k"}, {dshares, made.best, made.sums},
                 {dbest});
        backward(name + ".choose", "", {"index", "b s k!, b s k -> b s x"}, {dbest, made.chosen}, {dscores});
        backward(name + ".router.sigmoid", "", {"sigmoid", "b s x, b s x -> b s x"}, {dscores, made.scores}, {dlogits});
        backward(name + ".router", " (input)", {"linear", "b s x, w x -> b s w", routing}, {dlogits, weight.out},
                 {dinput});
        backward(name + ".router", " (weight)", {"linear", "b s w, b s x -> w x", routing}, {input.out, dlogits},
                 {dweight});
        weight.backward(dweight);
        return added(dn, input.backward(dinput), name + ".router", " (sum)");
      }};
}

}  // namespace plimsoll
