// `cluster(for=...)`: what each framework is told, read back by readers of its form alone, is the point that was
// chosen.

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>

#include "strategies/hybrid/cluster/framework.h"
#include "tests/experiments/run_program.h"

namespace plimsoll {
namespace {

/// A point as a framework is told it, by the names of its own files.
struct ReadBackPoint {
  ClusterPoint point;
  bool sequence = false;
  std::uint32_t micro_batches = 0;  ///< of each replica
  std::uint32_t started = 0;        ///< processes; 0: not said
};

std::uint32_t number_in_text(const std::string& text) {
  return static_cast<std::uint32_t>(std::stoul(text));
}

std::uint8_t schedule_named(const std::string& name) {
  const auto found = std::ranges::find(cluster_schedules(), name, &ClusterSchedule::name);
  REQUIRE(found != cluster_schedules().end());
  return static_cast<std::uint8_t>(found - cluster_schedules().begin());
}

std::uint8_t saver_named(const std::string& name) {
  const auto found = std::ranges::find(cluster_savers(), name, &ClusterSaver::name);
  REQUIRE(found != cluster_savers().end());
  return static_cast<std::uint8_t>(found - cluster_savers().begin());
}

/// What stands in the first group; empty where nothing does.
std::string first_group(const std::string& text, const std::string& pattern) {
  std::smatch match;
  return std::regex_search(text, match, std::regex(pattern)) ? match[1].str() : "";
}

std::uint32_t torchrun_processes(const std::string& text) {
  return number_in_text(first_group(text, "--nnodes=(\\d+)")) *
         number_in_text(first_group(text, "--nproc-per-node=(\\d+)"));
}

/// Arguments by name; those without a value have none.
ReadBackPoint read_megatron(const std::string& text) {
  std::map<std::string, std::string> arguments;
  std::istringstream words(text.substr(text.find("pretrain_gpt.py") + 15));
  std::string last;
  for (std::string word; words >> word;) {
    if (word == "\\") continue;
    if (word.starts_with("--")) {
      REQUIRE(arguments.emplace(word, "").second);
      last = word;
    } else {
      arguments[last] = word;
    }
  }
  const auto number = [&](const std::string& name) {
    return arguments.contains(name) ? number_in_text(arguments[name]) : 1;
  };
  ReadBackPoint read;
  ClusterPoint& point = read.point;
  point.tensor = number("--tensor-model-parallel-size");
  point.context = number("--context-parallel-size");
  CHECK((point.context > 1) == (arguments["--cp-comm-type"] == "all_gather"));
  point.experts = number("--expert-model-parallel-size");
  point.copies = number("--num-distributed-optimizer-instances");
  point.stages = number("--pipeline-model-parallel-size");
  point.chunks = number("--num-virtual-stages-per-pipeline-rank");
  point.samples = number("--micro-batch-size");
  read.sequence = arguments.contains("--sequence-parallel");
  read.started = torchrun_processes(text);
  point.replicas = read.started / (point.width() * point.stages);
  read.micro_batches = number("--global-batch-size") / (point.replicas * point.samples);
  const std::string shared = arguments["--data-parallel-sharding-strategy"];
  point.zero = shared == "optim_grads_params"                      ? 3
               : shared == "optim_grads"                           ? 2
               : arguments.contains("--use-distributed-optimizer") ? 1
                                                                   : 0;
  CHECK((point.zero > 1) == arguments.contains("--use-megatron-fsdp"));
  point.schedule = schedule_named(point.stages == 1 ? "none" : point.chunks > 1 ? "interleaved" : "1f1b");
  point.updates = arguments.contains("--optimizer-cpu-offload") ? 2 : 0;
  CHECK((point.updates > 0) == arguments.contains("--use-precision-aware-optimizer"));
  const std::string again = arguments["--recompute-granularity"];
  point.saver = saver_named(again == "selective" ? "core" : again == "full" ? "full" : "none");
  return read;
}

const std::map<std::string, std::string>& schedules_of_pytorch() {
  static const std::map<std::string, std::string> names{{"1F1B", "1f1b"},
                                                        {"GPipe", "gpipe"},
                                                        {"Interleaved1F1B", "interleaved"},
                                                        {"ZBVZeroBubble", "zb_v"},
                                                        {"DualPipeV", "dualpipe_v"}};
  return names;
}

/// `layers` of the model, by which torchtitan finds how many parts there are.
ReadBackPoint read_torchtitan(const std::string& text, std::uint32_t layers) {
  std::map<std::string, std::string> values;
  std::istringstream lines(text);
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("#") || line.empty()) continue;
    if (line.starts_with("[")) {
      section = line.substr(1, line.find(']') - 1);
      continue;
    }
    const std::size_t equals = line.find(" = ");
    REQUIRE(equals != std::string::npos);
    std::string value = line.substr(equals + 3);
    std::erase(value, '"');
    REQUIRE(values.emplace(section + "." + line.substr(0, equals), value).second);
  }
  const auto number = [&](const std::string& name) { return number_in_text(values.at(name)); };
  ReadBackPoint read;
  ClusterPoint& point = read.point;
  point.tensor = number("parallelism.tensor_parallel_degree");
  if (values.contains("parallelism.context_parallel_degree")) {
    point.context = number("parallelism.context_parallel_degree");
    CHECK(values.at("parallelism.context_parallel_rotate_method") == "allgather");
  }
  point.stages = number("parallelism.pipeline_parallel_degree");
  const std::uint32_t shards = number("parallelism.data_parallel_shard_degree");
  point.replicas = shards * number("parallelism.data_parallel_replicate_degree");
  if (shards > 1) point.copies = number("parallelism.data_parallel_replicate_degree");
  if (values.contains("parallelism.expert_parallel_degree")) {
    point.experts = number("parallelism.expert_parallel_degree");
    CHECK(number("parallelism.expert_tensor_parallel_degree") == point.tensor);
  }
  if (shards > 1) point.zero = values.at("parallelism.fsdp_reshard_after_forward") == "always" ? 3 : 2;
  const std::uint32_t local = number("training.local_batch_size"), batch = number("training.global_batch_size");
  point.samples = point.stages > 1 ? number("parallelism.pipeline_parallel_microbatch_size") : local;
  read.micro_batches = batch / (point.replicas * point.samples);
  if (point.stages > 1) CHECK(local * point.replicas == batch);
  point.schedule = schedule_named(
      point.stages > 1 ? schedules_of_pytorch().at(values.at("parallelism.pipeline_parallel_schedule")) : "none");
  if (point.way().shape != PipelineShape::line) point.chunks = 2;
  if (values.contains("parallelism.pipeline_parallel_layers_per_stage")) {
    const std::uint32_t each = number("parallelism.pipeline_parallel_layers_per_stage");
    const std::uint32_t parts = (layers + 2 + each - 1) / each;
    CHECK(parts % point.stages == 0);
    point.chunks = parts / point.stages;
  }
  point.saver = saver_named(values.at("activation_checkpoint.mode"));
  read.started = torchrun_processes(text);
  read.sequence = true;  // its tensor parallelism has no other
  return read;
}

