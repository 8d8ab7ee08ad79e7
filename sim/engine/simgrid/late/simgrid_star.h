#pragma once
// The platform as SimGrid sees it.

#include <cstdint>
#include <vector>

#include "sim/engine/program.h"
#include "sim/engine/simgrid/late/versions.h"

namespace plimsoll {

/// All that a flow needs is which links it crosses: each route is the way of a host at the rim of a star to itself,
/// which is the route that SimGrid finds fastest.
class SimgridStar {
 public:
  explicit SimgridStar(const Program&);

  /// Null where their speed never changes.
  sg4::Host* kernels(std::uint32_t device) const { return kernels_[device]; }
  sg4::Host* route(std::uint32_t route) const { return routes_[route]; }

  /// SimGrid takes whole bytes, and the bytes that an update moves need not be: all bytes and bandwidths are multiplied
  /// by the largest power of two that SimGrid's integers allow.
  double byte_scale() const { return byte_scale_; }

  /// Whether it is that of another program too.
  bool is_of(const Program&) const;

 private:
  void add_device(const Program&, std::uint32_t device);
  void add_route(const Program&, std::uint32_t route, const std::vector<sg4::Link*>& links);

  std::vector<double> shape_;
  double byte_scale_;
  sg4::NetZone* zone_;
  std::vector<sg4::Host*> kernels_;  ///< per device
  std::vector<sg4::Host*> routes_;   ///< null where no link of the route is limited
};

}  // namespace plimsoll
