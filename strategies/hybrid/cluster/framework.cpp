// Names are those of Megatron-LM's megatron/training/arguments.py, of torchtitan's config/job_config.py (TOML), of
// DeepSpeed's runtime/config.py and runtime/pipe/engine.py, and of torch.distributed in PyTorch 2.6 (DualPipeV: later).

#include "strategies/hybrid/cluster/framework.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>

namespace plimsoll {
namespace {

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

std::uint32_t divided_up(std::uint32_t a, std::uint32_t b) {
  return (a + b - 1) / b;
}

/// What every launcher needs: as many processes on each node.
struct Processes {
  std::uint32_t nodes, on_each;
};

std::optional<Processes> processes(const ClusterExtent& extent, const ClusterPoint& point) {
  if (point.devices() <= extent.in_node) return Processes{1, point.devices()};
  if (point.devices() % extent.in_node != 0) return std::nullopt;
  return Processes{point.devices() / extent.in_node, extent.in_node};
}

/// Refuses what all of them refuse.
std::optional<std::string> why_not_launched(const ClusterExtent& extent, const ClusterPoint& point) {
  if (processes(extent, point)) return std::nullopt;
  return fmt::format("it starts as many processes on each node, and {} devices are not whole nodes of {}",
                     point.devices(), extent.in_node);
}

/// Of those that share out positions: a piece from either end of the sequence for each rank.
std::optional<std::string> why_not_in_pieces(const ClusterExtent& extent, const ClusterPoint& point) {
  if (point.context == 1 || extent.positions % (2 * point.context) == 0) return std::nullopt;
  return fmt::format("context={} takes {} pieces of a sequence, which do not divide {} positions", point.context,
                     2 * point.context, extent.positions);
}

/// Refuses what follows the saver, but for updates of this name.
std::optional<std::string> why_not_behind(const ClusterPoint& point, std::string_view updates = "") {
  if (point.compression > 0) return fmt::format("it has no compression {}", point.compressing().name);
  if (point.offload > 0) return fmt::format("it does not choose what to offload as {} does", point.offloading().name);
  if (point.updates == 0 || point.updating().name == updates) return std::nullopt;
  return fmt::format("it has no updates {}", point.updating().name);
}

std::string torchrun(const ClusterExtent& extent, const ClusterPoint& point, std::string_view script) {
  const Processes of = *processes(extent, point);
  return fmt::format("torchrun --nnodes={} --nproc-per-node={} {}", of.nodes, of.on_each, script);
}

std::optional<std::string> not_megatron(const ClusterExtent& extent, const ClusterPoint& point) {
  const ClusterSchedule& way = point.way();
  if (!is_one_of(way.name, {"none", "1f1b", "interleaved"})) return fmt::format("it has no schedule {}", way.name);
  if (!is_one_of(point.saving().name, {"none", "core", "full"})) {
    return fmt::format("it has no saver {}", point.saving().name);
  }
  if (point.zero > 1 && point.stages > 1) return "it shares gradients out (z=2, z=3) without pipelines only";
  if (way.name == "interleaved" && extent.micro_batches(point) % point.stages != 0) {
    return fmt::format("it interleaves micro-batches whose number p={} divides", point.stages);
  }
  if (const auto why = why_not_behind(point, point.zero == 1 ? "zero_offload" : "")) return why;
  const std::uint32_t parts = point.stages * point.chunks;
  if (extent.layers % parts != 0) return fmt::format("{} parts do not divide {} layers", parts, extent.layers);
  if (const auto why = why_not_in_pieces(extent, point)) return why;
  return why_not_launched(extent, point);
}

std::string for_megatron(const ClusterExtent& extent, const ClusterPoint& point, bool sequence) {
  std::string lines = torchrun(extent, point, "pretrain_gpt.py");
  const auto add = [&](std::string_view option) { lines += fmt::format(" \\\n    {}", option); };
  add(fmt::format("--tensor-model-parallel-size {}", point.tensor));
  if (sequence && point.tensor > 1) add("--sequence-parallel");
  if (point.context > 1) {
    add(fmt::format("--context-parallel-size {}", point.context));
    add("--cp-comm-type all_gather");
  }
  if (point.experts > 1) add(fmt::format("--expert-model-parallel-size {}", point.experts));
  add(fmt::format("--pipeline-model-parallel-size {}", point.stages));
  if (point.chunks > 1) add(fmt::format("--num-virtual-stages-per-pipeline-rank {}", point.chunks));
  add(fmt::format("--micro-batch-size {}", point.samples));
  add(fmt::format("--global-batch-size {}", extent.batch));
  if (point.zero > 0) add("--use-distributed-optimizer");
  if (point.updates > 0) {
    add("--optimizer-cpu-offload");
    add("--optimizer-offload-fraction 1.0");
    add("--use-precision-aware-optimizer");
  }
  if (point.zero > 1) {
    add("--use-megatron-fsdp");
    add(fmt::format("--data-parallel-sharding-strategy {}", point.zero == 2 ? "optim_grads" : "optim_grads_params"));
    if (point.copies > 1) add(fmt::format("--num-distributed-optimizer-instances {}", point.copies));
    add("--no-gradient-accumulation-fusion");
    add("--ckpt-format fsdp_dtensor");
  }
  if (point.replicas * point.context > 1) add("--overlap-grad-reduce");
  if (point.zero > 0) add("--overlap-param-gather");
  if (point.saving().name == "core") add("--recompute-granularity selective");
  if (point.saving().name == "full") {
    add("--recompute-granularity full");
    add("--recompute-method uniform");
    add("--recompute-num-layers 1");
  }
  return lines + "\n";
}

struct ScheduleName {
  std::string_view ours, theirs;
};
/// Of torch.distributed.pipelining: torchtitan names them so, classes have `Schedule` in front.
constexpr std::array pytorch_schedules{ScheduleName{"1f1b", "1F1B"}, ScheduleName{"gpipe", "GPipe"},
                                       ScheduleName{"interleaved", "Interleaved1F1B"},
                                       ScheduleName{"zb_v", "ZBVZeroBubble"}, ScheduleName{"dualpipe_v", "DualPipeV"}};

std::optional<std::string> not_pipelining(const ClusterExtent& extent, const ClusterPoint& point) {
  const std::string_view name = point.way().name;
  if (point.stages == 1) return std::nullopt;
  if (std::ranges::find(pytorch_schedules, name, &ScheduleName::ours) == pytorch_schedules.end()) {
    return fmt::format("it has no schedule {}", name);
  }
  const std::uint32_t m = extent.micro_batches(point), rounds = std::max(1U, m / point.stages);
  if (name == "interleaved" && m % rounds != 0) {
    return fmt::format("it interleaves {} micro-batches in {} rounds, which do not divide them", m, rounds);
  }
  return std::nullopt;
}

std::string_view pytorch_schedule(const ClusterPoint& point) {
  return std::ranges::find(pytorch_schedules, point.way().name, &ScheduleName::ours)->theirs;
}

/// Layers of a part by which torchtitan comes to so many of them; nothing where it comes to them by itself.
struct LayersPerStage {
  bool is_possible = true;
  std::optional<std::uint32_t> layers = {};
};

LayersPerStage layers_per_stage(const ClusterExtent& extent, const ClusterPoint& point) {
  if (point.chunks <= 2) return {};
  constexpr std::uint32_t ends = 2;  // it counts the embedding and the head as a layer each
  const std::uint32_t parts = point.stages * point.chunks, layers = divided_up(extent.layers + ends, parts);
  const bool is_possible = extent.layers > 0 && divided_up(extent.layers + ends, layers) == parts;
  return {is_possible, layers};
}

std::optional<std::string> not_torchtitan(const ClusterExtent& extent, const ClusterPoint& point) {
  if (const auto why = not_pipelining(extent, point)) return why;
  if (!is_one_of(point.saving().name, {"none", "full"})) return fmt::format("it has no saver {}", point.saving().name);
  if (const auto why = why_not_behind(point)) return why;
  if (point.replicas > 1 && point.zero == 1) return "it shares out states only with gradients (z=2, z=3)";
  if (point.experts > 1 && point.zero < 2) return "it shares out experts among replicas that share all out (z=2, z=3)";
  if (point.replicas > 1 && point.zero == 0 && point.width() * point.stages > 1) {
    return "it replicates (z=0) without tensor, context and pipeline parallelism only";
  }
  if (const auto why = why_not_in_pieces(extent, point)) return why;
  if (!layers_per_stage(extent, point).is_possible) {
    return fmt::format("no number of layers a part makes {} parts of {} layers", point.stages * point.chunks,
                       extent.layers);
  }
  return why_not_launched(extent, point);
}

std::string for_torchtitan(const ClusterExtent& extent, const ClusterPoint& point, bool) {
  const bool shards = point.zero > 1;
  std::string lines =
      "# " + torchrun(extent, point, "-m torchtitan.train --job.config_file plan.toml") + "\n[training]\n";
  const std::uint32_t of_replica = point.stages > 1 ? extent.micro_batches(point) * point.samples : point.samples;
  lines += fmt::format("local_batch_size = {}\nglobal_batch_size = {}\n\n[parallelism]\n", of_replica, extent.batch);
  lines += fmt::format("data_parallel_replicate_degree = {}\n", shards ? point.copies : point.replicas);
  lines += fmt::format("data_parallel_shard_degree = {}\n", shards ? point.replicas / point.copies : 1);
  if (shards) lines += fmt::format("fsdp_reshard_after_forward = \"{}\"\n", point.zero == 3 ? "always" : "never");
  lines += fmt::format("tensor_parallel_degree = {}\n", point.tensor);
  if (point.experts > 1) {
    lines += fmt::format("expert_parallel_degree = {}\n", point.experts);
    lines += fmt::format("expert_tensor_parallel_degree = {}\n", point.tensor);
  }
  if (point.context > 1) {
    lines += fmt::format("context_parallel_degree = {}\n", point.context);
    lines += "context_parallel_rotate_method = \"allgather\"\n";
  }
  lines += fmt::format("pipeline_parallel_degree = {}\n", point.stages);
  if (point.stages > 1) {
    lines += fmt::format("pipeline_parallel_schedule = \"{}\"\n", pytorch_schedule(point));
    lines += fmt::format("pipeline_parallel_microbatch_size = {}\n", point.samples);
    if (const auto layers = layers_per_stage(extent, point).layers) {
      lines += fmt::format("pipeline_parallel_layers_per_stage = {}\n", *layers);
    }
  }
  return lines + fmt::format("\n[activation_checkpoint]\nmode = \"{}\"\n", point.saving().name);
}

std::optional<std::string> not_deepspeed(const ClusterExtent& extent, const ClusterPoint& point) {
  if (point.tensor > 1) return "it leaves tensor parallelism to the model";
  if (point.context > 1) return "it exchanges heads where it shares out positions, and leaves that to the model";
  if (point.experts > 1) return "it leaves experts to the model's own layers";
  if (point.copies > 1 && point.zero == 2) return "it shares out within groups of replicas with z=3 only (MiCS)";
  if (!is_one_of(point.way().name, {"none", "1f1b"})) return fmt::format("it has no schedule {}", point.way().name);
  if (!is_one_of(point.saving().name, {"none", "full"})) return fmt::format("it has no saver {}", point.saving().name);
  if (const auto why = why_not_behind(point, point.zero > 0 ? "zero_offload" : "")) return why;
  if (point.zero > 1 && point.stages > 1) return "it shares gradients out (z=2, z=3) without pipelines only";
  return why_not_launched(extent, point);
}

std::string for_deepspeed(const ClusterExtent& extent, const ClusterPoint& point, bool) {
  const bool is_full = point.saving().name == "full";
  std::string lines = fmt::format("{{\n  \"train_batch_size\": {},\n", extent.batch);
  lines += fmt::format("  \"train_micro_batch_size_per_gpu\": {},\n", point.samples);
  lines += fmt::format("  \"gradient_accumulation_steps\": {},\n", extent.micro_batches(point));
  if (point.stages > 1) {
    lines += fmt::format("  \"pipeline\": {{\"stages\": {}, \"activation_checkpoint_interval\": {}}},\n", point.stages,
                         is_full ? 1 : 0);
  }
  if (is_full) lines += "  \"activation_checkpointing\": {\"partition_activations\": false},\n";
  const std::string host = point.updates > 0 ? ", \"offload_optimizer\": {\"device\": \"cpu\"}" : "";
  const std::string groups = point.copies > 1 ? fmt::format(", \"mics_shard_size\": {}", point.sharers()) : "";
  return lines + fmt::format("  \"zero_optimization\": {{\"stage\": {}, \"overlap_comm\": true{}{}}}\n}}\n", point.zero,
                             groups, host);
}

std::optional<std::string> not_pytorch(const ClusterExtent& extent, const ClusterPoint& point) {
  if (const auto why = not_pipelining(extent, point)) return why;
  if (!is_one_of(point.saving().name, {"none", "core", "full"})) {
    return fmt::format("it has no saver {}", point.saving().name);
  }
  if (const auto why = why_not_behind(point)) return why;
  if (point.context > 1) return "its replicas do not sum gradients over the ranks of a sequence";
  if (point.experts > 1) return "it leaves experts to the model";
  if (point.replicas > 1 && point.zero < 2 && point.tensor > 1) {
    return "it replicates whole parameters (z=0, z=1) without tensor parallelism only";
  }
  return why_not_launched(extent, point);
}

std::string for_pytorch(const ClusterExtent& extent, const ClusterPoint& point, bool sequence) {
  std::string lines = "# " + torchrun(extent, point, "train.py") + "\n";
  const bool has_groups = point.copies > 1;
  lines += fmt::format("mesh = init_device_mesh(\"cuda\", ({}, {}{}, {}), mesh_dim_names=(\"pp\", {}\"dp\", \"tp\"))\n",
                       point.stages, has_groups ? fmt::format("{}, ", point.copies) : "", point.sharers(), point.tensor,
                       has_groups ? "\"copies\", " : "");
  lines += fmt::format("micro_batch_size, n_microbatches = {}, {}\n", point.samples, extent.micro_batches(point));
  if (point.tensor > 1) {
    lines +=
        fmt::format("parallelize_module(model, mesh[\"tp\"], {}tensor_parallel)\n", sequence ? "sequence_and_" : "");
  }
  if (point.saving().name == "full") {
    lines += "apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))\n";
  }
  if (point.saving().name == "core") lines += "checkpoint(core_attention, query, key, value, use_reentrant=False)\n";
  if (point.replicas > 1 && point.zero > 1) {
    lines += fmt::format("fully_shard(model, mesh=mesh[{}\"dp\"], reshard_after_forward={})  # each Block before\n",
                         has_groups ? "\"copies\", " : "", point.zero == 3 ? "True" : "False");
  } else if (point.replicas > 1) {
    lines += "model = DistributedDataParallel(model, device_mesh=mesh[\"dp\"])\n";
  }
  if (point.zero == 1) {
    lines += "optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, mesh[\"dp\"].get_group())\n";
  }
  if (point.stages > 1) {
    lines += fmt::format("schedule = Schedule{}({}, n_microbatches)", pytorch_schedule(point),
                         point.chunks > 1 ? "stages" : "stage");
    if (point.chunks > 1) lines += fmt::format("  # stages: {} a rank", point.chunks);
    lines += "\n";
  }
  return lines;
}

}  // namespace

std::span<const ClusterFramework> cluster_frameworks() {
  static constexpr std::array all{ClusterFramework{"megatron", "Megatron-LM", not_megatron, for_megatron},
                                  ClusterFramework{"torchtitan", "torchtitan", not_torchtitan, for_torchtitan},
                                  ClusterFramework{"deepspeed", "DeepSpeed", not_deepspeed, for_deepspeed},
                                  ClusterFramework{"pytorch", "PyTorch", not_pytorch, for_pytorch}};
  return all;
}

const ClusterFramework* cluster_framework(std::string_view name) {
  const auto found = std::ranges::find(cluster_frameworks(), name, &ClusterFramework::name);
  return found == cluster_frameworks().end() ? nullptr : &*found;
}

}  // namespace plimsoll
