#include "sim/engine/simgrid/late/simgrid_star.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

namespace plimsoll {
namespace {

double byte_scale_of(const Program& program) {
  double most = 1;
  for (const ProgramStep& step : program.steps) most = std::max(most, step.bytes);
  return std::exp2(std::floor(62 - std::log2(most)));
}

/// Whether its kernels' speed ever changes.
bool is_slowed_down(const Program& program, std::uint32_t device) {
  const std::span<const double> speeds = program.speeds_of(device);
  return std::ranges::any_of(speeds, [&](double speed) { return speed != speeds.front(); });
}

/// All that a star is made of, one behind the other.
std::vector<double> shape_of(const Program& program) {
  std::vector<double> shape;
  const auto put = [&](const auto& list, auto value) {
    shape.push_back(static_cast<double>(list.size()));
    for (const auto& each : list) shape.push_back(static_cast<double>(value(each)));
  };
  const auto itself = [](auto value) { return value; };
  put(program.devices, [](const ProgramDevice& device) { return device.first_speed; });
  put(program.devices, [](const ProgramDevice& device) { return device.kernel_streams; });
  put(program.speeds, itself);
  put(program.links, itself);
  put(program.routes, [](const ProgramRoute& route) { return route.first_link; });
  put(program.route_links, itself);
  return shape;
}

}  // namespace

SimgridStar::SimgridStar(const Program& program)
    : shape_(shape_of(program)), byte_scale_(byte_scale_of(program)), zone_(make_zone("platform")) {
  for (std::uint32_t d = 0; d + 1 < program.devices.size(); ++d) add_device(program, d);
  std::vector<sg4::Link*> links;
  for (const double bandwidth : program.links) {
    links.push_back(make_link(*zone_, "link" + std::to_string(links.size()), byte_scale_ * bandwidth)->seal());
  }
  for (std::uint32_t r = 0; r + 1 < program.routes.size(); ++r) add_route(program, r, links);
  zone_->seal();
  sg4::Engine::get_instance()->seal_platform();
}

bool SimgridStar::is_of(const Program& program) const {
  return byte_scale_ == byte_scale_of(program) && shape_ == shape_of(program);
}

/// Speed 1 means that flops are seconds; the other levels are pstates. One core a stream.
void SimgridStar::add_device(const Program& program, std::uint32_t device) {
  kernels_.push_back(nullptr);
  const std::uint32_t cores = program.devices[device].kernel_streams;
  if (cores == 0 || !is_slowed_down(program, device)) return;
  const std::span<const double> speeds = program.speeds_of(device);
  kernels_.back() = make_host(*zone_, "kernels" + std::to_string(device), {speeds.begin(), speeds.end()});
  kernels_.back()->set_core_count(static_cast<int>(cores));
  kernels_.back()->seal();
}

void SimgridStar::add_route(const Program& program, std::uint32_t route, const std::vector<sg4::Link*>& links) {
  std::vector<sg4::LinkInRoute> crossed;
  for (const std::uint32_t link : program.links_of(route)) crossed.emplace_back(links[link]);
  if (crossed.empty()) {
    routes_.push_back(nullptr);
    return;
  }
  routes_.push_back(make_host(*zone_, "route" + std::to_string(route), {1.0}));
  add_loop(*zone_, *routes_.back(), crossed);
}

}  // namespace plimsoll
