// The time that hosts take to issue kernels, as users meet it.

#include <array>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "tests/experiments/run_program.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

const std::string small_llama =
    "simulate -t llama:layers=4,width=1024,heads=16,kv_heads=4,inner=2816,vocabulary=4096,sequence=256,view=";

nlohmann::json on_h100(const std::string& view, const std::string& host_launch, const std::string& strategy) {
  const ProgramRun run = plimsoll(small_llama + view + " -p 'h100_sxm_8:host_launch=" + host_launch + "' -s '" +
                                  strategy + "' --json --engine event");
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  return nlohmann::json::parse(run.out);
}

}  // namespace

TEST_CASE("where the host binds, an iteration takes what issuing takes, as a chain and as a graph", "[program]") {
  const nlohmann::json graph = on_h100("graph", "50 us", "store_all"), chain = on_h100("chain", "50 us", "store_all");
  const double issue = graph["issue_s"];
  CHECK(chain["issue_s"].get<double>() == Approx(issue));
  CHECK(graph["makespan_s"].get<double>() == Approx(issue).epsilon(0.02));
  CHECK(chain["makespan_s"].get<double>() == Approx(graph["makespan_s"].get<double>()).epsilon(0.02));
  CHECK(graph["promised_makespan_s"].get<double>() == Approx(graph["makespan_s"].get<double>()));
  const nlohmann::json fast = on_h100("graph", "0 us", "store_all");
  CHECK(fast["issue_s"].is_null());
  CHECK(fast["makespan_s"] == fast["promised_makespan_s"]);
}

TEST_CASE("what is recomputed is issued again", "[program]") {
  const nlohmann::json all = on_h100("chain", "50 us", "store_all"),
                       again = on_h100("chain", "50 us", "full_recompute");
  CHECK(again["issue_s"].get<double>() > 1.2 * all["issue_s"].get<double>());
  CHECK(again["makespan_s"].get<double>() > 1.2 * all["makespan_s"].get<double>());
}

// Every family: collectives beside and between kernels, pipelines, copies, packed forms, updates on hosts, placement.
TEST_CASE("with any strategy an iteration takes what is promised, and what its host issues at least", "[program]") {
  const std::array compositions{std::pair{"graph", "zero3"},
                                std::pair{"graph", "data_parallel(ranks=2)|zero3(ranks=4)"},
                                std::pair{"graph", "megatron(tensor=2)|zero1(ranks=2)|1f1b(stages=2)|rotor"},
                                std::pair{"graph", "zb_h1(stages=2)"},
                                std::pair{"graph", "interleaved(stages=2,chunks=2,sends=blocking)"},
                                std::pair{"graph", "save_on_cpu"},
                                std::pair{"graph", "zero_offload"},
                                std::pair{"graph", "pardnn(devices=2)"},
                                std::pair{"graph", "greedy_recompute|offload_greedy"},
                                std::pair{"graph", "quantize"},
                                std::pair{"graph", "chain|rotor"},
                                std::pair{"graph", "hsm2dl"},
                                std::pair{"chain", "offload_greedy"},
                                std::pair{"graph", "quantize|offload_greedy"},
                                std::pair{"chain", "dualpipe_v(stages=2)"}};
  for (const RandomCase which : fewer_cases(0, compositions.size() - 1)) {
    const auto& [view, strategy] = compositions.at(which);
    INFO(view << ", " << strategy);
    const std::string question = small_llama + view + " -p 'h100_sxm_8:host_launch=20 us' -s '" + strategy +
                                 "' --optimizer adam --micro-batches 8 --json --engine ";
    const ProgramRun event = plimsoll(question + "event"), simgrid = plimsoll(question + "simgrid");
    INFO(event.err);
    REQUIRE(event.exit_code == 0);
    const nlohmann::json made = nlohmann::json::parse(event.out), other = nlohmann::json::parse(simgrid.out);
    const double makespan = made["makespan_s"], issue = made["issue_s"], promised = made["promised_makespan_s"];
    CHECK(issue > 0);
    CHECK(makespan >= issue * (1 - 1e-9));
    CHECK(makespan == Approx(promised).epsilon(1e-9));
    CHECK(other["makespan_s"].get<double>() == Approx(makespan).epsilon(1e-9));
  }
}

TEST_CASE("a chain that does not count its kernels says so", "[program]") {
  const ProgramRun run = plimsoll("simulate -t gpt12_w768_t256_b4_cpu -p h100_sxm_8:host_launch='10 us' -s store_all");
  INFO(run.err);
  CHECK(run.out.find("note: the trace does not say how many kernels each stage is") != std::string::npos);
}

TEST_CASE("a host's launch needs a time", "[program]") {
  for (const auto& [text, complaint] :
       {std::pair{"host_launch=30", "host_launch: missing unit"}, std::pair{"host_launch=-3us", "must not be negative"},
        std::pair{"host_lunch=3us", "did you mean 'host_launch'?"}}) {
    const ProgramRun run = plimsoll(small_llama + "graph -s store_all -p h100_sxm_8:" + text);
    CHECK(run.exit_code == 2);
    CHECK(run.err.find(complaint) != std::string::npos);
  }
}

}  // namespace plimsoll
