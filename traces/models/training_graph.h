#pragma once
// Writes the graph of a training iteration: forward ops are added one by one, the backward is their mirror image.

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/graph.h"

namespace plimsoll {

/// A graph of which only the proportions count: durations in us of a made-up device, bytes of a made-up width.
struct ProportionedGraph {
  Graph graph;
  std::vector<bool> is_spine;   ///< by op: all of a layer waits for it
  std::vector<bool> is_weight;  ///< by tensor: as large as a parameter
};

/// Times and bytes are drawn around what is given, from a seed.
class TrainingGraph {
 public:
  struct Value {
    std::uint32_t index = 0;
  };
  struct Weight {
    std::uint32_t index = 0;
  };
  struct Layer {
    std::string_view kind;
    double microseconds = 1;
    std::int64_t bytes = 0;  ///< of what it makes
    bool is_spine = false;
  };

  explicit TrainingGraph(std::uint64_t seed) : engine_(seed) {}

  void next_stage() { ++stage_; }
  Value input(std::int64_t bytes);
  /// A parameter and an op that hands its value to all that use it.
  Weight weight(std::string_view name, std::int64_t bytes);

  /// An op whose backward makes the gradients of its inputs and reads their values.
  Value op(const Layer&, const std::vector<Value>&);
  /// With a parameter: another op of the backward makes its gradient, or adds to it.
  Value weighted(const Layer&, Value, Weight);
  /// A sum: its gradient is that of each of its inputs, so that it has no backward.
  Value sum(double microseconds, const std::vector<Value>&);

  /// With a loss that reads these values, and the backward.
  ProportionedGraph trained(const std::vector<Value>&) &&;

 private:
  struct Record {  ///< of a forward op
    enum class Rule : std::uint8_t { plain, weighted, sum } rule = Rule::plain;
    std::uint32_t op = 0;
    std::vector<Value> inputs;
    Value output;
    Weight weight;
    double microseconds = 0;
    bool is_spine = false;
  };
  struct MadeValue {
    TensorId tensor;
    bool has_gradient = false;            ///< false: the network's input
    std::vector<TensorId> contributions;  ///< to its gradient
  };
  struct MadeWeight {
    TensorId parameter, value, gradient;
  };

  double drawn(double around);
  TensorId add_tensor(std::string name, TensorKind, std::int64_t bytes, bool is_weight);
  std::uint32_t add_op(std::string_view kind, Phase, double microseconds, bool is_spine, std::vector<TensorId> inputs,
                       std::vector<TensorId> outputs);
  Value add_value(TensorId, bool has_gradient);
  Value add_forward(const Layer&, const std::vector<Value>&, Record::Rule, Weight);
  TensorId new_gradient(Value);
  /// Of a value, once all that read it have had their backward.
  TensorId gradient_of(Value);
  void add_backward(const Record&);

  std::mt19937_64 engine_;
  ProportionedGraph made_;
  std::uint32_t stage_ = 0;
  std::vector<MadeValue> values_;
  std::vector<MadeWeight> weights_;
  std::vector<Record> records_;
};

}  // namespace plimsoll
