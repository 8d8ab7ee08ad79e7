#include "traces/models/op_networks.h"

#include <fmt/format.h>

#include <array>
#include <optional>

namespace plimsoll {
namespace {

using Value = TrainingGraph::Value;
using Weight = TrainingGraph::Weight;
using Values = std::vector<Value>;

// Typical times in us, and bytes of fp32 numbers.
constexpr double small = 3, product = 30, large_product = 300;
constexpr std::int64_t number = 4;

/// What an LSTM cell hands on: its output and its state; none before the first step.
struct CellState {
  std::optional<Value> output, state;
};

/// The parameters of a cell: of its input, forget and output gates and its candidate, for input and previous output.
struct CellWeights {
  std::array<Weight, 4> of_input, of_output;
};

CellWeights cell_weights(TrainingGraph& made, std::string_view name, std::int64_t bytes) {
  CellWeights weights;
  for (std::size_t gate = 0; gate < 4; ++gate) {
    weights.of_input[gate] = made.weight(fmt::format("{} input {}", name, gate), bytes);
    weights.of_output[gate] = made.weight(fmt::format("{} output {}", name, gate), bytes);
  }
  return weights;
}

/// `beside` is added to the new state, where there is one.
CellState lstm_cell(TrainingGraph& made, Value x, const CellState& before, const CellWeights& weights,
                    std::string_view kind, std::int64_t bytes, std::optional<Value> beside) {
  std::array<Value, 4> gates{};
  for (std::size_t g = 0; g < gates.size(); ++g) {
    if (g == 1 && !before.state) continue;  // nothing to forget
    Value sum = made.weighted({.kind = kind, .microseconds = product, .bytes = bytes}, x, weights.of_input[g]);
    if (before.output) {
      const Value of_output =
          made.weighted({.kind = kind, .microseconds = product, .bytes = bytes}, *before.output, weights.of_output[g]);
      sum = made.sum(small, {sum, of_output});
    }
    gates[g] = made.op({.kind = g == 3 ? "tanh" : "sigmoid", .microseconds = small, .bytes = bytes}, {sum});
  }
  Values parts{made.op({.kind = "mul", .microseconds = small, .bytes = bytes}, {gates[0], gates[3]})};
  if (before.state) {
    parts.push_back(made.op({.kind = "mul", .microseconds = small, .bytes = bytes}, {gates[1], *before.state}));
  }
  if (beside) parts.push_back(*beside);
  const Value state = parts.size() > 1 ? made.sum(small, parts) : parts.front();
  const Value shown = made.op({.kind = "tanh", .microseconds = small, .bytes = bytes}, {state});
  return {made.op({.kind = "mul", .microseconds = small, .bytes = bytes}, {gates[2], shown}), state};
}

/// Mean and variance of a value, and the value with neither, scaled: the ops of a normalization one by one.
Value normalized(TrainingGraph& made, Value x, std::int64_t bytes) {
  constexpr std::int64_t few = 4096;
  const Value mean = made.op({.kind = "mean", .microseconds = small, .bytes = few}, {x});
  const Value centred = made.op({.kind = "sub", .microseconds = small, .bytes = bytes}, {x, mean});
  const Value square = made.op({.kind = "square", .microseconds = small, .bytes = bytes}, {centred});
  const Value variance = made.op({.kind = "mean", .microseconds = small, .bytes = few}, {square});
  const Value inverse = made.op({.kind = "rsqrt", .microseconds = small, .bytes = few}, {variance});
  return made.op({.kind = "mul", .microseconds = small, .bytes = bytes}, {centred, inverse});
}

}  // namespace

ProportionedGraph rnn_graph(std::uint32_t layers, std::uint32_t steps, std::uint64_t seed) {
  constexpr std::int64_t width = 2048, batch = 16, bytes = batch * width * number, weight = width * width * number;
  TrainingGraph made(seed);
  Values shown;
  for (std::uint32_t t = 0; t < steps; ++t) shown.push_back(made.input(bytes));
  for (std::uint32_t l = 0; l < layers; ++l) {
    made.next_stage();
    const CellWeights weights = cell_weights(made, fmt::format("layer {}", l), weight);
    CellState cell;
    for (std::uint32_t t = 0; t < steps; ++t) {
      cell = lstm_cell(made, shown[t], cell, weights, "matmul", bytes, std::nullopt);
      shown[t] = *cell.output;
    }
  }
  made.next_stage();
  const Weight vocabulary = made.weight("vocabulary", weight);
  for (Value& value : shown) {
    value = made.weighted({.kind = "matmul", .microseconds = product, .bytes = bytes}, value, vocabulary);
  }
  return std::move(made).trained(shown);
}

ProportionedGraph crn_graph(std::uint32_t filters, std::uint32_t words, std::uint64_t seed) {
  constexpr std::uint32_t places = 15, depth = 3;
  constexpr std::int64_t width = 2048, bytes = 64 * 1024, weight = width * width * number;
  TrainingGraph made(seed);
  std::vector<std::array<Weight, depth>> weights(filters);
  for (std::uint32_t f = 0; f < filters; ++f) {
    for (std::uint32_t d = 0; d < depth; ++d) weights[f][d] = made.weight(fmt::format("filter {}.{}", f, d), weight);
  }
  const Weight of_word = made.weight("of the word", weight), of_state = made.weight("of the state", weight);
  std::optional<Value> state;
  Values shown;
  for (std::uint32_t word = 0; word < words; ++word) {
    made.next_stage();
    Values branches;
    for (std::uint32_t place = 0; place < places; ++place) {
      const Value character = made.input(bytes);
      for (const std::array<Weight, depth>& filter : weights) {
        Value x = character;
        for (const Weight w : filter) {
          x = made.weighted({.kind = "conv", .microseconds = product, .bytes = bytes}, x, w);
          x = made.op({.kind = "relu", .microseconds = small, .bytes = bytes}, {x});
        }
        branches.push_back(made.op({.kind = "max_pool", .microseconds = small, .bytes = bytes}, {x}));
      }
    }
    const Value joined = made.op({.kind = "concat", .microseconds = small, .bytes = bytes}, branches);
    Value sum = made.weighted({.kind = "matmul", .microseconds = product, .bytes = bytes}, joined, of_word);
    if (state) {
      sum = made.sum(
          small, {sum, made.weighted({.kind = "matmul", .microseconds = product, .bytes = bytes}, *state, of_state)});
    }
    state = made.op({.kind = "tanh", .microseconds = small, .bytes = bytes}, {sum});
    shown.push_back(*state);
  }
  return std::move(made).trained(shown);
}

ProportionedGraph wrn_graph(std::uint32_t units, std::uint32_t slices, std::uint64_t seed) {
  constexpr std::int64_t picture = 1 << 20, slice = picture / 32, weight = 37'500'000;
  TrainingGraph made(seed);
  const Weight stem = made.weight("stem", weight / 100);
  Value x = made.weighted({.kind = "conv", .microseconds = large_product, .bytes = picture, .is_spine = true},
                          made.input(picture), stem);
  for (std::uint32_t u = 0; u < units; ++u) {
    made.next_stage();
    Value inner = x;
    for (int half = 0; half < 2; ++half) {
      Values parts;
      for (std::uint32_t s = 0; s < slices; ++s) {
        const Value part = made.op({.kind = "slice", .microseconds = small, .bytes = slice}, {inner});
        const Value even = normalized(made, part, slice);
        parts.push_back(made.op({.kind = "relu", .microseconds = small, .bytes = slice}, {even}));
      }
      inner = made.op({.kind = "concat", .microseconds = small, .bytes = picture}, parts);
      inner = made.weighted({.kind = "conv", .microseconds = large_product, .bytes = picture, .is_spine = true}, inner,
                            made.weight(fmt::format("unit {}.{}", u, half), weight));
    }
    x = made.sum(small, {x, inner});
  }
  made.next_stage();
  const Weight classes = made.weight("classes", weight / 10);
  return std::move(made).trained(
      {made.weighted({.kind = "matmul", .microseconds = product, .bytes = slice}, x, classes)});
}

ProportionedGraph trn_graph(std::uint32_t layers, std::uint32_t heads, std::uint64_t seed) {
  constexpr std::int64_t width = 2048, rows = 64, bytes = rows * width * number, of_head = rows * 32 * number,
                         scores = rows * rows * number, weight = width * 32 * number, wide = 2 * width * width * number;
  TrainingGraph made(seed);
  const Value memory = made.input(bytes), mask = made.input(scores);
  Value x = made.op({.kind = "embedding", .microseconds = product, .bytes = bytes},
                    {made.weighted({.kind = "matmul", .microseconds = product, .bytes = bytes}, made.input(bytes),
                                   made.weight("embedding", wide))});
  const auto dense = [&](Value in, std::string name) {
    return made.weighted({.kind = "matmul", .microseconds = large_product, .bytes = bytes, .is_spine = true}, in,
                         made.weight(name, wide));
  };
  const auto attended = [&](Value query, Value keys, const std::string& name) {
    Values parts;
    for (std::uint32_t h = 0; h < heads; ++h) {
      const auto projected = [&](Value in, std::string_view what) {
        return made.weighted({.kind = "matmul", .microseconds = product, .bytes = of_head}, in,
                             made.weight(fmt::format("{} {} {}", name, what, h), weight));
      };
      const auto pointwise = [&](std::string_view kind, const Values& in) {
        return made.op({.kind = kind, .microseconds = small, .bytes = scores}, in);
      };
      const Value q = projected(query, "query"), k = projected(keys, "key"), v = projected(keys, "value");
      Value score = made.op({.kind = "batch_matmul", .microseconds = product, .bytes = scores}, {q, k});
      score = made.sum(small, {pointwise("scale", {score}), mask});
      const Value power = pointwise("exp", {pointwise("sub", {score, pointwise("max", {score})})});
      const Value share = pointwise("dropout", {pointwise("div", {power, pointwise("row_sum", {power})})});
      parts.push_back(made.op({.kind = "batch_matmul", .microseconds = product, .bytes = of_head}, {share, v}));
    }
    return made.op({.kind = "concat", .microseconds = small, .bytes = bytes}, parts);
  };
  for (std::uint32_t l = 0; l < layers; ++l) {
    made.next_stage();
    const std::string name = fmt::format("layer {}", l);
    const Value even = normalized(made, x, bytes);
    x = made.sum(small, {x, dense(attended(even, even, name + " self"), name + " self output")});
    const Value again = normalized(made, x, bytes);
    x = made.sum(small, {x, dense(attended(again, memory, name + " cross"), name + " cross output")});
    const Value expanded = dense(normalized(made, x, bytes), name + " expansion");
    const Value active = made.op({.kind = "relu", .microseconds = small, .bytes = bytes}, {expanded});
    x = made.sum(small, {x, dense(active, name + " contraction")});
  }
  made.next_stage();
  return std::move(made).trained({dense(x, "vocabulary")});
}

ProportionedGraph e3d_graph(std::uint32_t steps, std::uint32_t layers, std::uint64_t seed) {
  constexpr std::uint32_t patches = 16;
  constexpr std::int64_t bytes = 320 * 1024, weight = 320 * 320 * 125 * number;
  TrainingGraph made(seed);
  std::vector<CellWeights> weights;
  for (std::uint32_t l = 0; l < layers; ++l) weights.push_back(cell_weights(made, fmt::format("layer {}", l), weight));
  std::vector<std::vector<CellState>> cells(layers, std::vector<CellState>(patches));
  std::optional<Value> memory;
  Values shown(patches);
  for (std::uint32_t t = 0; t < steps; ++t) {
    for (Value& patch : shown) patch = made.input(bytes);
    for (std::uint32_t l = 0; l < layers; ++l) {
      made.next_stage();
      Values recalled;
      if (memory) recalled.push_back(*memory);
      for (const CellState& cell : cells[l]) {
        if (cell.state) recalled.push_back(*cell.state);
      }
      if (!recalled.empty()) {
        memory = made.op({.kind = "recall", .microseconds = large_product, .bytes = bytes, .is_spine = true}, recalled);
      }
      for (std::uint32_t p = 0; p < patches; ++p) {
        cells[l][p] = lstm_cell(made, shown[p], cells[l][p], weights[l], "conv3d", bytes, memory);
        shown[p] = *cells[l][p].output;
      }
      if (!memory) memory = made.op({.kind = "recall", .microseconds = large_product, .bytes = bytes}, shown);
    }
  }
  return std::move(made).trained(shown);
}

}  // namespace plimsoll
