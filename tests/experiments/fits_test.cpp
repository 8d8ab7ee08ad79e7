// `plimsoll fits`: its parts, its verdict against measured steps and against `simulate`, and what it proposes.

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "experiments/fits/changes.h"
#include "experiments/fits/needs.h"
#include "tests/experiments/run_program.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

using Found = nlohmann::json;

constexpr std::int64_t gb = 1'000'000'000;

/// A step that was measured on an H100 80GB HBM3 (docs/truth.md): peaks of PyTorch's allocator. The measured loop kept
/// the logits to the end of the step, which only counts where layers are checkpointed.
struct MeasuredStep {
  std::string model;
  Optimizer optimizer;
  std::int64_t allocated, reserved;
  bool is_checkpointed = false;  ///< inputs of layers are kept
};
const MeasuredStep measured_steps[] = {
    {"gpt2:batch=8,dtype=amp", Optimizer::adam, 13'966'619'136, 14'143'193'088},
    {"gpt2:batch=8,dtype=bf16", Optimizer::adam, 10'858'456'064, 10'984'882'176},
    {"gpt2:batch=8,dtype=fp32", Optimizer::adam, 16'663'177'216, 16'919'822'336},
    {"llama3_8b", Optimizer::sgd, 49'945'372'160, 50'243'567'616},
    {"tinyllama_1_1b:batch=4,sequence=2048", Optimizer::adam, 26'187'849'728, 27'485'274'112},
    {"gpt2:batch=8,dtype=amp,logits=end", Optimizer::adam, 7'747'686'400, 8'281'653'248, true},
    {"llama3_8b:logits=end", Optimizer::sgd, 33'348'556'800, 34'517'024'768, true},
    {"tinyllama_1_1b:batch=4,sequence=2048,logits=end", Optimizer::adam, 11'216'809'472, 12'029'263'872, true}};

AskedTraining training_of(const MeasuredStep& step) {
  return {.trace = step.model,
          .platform = "h100_sxm_8",
          .strategy = step.is_checkpointed ? "policy(rule=torchtitan.full)" : "store_all",
          .optimizer = step.optimizer,
          .states = States::as_parameters};
}

/// Of one line, where what is quoted may have commas.
std::vector<std::string> csv_fields(const std::string& line) {
  std::vector<std::string> fields(1);
  bool is_quoted = false;
  for (const char each : line) {
    if (each == '"') {
      is_quoted = !is_quoted;
    } else if (each == ',' && !is_quoted) {
      fields.emplace_back();
    } else {
      fields.back() += each;
    }
  }
  return fields;
}

Found fits_of(const std::string& words, int exit_code) {
  const ProgramRun run = plimsoll("fits " + words + " --json");
  INFO(run.err);
  REQUIRE(run.exit_code == exit_code);
  return Found::parse(run.out);
}

}  // namespace

TEST_CASE("what fits takes from a device is what was measured", "[fits][eleventh-7]") {
  for (const MeasuredStep& step : measured_steps) {
    INFO(step.model << (step.is_checkpointed ? ", checkpointed" : ""));
    const TrainingNeeds needs = needs_of_plain(training_of(step), {.capacity = Bytes{96 * gb}});
    REQUIRE(needs.fits);
    CHECK(static_cast<double>(needs.live.count) == Approx(static_cast<double>(step.allocated)).epsilon(0.03));
    CHECK(static_cast<double>(needs.reserved.count) == Approx(static_cast<double>(step.reserved)).epsilon(0.06));
    for (std::int64_t memory = 8; memory <= 96; ++memory) {
      const double share = static_cast<double>(memory * gb) / static_cast<double>(step.reserved);
      if (std::abs(share - 1) <= 0.06) continue;
      INFO(memory << " GB");
      CHECK(needs_within_room(training_of(step), {.capacity = Bytes{memory * gb}}).fits == (share > 1));
    }
  }
}

