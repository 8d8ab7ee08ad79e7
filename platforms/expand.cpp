// Kinds become instances: names get numbers, links get their two vertices, and what several devices share gets a
// switch.

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "platforms/platform_draft.h"

namespace plimsoll {
namespace {

constexpr std::size_t most_devices = 100'000, most_links = 4'000'000;

/// Vertices of one kind of end in one node.
struct End {
  std::vector<std::uint32_t> vertices;
  bool is_device = false;
};

class Expansion {
 public:
  Expansion(const YamlCursor& root, const PlatformDraft& draft) : root_(root), draft_(draft) {}

  Platform make() {
    platform_.name = draft_.name;
    platform_.source = draft_.source;
    if (!sizes_are_sane()) return {};
    add_devices();
    add_memories();
    for (std::size_t i = 0; i < platform_.memories.size(); ++i) {
      platform_.vertices.push_back({id_at<MemoryId>(i), platform_.memories[i].name});
    }
    add_switches();
    check_names();
    for (const LinkKind& kind : draft_.links) add_links(kind);
    find_stated_places();
    return std::move(platform_);
  }

 private:
  bool sizes_are_sane() {
    std::size_t devices = 0;
    for (const DeviceKind& kind : draft_.devices) devices += std::size_t{kind.count} * draft_.nodes;
    if (devices <= most_devices) return true;
    root_.complain(fmt::format("{} devices, expected at most {}", devices, most_devices));
    return false;
  }

  /// `gpu`, or `gpu3` where there are several.
  static std::string numbered(const std::string& name, std::size_t index, std::size_t count) {
    return count == 1 ? name : fmt::format("{}{}", name, index);
  }

  void add_devices() {
    std::vector<std::size_t> made(draft_.devices.size(), 0);
    for (std::uint32_t node = 0; node < draft_.nodes; ++node) {
      for (std::size_t k = 0; k < draft_.devices.size(); ++k) {
        const DeviceKind& kind = draft_.devices[k];
        for (std::uint32_t i = 0; i < kind.count; ++i) {
          Device device = kind.device;
          device.name = numbered(kind.device.name, made[k]++, std::size_t{kind.count} * draft_.nodes);
          device.memory = id_at<MemoryId>(platform_.memories.size());
          device.node = node;
          ends_[kind.device.name].resize(draft_.nodes);
          End& end = ends_[kind.device.name][node];
          end.is_device = true;
          end.vertices.push_back(device.memory.index);
          Memory memory;
          memory.name = device.name;
          memory.capacity = kind.memory;
          memory.device = id_at<DeviceId>(platform_.devices.size());
          memory.node = node;
          memory.bandwidth = device.memory_bandwidth;
          platform_.memories.push_back(std::move(memory));
          platform_.devices.push_back(std::move(device));
        }
      }
    }
  }

  void add_memories() {
    for (std::uint32_t node = 0; node < draft_.nodes; ++node) {
      for (const Memory& kind : draft_.memories) {
        ends_[kind.name].resize(draft_.nodes);
        ends_[kind.name][node].vertices = {static_cast<std::uint32_t>(platform_.memories.size())};
        Memory memory = kind;
        memory.name = numbered(kind.name, node, draft_.nodes);
        memory.node = node;
        platform_.memories.push_back(std::move(memory));
      }
    }
  }

  void add_switches() {
    for (const SwitchKind& kind : draft_.switches) {
      std::vector<End>& ends = ends_[kind.name];
      if (kind.one_for_all_nodes) {
        ends.assign(draft_.nodes, End{{add_switch(kind.name)}, false});
        everywhere_.insert(kind.name);
        continue;
      }
      for (std::uint32_t node = 0; node < draft_.nodes; ++node) {
        ends.push_back({{add_switch(numbered(kind.name, node, draft_.nodes))}, false});
      }
    }
  }