/// `devices` that it is started on.
ReadBackPoint read_deepspeed(const std::string& text) {
  const nlohmann::json config = nlohmann::json::parse(text);
  ReadBackPoint read;
  ClusterPoint& point = read.point;
  point.samples = config.at("train_micro_batch_size_per_gpu");
  read.micro_batches = config.at("gradient_accumulation_steps");
  point.replicas = config.at("train_batch_size").get<std::uint32_t>() / (point.samples * read.micro_batches);
  const nlohmann::json& sharing = config.at("zero_optimization");
  point.zero = sharing.at("stage");
  if (sharing.contains("mics_shard_size")) {
    point.copies = point.replicas / sharing["mics_shard_size"].get<std::uint32_t>();
  }
  if (sharing.contains("offload_optimizer")) point.updates = 2;
  if (config.contains("pipeline")) point.stages = config["pipeline"].at("stages");
  point.schedule = schedule_named(point.stages > 1 ? "1f1b" : "none");
  point.saver = saver_named(config.contains("activation_checkpointing") ? "full" : "none");
  if (point.stages > 1) CHECK(config["pipeline"]["activation_checkpoint_interval"] == (point.saver == 0 ? 0 : 1));
  return read;
}

ReadBackPoint read_pytorch(const std::string& text) {
  ReadBackPoint read;
  ClusterPoint& point = read.point;
  std::smatch mesh;
  const std::string sizes = "init_device_mesh\\(\"cuda\", \\((\\d+), (?:(\\d+), )?(\\d+), (\\d+)\\)";
  REQUIRE(std::regex_search(text, mesh, std::regex(sizes)));
  point.stages = number_in_text(mesh[1]);
  point.copies = mesh[2].matched ? number_in_text(mesh[2]) : 1;
  point.replicas = point.copies * number_in_text(mesh[3]);
  point.tensor = number_in_text(mesh[4]);
  CHECK((point.copies > 1) == (text.find("fully_shard(model, mesh=mesh[\"copies\", \"dp\"]") != std::string::npos));
  std::smatch batches;
  REQUIRE(std::regex_search(text, batches, std::regex("micro_batch_size, n_microbatches = (\\d+), (\\d+)\n")));
  point.samples = number_in_text(batches[1]);
  read.micro_batches = number_in_text(batches[2]);
  const std::string reshards = first_group(text, "fully_shard\\(.*reshard_after_forward=(True|False)");
  const bool is_shared = text.find("ZeroRedundancyOptimizer(") != std::string::npos;
  point.zero = reshards == "True" ? 3 : reshards == "False" ? 2 : is_shared ? 1 : 0;
  CHECK((point.replicas > 1 && point.zero < 2) == (text.find("DistributedDataParallel(") != std::string::npos));
  const std::string schedule = first_group(text, "schedule = Schedule(\\w+)\\(");
  point.schedule = schedule_named(schedule.empty() ? "none" : schedules_of_pytorch().at(schedule));
  const std::string chunks = first_group(text, "# stages: (\\d+) a rank");
  if (!chunks.empty()) point.chunks = number_in_text(chunks);
  point.saver = saver_named(text.find("apply_activation_checkpointing(") != std::string::npos ? "full"
                            : text.find("checkpoint(core_attention") != std::string::npos     ? "core"
                                                                                              : "none");
  read.started = torchrun_processes(text);
  read.sequence = text.find("sequence_and_tensor_parallel") != std::string::npos;
  return read;
}

