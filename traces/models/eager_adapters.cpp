// Adapters of low rank beside products, as peft has them (Hu et al., "LoRA", 2021).

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "traces/models/eager_modules.h"

namespace plimsoll {
namespace {

std::string listed(const std::string& axes, std::size_t times) {
  std::string all;
  for (std::size_t k = 0; k < times; ++k) all += (k > 0 ? ", " : "") + axes;
  return all;
}

std::string same(const std::string& axes, std::size_t values) {
  const std::string all = listed(axes, values);
  return all + " -> " + all;
}

}  // namespace

bool EagerModules::is_adapted(const std::string& product) const {
  return is_frozen() &&
         (product.find(".attention.") != std::string::npos || product.find(".cross.") != std::string::npos);
}

EagerModules::Adapted EagerModules::adapted(const Ids& made, TensorId x, const std::string& name,
                                            const AdapterAxes& axes) {
  const std::string in = "b s " + axes.input, out = "b s " + axes.output, joined = "b s " + axes.joined,
                    down_axes = axes.input + " r", up_axes = "r " + axes.joined;
  const auto behind_tokens = [&](TensorId of) { return Shape((*this)[of].shape.begin() + 2, (*this)[of].shape.end()); };
  Shape down_shape = behind_tokens(x), up_shape = behind_tokens(made.front()), whole = (*this)[made.front()].shape;
  if (made.size() > 1) {
    const auto several = static_cast<std::int64_t>(made.size());
    up_shape.insert(up_shape.begin(), several);
    whole.insert(whole.begin() + 2, several);
  }
  const Shape tokens(whole.begin(), whole.begin() + 2);
  const auto flops_of = [&](const Shape& weight) {
    double flops = 2.0 * lora_;
    for (const Shape& shape : {tokens, weight}) {
      for (const std::int64_t extent : shape) flops *= static_cast<double>(extent);
    }
    return flops;
  };
  const double down_flops = flops_of(down_shape), up_flops = flops_of(up_shape);
  down_shape.push_back(lora_);
  up_shape.insert(up_shape.begin(), lora_);

  const Type& type = is_mixed() ? narrow() : fp32();  // of its products
  const Made wide = converted(x, fp32(), name + ".adapter.to", in),
             read = converted(wide.out, type, name + ".adapter.down.input.to", in);
  const TensorId down = trained_parameter(name + ".adapter.down.weight", std::move(down_shape)),
                 up = trained_parameter(name + ".adapter.up.weight", std::move(up_shape));
  const Made by_down = converted(down, type, name + ".adapter.down.weight.to", down_axes),
             by_up = converted(up, type, name + ".adapter.up.weight.to", up_axes);
  const TensorId few = made_value(name + ".adapter.down.out", {tokens[0], tokens[1], lora_}, type);
  const Ids all = each_like(made, name + ".adapter.up.out", type),
            scaled = each_like(made, name + ".adapter.mul.out", type);
  const std::string outs = listed(out, made.size());
  forward(name + ".adapter.down", {"linear", in + ", " + down_axes + " -> b s r", down_flops}, {read.out, by_down.out},
          {few});
  forward(name + ".adapter.up", {"linear", "b s r, " + up_axes + " -> " + outs, up_flops}, {few, by_up.out}, all);
  forward(name + ".adapter.mul", {"mul", same(out, made.size())}, all, scaled);
  const AdapterSum sum = axes.sum_is_narrow ? added_narrow(made.front(), scaled.front(), name, out)
                                            : added_wide(made, scaled, name, axes, whole);
  return {sum.outs, [=, this](TensorId given) {
            const auto [dmade, d] = sum.backward(given);
            const TensorId dall = tensor("gradient of " + name + ".adapter.up.out", TensorKind::gradient, whole,
                                         type.bytes, type.name),
                           dfew = gradient(few), dread = gradient(read.out);
            backward(name + ".adapter.mul", "", {"mul", same(joined, 1)}, {d}, {dall});
            backward(name + ".adapter.up", " (input)", {"linear", joined + ", " + up_axes + " -> b s r", up_flops},
                     {dall, by_up.out}, {dfew});
            const TensorId dup = gradient(by_up.out);
            backward(name + ".adapter.up", " (weight)", {"linear", "b s r, " + joined + " -> " + up_axes, up_flops},
                     {few, dall}, {dup});
            by_up.backward(dup);
            backward(name + ".adapter.down", " (input)", {"linear", "b s r, " + down_axes + " -> " + in, down_flops},
                     {dfew, by_down.out}, {dread});
            const TensorId ddown = gradient(by_down.out);
            backward(name + ".adapter.down", " (weight)", {"linear", in + ", b s r -> " + down_axes, down_flops},
                     {read.out, dfew}, {ddown});
            by_down.backward(ddown);
            return std::pair{dmade, wide.backward(read.backward(dread))};
          }};
}

EagerModules::Ids EagerModules::each_like(const Ids& of, const std::string& name, const Type& type) {
  Ids made;
  for (std::size_t k = 0; k < of.size(); ++k) {
    made.push_back(like(of.size() == 1 ? name : name + "." + std::to_string(k), of[k], type));
  }
  return made;
}

EagerModules::AdapterSum EagerModules::added_wide(const Ids& made, const Ids& scaled, const std::string& name,
                                                  const AdapterAxes& axes, const Shape& whole) {
  const std::size_t values = made.size();
  const std::string out = "b s " + axes.output, joined = "b s " + axes.joined;
  const Type narrow = type_of(made.front()), wide = type_of(scaled.front());
  const Ids sums = each_like(made, name + ".adapter.add.out", wide);
  Ids terms = made;
  terms.insert(terms.end(), scaled.begin(), scaled.end());
  forward(name + ".adapter.add", {"add", listed(out, 2 * values) + " -> " + listed(out, values)}, terms, sums);
  if (narrow == wide) return {sums, [](TensorId d) { return std::pair{d, d}; }};
  const Ids outs = each_like(made, name + ".adapter.from.out", narrow);
  forward(name + ".adapter.from", {"to", same(out, values)}, sums, outs);
  return {outs, [=, this](TensorId given) {
            const auto gradient_of = [&](const std::string& of, const Type& type) {
              return tensor("gradient of " + of, TensorKind::gradient, whole, type.bytes, type.name);
            };
            const TensorId d = gradient_of(name + ".adapter.add.out", wide),
                           dmade = gradient_of((*this)[made.front()].name, narrow);
            backward(name + ".adapter.from", "", {"to", same(joined, 1)}, {given}, {d});
            backward(name + ".adapter.add", "", {"to", same(joined, 1)}, {d}, {dmade});
            return std::pair{dmade, d};
          }};
}

EagerModules::AdapterSum EagerModules::added_narrow(TensorId made, TensorId scaled, const std::string& name,
                                                    const std::string& axes) {
  const TensorId copy = like(name + ".adapter.clone.out", made, type_of(made)),
                 sum = like(name + ".adapter.add.out", made, type_of(made));
  forward(name + ".adapter.clone", {"clone", same(axes, 1)}, {made}, {copy});
  const Made narrow = converted(scaled, type_of(made), name + ".adapter.from", axes);
  forward(name + ".adapter.add", {"add", axes + ", " + same(axes, 1)}, {copy, narrow.out}, {sum});
  return {{sum}, [narrow](TensorId given) { return std::pair{given, narrow.backward(given)}; }};
}

}  // namespace plimsoll
