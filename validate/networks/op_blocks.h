#pragma once
// Ops of a rank's graph that read or make blocks of what an op of the network has whole (asynchronous products): which
// op that is, and whose blocks these are.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "sim/core/graph.h"
#include "sim/core/mesh.h"

namespace plimsoll {

/// One of several products, of which each reads a part of the first input or makes a part of the output.
struct OpPart {
  std::size_t axis = 0;  ///< of as many ranks as there are parts
  std::uint32_t number = 0;
  bool is_of_input = false;

  /// The place along the axis of the rank that this part is of, on the rank at `place`.
  std::uint32_t whose(const Mesh&, std::uint32_t place) const;
};

/// An input of the network's op: alone, or in blocks of an axis, the rank's own first.
struct InputBlocks {
  std::vector<TensorId> blocks;
  std::size_t axis = 0;
};

struct OpBlocks {
  std::string_view of;              ///< name of the network's op
  std::optional<OpPart> part = {};  ///< unset: it makes all of its outputs
  std::vector<InputBlocks> inputs;

  bool are_any() const;
};

/// What shifts of a rank's graph hand on.
class BlocksInGraph {
 public:
  BlocksInGraph(const Graph& rank, const Mesh&);

  OpBlocks of(const Op&) const;

 private:
  struct Next {
    TensorId block;
    std::size_t axis;
  };
  const Mesh& mesh_;
  std::map<TensorId, Next> next_;  // by what a rank hands on: what it gets from the rank before
};

}  // namespace plimsoll
