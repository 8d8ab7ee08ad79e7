#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "experiments/export/memory_snapshot.h"
#include "experiments/export/snapshot_names.h"
#include "sim/io/input_error.h"
#include "sim/io/pickle.h"
#include "sim/io/quantity.h"
#include "sim/io/text_file.h"

namespace plimsoll {
namespace {

std::string_view kind_name(PickleKind kind) {
  constexpr std::array<std::string_view, 7> names{"None",   "a boolean", "a whole number", "a number",
                                                  "a text", "a list",    "a dictionary"};
  return names[static_cast<std::size_t>(kind)];
}

class SnapshotReader {
 public:
  SnapshotReader(const Pickle& pickle, const std::string& file) : pickle_(pickle), file_(file) {}

  MemorySnapshot read() {
    MemorySnapshot snapshot;
    expect(pickle_.root(), PickleKind::dictionary, "");
    const PickleId segments = value(pickle_.root(), "segments", PickleKind::list, "");
    for (std::size_t s = 0; s < pickle_.list(segments).size(); ++s) {
      snapshot.segments.push_back(segment(pickle_.list(segments)[s], fmt::format("segments[{}]", s)));
    }
    const PickleId traces = value(pickle_.root(), "device_traces", PickleKind::list, "");
    for (std::size_t d = 0; d < pickle_.list(traces).size(); ++d) {
      const std::string where = fmt::format("device_traces[{}]", d);
      const PickleId trace = pickle_.list(traces)[d];
      expect(trace, PickleKind::list, where);
      std::vector<SnapshotEvent>& events = snapshot.traces.emplace_back();
      for (std::size_t e = 0; e < pickle_.list(trace).size(); ++e) {
        std::optional<SnapshotEvent> read = event(pickle_.list(trace)[e], where, e);
        if (read) events.push_back(*read);
      }
    }
    const PickleId settings = pickle_.find(pickle_.root(), "allocator_settings");
    if (settings != pickle_.root()) snapshot.settings = settings_of(settings);
    return snapshot;
  }

 private:
  [[noreturn]] void fail(const std::string& key, std::string_view what) const {
    throw InputError(located(file_, {}, key, what));
  }

  /// A list may stand at several places of a pickle, so that a small file could ask for endless work.
  void count() {
    if (++visited_ > pickle_.bytes()) fail("", "has more entries than bytes, as no snapshot has");
  }

  static std::string joined(const std::string& where, std::string_view key) {
    return where.empty() ? std::string(key) : fmt::format("{}.{}", where, key);
  }

  void expect(PickleId id, PickleKind kind, const std::string& where) const {
    if (pickle_.kind(id) == kind) return;
    fail(where, fmt::format("expected {}, found {}", kind_name(kind), kind_name(pickle_.kind(id))));
  }

  PickleId value(PickleId dictionary, std::string_view key, PickleKind kind, const std::string& where) const {
    const PickleId found = pickle_.find(dictionary, key);
    if (found == dictionary) fail(joined(where, key), "missing key");
    if (pickle_.kind(found) != kind) expect(found, kind, joined(where, key));
    return found;
  }

  std::int64_t integer(PickleId dictionary, std::string_view key, const std::string& where) const {
    return pickle_.integer(value(dictionary, key, PickleKind::integer, where));
  }
  Bytes size(PickleId dictionary, std::string_view key, const std::string& where) const {
    const std::int64_t count = integer(dictionary, key, where);
    if (count < 0 || Bytes{count} > largest_bytes) {
      fail(joined(where, key), fmt::format("expected bytes, at most 4 PiB, found {}", count));
    }
    return {count};
  }

  template <class Value, std::size_t n>
  Value one_of_names(const std::array<std::pair<Value, std::string_view>, n>& names, PickleId id,
                     const std::string& key) const {
    const std::string_view word = pickle_.text(id);
    std::vector<std::string_view> known;
    for (const auto& [value, name] : names) {
      if (name == word) return value;
      known.push_back(name);
    }
    fail(key, fmt::format("expected {}, found '{}'{}", alternatives(known), word, suggestion(word, known)));
  }

  SnapshotSegment segment(PickleId id, const std::string& where) {
    count();
    expect(id, PickleKind::dictionary, where);
    SnapshotSegment segment;
    const std::int64_t device = integer(id, "device", where);
    if (device < 0 || device > 1023)
      fail(joined(where, "device"), fmt::format("expected a device from 0 to 1023, found {}", device));
    segment.device = static_cast<std::uint32_t>(device);
    segment.address = integer(id, "address", where);
    segment.stream = integer(id, "stream", where);
    segment.total = size(id, "total_size", where);
    segment.small = pickle_.text(value(id, "segment_type", PickleKind::text, where)) == "small";
    segment.pool = pool_of(id, where);
    const PickleId expandable = pickle_.find(id, "is_expandable");
    segment.expandable =
        expandable != id && pickle_.kind(expandable) == PickleKind::boolean && pickle_.integer(expandable) != 0;
    const PickleId blocks = value(id, "blocks", PickleKind::list, where);
    std::int64_t address = segment.address;
    for (std::size_t b = 0; b < pickle_.list(blocks).size(); ++b) {
      const std::string place = fmt::format("{}.blocks[{}]", where, b);
      segment.blocks.push_back(block(pickle_.list(blocks)[b], address, place));
      const Bytes bytes = segment.blocks.back().size;
      if (address > std::numeric_limits<std::int64_t>::max() - bytes.count) fail(place, "ends beyond all addresses");
      address += bytes.count;
    }
    return segment;
  }