constexpr std::uint32_t model_layers = 8;

const std::string dense = "transformer:layers=8,width=64,heads=8,sequence=32,vocabulary=96,view=graph";
const std::string mixture = "llama:layers=8,width=64,heads=8,kv_heads=4,inner=64,experts=4,sequence=32,vocabulary=96";

ProgramRun asked_for_framework(const std::string& options, const std::string& model = dense,
                               std::uint32_t micro_batches = 16) {
  return plimsoll("simulate --json --trace " + model +
                  " --platform a100_sxm_8 --optimizer adam --engine event --micro-batches " +
                  std::to_string(micro_batches) + " --strategy 'cluster(" + options +
                  (options.find("points=") == std::string::npos ? ",points=10" : "") + ")'");
}

void check_read_back(const std::string& framework, const std::string& options, const std::string& model = dense) {
  const ProgramRun run = asked_for_framework("for=" + framework + options, model);
  INFO(framework + options + run.err);
  REQUIRE(run.exit_code == 0);
  const nlohmann::json made = nlohmann::json::parse(run.out);
  CHECK(made["configuration"]["framework"] == framework);
  const std::string text = made["configuration"]["text"];
  INFO(text);
  const ReadBackPoint read = framework == "megatron"     ? read_megatron(text)
                             : framework == "torchtitan" ? read_torchtitan(text, model_layers)
                             : framework == "deepspeed"  ? read_deepspeed(text)
                                                         : read_pytorch(text);
  CHECK(composed(read.point, read.sequence).text == made["strategy"].get<std::string>());
  CHECK(read.micro_batches * read.point.replicas == made["micro_batches"].get<std::uint32_t>());
  const std::string trace = made["trace"];
  const std::string samples = first_group(trace, "batch=(\\d+)");
  CHECK(read.point.samples == (samples.empty() ? 1 : number_in_text(samples)));
  if (read.started > 0) CHECK(read.started == read.point.devices());
}

}  // namespace

TEST_CASE("what a framework is told is the point that a cluster has chosen for it", "[cluster][program][turn-2]") {
  for (const std::string saver : {"none", "core", "full"}) {
    for (const std::string options :
         {",p=1,z=0", ",t=2,p=2,z=1,schedule=interleaved,chunks=2", ",t=1,p=1,z=3,d=8", ",p=1,z=2,t=4", ",p=4,t=2",
          ",schedule=1f1b,p=2,z=0,micro_batch=2", ",d=1", ",context=2,t=2,z=0", ",context=4,p=2", ",context=8"}) {
      check_read_back("megatron", options + ",saver=" + saver);
    }
    for (const std::string options : {"", ",p=2,t=2", ",p=2,schedule=zb_v", ",p=4,t=1,schedule=dualpipe_v,z=2",
                                      ",schedule=1f1b,p=2,z=3", ",p=2,schedule=interleaved+gpipe,chunks=2", ",t=8"}) {
      check_read_back("pytorch", options + ",saver=" + saver);
    }
  }
  for (const std::string saver : {"none", "full"}) {
    for (const std::string options :
         {"", ",p=1,z=0,t=1", ",p=2,t=2,z=2,schedule=zb_v", ",p=2,schedule=gpipe+1f1b",
          ",p=2,schedule=interleaved,chunks=2", ",p=1,t=8", ",p=1,z=3,t=2", ",context=2,t=2", ",context=4,z=3"}) {
      check_read_back("torchtitan", options + ",saver=" + saver);
    }
    for (const std::string options : {"", ",p=1,z=0", ",p=1,z=3", ",p=2,z=1", ",p=4", ",micro_batch=2"}) {
      check_read_back("deepspeed", options + ",saver=" + saver);
    }
  }
  for (const std::string framework : {"megatron", "torchtitan", "deepspeed", "pytorch"}) {
    check_read_back(framework, ",copies=2,p=1,z=3");
  }
  check_read_back("megatron", ",updates=zero_offload,z=1,p=2");
  check_read_back("deepspeed", ",updates=zero_offload,z=3");
  check_read_back("pytorch", ",copies=2,p=2,t=1,z=2,schedule=1f1b");
  check_read_back("megatron", ",expert=2,p=2,t=2,z=1+0", mixture);
  check_read_back("torchtitan", ",expert=2,t=2,z=3", mixture);
  check_read_back("torchtitan", ",p=2,d=2,z=2,schedule=1f1b,micro_batch=2");  // of four micro-batches
  // 8 layers, an embedding and a head in parts of 2 are 5 parts, of one 10: 5 a device.
  check_read_back("torchtitan", ",t=1,p=2,schedule=interleaved,chunks=5");
}

