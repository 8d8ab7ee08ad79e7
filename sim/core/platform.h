#pragma once
// The machine: devices with their memories, other memories (host, disk), switches, and the links between them.
// Every device and link of a platform file is expanded here to its instances.

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/ids.h"
#include "sim/core/places.h"
#include "sim/core/units.h"

namespace plimsoll {

enum class CodecKind : std::uint8_t;  // codec.h
class KernelTimes;                    // scaling.h

/// How fast a device packs and unpacks, as measured: bytes of the tensor, not of its packed form.
struct CodecRate {
  CodecKind kind{};
  std::uint32_t variant = 0;  ///< variant_of(codec)
  BytesPerSecond pack, unpack;
};

struct Device {
  std::string name;   ///< "gpu" or, with a count above one, "gpu0", "gpu1", ...
  std::string model;  ///< hardware name; a trace measured on it keeps its times
  MemoryId memory;    ///< the device's own memory
  std::uint32_t node = 0;
  std::optional<MemoryId> host, disk;          ///< named by the platform file; unset: RouteFinder::memory_at finds them
  std::map<std::string, FlopsPerSecond> peak;  ///< by dtype
  std::optional<BytesPerSecond> memory_bandwidth;
  Seconds launch_overhead;
  Seconds host_launch;  ///< that its host takes to issue one kernel, ahead of the device; 0: hosts hold nothing up
  std::vector<double> overlap_slowdown{1.0};    ///< kernel slow-down with 0, 1, 2, ... copies in flight on this device
  std::vector<double> memory_overlap_slowdown;  ///< of kernels that its memory bounds; empty: as the others
  std::uint32_t compute_streams = 1;
  bool takes_trace_times = false;      ///< `ideal`: every duration is the trace's, whatever it was measured on
  std::vector<CodecRate> codec_rates;  ///< measured; a codec of no kind in it takes the time of what it moves
  std::optional<BytesPerSecond> adam;  ///< bytes of parameters that Adam updates per second; unset: by what it moves
  std::shared_ptr<const KernelTimes>
      efficiency;  ///< of its kernels, shared by all instances; unset: times are rooflines
};

struct Memory {
  std::string name;
  std::optional<Bytes> capacity;   ///< unset: unlimited
  std::optional<DeviceId> device;  ///< whose memory this is; unset for host and disk
  std::uint32_t node = 0;
  std::optional<BytesPerSecond> bandwidth;     ///< of reads and writes together
  std::optional<BytesPerSecond> adam;          ///< bytes of parameters that Adam updates per second on the whole host
  std::map<std::string, FlopsPerSecond> peak;  ///< of the host's processor, by dtype
  bool bandwidth_is_bound = false;             ///< the bandwidth is an upper bound from a data sheet, not measured
  bool adam_is_bound = false;
};

/// Bytes of memory traffic of Adam for each byte of parameters: it reads parameter, gradient and two states, and writes
/// all of them but the gradient.
inline constexpr double adam_moves = 7;

/// Operations a second in this type; nothing where the device states none.
std::optional<FlopsPerSecond> peak_of(const Device&, std::string_view dtype);

/// Bytes per second that a host's processor moves in this memory while it updates parameters: the traffic of its `adam`
/// rate, at most the memory's bandwidth. Unset without `adam`. Updates that run at the same time share it.
std::optional<BytesPerSecond> update_traffic(const Memory&);

/// Bytes per second that a device moves in its memory while it updates parameters: the traffic of its `adam` rate, else
/// its memory's bandwidth.
std::optional<BytesPerSecond> update_traffic(const Device&);

/// A vertex of the topology: a memory or a switch.
struct Vertex {
  std::optional<MemoryId> memory;  ///< unset: a switch
  std::string name;
};

struct Link {
  std::string name;
  std::uint32_t from = 0, to = 0;  ///< indices of vertices; `from` to `to` is "up"
  BytesPerSecond bandwidth;
  Seconds latency;
  bool full_duplex = true;                  ///< each direction has the whole bandwidth; else both share it
  std::optional<BytesPerSecond> back = {};  ///< "down", where it differs; of full-duplex links only
};

/// In one direction.
BytesPerSecond bandwidth_of(const Link&, bool down);

struct LinkUse {
  LinkId link;
  bool down = false;
};

/// The way from one memory to another. Latencies add up. A lone flow is bounded by the slowest link, and by the
/// bandwidth of the memories at the ends that belong to no device.
struct Route {
  MemoryId from, to;
  std::vector<LinkUse> links;
  Seconds latency;
  BytesPerSecond bandwidth = unlimited_bandwidth;  ///< of a lone flow
};

/// The bandwidth that copies to and from this memory share, both directions together; unlimited for a device's memory.
BytesPerSecond copy_bandwidth(const Memory&);

struct Platform {
  std::string name, source;
  std::vector<Device> devices;
  std::vector<Memory> memories;
  std::vector<Vertex> vertices;  ///< vertex i < memories.size() is memory i
  std::vector<Link> links;

  const Device& operator[](DeviceId id) const { return devices[id.index]; }
  const Memory& operator[](MemoryId id) const { return memories[id.index]; }
  const Link& operator[](LinkId id) const { return links[id.index]; }
};

/// Finds many routes on one platform: what they have in common is prepared once.
class RouteFinder {
 public:
  explicit RouteFinder(const Platform&);

  /// As route_between.
  std::optional<Route> between(MemoryId from, MemoryId to);
  /// The memory that a place means for a device; nothing if there is none. If the platform file does not name them:
  ///  - the host: of the memories that belong to no device, the one nearest to the device by links;
  ///  - the disk: of the memories that are neither a device's nor a host's, the one nearest to the host by links.
  /// Of equally near ones the first by index.
  std::optional<MemoryId> memory_at(DeviceId, MemoryId place);

 private:
  std::optional<MemoryId> host_of(DeviceId);
  std::optional<MemoryId> disk_of(DeviceId);
  template <class IsGoal>
  std::optional<std::uint32_t> search(std::uint32_t start, IsGoal is_goal);

  const Platform& platform_;
  std::vector<std::vector<LinkUse>> links_of_;  ///< per vertex, in the order of the links
  std::vector<LinkUse> by_;                     ///< per vertex: the link by which the search came
  std::vector<std::uint32_t> seen_;             ///< per vertex: the last search that reached it
  std::vector<std::uint32_t> order_;
  std::uint32_t search_ = 0;
};

/// The route with the fewest links (ties: the links named first), or nothing where there is none.
std::optional<Route> route_between(const Platform&, MemoryId from, MemoryId to);

/// As RouteFinder::memory_at.
std::optional<MemoryId> memory_at(const Platform&, DeviceId, MemoryId place);

}  // namespace plimsoll