TEST_CASE("with expandable segments fits reserves what simulate does", "[fits][program]") {
  const Found found = fits_of("llama32_1b -p h200 --sequence 1024 --precision mixed", 0);
  const ProgramRun run = plimsoll(
      "simulate -t llama32_1b:sequence=1024,dtype=bf16 -p h200 -s store_all --optimizer adam --engine event --json "
      "--allocator 'cuda-expandable(cublas_workspace=yes)'");
  REQUIRE(run.exit_code == 0);
  const Found simulated = Found::parse(run.out);
  CHECK(found["needs"]["expandable_reserved_bytes"] == simulated["peak_reserved_bytes"]);
  CHECK(found["needs"]["expandable_reserved_bytes"] < found["needs"]["reserved_bytes"]);
}

TEST_CASE("parts of what is needed sum to what lives at the peak", "[fits]") {
  for (const char* model : {"qwen25_0_5b:sequence=512", "llama32_1b:lora=16,sequence=512", "resnet18:batch=8"}) {
    for (const States states : {States::by_dtype, States::as_parameters}) {
      const TrainingNeeds needs =
          needs_of_plain({.trace = model, .platform = "h200", .states = states}, {.capacity = Bytes{140 * gb}});
      INFO(model);
      Bytes sum;
      for (const NeedPart& part : needs.parts) sum += part.bytes;
      CHECK(sum == needs.live);
      CHECK(needs.reserved >= needs.live);
    }
  }
}

TEST_CASE("a second copy of weights in fp32 is told apart from states", "[fits]") {
  const TrainingNeeds needs =
      needs_of_plain({.trace = "qwen25_0_5b:sequence=64", .platform = "h200"}, {.capacity = Bytes{140 * gb}});
  const auto part = [&](std::string_view name) {
    const auto found = std::ranges::find(needs.parts, name, &NeedPart::name);
    return found == needs.parts.end() ? Bytes{0} : found->bytes;
  };
  constexpr std::int64_t parameters = 494'032'768;
  CHECK(needs.parameters == parameters);
  CHECK(part("weights") == Bytes{2 * parameters});
  CHECK(part("main weights in fp32") == Bytes{4 * parameters});
  CHECK(part("optimizer states") == Bytes{8 * parameters});
}

TEST_CASE("what the context and the margin take is not for the allocator", "[fits]") {
  const Reserves reserves{.capacity = Bytes{24 * gb}, .context = Bytes{gb}, .margin = 0.15};
  CHECK(reserves.room() == Bytes{20 * gb});
  CHECK(reserves.needed(reserves.room()) == Bytes{24 * gb});
  CHECK(Reserves{.capacity = Bytes{1}, .context = Bytes{2}}.room() == Bytes{0});
}

TEST_CASE("a checkpoint has what is trained, its second copy and its states", "[fits][program]") {
  constexpr std::int64_t parameters = 494'032'768;
  const auto checkpoint = [](const std::string& words) {
    return fits_of("qwen25_0_5b -p h200 --sequence 64 " + words, 0)["needs"]["checkpoint_bytes"].get<std::int64_t>();
  };
  CHECK(checkpoint("") == 3 * 2 * parameters);
  CHECK(checkpoint("--precision mixed") == (2 + 4 + 2 * 4) * parameters);
  CHECK(checkpoint("--optimizer sgd") == 2 * parameters);
  // 24 layers; queries and outputs of 896, keys and values of 128: rank times inputs and outputs, in fp32.
  CHECK(checkpoint("--train 'qlora(rank=8)'") == 3LL * 4 * 24 * 8 * (2 * 1792 + 2 * 1024));
}

