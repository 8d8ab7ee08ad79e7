#include "platforms/platform_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "platforms/efficiency_file.h"
#include "platforms/nearest_efficiency.h"
#include "platforms/platform_draft.h"
#include "platforms/read_peak.h"
#include "sim/core/codec.h"
#include "sim/core/names.h"
#include "sim/io/fields.h"
#include "sim/io/one_of.h"
#include "sim/io/quantity.h"
#include "sim/io/reference_options.h"
#include "sim/io/shipped.h"
#include "sim/io/text_file.h"

namespace plimsoll {
namespace {

using enum Need;

constexpr ShippedFiles platform_files{"platform", "platforms", ".yaml"};
constexpr std::string_view platform_format = "plimsoll.platform.v1";

/// The value of a word of two, or a complaint.
bool second_of(const YamlCursor& c, std::string_view first, std::string_view second) {
  const std::string word = c.string();
  if (c.is_scalar() && word != first && word != second) {
    const std::string_view words[] = {first, second};
    c.complain(fmt::format("expected {} or {}, {}{}", first, second, c.found(),
                           suggestion(word, std::span<const std::string_view>(words))));
  }
  return word == second;
}

/// Factors with 0, 1, 2, ... copies in flight.
std::vector<double> read_slowdown(const YamlCursor& cursor) {
  std::vector<double> factors;
  for (const YamlCursor& element : cursor.elements()) factors.push_back(element.number(1, 1000));
  if (factors.empty()) cursor.complain("expected at least one factor, the one without copies");
  if (!factors.empty() && factors.front() != 1) {
    cursor.elements().front().complain("without copies nothing is slowed down, expected 1, " +
                                       cursor.elements().front().found());
  }
  return factors;
}

/// A rate as it is written: what its variant is called, once it is known.
struct CodecRateDraft {
  CodecRate rate;
  bool is_known = false;  ///< its codec
  bool says_unpack = false;
  std::optional<YamlCursor> bits, window, block, ranges;
};

const Field<CodecRateDraft, const YamlCursor&> codec_fields[] = {
    {"codec", required,
     [](CodecRateDraft& d, const YamlCursor& c) {
       d.rate.kind = one_of<CodecKind>(c);
       d.is_known = from_name<CodecKind>(c.string()).has_value();
     }},
    {"bits", optional, [](CodecRateDraft& d, const YamlCursor& c) { d.bits = c; }},
    {"window", optional, [](CodecRateDraft& d, const YamlCursor& c) { d.window = c; }},
    {"block", optional, [](CodecRateDraft& d, const YamlCursor& c) { d.block = c; }},
    {"ranges", optional, [](CodecRateDraft& d, const YamlCursor& c) { d.ranges = c; }},
    {"pack", required, [](CodecRateDraft& d, const YamlCursor& c) { d.rate.pack = c.bandwidth(); }},
    {"unpack", optional,
     [](CodecRateDraft& d, const YamlCursor& c) {
       d.rate.unpack = c.bandwidth();
       d.says_unpack = true;
     }},
};

/// Rates of packing, by codec and what tells codecs of its kind apart.
std::vector<CodecRate> read_codec_rates(const YamlCursor& cursor) {
  std::vector<CodecRate> rates;
  for (const YamlCursor& element : cursor.elements()) {
    CodecRateDraft draft;
    read_fields(element, codec_fields, draft);
    if (!draft.is_known) continue;
    const CodecKind kind = draft.rate.kind;
    const bool by_window = kind == CodecKind::pool, by_block = kind == CodecKind::block_sparse;
    const bool by_nothing = kind == CodecKind::zero_run || kind == CodecKind::compressed_rows ||
                            kind == CodecKind::rows || kind == CodecKind::projection;
    const auto take = [&](const std::optional<YamlCursor>& variant, bool is_its_own, const char* name) {
      if (is_its_own && !variant) element.complain(fmt::format("'{}' needs {}", written(kind), name));
      if (!is_its_own && variant) variant->complain(fmt::format("'{}' has no {}", written(kind), name));
      if (is_its_own && variant) draft.rate.variant = variant->count();
    };
    take(draft.window, by_window, "window");
    take(draft.block, by_block, "block");
    take(draft.bits, !by_window && !by_block && !by_nothing, "bits");
    const bool has_ranges = kind == CodecKind::quantize;
    if (draft.ranges && !has_ranges) draft.ranges->complain(fmt::format("'{}' has no ranges", written(kind)));
    if (has_ranges && draft.rate.variant > 32) draft.bits->complain("expected 32 bits at most, " + draft.bits->found());
    if (draft.ranges) draft.rate.variant += 256 * static_cast<std::uint32_t>(one_of<QuantizedBy>(*draft.ranges));
    const bool restores = kind != CodecKind::mask && kind != CodecKind::index && kind != CodecKind::step &&
                          kind != CodecKind::rows && kind != CodecKind::projection;
    if (restores && !draft.says_unpack) element.complain(fmt::format("'{}' needs unpack", written(kind)));
    const auto same = [&](const CodecRate& rate) { return rate.kind == kind && rate.variant == draft.rate.variant; };
    if (std::ranges::any_of(rates, same)) element.complain(fmt::format("a second rate of '{}'", written(kind)));
    rates.push_back(draft.rate);
  }
  return rates;
}

/// By the name of its file, or written out; a complaint where there is none. The nearest is found when the device has
/// been read.
std::shared_ptr<const Efficiency> read_efficiency(const YamlCursor& cursor) {
  if (cursor.is_object()) return std::make_shared<const Efficiency>(efficiency_at(cursor));
  const std::string name = cursor.string();
  if (!cursor.is_scalar() || name == nearest_word) return nullptr;
  const std::vector<std::string> shipped = shipped_efficiencies();
  if (!std::filesystem::exists(name) && std::ranges::find(shipped, name) == shipped.end()) {
    std::vector<std::string_view> known(shipped.begin(), shipped.end());
    known.emplace_back(nearest_word);
    cursor.complain(fmt::format("expected a file of efficiencies, {}{}", cursor.found(),
                                suggestion(name, std::span<const std::string_view>(known))));
    return nullptr;
  }
  return std::make_shared<const Efficiency>(load_efficiency(name));
}

const Field<DeviceKind, const YamlCursor&> device_fields[] = {
    {"name", required, [](DeviceKind& k, const YamlCursor& c) { k.device.name = c.string(); }},
    {"count", optional, [](DeviceKind& k, const YamlCursor& c) { k.count = c.count(); }},
    {"model", optional, [](DeviceKind& k, const YamlCursor& c) { k.device.model = c.string(); }},
    {"memory", required, [](DeviceKind& k, const YamlCursor& c) { k.memory = c.capacity(); }},
    {"peak", optional, [](DeviceKind& k, const YamlCursor& c) { k.device.peak = read_peak(c); }},
    {"memory_bandwidth", optional,
     [](DeviceKind& k, const YamlCursor& c) { k.device.memory_bandwidth = c.bandwidth(); }},
    {"adam", optional, [](DeviceKind& k, const YamlCursor& c) { k.device.adam = c.bandwidth(); }},
    {"launch_overhead", optional, [](DeviceKind& k, const YamlCursor& c) { k.device.launch_overhead = c.seconds(); }},
    {"host_launch", optional, [](DeviceKind& k, const YamlCursor& c) { k.device.host_launch = c.seconds(); }},
    {"overlap_slowdown", optional,
     [](DeviceKind& k, const YamlCursor& c) { k.device.overlap_slowdown = read_slowdown(c); }},
    {"memory_overlap_slowdown", optional,
     [](DeviceKind& k, const YamlCursor& c) { k.device.memory_overlap_slowdown = read_slowdown(c); }},
    {"codecs", optional, [](DeviceKind& k, const YamlCursor& c) { k.device.codec_rates = read_codec_rates(c); }},
    {"efficiency", optional,
     [](DeviceKind& k, const YamlCursor& c) {
       k.device.efficiency = read_efficiency(c);
       if (c.is_scalar() && c.string() == nearest_word) k.nearest_at = c;
     }},
    {"streams", optional, [](DeviceKind& k, const YamlCursor& c) { k.device.compute_streams = c.count(); }},
    {"host", optional, [](DeviceKind& k, const YamlCursor& c) { k.host = c; }},
    {"disk", optional, [](DeviceKind& k, const YamlCursor& c) { k.disk = c; }},
    {"times", optional,
     [](DeviceKind& k, const YamlCursor& c) { k.device.takes_trace_times = second_of(c, "scaled", "trace"); }},
};

/// Which of a memory's rates are upper bounds.
void read_bounds(Memory& memory, const YamlCursor& cursor) {
  for (const YamlCursor& element : cursor.elements()) {
    (second_of(element, "adam", "bandwidth") ? memory.bandwidth_is_bound : memory.adam_is_bound) = true;
  }
}

const Field<Memory, const YamlCursor&> memory_fields[] = {
    {"name", required, [](Memory& m, const YamlCursor& c) { m.name = c.string(); }},
    {"size", required, [](Memory& m, const YamlCursor& c) { m.capacity = c.capacity(); }},
    {"bandwidth", optional, [](Memory& m, const YamlCursor& c) { m.bandwidth = c.bandwidth(); }},
    {"adam", optional, [](Memory& m, const YamlCursor& c) { m.adam = c.bandwidth(); }},
    {"peak", optional, [](Memory& m, const YamlCursor& c) { m.peak = read_peak(c); }},
    {"bounds", optional, read_bounds},
};

const Field<SwitchKind, const YamlCursor&> switch_fields[] = {
    {"name", required, [](SwitchKind& s, const YamlCursor& c) { s.name = c.string(); }},
    {"scope", optional,
     [](SwitchKind& s, const YamlCursor& c) { s.one_for_all_nodes = second_of(c, "node", "cluster"); }},
};

const Field<LinkKind, const YamlCursor&> link_fields[] = {
    {"name", required, [](LinkKind& k, const YamlCursor& c) { k.link.name = c.string(); }},
    {"between", required,
     [](LinkKind& k, const YamlCursor& c) {
       k.between = c.elements();
       if (c.is_list() && k.between.size() != 2)
         c.complain(fmt::format("expected two ends, found {}", k.between.size()));
     }},
    {"bandwidth", required, [](LinkKind& k, const YamlCursor& c) { k.link.bandwidth = c.bandwidth(); }},
    {"back", optional,
     [](LinkKind& k, const YamlCursor& c) {
       k.link.back = c.bandwidth();
       k.back_at = c;
     }},
    {"latency", required, [](LinkKind& k, const YamlCursor& c) { k.link.latency = c.seconds(); }},
    {"duplex", optional, [](LinkKind& k, const YamlCursor& c) { k.link.full_duplex = !second_of(c, "full", "half"); }},
    {"shared_by", optional,
     [](LinkKind& k, const YamlCursor& c) {
       k.shared_by = c.count();
       k.shared_by_at = c;
     }},
};

/// A list of objects; what has a name that links refer to must not share it.
template <class Kind, class Table>
std::vector<Kind> read_kinds(const YamlCursor& cursor, const Table& table) {
  std::vector<Kind> kinds;
  for (const YamlCursor& element : cursor.elements()) read_fields(element, table, kinds.emplace_back());
  return kinds;
}

std::vector<Memory> read_memories(const YamlCursor& cursor) {
  std::vector<Memory> memories = read_kinds<Memory>(cursor, memory_fields);
  for (std::size_t m = 0; m < memories.size(); ++m) {
    const auto complain = [&](std::string_view rate) {
      cursor.elements()[m].complain(fmt::format("bounds names '{}', which is not given", rate));
    };
    if (memories[m].adam_is_bound && !memories[m].adam) complain("adam");
    if (memories[m].bandwidth_is_bound && !memories[m].bandwidth) complain("bandwidth");
  }
  return memories;
}

void remember_names(PlatformDraft& draft, const YamlCursor& cursor) {
  for (const YamlCursor& element : cursor.elements()) {
    if (!element.is_object()) continue;
    element.object([&](std::string_view key, const YamlCursor& value) {
      if (key != "name" || !value.is_scalar()) return;
      const std::string name = value.string();
      if (name.empty()) value.complain("expected a name, found nothing");
      if (!draft.names.emplace(name, value).second) value.complain(fmt::format("a second '{}'", name));
    });
  }
}

void read_format(PlatformDraft&, const YamlCursor& c) {
  const std::string format = c.string();
  if (c.is_scalar() && format != platform_format) {
    c.complain(fmt::format("expected {}, found {}", platform_format, format));
  }
}

const Field<PlatformDraft, const YamlCursor&> platform_fields[] = {
    {"format", required, read_format},
    {"name", required, [](PlatformDraft& d, const YamlCursor& c) { d.name = c.string(); }},
    {"source", required, [](PlatformDraft& d, const YamlCursor& c) { d.source = c.string(); }},
    {"nodes", optional, [](PlatformDraft& d, const YamlCursor& c) { d.nodes = c.count(); }},
    {"efficiency", optional,
     [](PlatformDraft& d, const YamlCursor& c) {
       d.efficiency = read_efficiency(c);
       if (c.is_scalar() && c.string() == nearest_word) d.nearest_at = c;
     }},
    {"devices", required,
     [](PlatformDraft& d, const YamlCursor& c) {
       d.devices = read_kinds<DeviceKind>(c, device_fields);
       if (c.is_list() && d.devices.empty()) c.complain("expected at least one device");
       remember_names(d, c);
     }},
    {"memories", optional,
     [](PlatformDraft& d, const YamlCursor& c) {
       d.memories = read_memories(c);
       remember_names(d, c);
     }},
    {"switches", optional,
     [](PlatformDraft& d, const YamlCursor& c) {
       d.switches = read_kinds<SwitchKind>(c, switch_fields);
       remember_names(d, c);
     }},
    {"links", optional, [](PlatformDraft& d, const YamlCursor& c) { d.links = read_kinds<LinkKind>(c, link_fields); }},
};

void find_nearest(DeviceKind& kind, std::string& source) {
  const std::shared_ptr<const Efficiency> found = nearest_efficiency(kind.device);
  if (!found) {
    kind.nearest_at->complain(
        fmt::format("efficiency: no table is the nearest to '{}': it has no memory_bandwidth, no peak in bf16 or fp16, "
                    "or other flops for a byte than any GPU here",
                    kind.device.name));
    return;
  }
  kind.device.efficiency = found;
  source += fmt::format("; kernels of '{}' by the efficiencies '{}', measured on the nearest, '{}'", kind.device.name,
                        found->name, found->model);
}

/// A file's own figures give way to what stands behind the colon.
void apply(const PlatformOptions& options, const YamlCursor& root, PlatformDraft& draft) {
  if (options.name.empty()) return;
  draft.name = options.name;
  draft.nodes = options.nodes.value_or(draft.nodes);
  for (DeviceKind& kind : draft.devices) {
    if (options.efficiency) kind.device.efficiency = options.efficiency;
    if (options.takes_nearest || options.efficiency) kind.nearest_at.reset();
    if (options.takes_nearest) kind.nearest_at = root;
    kind.device.host_launch = options.host_launch.value_or(kind.device.host_launch);
    if (options.memory) kind.memory = options.memory;
    if (options.bandwidth) {
      kind.device.memory_bandwidth = options.bandwidth;
      kind.device.model.clear();
    }
  }
  if (!options.network) return;
  const auto joins_nodes = [&](const YamlCursor& end) {
    const std::string name = end.string();
    return std::ranges::any_of(draft.switches,
                               [&](const SwitchKind& kind) { return kind.one_for_all_nodes && kind.name == name; });
  };
  bool is_there = false;
  for (LinkKind& kind : draft.links) {
    if (!std::ranges::any_of(kind.between, joins_nodes)) continue;
    is_there = true;
    kind.link.bandwidth = *options.network;
    kind.link.back.reset();
  }
  if (!is_there) root.complain(fmt::format("'{}': network: no link leads to a switch of all nodes", options.name));
}

/// A quantity above 0, unset where it is not given.
template <class Value, class Parse, class Format>
ReferenceOption above_zero(std::string_view name, std::optional<Value>& value, Parse parse, Format format) {
  return {name,
          [&value, parse](std::string_view text) -> std::string {
            const Parsed<Value> parsed = parse(text);
            if (parsed.fine() && !(parsed.value > Value{}))
              return fmt::format("expected more than 0, found '{}'", text);
            if (parsed.fine()) value = parsed.value;
            return parsed.complaint;
          },
          [&value, format] { return value ? format(*value) : std::string(); }};
}

}  // namespace

Platform load_platform(std::string_view reference) {
  const std::filesystem::path path = find_platform(reference);
  const PlatformOptions options = platform_options(reference);
  return parse_platform(read_text_file(path), path.string(), options);
}

PlatformOptions platform_options(std::string_view reference) {
  if (reference_name(reference) == reference) return {};
  PlatformOptions made;
  made.name = reference;
  std::string efficiency;
  std::uint32_t nodes = 0;
  const ReferenceOption options[] = {
      {"efficiency",
       [&](std::string_view text) -> std::string {
         efficiency = text;
         return text.empty() ? "expected a file of efficiencies" : "";
       },
       [&] { return efficiency; }},
      {"host_launch",
       [&](std::string_view text) -> std::string {
         const Parsed<Seconds> parsed = parse_seconds(text);
         if (parsed.fine()) made.host_launch = parsed.value;
         return parsed.complaint;
       },
       [&] { return made.host_launch ? format_seconds(*made.host_launch) : std::string(); }},
      whole_option("nodes", nodes, 1, 100'000),
      above_zero("network", made.network, parse_bandwidth, format_bandwidth),
      above_zero("memory", made.memory, parse_bytes, format_bytes),
      above_zero("memory_bandwidth", made.bandwidth, parse_bandwidth, format_bandwidth)};
  set_reference_options(reference, options);
  made.takes_nearest = efficiency == nearest_word;
  if (!efficiency.empty() && !made.takes_nearest) {
    made.efficiency = std::make_shared<const Efficiency>(load_efficiency(efficiency, nearest_word));
  }
  if (nodes > 0) made.nodes = nodes;
  return made;
}

Platform read_platform(const std::filesystem::path& path) {
  return parse_platform(read_text_file(path), path.string());
}

Platform parse_platform(const std::string& text, std::string file_name, const PlatformOptions& options) {
  YamlDocument document(text, std::move(file_name));
  PlatformDraft draft;
  read_fields(document.root(), platform_fields, draft);
  for (DeviceKind& kind : draft.devices) {
    if (kind.device.efficiency || kind.nearest_at) continue;  // their own
    kind.device.efficiency = draft.efficiency;
    kind.nearest_at = draft.nearest_at;
  }
  apply(options, document.root(), draft);
  for (DeviceKind& kind : draft.devices) {
    if (kind.nearest_at) find_nearest(kind, draft.source);
    kind.device.efficiency =
        lent_to(kind.device, std::dynamic_pointer_cast<const Efficiency>(std::move(kind.device.efficiency)));
  }
  document.throw_if_any();  // links are expanded between ends that are known to be sound
  Platform platform = expand(document.root(), draft);
  document.throw_if_any();
  return platform;
}

std::filesystem::path find_platform(std::string_view reference) {
  return find_file(reference_name(reference), platform_files);
}

std::vector<std::string> shipped_platforms() {
  return shipped_names(platform_files);
}

}  // namespace plimsoll
