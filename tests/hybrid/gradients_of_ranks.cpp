#include "tests/hybrid/gradients_of_ranks.h"

#include <catch2/catch.hpp>
#include <variant>

#include "traces/models/synthetic.h"

namespace plimsoll {

GradientsOfRanks::GradientsOfRanks(const std::string& model)
    : model_(model), graph_(std::get<Graph>(synthetic_model(model))) {
  for (std::uint32_t t = 0; t < graph_.tensors.size(); ++t) {
    if (is_given(graph_.tensors[t].kind)) given_[TensorId{t}] = random_numbers(graph_.tensors[t].shape, t);
  }
  whole_ = computed(graph_, given_);
}

std::size_t GradientsOfRanks::check(const Problem& of_rank, std::string_view spec) const {
  CAPTURE(model_, spec);
  std::size_t compared = 0;
  const auto on_ranks = computed_on_ranks(of_rank.graph, *of_rank.mesh, given_);
  for (std::uint32_t t = 0; t < graph_.tensors.size(); ++t) {
    const TensorId id{t};
    if (graph_[id].kind != TensorKind::parameter_gradient) continue;
    for (std::uint32_t r = 0; r < of_rank.mesh->ranks(); ++r) {
      CAPTURE(graph_[id].name, r);
      CHECK(on_ranks[r].at(id) == share_of(whole_.at(id), of_rank.graph[id].shape, *of_rank.mesh, r));
      ++compared;
    }
  }
  return compared;
}

}  // namespace plimsoll