  /// Older snapshots do not say.
  SnapshotPool pool_of(PickleId segment, const std::string& where) const {
    if (pickle_.find(segment, "segment_pool_id") == segment) return {};
    const PickleId id = value(segment, "segment_pool_id", PickleKind::list, where);
    const std::vector<PickleId>& numbers = pickle_.list(id);
    const auto is_whole = [&](PickleId n) { return pickle_.kind(n) == PickleKind::integer; };
    if (numbers.size() != 2 || !std::ranges::all_of(numbers, is_whole)) {
      fail(joined(where, "segment_pool_id"), "expected two whole numbers");
    }
    return {pickle_.integer(numbers[0]), pickle_.integer(numbers[1])};
  }

  /// Blocks follow each other from the segment's address on; older snapshots do not repeat it.
  SnapshotBlock block(PickleId id, std::int64_t address, const std::string& where) {
    count();
    expect(id, PickleKind::dictionary, where);
    SnapshotBlock block{.address = address, .size = size(id, "size", where)};
    block.requested = pickle_.find(id, "requested_size") == id ? block.size : size(id, "requested_size", where);
    block.state =
        one_of_names(snapshot_block_states, value(id, "state", PickleKind::text, where), joined(where, "state"));
    return block;
  }

  /// Nothing for what is no event of memory.
  std::optional<SnapshotEvent> event(PickleId id, const std::string& trace, std::size_t number) {
    count();
    if (pickle_.kind(id) != PickleKind::dictionary)
      expect(id, PickleKind::dictionary, fmt::format("{}[{}]", trace, number));
    const PickleId action = pickle_.find(id, "action");
    if (action != id && pickle_.kind(action) == PickleKind::text && pickle_.text(action) == "snapshot")
      return std::nullopt;
    const std::string where = fmt::format("{}[{}]", trace, number);
    SnapshotEvent event;
    event.action = one_of_names(snapshot_actions, value(id, "action", PickleKind::text, where), where + ".action");
    event.size = size(id, "size", where);
    event.stream = integer(id, "stream", where);
    if (event.action != AllocatorAction::oom) event.address = integer(id, "addr", where);
    return event;
  }

  /// What is not there, or not as expected, is PyTorch's default.
  CachingSettings settings_of(PickleId id) const {
    expect(id, PickleKind::dictionary, "allocator_settings");
    CachingSettings settings;
    const auto find = [&](std::string_view key, PickleKind kind) -> std::optional<PickleId> {
      const PickleId found = pickle_.find(id, key);
      return found == id || pickle_.kind(found) != kind ? std::nullopt : std::optional(found);
    };
    if (const auto expandable = find("expandable_segments", PickleKind::boolean)) {
      settings.segments = pickle_.integer(*expandable) != 0 ? Segments::expandable : Segments::native;
    }
    if (const auto max_split = find("max_split_size", PickleKind::integer)) {
      const std::int64_t bytes = pickle_.integer(*max_split);
      if (bytes > 0 && Bytes{bytes} <= largest_bytes) settings.max_split = Bytes{bytes};
    }
    if (const auto roundup = find("roundup_power2_divisions", PickleKind::dictionary)) {
      const std::vector<PickleId>& pairs = pickle_.dictionary(*roundup);
      for (std::size_t p = 0; p + 1 < pairs.size(); p += 2) {
        if (pickle_.kind(pairs[p]) != PickleKind::text || pickle_.kind(pairs[p + 1]) != PickleKind::integer) continue;
        const Parsed<std::int64_t> mebibytes = parse_integer(pickle_.text(pairs[p]));
        const std::int64_t divisions = pickle_.integer(pairs[p + 1]);
        if (!mebibytes.fine() || mebibytes.value < 1 || divisions < 0 || divisions > 64) continue;
        const auto power = static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(mebibytes.value))) - 1;
        if (power < settings.roundup.size()) settings.roundup[power] = static_cast<std::uint32_t>(divisions);
      }
    }
    return settings;
  }

  const Pickle& pickle_;
  const std::string& file_;
  std::size_t visited_ = 0;
};

}  // namespace

MemorySnapshot read_memory_snapshot(const std::string& file) {
  const Pickle pickle(read_text_file(file), file);
  return SnapshotReader(pickle, file).read();
}

}  // namespace plimsoll
