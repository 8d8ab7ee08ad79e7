#include "experiments/export/addresses_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/core/expects.h"
#include "sim/judge/workspace_memories.h"

namespace plimsoll {
namespace {

/// Of a schedule of hundreds of steps within a second or so.
constexpr OffsetSearch long_search{.most_buffers = 2'000, .nodes = 20'000};

Json place_json(const char* what, std::size_t number, const std::string& memory, Bytes offset, Bytes bytes) {
  return {{what, number}, {"memory", memory}, {"offset_bytes", offset.count}, {"bytes", bytes.count}};
}

}  // namespace

Addresses judged_addresses(const Schedule& schedule, const Platform& platform) {
  Addresses addresses = plan_addresses(schedule, platform, long_search);
  if (const std::optional<WrongAddress> wrong = wrong_address(schedule, platform, addresses)) {
    throw BrokenPromise("addresses: " + wrong->what);
  }
  return addresses;
}

void write_addresses(const std::filesystem::path& path, const Schedule& schedule, const Platform& platform,
                     const Addresses& addresses, std::string_view made_by) {
  Json json{{"format", addresses_format},    {"made_by", made_by},
            {"trace", schedule.trace},       {"platform", schedule.platform},
            {"strategy", schedule.strategy}, {"blocks", blocks_json(platform, addresses)},
            {"buffers", Json::array()},      {"workspaces", Json::array()}};
  for (std::size_t b = 0; b < schedule.buffers.size(); ++b) {
    const Buffer& buffer = schedule.buffers[b];
    const std::optional<Bytes>& at = addresses.of_buffer[b];
    if (at) json["buffers"].push_back(place_json("buffer", b, platform[buffer.memory].name, *at, buffer.bytes));
  }
  const std::vector<MemoryId> memories = workspace_memories(schedule, platform);
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const Step& step = schedule.steps[s];
    const std::optional<Bytes>& at = addresses.of_workspace[s];
    if (!at) continue;
    json["workspaces"].push_back(
        place_json("step", s, platform[memories[step.stream.index]].name, *at, step.workspace));
  }
  write_json_file(path, json);
}

Json blocks_json(const Platform& platform, const Addresses& addresses) {
  Json blocks = Json::array();
  for (const AddressBlock& block : addresses.blocks) {
    blocks.push_back({{"memory", platform[block.memory].name},
                      {"bytes", block.size.count},
                      {"load_bytes", block.load.count},
                      {"smallest", block.is_optimal}});
  }
  return blocks;
}

std::string largest_block(const Addresses& addresses) {
  const AddressBlock& most = std::ranges::max(addresses.blocks, {}, &AddressBlock::size);
  return fmt::format("the largest block has {} B, of which {} B are live at once{}", most.size.count, most.load.count,
                     most.is_optimal ? "; none is smaller" : "");
}

std::string beyond_block(const Schedule& schedule, const Platform& platform, const Addresses& addresses) {
  for (const AddressBlock& block : addresses.blocks) {
    const std::optional<Bytes> limit = schedule.budget ? schedule.budget : platform[block.memory].capacity;
    if (!limit || block.size <= *limit) continue;
    return fmt::format("its addresses take {} B of {}, above {} B", block.size.count, platform[block.memory].name,
                       limit->count);
  }
  return {};
}

}  // namespace plimsoll
