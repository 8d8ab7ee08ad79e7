#include "platforms/platform_file.h"

#include <catch2/catch.hpp>

#include "sim/core/codec.h"
#include "tests/bad_input.h"

using namespace plimsoll;

namespace {

/// A platform of the given device count, nodes and further lines.
Platform platform(const std::string& devices, const std::string& nodes, const std::string& rest) {
  return parse_platform("format: plimsoll.platform.v1\nname: test\nsource: none\nnodes: " + nodes +
                            "\ndevices: [{name: gpu, memory: 80 GB, count: " + devices +
                            "}]\nmemories: [{name: host, size: 1 TB}]\n" + rest,
                        "test.yaml");
}

MemoryId memory(const Platform& platform, const std::string& name) {
  for (std::size_t i = 0; i < platform.memories.size(); ++i) {
    if (platform.memories[i].name == name) return id_at<MemoryId>(i);
  }
  throw std::runtime_error("no memory " + name);
}

std::vector<std::string> names_on(const Platform& platform, const std::string& from, const std::string& to) {
  const std::optional<Route> route = route_between(platform, memory(platform, from), memory(platform, to));
  std::vector<std::string> names;
  if (!route) return {"no route"};
  for (const LinkUse use : route->links) names.push_back(platform[use.link].name);
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("every broken platform is refused with the message beside it", "[platforms]") {
  const std::vector<std::filesystem::path> broken = files_in("tests/bad_input/platforms", ".yaml");
  CHECK(broken.size() > 40);
  for (const std::filesystem::path& file : broken) {
    INFO(file.string());
    CHECK(complaint_of([&] { read_platform(file); }) == expected_complaint(file));
  }
}

TEST_CASE("every shipped platform reads, under its file's name", "[platforms]") {
  const std::vector<std::string> names = shipped_platforms();
  for (const std::string name :
       {"ideal", "cpu_host", "v100_pcie", "a100_80g", "h100_sxm_8", "h200", "rtx_4090_pcie4", "ib_2x8_h100"}) {
    CHECK(std::ranges::find(names, name) != names.end());
  }
  for (const std::string& name : names) {
    INFO(name);
    const Platform read = load_platform(name);
    CHECK(read.name == name);
    CHECK(!read.source.empty());
    REQUIRE(!read.devices.empty());
    for (const Memory& memory : read.memories) {  // two figures of one file that contradict each other
      if (memory.adam && memory.bandwidth) {
        CHECK(adam_moves * memory.adam->value <= 1.005 * memory.bandwidth->value);
      }
    }
    for (std::size_t d = 0; d < read.devices.size(); ++d) {
      CHECK(read[read.devices[d].memory].device == id_at<DeviceId>(d));
      CHECK(memory_at(read, id_at<DeviceId>(d), place::host).has_value());
    }
    for (std::size_t v = 0; v < read.memories.size(); ++v) CHECK(read.vertices[v].memory == id_at<MemoryId>(v));
  }
}

TEST_CASE("ideal takes every time from the trace and holds everything", "[platforms]") {
  const Platform ideal = load_platform("ideal");
  REQUIRE(ideal.devices.size() == 1);
  CHECK(ideal.devices[0].takes_trace_times);
  CHECK(!ideal.memories[0].capacity);
  CHECK(ideal.links[0].bandwidth == unlimited_bandwidth);
  CHECK(!load_platform("h200").devices[0].takes_trace_times);
}

TEST_CASE("every key of a device arrives", "[platforms]") {
  const Platform read = parse_platform(R"(
format: plimsoll.platform.v1
name: one
source: none
devices:
  - {name: gpu, model: M, memory: 80 GiB, peak: {fp32: 67 TFLOPS, bf16: 989TFLOPS}, memory_bandwidth: 3.35 TBps,
     adam: 310 GBps, launch_overhead: 3 us, host_launch: 9 us, overlap_slowdown: [1.0, 1.05], streams: 2,
     memory_overlap_slowdown: [1, 1, 1.02], codecs: [{codec: quantize, bits: 4, pack: 1.5 GBps, unpack: 3 GBps}, {codec: pool, window: 2, pack: 2 GBps, unpack: 9 GBps},
              {codec: zero_run, pack: 1 GBps, unpack: 4 GBps},
              {codec: quantize, bits: 4, ranges: channels, pack: 5 GBps, unpack: 6 GBps}, {codec: projection, pack: 7 GBps}]}
memories: [{name: host, size: unlimited, bandwidth: 200 GB/s, adam: 4 GBps, bounds: [bandwidth]}]
links: [{name: bus, between: [gpu, host], bandwidth: 25 GBps, latency: 5 us, duplex: half}]
)",
                                       "one.yaml");
  const Device& device = read.devices[0];
  CHECK(device.name == "gpu");
  CHECK(device.model == "M");
  CHECK(device.peak.at("bf16") == FlopsPerSecond{989e12});
  CHECK(device.memory_bandwidth == BytesPerSecond{3.35e12});
  CHECK(device.adam == BytesPerSecond{310e9});
  CHECK(update_traffic(device) == BytesPerSecond{7 * 310e9});
  CHECK(device.launch_overhead == Seconds{3e-6});
  CHECK(device.host_launch == Seconds{9e-6});
  CHECK(device.overlap_slowdown == std::vector<double>{1.0, 1.05});
  CHECK(device.memory_overlap_slowdown == std::vector<double>{1, 1, 1.02});
  CHECK(device.compute_streams == 2);
  REQUIRE(device.codec_rates.size() == 5);
  CHECK(device.codec_rates[0].kind == CodecKind::quantize);
  CHECK(device.codec_rates[0].variant == 4);
  CHECK(device.codec_rates[0].pack == BytesPerSecond{1.5e9});
  CHECK(device.codec_rates[0].unpack == BytesPerSecond{3e9});
  CHECK(device.codec_rates[1].variant == 2);
  CHECK(device.codec_rates[2].variant == 0);
  CHECK(device.codec_rates[3].variant ==
        variant_of({.kind = CodecKind::quantize, .bits = 4, .parts = 3, .group_bytes = 4}));
  CHECK(device.codec_rates[4].kind == CodecKind::projection);
  CHECK(read.memories[0].capacity == Bytes{80LL << 30});
  CHECK(read.memories[1].adam == BytesPerSecond{4e9});
  CHECK(read.memories[1].bandwidth_is_bound);
  CHECK(!read.memories[1].adam_is_bound);
  CHECK(read.links[0].latency == Seconds{5e-6});
  CHECK(!read.links[0].full_duplex);
}

TEST_CASE("instances are numbered through all nodes, single ones keep their names", "[platforms]") {
  const Platform two =
      platform("2", "2", "links: [{name: pcie, between: [gpu, host], bandwidth: 1 GBps, latency: 1 us}]");
  CHECK(two.devices[3].name == "gpu3");
  CHECK(two.devices[3].node == 1);
  CHECK(two.memories[4].name == "host0");
  CHECK(names_on(two, "gpu2", "host1") == Names{"pcie2"});
  CHECK(names_on(two, "gpu1", "host1") == Names{"no route"});
  CHECK(names_on(two, "gpu0", "gpu1") == Names{"no route"});  // memories pass nothing on
  CHECK(platform("1", "1", "").devices[0].name == "gpu");
}

TEST_CASE("a shared link is one link behind a switch, and alone looks as it is written", "[platforms]") {
  const Platform four =
      platform("4", "1", "links: [{name: pcie, between: [gpu, host], bandwidth: 8 GBps, latency: 6 us, shared_by: 2}]");
  CHECK(names_on(four, "gpu0", "host") == Names{"pcie.gpu0", "pcie0"});
  CHECK(names_on(four, "gpu1", "host") == Names{"pcie.gpu1", "pcie0"});
  CHECK(names_on(four, "host", "gpu3") == Names{"pcie1", "pcie.gpu3"});
  const std::optional<Route> route = route_between(four, memory(four, "gpu3"), memory(four, "host"));
  CHECK(route->latency == Seconds{6e-6});
  for (const LinkUse use : route->links) CHECK(four[use.link].bandwidth == BytesPerSecond{8e9});
}

TEST_CASE("a link may be slower back than out, seen from either end", "[platforms]") {
  const auto bandwidths = [](const std::string& link) {
    const Platform two =
        platform("2", "1", "links: [{name: pcie, " + link + ", bandwidth: 8 GBps, back: 9 GBps, latency: 6 us}]");
    const auto between = [&](const char* from, const char* to) {
      return route_between(two, memory(two, from), memory(two, to))->bandwidth;
    };
    return std::pair(between("gpu1", "host"), between("host", "gpu1"));
  };
  constexpr BytesPerSecond out{8e9}, back{9e9};
  CHECK(bandwidths("between: [gpu, host]") == std::pair(out, back));
  CHECK(bandwidths("between: [host, gpu]") == std::pair(back, out));
  CHECK(bandwidths("between: [gpu, host], shared_by: 2") == std::pair(out, back));
  CHECK(bandwidths("between: [host, gpu], shared_by: 2") == std::pair(back, out));
}

TEST_CASE("pairs, switches of a node and switches of the cluster join what they say", "[platforms]") {
  const Platform mesh =
      platform("3", "2", "links: [{name: nv, between: [gpu, gpu], bandwidth: 1 GBps, latency: 1 us}]");
  CHECK(mesh.links.size() == 6);
  CHECK(names_on(mesh, "gpu0", "gpu2") == Names{"nv1"});
  CHECK(names_on(mesh, "gpu2", "gpu3") == Names{"no route"});

  const Platform cluster = platform("2", "2", R"(
switches: [{name: nvswitch}, {name: ib, scope: cluster}]
links:
  - {name: nv, between: [gpu, nvswitch], bandwidth: 450 GBps, latency: 1 us}
  - {name: nic, between: [gpu, ib], bandwidth: 50 GBps, latency: 1 us}
)");
  CHECK(cluster.vertices.size() == 6 + 3);
  CHECK(names_on(cluster, "gpu0", "gpu1") == Names{"nv0", "nv1"});
  CHECK(names_on(cluster, "gpu1", "gpu2") == Names{"nic1", "nic2"});
}

TEST_CASE("the shipped clusters join their devices as their machines do", "[platforms]") {
  const Platform bridge = load_platform("pcie_4x_rtx4090");
  CHECK(bridge.devices.size() == 4);
  CHECK(names_on(bridge, "gpu0", "host") == Names{"slot0", "uplink"});
  CHECK(names_on(bridge, "gpu3", "host") == Names{"slot3", "uplink"});  // the same one for all
  CHECK(names_on(bridge, "gpu0", "gpu3") == Names{"slot0", "slot3"});
  const Platform node = load_platform("a100_sxm_8");
  CHECK(node.devices.size() == 8);
  CHECK(names_on(node, "gpu0", "gpu7") == Names{"nvlink0", "nvlink7"});
  CHECK(names_on(node, "gpu0", "host").back() == names_on(node, "gpu1", "host").back());
  CHECK(names_on(node, "gpu1", "host").back() != names_on(node, "gpu2", "host").back());
  const Platform nodes = load_platform("a100_sxm_64");
  CHECK(nodes.devices.size() == 64);
  CHECK(names_on(nodes, "gpu0", "gpu7") == Names{"nvlink0", "nvlink7"});
  CHECK(names_on(nodes, "gpu7", "gpu63") == Names{"hdr7", "hdr63"});
  CHECK(names_on(nodes, "gpu0", "host7") == Names{"no route"});
}

TEST_CASE("a DGX-2 has a port of its own for each of its GPUs, and four of them share an uplink", "[platforms]") {
  const Platform read = load_platform("dgx2_16xv100");
  REQUIRE(read.devices.size() == 16);
  CHECK(names_on(read, "gpu0", "gpu1") == Names{"nvlink0", "nvlink1"});
  CHECK(names_on(read, "gpu3", "gpu15") == Names{"nvlink3", "nvlink15"});
  CHECK(names_on(read, "gpu4", "host") == Names{"pcie.gpu4", "pcie1"});
  CHECK(names_on(read, "gpu7", "host").back() == "pcie1");
  CHECK(names_on(read, "gpu8", "host").back() == "pcie2");
}

TEST_CASE("devices of one platform may differ in all that they are", "[platforms]") {
  const Platform cards = load_platform("v100_h100_pair");
  REQUIRE(cards.devices.size() == 2);
  CHECK(cards.devices[0].model != cards.devices[1].model);
  CHECK(cards.devices[0].peak.at("fp16") == FlopsPerSecond{112e12});
  CHECK(cards.devices[1].peak.at("fp16") == FlopsPerSecond{756.5e12});
  CHECK(names_on(cards, "v100", "h100") == Names{"gen3", "gen5"});
  CHECK(names_on(cards, "h100", "host") == Names{"gen5", "ddr"});

  const Platform mixed = load_platform("gpu_cpu_pair");
  REQUIRE(mixed.devices.size() == 2);
  CHECK(mixed[mixed.devices[1].memory].capacity == Bytes{768'000'000'000});
  CHECK(names_on(mixed, "gpu", "cpu") == Names{"pcie", "mesh"});
  CHECK(names_on(mixed, "gpu", "host") == Names{"pcie", "sockets"});
  CHECK(memory_at(mixed, DeviceId{1}, place::host) == memory(mixed, "host"));
}

TEST_CASE("a thousand devices expand at once", "[platforms]") {
  const Platform big = platform("8", "128", R"(
switches: [{name: nvswitch}, {name: ib, scope: cluster}]
links:
  - {name: nv, between: [gpu, nvswitch], bandwidth: 450 GBps, latency: 1 us}
  - {name: nic, between: [gpu, ib], bandwidth: 50 GBps, latency: 1 us}
  - {name: pcie, between: [gpu, host], bandwidth: 50 GBps, latency: 1 us}
)");
  CHECK(big.devices.size() == 1024);
  CHECK(big.links.size() == std::size_t{3} * 1024);
  CHECK(names_on(big, "gpu0", "gpu1023") == Names{"nic0", "nic1023"});
}

TEST_CASE("nodes and their network stand behind a platform's colon", "[platforms]") {
  const Platform made = load_platform("a100_sxm_64:nodes=3,network=12.5 GBps");
  CHECK(made.name == "a100_sxm_64:nodes=3,network=12.5 GBps");
  CHECK(made.devices.size() == 24);
  CHECK(made.devices.back().node == 2);
  std::size_t network = 0;
  for (const Link& link : made.links) {
    const bool is_network = link.name.starts_with("hdr");
    network += is_network ? 1 : 0;
    if (is_network) CHECK(link.bandwidth == BytesPerSecond{12.5e9});
    if (link.name.starts_with("nvlink")) CHECK(link.bandwidth == BytesPerSecond{230e9});
  }
  CHECK(network == 24);
  const auto complains = [](const char* reference, const char* of) {
    return complaint_of([&] { load_platform(reference); }).find(of) != std::string::npos;
  };
  CHECK(complains("a100_sxm_8:network=12.5 GBps", "no link leads to a switch of all nodes"));
  CHECK(complains("a100_sxm_64:nodes=0", "expected a whole number from 1 to 100000"));
  CHECK(complains("a100_sxm_64:node=2", "did you mean 'nodes'?"));
}

TEST_CASE("a card of another size stands behind a platform's colon", "[platforms]") {
  const Platform made = load_platform("h100_sxm_8:memory=96 GB,memory_bandwidth=2.4 TBps"),
                 whole = load_platform("h100_sxm_8");
  REQUIRE(made.devices.size() == 8);
  for (const Device& device : made.devices) {
    CHECK(made[device.memory].capacity == Bytes{96'000'000'000});
    CHECK(device.memory_bandwidth == BytesPerSecond{2.4e12});
    CHECK(device.model.empty());  // whose times would not be those of this card
    CHECK(device.peak == whole.devices.front().peak);
  }
  const Platform larger = load_platform("h100_sxm_8:memory=96 GB");
  CHECK(larger.devices.front().model == whole.devices.front().model);
  CHECK(larger.devices.front().memory_bandwidth == whole.devices.front().memory_bandwidth);
  const auto complains = [](const char* reference, const char* of) {
    return complaint_of([&] { load_platform(reference); }).find(of) != std::string::npos;
  };
  CHECK(complains("h100_sxm_8:memory=0 GB", "expected more than 0, found '0 GB'"));
  CHECK(complains("h100_sxm_8:memory_bandwidth=2 GB", "memory_bandwidth"));
  CHECK(complains("h100_sxm_8:memroy=80 GB", "did you mean 'memory'?"));
}

TEST_CASE("a platform that is nobody's is refused with the nearest", "[platforms]") {
  CHECK(complaint_of([] { load_platform("h20"); }) ==
        "no file and no shipped platform is called 'h20'; did you mean 'h200'? (plimsoll list platforms)");
}
