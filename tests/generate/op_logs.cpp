#include "tests/generate/op_logs.h"

#include <algorithm>

#include "tests/generate/random.h"

namespace plimsoll {
namespace {

class Program {
 public:
  explicit Program(std::string name) { log_.name = std::move(name); }

  TensorId constant(Bytes bytes) {
    const TensorId made = add_tensor(bytes, std::nullopt);
    add_call("constant", 0, {}, {made}, Keep::forever);
    return made;
  }
  TensorId tensor(Bytes bytes) { return add_tensor(bytes, std::nullopt); }
  TensorId alias(TensorId of) { return add_tensor({}, of); }

  void call(std::string name, std::int64_t nanoseconds, std::vector<TensorId> arguments,
            std::vector<TensorId> results) {
    add_call(std::move(name), nanoseconds, std::move(arguments), std::move(results), Keep::evictable);
  }
  TensorId call(std::int64_t nanoseconds, std::vector<TensorId> arguments, Bytes bytes) {
    const TensorId made = tensor(bytes);
    call("op", nanoseconds, std::move(arguments), {made});
    return made;
  }
  void refer(TensorId t) {
    log_.events.push_back({OpLog::EventKind::reference, t.index});
    ++references_[t.index];
  }
  void release(TensorId t) {
    log_.events.push_back({OpLog::EventKind::release, t.index});
    --references_[t.index];
  }
  void backward() { phase_ = Phase::backward, log_.marks_backward = true; }
  std::int64_t references(TensorId t) const { return references_[t.index]; }
  Bytes storage_bytes(TensorId t) const { return storage_bytes_[t.index]; }

  OpLog finish() {
    for (std::size_t t = 0; t < references_.size(); ++t) {
      if (references_[t] > 0) log_.kept.push_back(id_at<TensorId>(t));
    }
    return std::move(log_);
  }
  OpLog finish_without_keeping() { return std::move(log_); }

 private:
  TensorId add_tensor(Bytes bytes, std::optional<TensorId> of) {
    log_.tensors.push_back({"x" + std::to_string(log_.tensors.size()), bytes, of});
    references_.push_back(1);
    storage_bytes_.push_back(of ? storage_bytes_[of->index] : bytes);
    return id_at<TensorId>(log_.tensors.size() - 1);
  }
  void add_call(std::string name, std::int64_t nanoseconds, std::vector<TensorId> arguments,
                std::vector<TensorId> results, Keep keep) {
    log_.events.push_back({OpLog::EventKind::call, static_cast<std::uint32_t>(log_.calls.size())});
    log_.calls.push_back({.name = std::move(name),
                          .nanoseconds = nanoseconds,
                          .workspace = {},
                          .arguments = std::move(arguments),
                          .results = std::move(results),
                          .keep = keep,
                          .phase = phase_});
  }

