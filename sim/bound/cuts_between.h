#pragma once
// Smallest cuts of a network whose edges cost seconds and, at a price, bytes: those at prices between the prices of two
// cuts lie between the two, so that smaller and smaller networks find them.
// Source: Gallo, Grigoriadis and Tarjan, "A fast parametric maximum flow algorithm and applications", 1989 (cuts of
// rising prices are nested); to halve what lies between, and no price again, is our own.

#include <cstdint>
#include <vector>

namespace plimsoll {

/// Its capacity is seconds + price * bytes. Seconds are those of edges to the sink alone; infinite: never cut.
struct PricedArc {
  std::uint32_t from, to;
  double seconds = 0, bytes = 0;
};

/// Node 0 is the source, node 1 the sink.
class CutsBetween {
 public:
  /// All cuts of the network. `most`: bytes of some cut that costs nothing else.
  CutsBetween(std::uint32_t nodes, std::vector<PricedArc>, double most);

  struct Found {
    std::vector<bool> source_side;  ///< by node here
    double seconds = 0, bytes = 0;  ///< more than those of the first of the two cuts
  };
  /// A best one at the price, of several the one with the least on the source's side; of an infinite price the one that
  /// costs the fewest bytes.
  Found at(double price) const;

  /// What lies between the first of the two cuts and that one, and between that one and the second.
  CutsBetween before(const Found&) const;
  CutsBetween behind(const Found&) const;

  /// Of the whole network, by node: of the first of the two cuts, and of one in between.
  const std::vector<bool>& source_side() const { return source_side_; }
  std::vector<bool> source_side(const Found&) const;

 private:
  CutsBetween() = default;
  CutsBetween half(const Found&, bool source_half) const;

  std::vector<std::uint32_t> node_;  // of the whole network, by node here
  std::vector<PricedArc> arcs_;      // without those that all cuts here cut, or none does
  std::vector<bool> source_side_;
  double scale_ = 0;  // at a price of 1
};

/// What the edges that leave that side cost at the price, each rounded down as `at` does, so that of the side of a best
/// one it is at most what all cuts cost.
double least_cost(const std::vector<PricedArc>&, const std::vector<bool>& source_side, double price, double most);

}  // namespace plimsoll