// Of docs/truth.csv: what was measured beyond what was predicted, as it was when the file was made.
TEST_CASE("the errors that fits states are those of the measured steps", "[fits]") {
  std::map<std::string, std::vector<double>> errors;
  std::ifstream table("docs/truth.csv");
  for (std::string line; std::getline(table, line);) {
    const std::vector<std::string> row = csv_fields(line);
    if (row[0] != "h100_steps" || row[11].empty()) continue;
    errors[row[1].find("ResNet") == std::string::npos ? "transformers" : "ResNet-50"].push_back(
        std::stod(row[12]) / std::stod(row[11]) - 1);
  }
  for (const char* model : {"gpt2:layers=1", "llama32_1b:layers=1", "resnet18:batch=1"}) {
    const std::optional<ReserveErrors> stated =
        needs_of_plain({.trace = model, .platform = "h200"}, {.capacity = Bytes{140 * gb}}).errors;
    REQUIRE(stated.has_value());
    INFO(model);
    const std::vector<double>& found = errors.at(std::string(stated->models));
    CHECK(stated->steps == found.size());
    CHECK(stated->least == Approx(std::ranges::min(found)).margin(0.0001));
    CHECK(stated->most == Approx(std::ranges::max(found)).margin(0.0001));
  }
  CHECK(!reserve_errors(Graph{}).has_value());
}

TEST_CASE("several devices that work together have NCCL's memory, too", "[fits][program]") {
  const Reserves reserves{.capacity = Bytes{24 * gb}, .context = Bytes{gb}, .communicator = Bytes{2 * gb}};
  CHECK(reserves.room(8) == Bytes{21 * gb});
  CHECK(reserves.needed(reserves.room(8), 8) == Bytes{24 * gb});
  CHECK(reserves.room(1) == Bytes{23 * gb});
  const std::string model = "llama32_1b -p h100_sxm_8 --sequence 512 --context 0B --margin '0 %' -m '8 GB' ";
  const auto sharing = [&](const std::string& communicator) {
    const Found found = fits_of(model + "--communicator " + communicator, 1);
    for (const Found& each : found["changes"]) {
      if (each["needs"]["devices"] == 8) return each;
    }
    return Found();
  };
  const Found with = sharing("688MiB"), without = sharing("0B");
  REQUIRE((!with.is_null() && !without.is_null()));
  CHECK(with["needs"]["needed_bytes"].get<std::int64_t>() - without["needs"]["needed_bytes"].get<std::int64_t>() ==
        688LL * 1024 * 1024);
  CHECK(sharing("7.9GB").is_null());
}

TEST_CASE("each proposed change fits in the time that simulate says", "[fits][program][eleventh-5]") {
  const Found found = fits_of("qwen25_0_5b -p rtx_4090_pcie4 --batch 8 --sequence 2048", 1);
  REQUIRE(found["changes"].size() >= 3);
  bool was_same = true;
  double last = 0;
  for (const Found& each : found["changes"]) {
    const std::string command = each["training"]["command"];
    INFO(command);
    const ProgramRun run = plimsoll(command.substr(std::string("plimsoll ").size()) + " --json");
    REQUIRE(run.exit_code == 0);
    const Found result = Found::parse(run.out);
    CHECK(result["makespan_s"] == each["needs"]["iteration_s"]);
    CHECK(result["peak_bytes"] == each["needs"]["live_bytes"]);
    CHECK(each["needs"]["needed_bytes"].get<std::int64_t>() <= found["capacity_bytes"].get<std::int64_t>());
    const bool is_same = std::ranges::all_of(each["changes"], [](const Found& c) { return c["same_updates"] == true; });
    const double time = each["needs"]["iteration_s"].get<double>() / each["tokens"].get<double>();
    CHECK((was_same || !is_same));
    if (is_same == was_same) CHECK(time >= last);
    was_same = is_same;
    last = time;
  }
  // Nothing is proposed where it fits, and what is proposed is no longer infeasible.
  CHECK(fits_of("qwen25_0_5b -p h200 --batch 2 --sequence 512", 0)["changes"].is_null());
}

