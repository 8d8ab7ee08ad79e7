#pragma once
// A platform file as it is written: kinds of devices, memories, switches and links, each with how often it exists.
// `expand` turns kinds into instances.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/platform.h"
#include "sim/io/yaml_document.h"

namespace plimsoll {

struct DeviceKind {
  Device device;
  std::optional<Bytes> memory;
  std::uint32_t count = 1;
  std::optional<YamlCursor> host, disk;  ///< names of memories, or of devices that have one
  std::optional<YamlCursor> nearest_at;  ///< where the nearest efficiencies were asked for
};

struct SwitchKind {
  std::string name;
  bool one_for_all_nodes = false;
};

struct LinkKind {
  Link link;
  std::vector<YamlCursor> between;
  std::uint32_t shared_by = 1;
  std::optional<YamlCursor> shared_by_at, back_at;
};

struct PlatformDraft {
  std::string name, source;
  std::uint32_t nodes = 1;
  std::vector<DeviceKind> devices;
  std::vector<Memory> memories;
  std::vector<SwitchKind> switches;
  std::vector<LinkKind> links;
  std::shared_ptr<const KernelTimes> efficiency;  ///< of devices without their own
  std::optional<YamlCursor> nearest_at;           ///< where the nearest efficiencies were asked for
  std::map<std::string, YamlCursor> names;        ///< of devices, memories and switches: where each was given
};

/// The instances; complains, at `root` or where the fault is, about what cannot be expanded.
Platform expand(const YamlCursor& root, const PlatformDraft&);

}  // namespace plimsoll
