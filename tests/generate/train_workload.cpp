#include "tests/generate/train_workload.h"

#include <algorithm>
#include <string>
#include <vector>

#include "sim/lower/schedule_builder.h"
#include "tests/generate/random.h"

namespace plimsoll {
namespace {

constexpr std::uint32_t gpus_a_node = 8, gpus_an_uplink = 2, window = 3;
constexpr Bytes activation{64 << 20}, gradient{32 << 20};

std::uint32_t rounded_up(std::uint32_t items, std::uint32_t each) {
  return (items + each - 1) / each;
}

/// One GPU's part of the schedule.
class Gpu {
 public:
  Gpu(ScheduleBuilder& builder, const TrainWorkload& workload, std::uint32_t index)
      : builder_(builder),
        layers_(workload.layers),
        own_{index},
        peer_{(index + 1) % workload.gpus},
        host_{workload.gpus + index / gpus_a_node},
        compute_(builder.stream({index}, way::compute)),
        offload_(builder.stream({index}, way::device_to_host)),
        prefetch_(builder.stream({index}, way::host_to_device)),
        send_(builder.stream({index}, {place::device, peer_ == own_ ? host_ : peer_})),
        random_(workload.alike ? 1 : 1 + index),
        on_host_(layers_),
        offloaded_(layers_),
        backwards_(layers_) {}

  void forward(std::uint32_t layer) {
    const BufferId made = buffer(own_, activation);
    const StepId forward = add(StepKind::forward, compute_, {{kernel_seconds()}, {}, no_route}, {made}, {});
    on_host_[layer] = buffer(host_, activation);
    offloaded_[layer] =
        add(StepKind::offload, offload_, {{}, activation, builder_.route(own_, host_)}, {on_host_[layer]}, {forward});
    builder_.free_after(offloaded_[layer], made);
  }

  void backward(std::uint32_t layer) {
    std::vector<StepId> waits{offloaded_[layer]};
    if (layer + window < layers_) waits.push_back(backwards_[layer + window]);
    const BufferId back = buffer(own_, activation);
    const StepId prefetch =
        add(StepKind::prefetch, prefetch_, {{}, activation, builder_.route(host_, own_)}, {back}, waits);
    builder_.free_after(prefetch, on_host_[layer]);
    const BufferId made = buffer(own_, gradient);
    backwards_[layer] = add(StepKind::backward, compute_, {{2 * kernel_seconds()}, {}, no_route}, {made}, {prefetch});
    builder_.free_after(backwards_[layer], back);
    if (peer_ == own_) {
      const StepId reduce = add(StepKind::collective, send_, {{1e-4}, {}, no_route}, {}, {backwards_[layer]});
      builder_.free_after(reduce, made);
      return;
    }
    const BufferId received = buffer(peer_, gradient);
    const StepId send =
        add(StepKind::send, send_, {{}, gradient, builder_.route(own_, peer_)}, {received}, {backwards_[layer]});
    builder_.free_after(send, made);
    builder_.free_after(send, received);
  }

 private:
  double kernel_seconds() { return 2e-3 * (0.5 + random_.unit()); }

  BufferId buffer(MemoryId memory, Bytes bytes) {
    Buffer buffer;
    buffer.memory = memory;
    buffer.bytes = bytes;
    return builder_.buffer(buffer);
  }

  StepId add(StepKind kind, StreamId stream, Work work, std::vector<BufferId> allocates, std::vector<StepId> waits) {
    NewStep step;
    step.kind = kind;
    step.stream = stream;
    step.work = work;
    step.allocates = std::move(allocates);
    step.waits = std::move(waits);
    return builder_.add(step);
  }

  ScheduleBuilder& builder_;
  std::uint32_t layers_;
  MemoryId own_, peer_, host_;
  StreamId compute_, offload_, prefetch_, send_;
  Random random_;
  std::vector<BufferId> on_host_;
  std::vector<StepId> offloaded_, backwards_;
};

}  // namespace

Platform train_platform(const TrainWorkload& workload) {
  const std::uint32_t nodes = rounded_up(workload.gpus, gpus_a_node);
  const std::uint32_t uplinks = rounded_up(workload.gpus, gpus_an_uplink);
  Platform platform;
  platform.name = "train";
  for (std::uint32_t m = 0; m < workload.gpus + nodes; ++m) {
    const bool is_gpu = m < workload.gpus;
    Memory memory;
    memory.name = (is_gpu ? "gpu" : "host") + std::to_string(is_gpu ? m : m - workload.gpus);
    if (is_gpu) {
      memory.device = DeviceId{m};
      Device device;
      device.name = memory.name;
      device.memory = {m};
      platform.devices.push_back(std::move(device));
    }
    platform.vertices.push_back({id_at<MemoryId>(m), memory.name});
    platform.memories.push_back(std::move(memory));
  }
  const auto add_switches = [&](std::uint32_t count, const std::string& name) {
    const auto first = static_cast<std::uint32_t>(platform.vertices.size());
    for (std::uint32_t s = 0; s < count; ++s) platform.vertices.push_back({{}, name + std::to_string(s)});
    return first;
  };
  const std::uint32_t pcie = add_switches(uplinks, "pcie");
  const std::uint32_t nvswitch = add_switches(nodes, "nvswitch");
  const std::uint32_t fabric = add_switches(1, "fabric");
  const auto link = [&](std::uint32_t from, std::uint32_t to, double bandwidth, double latency) {
    platform.links.push_back({"link" + std::to_string(platform.links.size()), from, to, {bandwidth}, {latency}, true});
  };
  for (std::uint32_t g = 0; g < workload.gpus; ++g) {
    link(g, nvswitch + g / gpus_a_node, 300e9, 2e-6);  // before PCIe, so that GPUs of a node talk over it
    link(g, pcie + g / gpus_an_uplink, 25e9, 5e-6);
  }
  for (std::uint32_t u = 0; u < uplinks; ++u) {
    link(pcie + u, workload.gpus + u * gpus_an_uplink / gpus_a_node, 25e9, 0);
  }
  for (std::uint32_t n = 0; n < nodes; ++n) link(nvswitch + n, fabric, 50e9, 5e-6);
  return platform;
}

Schedule train_schedule(const TrainWorkload& workload) {
  ScheduleBuilder builder;
  std::vector<Gpu> gpus;
  for (std::uint32_t g = 0; g < workload.gpus; ++g) gpus.emplace_back(builder, workload, g);
  for (std::uint32_t iteration = 0; iteration < workload.iterations; ++iteration) {
    for (std::uint32_t layer = 0; layer < workload.layers; ++layer) {
      for (Gpu& gpu : gpus) gpu.forward(layer);
    }
    for (std::uint32_t layer = workload.layers; layer-- > 0;) {
      for (Gpu& gpu : gpus) gpu.backward(layer);
    }
  }
  return builder.finish();
}

}  // namespace plimsoll
