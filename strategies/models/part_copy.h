#pragma once
// Ops and tensors of a part as those of a problem of its own.

#include <string>
#include <string_view>
#include <vector>

#include "strategies/models/part_alone.h"

namespace plimsoll {

/// Of ops that stand for transfers.
inline constexpr std::string_view kind_of_transfer = "transfer";

/// By tensor: parameters that other parts use, and gradients that they make too.
std::vector<bool> shared_with_other_parts(const PartTask&);

class PartCopy {
 public:
  /// Fills `made`: what its problem has of the whole's, but for ops and tensors.
  PartCopy(const PartTask&, PartAlone& made);

  /// The copies of tensors of the whole problem, made when first asked for.
  TensorId tensor(TensorId of);
  std::vector<TensorId> tensors(const std::vector<TensorId>& of);

  /// A tensor of no bytes: it says which op comes before which.
  TensorId order_token(std::string name);

  /// The op on the tensors here, with its times on the part's device.
  Op copied(OpId of);
  /// At the end of the ops here; `of`: in the whole problem, or no_op.
  OpId add(Op, OpId of);

  /// Of the whole problem: those of parameters whose gradients no other part makes, and what ranks exchange around
  /// them.
  std::vector<OpId> own_updates() const;

  /// All ops on the part's device, once they are there.
  void add_partition();

 private:
  const PartTask& task_;
  const Problem& whole_;
  PartAlone& made_;
  std::vector<StorageId> storage_here_;  // by storage of the whole
};

}  // namespace plimsoll
