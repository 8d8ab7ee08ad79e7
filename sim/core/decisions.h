#pragma once
// What a search for splits has chosen for a problem: enough to build the problem of a rank again without searching.

#include <cstdint>
#include <string>
#include <vector>

#include "sim/core/ids.h"
#include "sim/core/mesh.h"

namespace plimsoll {

/// In what parameters' gradients of 16 bits are summed and kept; automatic: fp32 for parameters in bf16.
enum class MainGradients : std::uint8_t { as_parameters, fp32, automatic };

struct Decisions {
  /// Dimensions of this name and size have `to` numbers instead (sim/ops/padding.h).
  struct Padding {
    std::string dimension;
    std::int64_t from = 1, to = 1;
  };
  /// Of an op: the dimension of its loop that the ranks of an axis share out.
  struct Share {
    std::string axis, dimension;
    std::string around = {};  ///< whose shares go round among these ranks (sim/mesh/ring_blocks.h); empty: none
  };
  struct Cut {
    OpId op;  ///< of the graph that the search was given
    std::vector<Share> shares;
  };

  std::string strategy;           ///< whose search it was
  Mesh mesh;                      ///< its first axis may be of replicas, each with its own micro-batches
  std::vector<Padding> paddings;  ///< one after the other
  std::vector<Cut> cuts;          ///< ascending by op; all others are left whole
  MainGradients main_gradients = MainGradients::as_parameters;
  std::string asynchronous;        ///< the axis along which products run in blocks (sim/mesh/asynchronous_products.h)
  std::vector<std::string> notes;  ///< on how they were found
};

}  // namespace plimsoll
