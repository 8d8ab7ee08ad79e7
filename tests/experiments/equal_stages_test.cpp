// The comparison that Piper's authors make: stages of equal numbers of layers, all run in one way on as many devices.
// A reading of their words, written here anew; where ../shared is there (PLIMSOLL_SHARED names it).

#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/experiments/run_program.h"

namespace plimsoll {
namespace {

constexpr double does_not_fit = std::numeric_limits<double>::infinity();

struct Machine {
  std::uint32_t devices;
  double gibibytes;
};

class EqualStages {
 public:
  EqualStages(const nlohmann::json& model, const Machine& machine) : model_(model), machine_(machine) {
    for (const nlohmann::json& node : model["nodes"]) {
      nodes_[node["id"]] = &node;
      if (node["name"] == "ParallelTransformerLayer") layers_.push_back(node["id"]);
    }
    std::ranges::sort(layers_);
  }

  /// Of all numbers of stages, replicas and devices that share a layer, with recomputation everywhere or nowhere.
  double best() const {
    const std::uint32_t micro_batches = model_["mbsInBatch"];
    double least = does_not_fit;
    for (std::uint32_t stages = 1; stages <= layers_.size(); ++stages) {
      for (const std::uint32_t tensor : {1, 2, 4, 8}) {
        for (std::uint32_t replicas = 1; stages * tensor * replicas <= machine_.devices; ++replicas) {
          if (micro_batches % replicas != 0) continue;
          for (const std::size_t way : {0, 1}) least = std::min(least, longest(stages, {tensor, replicas, way}));
        }
      }
    }
    return least;
  }

 private:
  struct Choice {
    std::uint32_t tensor, replicas;
    std::size_t way;
  };

  /// The last stages are the larger ones; what is before the layers is in the first, what is behind them in the last.
  double longest(std::uint32_t stages, const Choice& choice) const {
    const std::size_t small = layers_.size() / stages, larger = layers_.size() % stages;
    double slowest = 0;
    for (std::size_t s = 0, next = 0; s < stages; ++s) {
      std::set<int> stage;
      for (std::size_t k = small + (s + larger >= stages ? 1 : 0); k > 0; --k) stage.insert(layers_[next++]);
      for (const auto& [id, node] : nodes_) {
        const bool is_layer = std::ranges::find(layers_, id) != layers_.end();
        if (!is_layer && (id > layers_.back() ? s + 1 == stages : s == 0)) stage.insert(id);
      }
      slowest = std::max(slowest, seconds(stage, choice, static_cast<double>(stages - s)));
    }
    return slowest;
  }

  double seconds(const std::set<int>& stage, const Choice& choice, double in_flight) const {
    constexpr double bandwidth = 25.0 * (1 << 30);
    const double d = choice.replicas;
    double sum = 0, bytes = 0;
    for (const int v : stage) {
      const nlohmann::json& node = *nodes_.at(v);
      const std::string tensor = std::to_string(choice.tensor);
      if (!node["TMPCs"].contains(tensor)) return does_not_fit;
      const nlohmann::json& way = node["TMPCs"][tensor][choice.way];
      const auto synchronized = [&](const char* key, int other) { return way[key].value(std::to_string(other), 0.0); };
      double moved = 0;
      for (const nlohmann::json& edge : model_["edges"]) {
        const int from = edge["sourceId"], to = edge["destId"];
        const double each = edge["communicationCost"];
        if (to == v && !stage.contains(from)) moved += 2 * (each + synchronized("syncTimeFw", from));
        if (from == v && !stage.contains(to)) moved += 2 * (each + synchronized("syncTimeBw", to));
      }
      const double exchanged = 4 * (d - 1) * way["parameterSize"].get<double>() / model_["mbsInBatch"].get<double>();
      sum += (way["timePerSample"].get<double>() + (moved + exchanged) / bandwidth) / d;
      bytes += way["memoryUsageA"].get<double>() * in_flight + way["memoryUsageB"].get<double>();
    }
    return bytes <= machine_.gibibytes * (1 << 30) ? sum : does_not_fit;
  }

  const nlohmann::json& model_;
  Machine machine_;
  std::map<int, const nlohmann::json*> nodes_;
  std::vector<int> layers_;
};

TEST_CASE("stages of equal numbers of layers take the published times beside Piper's", "[stages][published]") {
  const char* shared = std::getenv("PLIMSOLL_SHARED");
  if (shared == nullptr) return;
  std::ifstream file(std::string(shared) + "/data/piper/bert32a100.json");
  const nlohmann::json model = nlohmann::json::parse(file);
  const auto best = [&](const Machine& machine) { return EqualStages(model, machine).best(); };
  CHECK(best({8, 8}) == Approx(0.230978).margin(1e-8).epsilon(0));
  CHECK(best({64, 8}) == Approx(0.0257245478).margin(1e-10).epsilon(0));
  CHECK(best({64, 80}) == Approx(0.0156501780).margin(1e-10).epsilon(0));
  CHECK(best({128, 1}) == does_not_fit);
  CHECK(best({512, 2}) == Approx(0.0120755538).margin(1e-10).epsilon(0));
  CHECK(best({512, 8}) == Approx(0.0033013244).margin(1e-10).epsilon(0));
  CHECK(best({1024, 8}) == Approx(0.0016996655).margin(1e-10).epsilon(0));
  CHECK(best({2048, 8}) == Approx(0.0008988361).margin(1e-10).epsilon(0));
  CHECK(best({64, 2}) == Approx(0.144742).epsilon(1e-6));  // 0.12333875 is published
}

}  // namespace
}  // namespace plimsoll
