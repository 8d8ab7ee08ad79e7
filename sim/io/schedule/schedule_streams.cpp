#include "sim/io/schedule/schedule_streams.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <string>
#include <utility>

#include "sim/io/fields.h"

namespace plimsoll {
namespace {

using enum Need;

/// What a stream between devices is until its other end is found.
constexpr Way unknown_peer{place::device, place::disk};

constexpr std::array<std::pair<std::string_view, Way>, 7> kinds_of_version_1{{{"compute", way::compute},
                                                                              {"device_to_host", way::device_to_host},
                                                                              {"host_to_device", way::host_to_device},
                                                                              {"peer", unknown_peer},
                                                                              {"host", way::on_host},
                                                                              {"disk_to_host", way::disk_to_host},
                                                                              {"host_to_disk", way::host_to_disk}}};
constexpr std::array relative_places{place::device, place::host, place::disk, place::links};

struct StreamDraft {
  DeviceId device;
  std::optional<Way> kind;
  std::optional<MemoryId> at, from, to;
};

std::optional<Way> read_kind(JsonCursor c) {
  const std::string text = c.string();
  std::vector<std::string_view> names;
  for (const auto& [name, way] : kinds_of_version_1) {
    if (name == text) return way;
    names.push_back(name);
  }
  c.complain(fmt::format("expected {}, found '{}'{}", alternatives(names), text, suggestion(text, names)));
  return way::compute;
}

/// A memory's index, or what it is to the stream's device.
MemoryId read_place(JsonCursor c) {
  if (!c.is_word()) return MemoryId{c.index()};
  const std::string text = c.string();
  std::vector<std::string_view> names;
  for (const MemoryId place : relative_places) {
    names.push_back(*relative_name(place));
    if (names.back() == text) return place;
  }
  c.complain(
      fmt::format("expected a memory's index, {}, found '{}'{}", alternatives(names), text, suggestion(text, names)));
  return place::device;
}

const Field<StreamDraft, JsonCursor> stream_fields[] = {
    {"device", required, [](StreamDraft& s, JsonCursor c) { s.device = DeviceId{c.index()}; }},
    {"kind", optional, [](StreamDraft& s, JsonCursor c) { s.kind = read_kind(c); }},
    {"at", optional, [](StreamDraft& s, JsonCursor c) { s.at = read_place(c); }},
    {"from", optional, [](StreamDraft& s, JsonCursor c) { s.from = read_place(c); }},
    {"to", optional, [](StreamDraft& s, JsonCursor c) { s.to = read_place(c); }},
};

Json in_file(MemoryId place) {
  const std::optional<std::string_view> name = relative_name(place);
  return name ? Json(std::string(*name)) : Json(place.index);
}

}  // namespace

Stream read_stream(JsonCursor cursor) {
  StreamDraft draft;
  read_fields(cursor, stream_fields, draft);
  const int forms = int{draft.kind.has_value()} + int{draft.at.has_value()} + int{draft.from || draft.to};
  if (forms != 1 || draft.from.has_value() != draft.to.has_value()) {
    cursor.complain("expected where it computes ('at'), or between which places it copies ('from' and 'to')");
    return {};
  }
  if (draft.kind) return {draft.device, *draft.kind};
  if (draft.at) return {draft.device, {*draft.at, *draft.at}};
  if (*draft.from == *draft.to) cursor.complain("copies from a place to itself");
  return {draft.device, {*draft.from, *draft.to}};
}

void find_peers(Schedule& schedule) {
  for (const Step& step : schedule.steps) {
    if (step.stream.index >= schedule.streams.size() || step.work.route.index >= schedule.routes.size()) continue;
    Way& way = schedule.streams[step.stream.index].way;
    const Endpoints& ends = schedule.routes[step.work.route.index];
    if (way == unknown_peer) way = {ends.from, ends.to};
  }
}

Json json_of(const Stream& stream) {
  Json object{{"device", stream.device.index}};
  if (stream.way.computes()) {
    object["at"] = in_file(stream.way.from);
  } else {
    object["from"] = in_file(stream.way.from);
    object["to"] = in_file(stream.way.to);
  }
  return object;
}

}  // namespace plimsoll
