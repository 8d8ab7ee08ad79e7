#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "experiments/export/addresses_file.h"
#include "sim/io/fields.h"
#include "sim/io/json/json_cursor.h"
#include "sim/io/text_file.h"
#include "sim/judge/workspace_memories.h"

namespace plimsoll {
namespace {

using enum Need;

struct BlockDraft {
  std::string memory;
  Bytes size, load;
  bool is_smallest = false;
};

struct PlaceDraft {
  std::uint32_t number = 0;
  std::string memory;
  Bytes offset, bytes;
};

struct AddressesDraft {
  std::string trace, platform, strategy;
  std::vector<BlockDraft> blocks;
  std::vector<PlaceDraft> buffers, workspaces;
};

const Field<BlockDraft, JsonCursor> block_fields[] = {
    {"memory", required, [](BlockDraft& d, JsonCursor c) { d.memory = c.string(); }},
    {"bytes", required, [](BlockDraft& d, JsonCursor c) { d.size = c.bytes(); }},
    {"load_bytes", required, [](BlockDraft& d, JsonCursor c) { d.load = c.bytes(); }},
    {"smallest", required, [](BlockDraft& d, JsonCursor c) { d.is_smallest = c.boolean(); }},
};

/// Offsets do not add up to anything, so they are plain numbers.
void read_offset(PlaceDraft& draft, JsonCursor c) {
  draft.offset = Bytes{c.integer()};
  if (draft.offset < Bytes{0} || draft.offset > largest_bytes)
    c.complain("expected an offset in a block, " + c.found());
}

const Field<PlaceDraft, JsonCursor> buffer_place_fields[] = {
    {"buffer", required, [](PlaceDraft& d, JsonCursor c) { d.number = c.index(); }},
    {"memory", required, [](PlaceDraft& d, JsonCursor c) { d.memory = c.string(); }},
    {"offset_bytes", required, read_offset},
    {"bytes", required, [](PlaceDraft& d, JsonCursor c) { d.bytes = Bytes{c.integer()}; }},
};

const Field<PlaceDraft, JsonCursor> workspace_place_fields[] = {
    {"step", required, [](PlaceDraft& d, JsonCursor c) { d.number = c.index(); }},
    {"memory", required, [](PlaceDraft& d, JsonCursor c) { d.memory = c.string(); }},
    {"offset_bytes", required, read_offset},
    {"bytes", required, [](PlaceDraft& d, JsonCursor c) { d.bytes = Bytes{c.integer()}; }},
};

template <class Element, class Table>
void read_objects(JsonCursor c, const Table& table, std::vector<Element>& list) {
  c.array([&](JsonCursor element) { read_fields(element, table, list.emplace_back()); });
}

const Field<AddressesDraft, JsonCursor> addresses_fields[] = {
    {"format", required, [](AddressesDraft&, JsonCursor c) { static_cast<void>(c.string()); }},
    {"made_by", optional, [](AddressesDraft&, JsonCursor c) { static_cast<void>(c.string()); }},
    {"trace", required, [](AddressesDraft& d, JsonCursor c) { d.trace = c.string(); }},
    {"platform", required, [](AddressesDraft& d, JsonCursor c) { d.platform = c.string(); }},
    {"strategy", required, [](AddressesDraft& d, JsonCursor c) { d.strategy = c.string(); }},
    {"blocks", required, [](AddressesDraft& d, JsonCursor c) { read_objects(c, block_fields, d.blocks); }},
    {"buffers", required, [](AddressesDraft& d, JsonCursor c) { read_objects(c, buffer_place_fields, d.buffers); }},
    {"workspaces", required,
     [](AddressesDraft& d, JsonCursor c) { read_objects(c, workspace_place_fields, d.workspaces); }},
};

/// What an address is of, by the schedule.
struct Owner {
  MemoryId memory;
  Bytes bytes;
};

/// A draft against its schedule.
class AddressesReading {
 public:
  AddressesReading(JsonDocument& document, const AddressesDraft& draft, const Schedule& schedule,
                   const Platform& platform)
      : document_(document), draft_(draft), schedule_(schedule), platform_(platform) {}

