#pragma once
// What graphs by formula are made of: tensors by their shapes, forwards, and for each part of the model what makes the
// gradient of its input, which runs behind the loss in the opposite order.

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/graph.h"

namespace plimsoll {

class FormulaGraph {
 public:
  using Shape = std::vector<std::int64_t>;
  using Ids = std::vector<TensorId>;

  /// `model`: what messages call it. Numbers of tf32 are fp32 in memory. Times are operations of matrix products /
  /// `rate`.
  FormulaGraph(std::string model, std::string dtype, FlopsPerSecond rate);

 protected:
  /// What an op is beside its name.
  struct Kind {
    std::string_view kind, loop;
    double flops = 0;
    std::string_view reduces = {};
    double moved = 0;  ///< bytes, where several kernels of one op move more than its inputs and outputs
    Bytes workspace = {};
    double launches = 1;  ///< kernels that it is
  };

  const std::string& model() const { return model_; }
  void note(std::string key, std::string text);
  TensorId tensor(std::string name, TensorKind kind, Shape shape, std::int64_t element, std::string numbers = {});
  TensorId value(std::string name, Shape shape) {
    return tensor(std::move(name), TensorKind::activation, std::move(shape), element_);
  }
  TensorId parameter(std::string name, Shape shape) {
    return tensor(std::move(name), TensorKind::parameter, std::move(shape), element_);
  }
  /// No parameter is trained but those that `trained_parameter` makes, in fp32: what only gradients of others or of the
  /// model's input need does not run in the backward, as autograd has it.
  void freeze() { is_frozen_ = true; }
  TensorId trained_parameter(std::string name, Shape shape);
  /// Of numbers that are packed into these bytes.
  TensorId packed_parameter(std::string name, Shape shape, Bytes bytes, std::string numbers);
  /// A new one of a value or a frozen parameter, in its type; of a trained parameter the one to which all ops and
  /// micro-batches add.
  TensorId gradient(TensorId of);

  void forward(const std::string& name, const Kind& kind, Ids inputs, Ids outputs) {
    add(name, kind, Phase::forward, std::move(inputs), std::move(outputs));
  }
  /// Of the op that was added last.
  void state(std::string key, std::string text);
  /// Of the forward op `of`; `part`: which of its backward ops.
  void backward(const std::string& of, const std::string& part, const Kind& kind, Ids inputs, Ids outputs) {
    add(of + " backward" + part, kind, Phase::backward, std::move(inputs), std::move(outputs), of);
  }
  /// Ends a part of the model, which is a stage: what makes the gradient of its input from that of its output.
  void end_stage(std::function<TensorId(TensorId)> backward);
  const Tensor& operator[](TensorId id) const { return graph_[id]; }
  /// Behind the loss: all backwards, the last part's first. `gradient`: of the last part's output, where there is no
  /// loss.
  Graph finished(TensorId gradient = {});

  std::int64_t element_;  ///< bytes of a number

 private:
  void add(std::string name, const Kind& kind, Phase phase, Ids inputs, Ids outputs, std::string of = {});
  bool is_trained(TensorId) const;
  void drop_unneeded_backwards();
  void drop_unused_tensors();

  std::string model_, dtype_;
  FlopsPerSecond rate_;
  Graph graph_;
  std::uint32_t stage_ = 0;
  std::map<TensorId, TensorId> parameter_gradients_;
  bool is_frozen_ = false;
  std::set<TensorId> trained_;  ///< where all else is frozen
  std::vector<std::function<TensorId(TensorId)>> backwards_;
};

}  // namespace plimsoll
