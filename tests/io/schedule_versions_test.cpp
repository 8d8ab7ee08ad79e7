// Schedule files of version 1 name kinds of streams; they are read as the ways that version 2 writes.

#include <catch2/catch.hpp>

#include "sim/io/schedule/schedule_file.h"

namespace plimsoll {
namespace {

std::string with_streams(const std::string& version, const std::string& streams, const std::string& steps) {
  return R"({"format": "plimsoll.schedule.)" + version +
         R"(", "trace": "t", "platform": "p", "micro_batches": 1, "optimizer": "none", "gradients": "new", "streams": [)" +
         streams + R"(], "routes": [{"from": 0, "to": 3}], "buffers": [], "steps": [)" + steps + "]}";
}

TEST_CASE("every kind of stream of version 1 is a way", "[io]") {
  std::string kinds;
  for (const char* kind :
       {"compute", "device_to_host", "host_to_device", "host", "disk_to_host", "host_to_disk", "peer"}) {
    kinds += std::string(kinds.empty() ? "" : ", ") + R"({"device": 0, "kind": ")" + kind + R"("})";
  }
  const Schedule read = parse_schedule(
      with_streams("v1", kinds, R"({"kind": "send", "stream": 6, "work_s": 0, "work_bytes": 1, "route": 0})"),
      "v1.json");
  const std::vector<Way> ways{
      way::compute,      way::device_to_host, way::host_to_device,       way::on_host,
      way::disk_to_host, way::host_to_disk,   {MemoryId{0}, MemoryId{3}}};  // a peer is whom its first step sends to
  REQUIRE(read.streams.size() == ways.size());
  for (std::size_t s = 0; s < ways.size(); ++s) CHECK(read.streams[s].way == ways[s]);
}

TEST_CASE("what version 2 writes reads back, places by name and memories by index", "[io]") {
  Schedule schedule =
      parse_schedule(with_streams("v2", R"({"device": 0, "at": "device"}, {"device": 1, "from": "device", "to": 3},
                            {"device": 0, "from": "disk", "to": "host"}, {"device": 0, "at": 2})",
                                  ""),
                     "v2.json");
  REQUIRE(schedule.streams.size() == 4);
  CHECK(schedule.streams[1].way == Way{place::device, MemoryId{3}});
  CHECK(schedule.streams[3].way == Way{MemoryId{2}, MemoryId{2}});
  const Schedule again = parse_schedule(schedule_text(schedule, "test", "."), "again.json");
  REQUIRE(again.streams.size() == 4);
  for (std::size_t s = 0; s < 4; ++s) {
    CHECK(again.streams[s].device == schedule.streams[s].device);
    CHECK(again.streams[s].way == schedule.streams[s].way);
  }
}

}  // namespace
}  // namespace plimsoll