  OpLog log_;
  Phase phase_ = Phase::forward;
  std::vector<std::int64_t> references_;
  std::vector<Bytes> storage_bytes_;
};

/// A layer of a training iteration: its backward reads its inputs, its output's gradient and its weight.
struct Layer {
  std::vector<TensorId> inputs;
  TensorId weight, output;
  std::int64_t nanoseconds = 0;
};

/// Backward of the layers from the last: gradients of a value that several layers read are added up, one call each.
void add_backward(Program& program, const std::vector<Layer>& layers) {
  program.backward();
  std::vector<std::optional<TensorId>> gradient;
  const auto gradient_of = [&](TensorId t) -> std::optional<TensorId>& {
    if (gradient.size() <= t.index) gradient.resize(t.index + 1);
    return gradient[t.index];
  };
  for (std::size_t l = layers.size(); l-- > 0;) {
    const Layer& layer = layers[l];
    if (!gradient_of(layer.output))
      gradient_of(layer.output) = program.call(1'000, {layer.output}, program.storage_bytes(layer.output));
    const TensorId output_gradient = *gradient_of(layer.output);
    std::vector<TensorId> arguments = layer.inputs, results{program.tensor(program.storage_bytes(layer.weight))};
    arguments.push_back(layer.weight);
    arguments.push_back(output_gradient);
    for (const TensorId t : layer.inputs) results.push_back(program.tensor(program.storage_bytes(t)));
    program.call("backward", 2 * layer.nanoseconds, arguments, results);
    program.release(output_gradient);
    program.release(layer.output);
    for (std::size_t k = 0; k < layer.inputs.size(); ++k) {
      std::optional<TensorId>& sum = gradient_of(layer.inputs[k]);
      if (!sum) {
        sum = results[k + 1];
        continue;
      }
      const TensorId more = program.call(5'000, {*sum, results[k + 1]}, program.storage_bytes(*sum));
      program.release(*sum);
      program.release(results[k + 1]);
      sum = more;
    }
  }
}

}  // namespace

OpLog linear_op_log(std::size_t layers) {
  Program program("linear");
  std::vector<TensorId> forward;
  for (std::size_t i = 0; i < layers; ++i) {
    forward.push_back(program.call(1, i == 0 ? std::vector<TensorId>{} : std::vector{forward.back()}, Bytes{1}));
  }
  program.backward();
  program.release(forward.back());
  TensorId gradient = program.call(1, {}, Bytes{1});
  for (std::size_t i = layers - 1; i-- > 0;) {
    program.release(forward[i]);
    std::vector<TensorId> arguments;
    if (i > 0) arguments.push_back(forward[i - 1]);
    arguments.push_back(gradient);
    const TensorId next = program.call(1, arguments, Bytes{1});
    program.release(gradient);
    gradient = next;
  }
  return program.finish_without_keeping();
}

OpLog random_op_log(std::uint64_t seed, std::size_t calls, std::uint32_t largest, Views views) {
  Random random(seed);
  Program program("random " + std::to_string(seed));
  const auto amount = [&] { return random.chance(0.1) ? 0 : static_cast<std::int64_t>(random.between(1, largest)); };
  std::vector<TensorId> live;
  for (std::uint32_t c = 0; c < random.between(1, 3); ++c) live.push_back(program.constant(Bytes{amount()}));
  const auto pick = [&] { return random.below(static_cast<std::uint32_t>(live.size())); };
  for (std::size_t c = 0; c < calls; ++c) {
    if (random.chance(0.03) || live.empty()) live.push_back(program.constant(Bytes{amount()}));
    std::vector<TensorId> arguments;
    const std::uint32_t count = random.between(0, 3);
    for (std::uint32_t a = 0; a < count; ++a) {
      const auto recent = static_cast<std::uint32_t>(std::min<std::size_t>(live.size(), 4));
      arguments.push_back(random.chance(0.6) ? live[live.size() - 1 - random.below(recent)] : live[pick()]);
    }
    if (!arguments.empty() && random.chance(0.15)) {  // overwrites: a new version, and the old one loses its reference
      const TensorId old = arguments[random.below(static_cast<std::uint32_t>(arguments.size()))];
      const TensorId made = program.tensor(program.storage_bytes(old));
      program.call("mutate", amount(), arguments, {made});
      program.release(old);
      live.push_back(made);
    } else if (!arguments.empty() && random.chance(0.25)) {  // a view, of its only argument
      const TensorId made = program.alias(arguments.front());
      program.call("view", amount(), {arguments.front()}, {made});
      live.push_back(made);
    } else {
      std::vector<TensorId> results;
      const bool may_view = !arguments.empty() && (views == Views::of_several || random.chance(0.2));
      if (may_view && views == Views::of_one) arguments.resize(1);
      for (std::uint32_t r = random.chance(0.7) ? 1 : random.between(2, 4); r > 0; --r) {
        const bool view = may_view && random.chance(views == Views::of_several ? 0.1 : 0.5);
        results.push_back(view ? program.alias(arguments.front()) : program.tensor(Bytes{amount()}));
      }
      program.call("op", amount(), arguments, results);
      live.insert(live.end(), results.begin(), results.end());
    }
    std::erase_if(live, [&](TensorId t) { return program.references(t) == 0; });
    if (random.chance(0.2)) program.refer(live[pick()]);
    for (std::uint32_t r = random.between(0, 2); r > 0 && live.size() > 2; --r) {
      const TensorId gone = live[random.chance(0.5) ? 0 : pick()];
      if (program.references(gone) > 0) program.release(gone);
      std::erase_if(live, [&](TensorId t) { return program.references(t) == 0; });
    }
  }
  return program.finish();
}

namespace {

enum class Joins : std::uint8_t { none, every_layer };

/// `of`, seen as what has the shape of `like`.
TensorId seen_as(Program& program, TensorId of, TensorId like) {
  const TensorId view = program.alias(of);
  program.call("view_as", 1'000, {of, like}, {view});
  return view;
}

OpLog dense_log(std::size_t calls, Joins joins) {
  Random random(calls);
  Program program(joins == Joins::none ? "dense" : "joined dense");
  std::vector<Layer> layers;
  TensorId first = program.constant(Bytes{50'000'000});
  constexpr std::size_t block = 12, mean_calls_per_layer = 7;
  std::vector<TensorId> in_block;
  for (std::size_t l = 0; l < calls / mean_calls_per_layer; ++l) {
    if (l % block == 0) {
      if (!in_block.empty()) first = in_block.back();
      in_block = {first};
    }
    Layer layer{.inputs = in_block,
                .weight = program.constant(Bytes{random.between(1'000, 500'000)}),
                .output = {},
                .nanoseconds = random.between(100'000, 3'000'000)};
    std::vector<TensorId> arguments = layer.inputs;
    arguments.push_back(layer.weight);
    layer.output = program.call(layer.nanoseconds, arguments, Bytes{random.between(1'000'000, 30'000'000)});
    if (joins == Joins::every_layer) layer.output = seen_as(program, layer.output, in_block.front());
    in_block.push_back(layer.output);
    layers.push_back(layer);
  }
  add_backward(program, layers);
  return program.finish();
}

OpLog recurrent_log(std::size_t calls, Joins joins) {
  Random random(calls);
  Program program(joins == Joins::none ? "recurrent" : "joined recurrent");
  std::vector<Layer> layers;
  std::vector<TensorId> weights;
  constexpr std::size_t cell = 10;
  for (std::size_t k = 0; k < cell; ++k) weights.push_back(program.constant(Bytes{10'000'000}));
  TensorId state = program.constant(Bytes{3'000'000});
  constexpr std::size_t mean_calls_per_layer = 3;
  TensorId before = state;
  for (std::size_t l = 0; l < calls / mean_calls_per_layer; ++l) {
    Layer layer{
        .inputs = {state}, .weight = weights[l % cell], .output = {}, .nanoseconds = random.between(20'000, 400'000)};
    if (l % 3 == 1 && before != state) layer.inputs.push_back(before);
    std::vector<TensorId> arguments = layer.inputs;
    arguments.push_back(layer.weight);
    layer.output = program.call(layer.nanoseconds, arguments, Bytes{3'000'000 + random.between(0, 500'000)});
    if (joins == Joins::every_layer) layer.output = seen_as(program, layer.output, state);
    before = state;
    state = layer.output;
    layers.push_back(layer);
  }
  add_backward(program, layers);
  return program.finish();
}

}  // namespace

OpLog dense_op_log(std::size_t calls) {
  return dense_log(calls, Joins::none);
}

OpLog recurrent_op_log(std::size_t calls) {
  return recurrent_log(calls, Joins::none);
}

OpLog joined_dense_op_log(std::size_t calls) {
  return dense_log(calls, Joins::every_layer);
}

OpLog joined_recurrent_op_log(std::size_t calls) {
  return recurrent_log(calls, Joins::every_layer);
}

}  // namespace plimsoll