  /// What a device kind's `host` and `disk` name, for each of its instances.
  void find_stated_places() {
    std::size_t d = 0;
    for (std::uint32_t node = 0; node < draft_.nodes; ++node) {
      for (const DeviceKind& kind : draft_.devices) {
        for (std::uint32_t i = 0; i < kind.count; ++i, ++d) {
          if (kind.host) platform_.devices[d].host = stated_memory(*kind.host, platform_.devices[d]);
          if (kind.disk) platform_.devices[d].disk = stated_memory(*kind.disk, platform_.devices[d]);
        }
      }
    }
  }

  /// A memory of the device's node, or another device's own.
  std::optional<MemoryId> stated_memory(const YamlCursor& at, const Device& device) {
    const std::string name = at.string();
    std::vector<std::string> candidates;
    for (std::size_t m = 0; m < platform_.memories.size(); ++m) {
      const Memory& memory = platform_.memories[m];
      const auto id = id_at<MemoryId>(m);
      if (id == device.memory) continue;
      const bool is_of_node = !memory.device && memory.node == device.node;
      if (memory.name == name || (is_of_node && memory.name == numbered(name, device.node, draft_.nodes))) return id;
      candidates.push_back(memory.name);
    }
    at.complain(name == device.name
                    ? fmt::format("'{}' is the device's own memory", name)
                    : fmt::format("no other memory is called '{}'{}", name, suggestion(name, candidates)));
    return std::nullopt;
  }

  std::uint32_t add_switch(std::string name) {
    platform_.vertices.push_back({std::nullopt, std::move(name)});
    return static_cast<std::uint32_t>(platform_.vertices.size() - 1);
  }

  /// `gpu` twice and a memory `gpu0` would be told apart by nobody.
  void check_names() {
    std::set<std::string> names;
    for (const Vertex& vertex : platform_.vertices) {
      if (!names.insert(vertex.name).second) root_.complain(fmt::format("two instances are called '{}'", vertex.name));
    }
  }

  void add_links(const LinkKind& kind) {
    const std::vector<End>* ends[2] = {nullptr, nullptr};
    std::string names[2];
    for (std::size_t i = 0; i < 2; ++i) {
      names[i] = kind.between[i].string();
      const auto known = ends_.find(names[i]);
      if (known != ends_.end()) {
        ends[i] = &known->second;
        continue;
      }
      std::vector<std::string> candidates;
      for (const auto& [name, end] : ends_) candidates.push_back(name);
      kind.between[i].complain(
          fmt::format("no device, memory or switch is called '{}'{}", names[i], suggestion(names[i], candidates)));
    }
    if (ends[0] == nullptr || ends[1] == nullptr) return;
    if (kind.back_at && !kind.link.full_duplex) {
      return kind.back_at->complain("both directions of a half-duplex link share its bandwidth");
    }
    const std::size_t first = platform_.links.size();
    if (names[0] == names[1])
      add_pairs(kind, *ends[0]);
    else
      add_between(kind, names, *ends[0], *ends[1]);
    number_links(kind, first);
  }

  /// `between: [gpu, gpu]`: each pair of a node.
  void add_pairs(const LinkKind& kind, const std::vector<End>& ends) {
    if (!ends.front().is_device) return kind.between[1].complain("joins a thing to itself");
    if (refuse_sharing(kind, "a link between two devices is theirs alone")) return;
    const std::size_t count = ends.front().vertices.size();
    if (count < 2) return kind.between[1].complain("joins a device to itself: there is one in a node");
    if (too_many(kind, ends.size() * (count * (count - 1) / 2))) return;
    for (const End& end : ends) {
      for (std::size_t i = 0; i < count; ++i) {
        for (std::size_t j = i + 1; j < count; ++j) add_link(kind, end.vertices[i], end.vertices[j]);
      }
    }
  }