// Of small models of every sort, at memories that have room for a part of what plain training takes.
TEST_CASE("what is proposed fits many models as simulate says", "[fits][program]") {
  const std::vector<std::string> models{"gpt2:layers=2",
                                        "llama32_1b:layers=2,sequence=512",
                                        "bert_base:layers=3",
                                        "phi1_5:layers=2,sequence=256",
                                        "vit_base:layers=3",
                                        "t5_small:layers=2,decoder=2,source=128,sequence=128",
                                        "resnet18",
                                        "qwen3_0_6b:layers=2,sequence=256",
                                        "opt_1_3b:layers=2,sequence=256",
                                        "distilbert_base:layers=2"};
  int compared = 0;
  for (const RandomCase seed : fewer_cases(1, 33, 33)) {
    std::mt19937_64 engine(seed);
    const auto drawn = [&](std::uint64_t least, std::uint64_t most) {
      return std::uniform_int_distribution<std::uint64_t>(least, most)(engine);
    };
    const std::string& model = models[drawn(0, models.size() - 1)];
    const std::string batch = std::to_string(std::uint64_t{1} << drawn(0, 4));
    const std::string words = model + " -p " + (drawn(0, 2) == 0 ? "h100_sxm_8" : "rtx_4090_pcie4") + " --batch " +
                              batch + " --context 0B --margin '0 %'";
    const auto needed = fits_of(words, 0)["needs"]["needed_bytes"].get<std::int64_t>();
    const std::int64_t memory = needed / 100 * static_cast<std::int64_t>(drawn(35, 98));
    INFO(words << " in " << memory << " B");
    const Found found = fits_of(words + fmt::format(" -m '{} B'", memory), 1);
    for (const Found& each : found["changes"]) {
      const std::string command = each["training"]["command"];
      INFO(command);
      const ProgramRun run = plimsoll(command.substr(std::string("plimsoll ").size()) + " --json");
      REQUIRE(run.exit_code == 0);
      const Found result = Found::parse(run.out);
      CHECK(result["makespan_s"] == each["needs"]["iteration_s"]);
      CHECK(result["peak_bytes"] == each["needs"]["live_bytes"]);
      CHECK(result["peak_reserved_bytes"] == each["needs"]["reserved_bytes"]);
      CHECK(result["peak_reserved_bytes"].get<std::int64_t>() <= memory);
      if (++compared % 4 == 0) break;  // the first of some, all of others
    }
  }
  if (all_cases()) CHECK(compared > cases_of(33));
}

// Below the least that simulate states of any schedule, and where parameters and states alone exceed the memory.
TEST_CASE("no plan is made where none can fit", "[fits][program]") {
  const std::string model = "gpt2:layers=2,width=64,heads=4,sequence=64,vocabulary=512,dtype=bf16";
  const auto asked = [&](const std::string& strategy) {
    return AskedTraining{.trace = model, .platform = "h200", .strategy = strategy, .states = States::as_parameters};
  };
  // Numbers of 2 bytes, and Adam's two states of each, of as many.
  const std::int64_t staying = 3 * 2 * needs_of_plain(asked("store_all"), {.capacity = Bytes{gb}}).parameters;
  const auto is_planned = [&](std::int64_t memory, const std::string& strategy) {
    AskedTraining training = asked(strategy);
    const TrainingNeeds needs = needs_of_planned(training, {.capacity = Bytes{memory}});
    CHECK((training.budget.has_value() || (!needs.fits && needs.parts.empty())));
    return training.budget.has_value();
  };
  const ProgramRun run =
      plimsoll("simulate -t " + model + " -p h200 -s store_all --optimizer adam --states as_parameters --json");
  const std::int64_t least = Found::parse(run.out)["lower_bound_bytes"];
  REQUIRE(least > staying);
  for (const char* strategy : {"snapshot", "snapshot(offload=no)"}) {
    INFO(strategy);
    CHECK(!is_planned(staying - 1, strategy));
    CHECK(!is_planned(least - 1, strategy));
    CHECK(is_planned(least, strategy));
  }
  CHECK(is_planned(least - 1, "adam8bit|snapshot"));  // which makes states smaller
}

TEST_CASE("fits gives simulate's verdict at every memory", "[fits][program]") {
  for (const std::string memory : {"1GB", "3GB", "4GB", "5GB", "8GB"}) {
    const std::string model = "qwen25_0_5b:batch=1,sequence=128";
    const ProgramRun fits =
        plimsoll("fits " + model + " -p h200 --no-changes --context 0B --margin '0 %' -m " + memory);
    const ProgramRun simulated =
        plimsoll("simulate -t " + model + ",dtype=bf16 -p h200:memory=" + memory +
                 " -s store_all --optimizer adam --states as_parameters --allocator cuda --engine event");
    INFO(memory << fits.out << simulated.err);
    CHECK(fits.exit_code == simulated.exit_code);
  }
}

