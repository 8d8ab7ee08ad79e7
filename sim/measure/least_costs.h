#pragma once
// The least that an op takes, and that a value takes, in any schedule that packs by no other codecs than these.

#include <span>

#include "sim/core/codec.h"
#include "sim/model/problem.h"

namespace plimsoll {

/// Of a tensor's forms that an op can do with; of all, without an op.
Bytes smallest_form(const Graph&, TensorId, std::span<const Codec>, const Op*);

/// By the fastest of its implementations, on packed inputs too; nothing for what the device need not compute.
Seconds fastest_on(const Problem&, OpId, DeviceId, std::span<const Codec>, Saving = Saving::keep,
                   Backprop = Backprop::in_one_call);

/// Of any of its runs that save; in one call of autograd or stage by stage.
Bytes least_workspace(const Op&, Backprop = Backprop::in_one_call);

/// Sums the bytes of tensors, each storage once.
class StorageSum {
 public:
  explicit StorageSum(const Graph& graph) : graph_(graph), seen_(graph.storages, 0) {}

  void restart() {
    ++round_;
    sum_ = {};
  }
  void add(TensorId t) { add(t, graph_[t].bytes); }
  void add(TensorId t, Bytes bytes) {
    std::uint32_t& seen = seen_[graph_[t].storage.index];
    if (seen == round_) return;
    seen = round_;
    sum_ += bytes;
  }
  Bytes sum() const { return sum_; }

 private:
  const Graph& graph_;
  std::vector<std::uint32_t> seen_;
  std::uint32_t round_ = 0;
  Bytes sum_;
};

}  // namespace plimsoll