  void add_between(const LinkKind& kind, const std::string (&names)[2], const std::vector<End>& from,
                   const std::vector<End>& to) {
    const bool once = everywhere_.contains(names[0]) && everywhere_.contains(names[1]);
    const bool device_to_device = from.front().is_device && to.front().is_device;
    const bool has_device = from.front().is_device || to.front().is_device;
    if (!has_device && refuse_sharing(kind, "no device is at its ends")) return;
    if (device_to_device && refuse_sharing(kind, "a link between two devices is theirs alone")) return;
    const std::size_t devices = from.front().is_device ? from.front().vertices.size() : to.front().vertices.size();
    if (kind.shared_by > 1 && devices % kind.shared_by != 0) {
      return kind.shared_by_at->complain(
          fmt::format("must divide the {} devices of a node, {}", devices, kind.shared_by_at->found()));
    }
    if (too_many(kind, from.size() * from.front().vertices.size() * to.front().vertices.size() * 2)) return;
    for (std::size_t node = 0; node < (once ? 1 : from.size()); ++node) {
      for (const std::uint32_t a : from[node].vertices) {
        for (const std::uint32_t b : to[node].vertices) {
          if (kind.shared_by == 1) add_link(kind, a, b);
        }
      }
      if (kind.shared_by > 1) add_shared(kind, from[node], to[node]);
    }
  }

  /// One link for each group of devices, met at a switch. The devices' ways to the switch are as wide as the link, and
  /// half of the latency is on either side, so that a device alone sees the link as it is written.
  void add_shared(const LinkKind& kind, const End& from, const End& to) {
    const End& devices = from.is_device ? from : to;
    const std::uint32_t other = from.is_device ? to.vertices.front() : from.vertices.front();
    LinkKind half = kind;
    half.link.latency = 0.5 * kind.link.latency;
    if (kind.link.back && !from.is_device) std::swap(half.link.bandwidth, *half.link.back);  // they begin at the device
    for (std::size_t first = 0; first < devices.vertices.size(); first += kind.shared_by) {
      const std::uint32_t meeting = add_switch(fmt::format("{}.switch{}", kind.link.name, meetings_++));
      for (std::size_t i = first; i < first + kind.shared_by; ++i) {
        add_link(half, devices.vertices[i], meeting);
        platform_.links.back().name =
            fmt::format("{}.{}", kind.link.name, platform_.vertices[devices.vertices[i]].name);
      }
      add_link(half, meeting, other);
    }
  }

  void add_link(const LinkKind& kind, std::uint32_t from, std::uint32_t to) {
    Link link = kind.link;
    link.from = from;
    link.to = to;
    platform_.links.push_back(std::move(link));
  }

  /// Instances of a link are numbered in the order of the file; a device's own way to a shared one has its name
  /// already.
  void number_links(const LinkKind& kind, std::size_t first) {
    const auto is_instance = [&](const Link& link) { return link.name == kind.link.name; };
    const auto from = platform_.links.begin() + static_cast<std::ptrdiff_t>(first);
    const auto count = static_cast<std::size_t>(std::count_if(from, platform_.links.end(), is_instance));
    std::size_t number = 0;
    for (auto link = from; link != platform_.links.end(); ++link) {
      if (is_instance(*link)) link->name = numbered(kind.link.name, number++, count);
    }
  }

  static bool refuse_sharing(const LinkKind& kind, std::string_view why) {
    if (kind.shared_by == 1) return false;
    kind.shared_by_at->complain(fmt::format("cannot be shared: {}", why));
    return true;
  }

  bool too_many(const LinkKind& kind, std::size_t links) {
    if (platform_.links.size() + links <= most_links) return false;
    kind.between[0].complain(fmt::format("{} links, expected at most {}; use a switch", links, most_links));
    return true;
  }

  const YamlCursor& root_;
  const PlatformDraft& draft_;
  Platform platform_;
  std::map<std::string, std::vector<End>> ends_;  ///< by name, one a node
  std::set<std::string> everywhere_;              ///< switches of the whole cluster
  std::size_t meetings_ = 0;
};

}  // namespace

Platform expand(const YamlCursor& root, const PlatformDraft& draft) {
  return Expansion(root, draft).make();
}

}  // namespace plimsoll