  Addresses addresses() {
    same("trace", draft_.trace, schedule_.trace);
    same("platform", draft_.platform, schedule_.platform);
    same("strategy", draft_.strategy, schedule_.strategy);
    document_.throw_if_any();
    Addresses made{.blocks = blocks(), .of_buffer = {}, .of_workspace = {}};
    std::vector<Owner> buffers, workspaces;
    for (const Buffer& buffer : schedule_.buffers) buffers.push_back({buffer.memory, buffer.bytes});
    const std::vector<MemoryId> memories = workspace_memories(schedule_, platform_);
    for (const Step& step : schedule_.steps) workspaces.push_back({memories[step.stream.index], step.workspace});
    made.of_buffer = offsets("buffers", "buffer", draft_.buffers, buffers);
    made.of_workspace = offsets("workspaces", "step", draft_.workspaces, workspaces);
    document_.throw_if_any();
    if (const std::optional<WrongAddress> wrong = wrong_address(schedule_, platform_, made)) complain(*wrong);
    document_.throw_if_any();
    return made;
  }

 private:
  void same(std::string_view key, const std::string& here, const std::string& of_schedule) {
    if (here == of_schedule) return;
    document_.complain(key, fmt::format("addresses of '{}', the schedule has '{}'", here, of_schedule));
  }

  std::vector<AddressBlock> blocks() {
    std::vector<AddressBlock> made;
    for (const Device& device : platform_.devices) {
      const std::string& name = platform_[device.memory].name;
      const auto found = std::ranges::find(draft_.blocks, name, &BlockDraft::memory);
      if (found == draft_.blocks.end()) {
        document_.complain("blocks", fmt::format("no block of '{}'", name));
        continue;
      }
      made.push_back({device.memory, found->size, found->load, found->is_smallest});
    }
    if (draft_.blocks.size() > platform_.devices.size()) {
      document_.complain("blocks", fmt::format("expected one of each of {} devices, found {}", platform_.devices.size(),
                                               draft_.blocks.size()));
    }
    return made;
  }

  std::vector<std::optional<Bytes>> offsets(std::string_view list, std::string_view key,
                                            const std::vector<PlaceDraft>& places, const std::vector<Owner>& owners) {
    std::vector<std::optional<Bytes>> made(owners.size());
    for (std::size_t p = 0; p < places.size(); ++p) {
      const PlaceDraft& place = places[p];
      if (place.number >= owners.size()) {
        document_.complain(below(list, p, key),
                           fmt::format("expected below {}, found {}", owners.size(), place.number));
        continue;
      }
      const auto& [memory, bytes] = owners[place.number];
      if (made[place.number]) document_.complain(below(list, p, key), fmt::format("{} again", place.number));
      if (platform_[memory].name != place.memory) {
        document_.complain(below(list, p, "memory"),
                           fmt::format("expected '{}', in which the schedule has it, found '{}'",
                                       platform_[memory].name, place.memory));
      }
      if (bytes != place.bytes) {
        document_.complain(below(list, p, "bytes"), fmt::format("expected {}, as the schedule has it, found {}",
                                                                bytes.count, place.bytes.count));
      }
      made[place.number] = place.offset;
    }
    return made;
  }

  /// At the address; where there is none, at the list.
  void complain(const WrongAddress& wrong) {
    const bool is_buffer = wrong.buffer.has_value();
    const std::vector<PlaceDraft>& places = is_buffer ? draft_.buffers : draft_.workspaces;
    const std::string_view list = is_buffer ? "buffers" : "workspaces";
    const std::uint32_t number = is_buffer ? wrong.buffer->index : wrong.step->index;
    const auto found = std::ranges::find(places, number, &PlaceDraft::number);
    const auto at = static_cast<std::size_t>(found - places.begin());
    document_.complain(found == places.end() ? std::string(list) : below(list, at, "offset_bytes"), wrong.what);
  }

  JsonDocument& document_;
  const AddressesDraft& draft_;
  const Schedule& schedule_;
  const Platform& platform_;
};

}  // namespace

Addresses read_addresses(const std::filesystem::path& path, const Schedule& schedule, const Platform& platform) {
  JsonDocument document(read_text_file(path), path.string());
  if (const std::optional<std::string> format = document.peek_string("format"); format != addresses_format) {
    document.complain("format", fmt::format("expected {}, found {}", addresses_format,
                                            format ? "'" + *format + "'" : std::string("nothing")));
    document.throw_if_any();
  }
  AddressesDraft draft;
  document.read([&](JsonCursor root) { read_fields(root, addresses_fields, draft); });
  return AddressesReading(document, draft, schedule, platform).addresses();
}

}  // namespace plimsoll
