#pragma once
// What SimGrid calls otherwise from version to version, from 3.32 to 4.x.

#include <simgrid/s4u.hpp>  // before the others: they do not compile alone

#include <simgrid/version.h>
#include <simgrid/kernel/routing/NetPoint.hpp>
#include <simgrid/kernel/routing/NetZoneImpl.hpp>

#include <string>
#include <vector>

#define SIMGRID_AT_LEAST(major, minor) \
  (SIMGRID_VERSION_MAJOR > (major) || (SIMGRID_VERSION_MAJOR == (major) && SIMGRID_VERSION_MINOR >= (minor)))

namespace plimsoll {

namespace sg4 = simgrid::s4u;

#if SIMGRID_AT_LEAST(3, 34)
inline constexpr const char* no_tcp_window = "network/TCP-gamma:0";
inline constexpr const char* date_precision = "precision/timing";
inline constexpr const char* work_precision = "precision/work-amount:1e-9";
inline void start(sg4::Activity& activity) {
  activity.start();
}
template <class Callback>
void on_completion(Callback callback) {
  sg4::Exec::on_completion_cb(callback);
  sg4::Comm::on_completion_cb(callback);
}
#else
inline constexpr const char* no_tcp_window = "network/TCP-gamma:1e30";
inline constexpr const char* date_precision = "surf/precision";
inline constexpr const char* work_precision = "maxmin/precision:1e-9";
inline void start(sg4::Activity& activity) {
  activity.vetoable_start();
}
template <class Callback>
void on_completion(Callback callback) {
  sg4::Activity::on_completion_cb(callback);
}
#endif

#if SIMGRID_AT_LEAST(4, 0)
inline sg4::NetZone* make_zone(const std::string& name) {
  return sg4::Engine::get_instance()->get_netzone_root()->add_netzone_star(name);
}
inline sg4::Host* make_host(sg4::NetZone& zone, const std::string& name, const std::vector<double>& speeds) {
  return zone.add_host(name, speeds);
}
inline sg4::Link* make_link(sg4::NetZone& zone, const std::string& name, double bandwidth) {
  return zone.add_link(name, bandwidth);
}
#else
inline sg4::NetZone* make_zone(const std::string& name) {
  return sg4::create_star_zone(name);
}
inline sg4::Host* make_host(sg4::NetZone& zone, const std::string& name, const std::vector<double>& speeds) {
  return zone.create_host(name, speeds);
}
inline sg4::Link* make_link(sg4::NetZone& zone, const std::string& name, double bandwidth) {
  return zone.create_link(name, std::vector<double>{bandwidth});
}
#endif

/// From the host to itself.
inline void add_loop(sg4::NetZone& zone, sg4::Host& host, const std::vector<sg4::LinkInRoute>& links) {
#if SIMGRID_AT_LEAST(3, 35)
  zone.add_route(&host, &host, links, false);
#else
  zone.add_route(host.get_netpoint(), host.get_netpoint(), nullptr, nullptr, links, false);
#endif
}

}  // namespace plimsoll
