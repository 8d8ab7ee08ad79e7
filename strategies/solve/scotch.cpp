#include <scotch/scotch.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "strategies/solve/graph_partition.h"

namespace plimsoll {
namespace {

static_assert(sizeof(SCOTCH_Num) == sizeof(std::int32_t), "graphs are handed over in Scotch's own integers");

/// One of Scotch's objects, which are made and unmade in place.
template <class Object, int (*make)(Object*), void (*unmake)(Object*)>
class Made {
 public:
  Made() : is_made_(make(&object_) == 0) {}
  ~Made() {
    if (is_made_) unmake(&object_);
  }
  Made(const Made&) = delete;
  Made& operator=(const Made&) = delete;

  bool is_made() const { return is_made_; }
  Object* get() { return &object_; }

 private:
  Object object_;
  bool is_made_;
};

using Architecture = Made<SCOTCH_Arch, SCOTCH_archInit, SCOTCH_archExit>;
using UndirectedGraph = Made<SCOTCH_Graph, SCOTCH_graphInit, SCOTCH_graphExit>;
using Context = Made<SCOTCH_Context, SCOTCH_contextInit, SCOTCH_contextExit>;
using Method = Made<SCOTCH_Strat, SCOTCH_stratInit, SCOTCH_stratExit>;

/// Mapping onto a complete graph of processors that have these shares, by Scotch's default method.
std::optional<std::vector<std::int32_t>> parts_by_scotch(const WeightedGraph& graph, std::span<const double> shares,
                                                         std::int32_t seed) {
  constexpr double weight_of_all = 1e6;  // of processors: whole numbers
  constexpr SCOTCH_Num unset = -1;
  std::vector<SCOTCH_Num> speeds;
  for (const double share : shares) {
    speeds.push_back(std::max<SCOTCH_Num>(1, static_cast<SCOTCH_Num>(std::lround(weight_of_all * share))));
  }
  Architecture processors;
  UndirectedGraph nodes, nodes_in_context;
  Context context;  // on one thread, so that the same seed gives the same parts
  Method method;
  if (!processors.is_made() || !nodes.is_made() || !nodes_in_context.is_made() || !context.is_made() ||
      !method.is_made())
    return std::nullopt;
  SCOTCH_contextRandomSeed(context.get(), seed);
  SCOTCH_contextRandomReset(context.get());
  const auto parts = static_cast<SCOTCH_Num>(shares.size());
  const int is_refused =
      SCOTCH_contextOptionSetNum(context.get(), SCOTCH_OPTIONNUMDETERMINISTIC, 1) |
      SCOTCH_contextThreadSpawn(context.get(), 1, nullptr) | SCOTCH_archCmpltw(processors.get(), parts, speeds.data()) |
      SCOTCH_graphBuild(nodes.get(), 0, static_cast<SCOTCH_Num>(graph.size()), graph.first.data(), nullptr,
                        graph.weight.data(), nullptr, static_cast<SCOTCH_Num>(graph.neighbour.size()),
                        graph.neighbour.data(), graph.edge_weight.data()) |
      SCOTCH_contextBindGraph(context.get(), nodes.get(), nodes_in_context.get());
  if (is_refused != 0) return std::nullopt;
  std::vector<SCOTCH_Num> part(graph.size(), unset);
  if (SCOTCH_graphMap(nodes_in_context.get(), processors.get(), method.get(), part.data()) != 0) return std::nullopt;
  return part;
}

}  // namespace
}  // namespace plimsoll

extern "C" {
extern const plimsoll::GraphPartitioner plimsoll_scotch;
const plimsoll::GraphPartitioner plimsoll_scotch{"Scotch", &plimsoll::parts_by_scotch};
}