TEST_CASE("a framework is refused by name what it cannot run", "[cluster][program]") {
  const auto refused = [](const std::string& options, const std::string& says) {
    const ProgramRun run = asked_for_framework(options);
    INFO(run.err);
    CHECK(run.exit_code == 2);
    CHECK(run.err.find(says) != std::string::npos);
  };
  refused("for=megatron,schedule=zb_v", "for=megatron: Megatron-LM cannot run schedule=zb_v: it has no schedule zb_v");
  refused("for=megatron,schedule=1f1b+zb_v", "cannot run schedule=zb_v");
  refused("for=megatron,p=3", "cannot run any of these points: 3 parts do not divide 8 layers");
  refused("for=torchtitan,z=1", "cannot run z=1: it shares out states only with gradients (z=2, z=3)");
  refused("for=torchtitan,saver=core", "cannot run saver=core: it has no saver core");
  refused("for=deepspeed,t=2", "cannot run any of these points: it leaves tensor parallelism to the model");
  refused("for=deepspeed,p=2,z=3", "cannot run z=3: it shares gradients out (z=2, z=3) without pipelines only");
  refused("for=pytorch,schedule=v_half", "cannot run schedule=v_half: it has no schedule v_half");
  refused("for=megatron,context=32", "context=32 leaves no point: there are 8 devices");
  refused("for=torchtitan,context=2,z=0,d=2",
          "cannot run z=0: it replicates (z=0) without tensor, context and pipeline");
  refused("for=deepspeed,context=2",
          "cannot run any of these points: it exchanges heads where it shares out positions");
  refused("for=pytorch,context=2", "cannot run any of these points: its replicas do not sum gradients over the ranks");
  refused("for=deepspeed,updates=twinflow", "cannot run updates=twinflow: it has no updates twinflow");
  refused("for=pytorch,updates=device+zero_offload", "cannot run updates=zero_offload: it has no updates zero_offload");
  refused("for=megatron,updates=zero_offload,z=3", "it has no updates zero_offload");
  refused("for=torchtitan,offload=offload_greedy",
          "cannot run offload=offload_greedy: it does not choose what to offload as offload_greedy does");
  refused("for=megatron,compression=quantize,p=1", "cannot run compression=quantize: it has no compression quantize");
  refused("for=deepspeed,copies=2,z=2", "cannot run z=2: it shares out within groups of replicas with z=3 only (MiCS)");
  refused("for=deepspeed,expert=2", "cannot run any of these points: it leaves experts to the model's own layers");
  refused("for=pytorch,expert=2", "cannot run any of these points: it leaves experts to the model");
  refused("for=torchtitan,expert=2,d=2", "cannot run any of these points: it shares out experts among replicas that");
  refused("for=nemo", "cluster.for: expected any, megatron, torchtitan, deepspeed or pytorch");
}

TEST_CASE("a cluster for a framework is no faster than one for any", "[cluster][program][turn-11]") {
  const auto makespan = [](const std::string& options) {
    const ProgramRun run = asked_for_framework(options);
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    const nlohmann::json made = nlohmann::json::parse(run.out);
    CHECK(made["configuration"].is_null() == options.starts_with("for=any"));
    return made["makespan_s"].get<double>();
  };
  const double any = makespan("for=any,points=100000");
  for (const ClusterFramework& framework : cluster_frameworks()) {
    CHECK(makespan("for=" + std::string(framework.name) + ",points=100000") >= any * (1 - 1e-9));
  }
}

}  // namespace plimsoll
