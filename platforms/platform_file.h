#pragma once
// Platform files: YAML text -> Platform. The format is described key by key in platforms/README.md.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/platform.h"

namespace plimsoll {

/// What `--platform` takes: a path or the name of a shipped platform, perhaps with options (platform_options).
Platform load_platform(std::string_view reference);

/// What stands behind the colon of `a100_sxm_64:efficiency=a100_sxm,nodes=16,network=12.5 GBps,memory=40 GB`.
struct PlatformOptions {
  std::string name;                               ///< the whole reference; empty: there is no colon
  std::shared_ptr<const KernelTimes> efficiency;  ///< of all devices; null: the file's own
  bool takes_nearest = false;                     ///< each device those of the nearest measured GPU
  std::optional<Seconds> host_launch;             ///< of all devices, instead of the file\'s
  std::optional<Bytes> memory;                    ///< likewise
  std::optional<BytesPerSecond> bandwidth;        ///< of their memories; times measured on the file's model do not hold
  std::optional<std::uint32_t> nodes;             ///< instead of the file's
  std::optional<BytesPerSecond> network;          ///< of each link to a switch of all nodes
};

/// Throws InputError for what is no option, and for a file of efficiencies that is not there.
PlatformOptions platform_options(std::string_view reference);

Platform read_platform(const std::filesystem::path&);
Platform parse_platform(const std::string& text, std::string file_name, const PlatformOptions& = {});

/// The file that a path or a shipped name means, without options; throws where there is none.
std::filesystem::path find_platform(std::string_view reference);
std::vector<std::string> shipped_platforms();

}  // namespace plimsoll
