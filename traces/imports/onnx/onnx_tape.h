#pragma once
// The graph of a training iteration while an ONNX model is lowered to it: tensors, ops, and what each op's backward is
// when the gradient of its result is known. Ops have the names of PyTorch's dispatcher.

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/core/graph.h"
#include "traces/imports/onnx/onnx_shapes.h"

namespace plimsoll {

constexpr int onnx_float = 1, onnx_integer = 7, onnx_bool = 9;  // TensorProto.DataType

struct TapeValue : OnnxValue {
  std::optional<TensorId> tensor;  ///< unset: numbers alone
  std::uint32_t gradient = 0;      ///< which gradient is its: a view of all numbers has that of what it shows
  bool needs_gradient = false, is_weight = false;
  AtenShape strides;  ///< in elements
};

struct TapeOp {
  std::string kind;
  Phase phase = Phase::forward;
  std::vector<TensorId> inputs, outputs;
  double flops = 0;
  bool is_view = false;
};

AtenShape dense_strides(const AtenShape&);
std::string label_of(const OnnxNode&);

/// Throws InputError with the file and the node.
class OnnxTape {
 public:
  explicit OnnxTape(std::string file) : file_(std::move(file)) {}

  [[noreturn]] void refuse(const std::string& key, const std::string& what) const;
  [[noreturn]] void refuse(const OnnxNode& node, const std::string& what) const { refuse_onnx_node(file_, node, what); }

  const Tensor& operator[](TensorId t) const { return made_[t]; }
  std::size_t tensors() const { return made_.tensors.size(); }
  Op& last_op() { return made_.ops.back(); }
  /// `dims`, where each is an extent.
  AtenShape checked(const std::string& name, const std::vector<std::int64_t>& dims) const;
  std::int64_t element_size(int dtype, const std::string& name) const;

  /// In a storage of its own, or in that of another.
  TensorId tensor(const std::string& name, TensorKind kind, const AtenShape& shape, int dtype,
                  std::optional<StorageId> storage = {});
  TensorId gradient_like(const TapeValue& of);

  const TapeValue* find(const std::string& name) const;
  /// A value without a tensor yet.
  TapeValue& add(const std::string& name, OnnxValue value);
  /// The node's first result, with a storage of its own.
  TapeValue& fresh(const OnnxNode& node, const OnnxValue& value, bool needs_gradient);
  void add_parameter(const OnnxTensor&);
  void add_input(const OnnxInput&, const AtenShape&);

  TapeValue& in(const OnnxNode& node, std::size_t k);
  bool has(const OnnxNode& node, std::size_t k) const { return k < node.inputs.size() && !node.inputs[k].empty(); }
  bool has_tensors(const OnnxNode& node) const;
  bool any_needs(const OnnxNode& node) const;

  void op(TapeOp op, const std::string& name);

  /// Runs in the backward, when the gradient of a value is known, with that; not where there is none.
  void on_backward(std::uint32_t gradient, std::function<void(TensorId)> then);
  void on_backward(std::function<void()> then) { backwards_.push_back(std::move(then)); }
  std::optional<TensorId> gradient(const TapeValue& of) const { return gradients_[of.gradient]; }
  /// Adds to the gradient of `to`, if it needs one.
  void contribute(const TapeValue& to, TensorId gradient, const std::string& name);
  /// The gradient of what was broadcast.
  void summed(const TapeValue& to, TensorId gradient, const std::string& name);
  void run_backward();

  /// With gradients of parameters named and what the backward reads marked as saved.
  Graph finished(std::string name) &&;
  std::size_t untrained() const { return untrained_; }

 private:
  void refuse_absurd(const std::string& name, const AtenShape&) const;
  void name_gradients();
  void mark_saved();

  std::string file_;
  Graph made_;
  double sum_ = 0;
  std::vector<Bytes> bytes_of_;  // by storage
  std::unordered_map<std::string, TapeValue> values_;
  std::vector<std::optional<TensorId>> gradients_;
  std::vector<std::pair<std::uint32_t, TensorId>> owners_;  // which gradient is which parameter's
  std::vector<std::function<void()>> backwards_;            // in the order of the forward
  std::size_t untrained_ = 0;
};

}  // namespace plimsoll
