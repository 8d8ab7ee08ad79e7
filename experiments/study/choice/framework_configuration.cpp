// How frameworks are told to run a point of `cluster`. Names are those of Megatron-LM's megatron/training/arguments.py,
// of torchtitan's config/job_config.py (TOML), of DeepSpeed's runtime/config.py and runtime/pipe/engine.py, and of
// torch.distributed in PyTorch 2.6 (DualPipeV: later).

#include <fmt/format.h>

#include "experiments/study/choice/cluster_question.h"
#include "sim/core/expects.h"
#include "strategies/hybrid/cluster/framework.h"

namespace plimsoll {
namespace {

std::string torchrun(const ClusterExtent& extent, const ClusterPoint& point, std::string_view script) {
  const Processes of = *cluster_processes(extent, point);
  return fmt::format("torchrun --nnodes={} --nproc-per-node={} {}", of.nodes, of.on_each, script);
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

std::string for_torchtitan(const ClusterExtent& extent, const ClusterPoint& point) {
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
    if (const auto layers = torchtitan_layers(extent, point).layers) {
      lines += fmt::format("pipeline_parallel_layers_per_stage = {}\n", *layers);
    }
  }
  return lines + fmt::format("\n[activation_checkpoint]\nmode = \"{}\"\n", point.saving().name);
}

std::string for_deepspeed(const ClusterExtent& extent, const ClusterPoint& point) {
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

std::string framework_configuration(std::string_view framework, const ClusterExtent& extent, const ClusterPoint& point,
                                    bool sequence) {
  if (framework == "megatron") return for_megatron(extent, point, sequence);
  if (framework == "torchtitan") return for_torchtitan(extent, point);
  if (framework == "deepspeed") return for_deepspeed(extent, point);
  EXPECTS(framework == "pytorch");
  return for_pytorch(extent, point, sequence);
}

}  // namespace plimsoll