TEST_CASE("adapters, precision and sizes are the model's options", "[fits][program]") {
  const Found full = fits_of("llama32_1b -p h200 --sequence 512 --optimizer adamw", 0),
              adapters = fits_of("llama32_1b -p h200 --sequence 512 --train 'lora(rank=8)'", 0);
  CHECK(full["training"]["trace"] == "llama32_1b:sequence=512,dtype=bf16");
  CHECK(adapters["training"]["trace"] == "llama32_1b:sequence=512,lora=8,dtype=bf16");
  CHECK(full["parameters"] == 1'235'814'400);
  // 16 layers; queries and outputs of 2,048, keys and values of 512: rank times inputs and outputs, in fp32.
  CHECK(adapters["needs"]["at_peak"]["optimizer states"] == 2LL * 4 * 16 * 8 * (2 * 4096 + 2 * 2560));
  const Found packed = fits_of("llama32_1b -p h200 --sequence 512 --train 'qlora(rank=8)'", 0);
  CHECK(packed["training"]["trace"] == "llama32_1b:sequence=512,lora=8,base=nf4,dtype=bf16");
  CHECK(packed["needs"]["at_peak"]["optimizer states"] == adapters["needs"]["at_peak"]["optimizer states"]);
  const Found mixed = fits_of("gpt2 -p h200 --precision amp --batch 2", 0);
  CHECK(mixed["training"]["trace"] == "gpt2:batch=2,dtype=amp");
}

// Llama-3 8B's 8,030,261,248 parameters in bf16: weights, gradients and two states, and foreach's list of roots.
TEST_CASE("fits says what torch.optim's default update needs more", "[fits][program]") {
  const std::string words = "llama3_8b -p a100_80g -m 75GB --batch 1 --sequence 128 --optimizer adamw";
  const Found fused = fits_of(words, 0), foreach = fits_of(words + " --update-kernels foreach", 1);
  CHECK(fused["needs"]["live_bytes"].get<std::int64_t>() >= 4 * 2 * 8'030'261'248);
  CHECK(foreach["needs"]["live_bytes"].get<std::int64_t>() >= 5 * 2 * 8'030'261'248);
  CHECK(fused["needed_by_foreach_bytes"] == foreach["needs"]["needed_bytes"]);
  CHECK(foreach["needed_by_foreach_bytes"].is_null());
  CHECK(fits_of("gpt2 -p h200 --optimizer sgd", 0)["needed_by_foreach_bytes"].is_null());
}

TEST_CASE("a model that has no bf16 is asked in its own numbers", "[fits][program]") {
  const Found found = fits_of("resnet18 -p h200 --batch 4", 0);
  CHECK(found["training"]["trace"] == "resnet18:batch=4");
  CHECK(found["needs"]["at_peak"]["weights"] == 4 * 11'689'512);
}

TEST_CASE("fits takes Adam with states in 8 bits", "[fits][program]") {
  for (const std::string word : {"adam8bit", "adamw8bit"}) {
    const Found found = fits_of("llama32_1b -p h200 --sequence 256 --optimizer " + word, 0);
    const double states = found["needs"]["at_peak"]["optimizer states"], numbers = found["parameters"];
    CHECK(numbers == 1'235'814'400);
    // Two of a byte a number, and an fp32 number for each block of 256.
    CHECK(states == Approx(numbers * 2 * (1 + 4.0 / 256)).epsilon(1e-3));
  }
}

TEST_CASE("fits says what no memory has", "[fits][program]") {
  const Found found = fits_of("gpt2 -p rtx_4090_pcie4 --batch 1000000 --no-changes", 1);
  CHECK(found["needs"]["live_bytes"] > 1e15);
  const ProgramRun run = plimsoll("fits llama3_8b -p h200 --batch 1000000 --no-changes");
  CHECK(run.exit_code == 2);
  CHECK(run.err == "llama3_8b:batch=1000000,dtype=bf16: plain training needs more than 4.50 PB\n");
}

TEST_CASE("a wrong question of fits is refused in one line", "[fits][program]") {
  const auto complaint = [](const std::string& words) {
    const ProgramRun run = plimsoll("fits " + words);
    CHECK(run.exit_code == 2);
    CHECK(run.out.empty());
    return run.err;
  };
  CHECK(complaint("llama3-8b -p h200").find("did you mean 'llama3_8b'?") != std::string::npos);
  CHECK(complaint("gpt2 -p 4090").find("did you mean 'rtx_4090_pcie4'?") != std::string::npos);
  CHECK(complaint("resnet50 -p h200 --train 'lora(rank=8)'") == "--train: 'resnet50' has no 'lora'\n");
  CHECK(complaint("llama3_8b -p h200 --train qlor") ==
        "--train: expected full, lora(rank=16) or qlora(rank=16), found 'qlor'\n");
  CHECK(complaint("vit_base -p h200 --train qlora") == "vit_base:lora=16,base=nf4: base: unknown key\n");
  CHECK(complaint("llama3_8b -p h200 --train 'lora(rank=0)'") ==
        "--train: expected a whole number from 1 to 65536, found '0'\n");
  CHECK(complaint("resnet50_b8_cpu -p h200 --batch 4") ==
        "--batch: 'resnet50_b8_cpu' has no 'batch': a trace file is as it was measured\n");
  CHECK(complaint("vit_base -p h200 --sequence 4") == "--sequence: 'vit_base' has no 'sequence'\n");
  CHECK(complaint("llama3_8b -p h200 --context 200GB") ==
        "--context: expected less than the memory 150.75 GB, found 200.00 GB\n");
  CHECK(complaint("gpt2 -p h200 --optimizer adam8bi") ==
        "--optimizer: expected none, sgd, momentum, adam, adamw, adam8bit or adamw8bit, found 'adam8bi'\n");
  CHECK(complaint("gpt2 -p h200 --optimizer none --update-kernels foreach") ==
        "--update-kernels: 'foreach' needs an --optimizer, found none\n");
  CHECK(complaint("llama3_8b -p h200 --precision fp8").find("--precision: expected bf16, mixed, amp") == 0);
  CHECK(complaint("llama3_8b -p h200 --train qlora --precision amp").find("dtype=amp: not with base=nf4") !=
        std::string::npos);
  CHECK(complaint("gpt2 -p t4") == "--precision: 't4' gives no peak for bf16, the default: expected fp16 or fp32\n");
  CHECK(complaint("gpt2 -p t4 --precision amp") == "--precision: 't4' gives no peak for bf16: expected fp16 or fp32\n");
  CHECK(complaint("gpt2 -p ideal") == "--memory: needed, since the memory of 'ideal' is unlimited\n");
  CHECK(complaint("gpt2 -p h200 --context 1").find("--context: missing unit") == 0);
  CHECK(complaint("gpt2 -p h200 --margin 5") == "--margin: expected a share from 0 % to 100 %, found '5'\n");
}

TEST_CASE("fits counts an evaluation and batches before their turn", "[fits]") {
  const std::string words = "vit_base -p rtx_4090_pcie4 --batch 8 --no-changes";
  const auto plain = fits_of(words, 0), next = fits_of(words + " --prefetch-batches 1", 0),
             evaluated = fits_of(words + " --evaluate every=100,batches=10,samples=512", 0);
  const auto bytes = [](const Found& of, const char* key) { return of["needs"][key].get<std::int64_t>(); };
  const std::int64_t batch = 2 * 8 * 3 * 224 * 224 + 8 * 8;  // in bf16, and labels
  CHECK(next["needs"]["at_peak"]["batches on their way"] == batch);
  CHECK(bytes(next, "live_bytes") - bytes(plain, "live_bytes") == batch);
  CHECK(bytes(next, "reserved_bytes") - bytes(plain, "reserved_bytes") ==
        22 << 20);  // segments of a large and a small pool
  CHECK(evaluated["needs"]["peak"] == "in 'evaluation'");
}

}  // namespace plimsoll
