// Adapters of low rank.

#include <optional>
#include <string>
#include <utility>

#include "traces/models/llama_blocks.h"

namespace plimsoll {

LlamaBlocks::Adapted LlamaBlocks::adapted(TensorId made, TensorId x, const std::string& name, const std::string& input,
                                          const std::string& output) {
  if (!is_frozen()) {
    return {made, [](TensorId d) { return std::pair<TensorId, std::optional<TensorId>>{d, std::nullopt}; }};
  }
  const std::string in = "b s " + input, out = "b s " + output, down_axes = input + " r", up_axes = "r " + output;
  const auto shape_of = [&](TensorId of) { return Shape((*this)[of].shape.begin() + 2, (*this)[of].shape.end()); };
  Shape down_shape = shape_of(x), up_shape = shape_of(made);
  double inputs = 1, outputs = 1;
  for (const std::int64_t extent : down_shape) inputs *= static_cast<double>(extent);
  for (const std::int64_t extent : up_shape) outputs *= static_cast<double>(extent);
  down_shape.push_back(of_.lora);
  up_shape.insert(up_shape.begin(), of_.lora);
  const double down_flops = product(inputs, of_.lora), up_flops = product(of_.lora, outputs);

  const Type& type = is_mixed() ? narrow() : fp32();  // of its products
  const Made wide = converted(x, fp32(), name + ".adapter.to", in),
             read = converted(wide.out, type, name + ".adapter.down.input.to", in);
  const auto trained = [&](const std::string& what, Shape shape) {
    return tensor(name + what, TensorKind::parameter, std::move(shape), 4, "fp32");
  };
  const TensorId down = trained(".adapter.down.weight", down_shape), up = trained(".adapter.up.weight", up_shape);
  const Made by_down = converted(down, type, name + ".adapter.down.weight.to", down_axes),
             by_up = converted(up, type, name + ".adapter.up.weight.to", up_axes);
  const TensorId few = made_value(name + ".adapter.down.out", {samples_, tokens_, of_.lora}, type),
                 all = like(name + ".adapter.up.out", made, type), scaled = like(name + ".adapter.mul.out", made, type);
  const std::string same = out + " -> " + out;
  forward(name + ".adapter.down", {"linear", in + ", " + down_axes + " -> b s r", down_flops}, {read.out, by_down.out},
          {few});
  forward(name + ".adapter.up", {"linear", "b s r, " + up_axes + " -> " + out, up_flops}, {few, by_up.out}, {all});
  forward(name + ".adapter.mul", {"mul", same}, {all}, {scaled});
  const AdapterSum whole = is_packed() ? added_narrow(made, scaled, name, out) : added_wide(made, scaled, name, out);
  return {whole.out, [=, this](TensorId given) -> std::pair<TensorId, std::optional<TensorId>> {
            const auto [dmade, d] = whole.backward(given);
            const TensorId dall = gradient(all), dfew = gradient(few), dread = gradient(read.out);
            backward(name + ".adapter.mul", "", {"mul", same}, {d}, {dall});
            backward(name + ".adapter.up", " (input)", {"linear", out + ", " + up_axes + " -> b s r", up_flops},
                     {dall, by_up.out}, {dfew});
            const TensorId dup = gradient(by_up.out);
            backward(name + ".adapter.up", " (weight)", {"linear", "b s r, " + out + " -> " + up_axes, up_flops},
                     {few, dall}, {dup});
            by_up.backward(dup);
            backward(name + ".adapter.down", " (input)", {"linear", "b s r, " + down_axes + " -> " + in, down_flops},
                     {dfew, by_down.out}, {dread});
            const TensorId ddown = gradient(by_down.out);
            backward(name + ".adapter.down", " (weight)", {"linear", in + ", b s r -> " + down_axes, down_flops},
                     {read.out, dfew}, {ddown});
            by_down.backward(ddown);
            return {dmade, wide.backward(read.backward(dread))};
          }};
}

LlamaBlocks::AdapterSum LlamaBlocks::added_wide(TensorId made, TensorId scaled, const std::string& name,
                                                const std::string& axes) {
  const std::string same = axes + " -> " + axes;
  const TensorId sum = like(name + ".adapter.add.out", made, type_of(scaled));
  forward(name + ".adapter.add", {"add", axes + ", " + same}, {made, scaled}, {sum});
  const Made narrow = converted(sum, type_of(made), name + ".adapter.from", axes);
  return {narrow.out, [=, this](TensorId given) {
            const TensorId d = narrow.backward(given);
            if (type_of(made) == type_of(sum)) return std::pair{d, d};
            const TensorId dmade = gradient(made);
            backward(name + ".adapter.add", "", {"to", same}, {d}, {dmade});
            return std::pair{dmade, d};
          }};
}

LlamaBlocks::AdapterSum LlamaBlocks::added_narrow(TensorId made, TensorId scaled, const std::string& name,
                                                  const std::string& axes) {
  const std::string same = axes + " -> " + axes;
  const TensorId copy = like(name + ".adapter.clone.out", made, type_of(made)),
                 sum = like(name + ".adapter.add.out", made, type_of(made));
  forward(name + ".adapter.clone", {"clone", same}, {made}, {copy});
  const Made narrow = converted(scaled, type_of(made), name + ".adapter.from", axes);
  forward(name + ".adapter.add", {"add", axes + ", " + same}, {copy, narrow.out}, {sum});
  return {sum, [narrow](TensorId given) { return std::pair{given, narrow.backward(given)}; }};
}

}  // namespace plimsoll
