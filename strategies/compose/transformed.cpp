#include "strategies/compose/transformed.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "sim/io/input_error.h"
#include "sim/model/stage_chain.h"
#include "strategies/compose/chosen_width.h"
#include "strategies/compose/levels/joint_planner.h"
#include "strategies/hybrid/on_mesh.h"
#include "strategies/hybrid/split_search.h"
#include "strategies/list.h"

namespace plimsoll {
namespace {

bool plans_stages(const Pass& pass) {
  return pass.strategy->chains_only || pass.strategy->family == Family::pipelining ||
         (pass.strategy->family == Family::hybrid && pass.strategy->partitions());
}

/// A graph whose ops are of stages, for pipelines of these; else cut into some, for planners of chains.
Problem as_stages(Problem problem, std::span<const Pass> passes) {
  if (!problem.chain && cuts_graphs_itself(passes)) {
    std::variant<Problem, std::string> chain = chain_strategy.transform(problem, pass_of(chain_strategy).options);
    if (auto* why = std::get_if<1>(&chain)) throw InputError(fmt::format("{}: {}", passes[0].strategy->name, *why));
    problem = std::get<Problem>(std::move(chain));
  }
  const auto cuts_chains = [](const Pass& pass) {
    return pass.strategy->chains_only && pass.strategy->family == Family::pipelining;
  };
  const auto pipeline = std::ranges::find_if(passes, cuts_chains);
  const bool is_split = backward_for(passes) == Backward::split, is_apart = inner_for(passes) == Inner::apart;
  const bool is_again = problem.of_ops && problem.chain &&
                        ((is_split && problem.index->weight.empty()) || (is_apart && !lists_saved(*problem.chain)));
  if (!is_again && (problem.chain || pipeline == passes.end())) return problem;
  if (is_again) {  // a transform has made the chain, with whole backwards and what each saves together
    problem.graph = *problem.of_ops;
    problem.chain.reset();
  }
  std::variant<Problem, std::string> made =
      as_chain(std::move(problem), backward_for(passes), inner_for(passes), is_again ? Unread::stay : Unread::left_out);
  if (const std::string* why = std::get_if<std::string>(&made)) {
    throw InputError(fmt::format("{}: {}", (is_again ? passes.begin() : pipeline)->strategy->name, *why));
  }
  Problem chain = std::get<Problem>(std::move(made));
  chain.notes.push_back(
      fmt::format("'{}' is planned as a chain of its {} stages", chain.chain->name, chain.chain->stages.size()));
  return chain;
}

std::uint32_t copies_in(const Mesh& mesh) {
  return mesh.axes.empty() || !mesh.axes.front().shares_micro_batches ? 1 : mesh.axes.front().ranks;
}

/// Of what a pass cuts; unset: as many as it finds best.
std::optional<std::uint32_t> copies_asked(const Pass& pass) {
  const SplitOptions* splits = pass.options.get_if<SplitOptions>();
  return splits == nullptr ? 1 : splits->replicas;
}

/// Why a pass has no problem to plan for.
struct Refused {
  std::string_view strategy;
  CannotBuild cannot;
  bool decides = false;
};

/// Of the pass at a place of the pipeline, what it decides about the problem.
using Deciding = std::function<std::variant<Decisions, CannotBuild>(const Problem&, std::size_t)>;

/// The problem as the pass at a place leaves it.
std::variant<Problem, Refused> behind_pass(const Problem& problem, std::span<const Pass> passes, std::size_t p,
                                           const Deciding& decide) {
  Pass pass = passes[p];
  if (pass.strategy->decides()) {
    std::variant<Decisions, CannotBuild> decisions = decide(problem, p);
    std::variant<Problem, CannotBuild> made;
    if (CannotBuild* cannot = std::get_if<CannotBuild>(&decisions)) {
      made = std::move(*cannot);
    } else {
      made = built(problem, std::get<Decisions>(decisions));
    }
    if (CannotBuild* cannot = std::get_if<CannotBuild>(&made)) {
      return Refused{pass.strategy->name, std::move(*cannot), true};
    }
    Problem& of_rank = std::get<Problem>(made);
    const bool is_cut_on = pass.strategy->is_cut_on() && p + 1 < passes.size() && passes[p + 1].strategy->decides();
    if (is_cut_on) of_rank.uncut = problem.uncut ? problem.uncut : std::make_shared<const Problem>(problem);
    return std::move(of_rank);
  }
  const auto places = [](const Pass& other) { return other.strategy->family == Family::placement; };
  const auto shares_micro_batches = [](const Pass& other) { return other.strategy->shares_micro_batches(); };
  // A placement may part what a bucket would sum together.
  const bool is_data = pass.options.get_if<DataOptions>() != nullptr;
  if (is_data && std::ranges::any_of(passes, places)) pass.options.change<DataOptions>().buckets.reset();
  // What is shared out within replicas is summed where it lies.
  const bool is_shared_out = std::ranges::any_of(passes.subspan(p + 1), shares_micro_batches);
  if (is_data && is_shared_out && pass.options.as<DataOptions>().bucket_view == BucketView::automatic) {
    pass.options.change<DataOptions>().bucket_view = BucketView::yes;
  }
  std::variant<Problem, std::string> made = pass.strategy->transform(problem, pass.options);
  if (std::string* why = std::get_if<std::string>(&made)) return Refused{pass.strategy->name, {std::move(*why)}};
  return std::get<Problem>(std::move(made));
}

std::variant<Problem, Refused> transformed_by(Problem problem, std::span<const Pass> passes, const Deciding& decide) {
  for (std::size_t p = 0; p < passes.size(); ++p) {
    if (!changes_problem(*passes[p].strategy)) continue;
    std::variant<Problem, Refused> made = behind_pass(problem, passes, p, decide);
    if (std::holds_alternative<Refused>(made)) return made;
    problem = std::get<Problem>(std::move(made));
    problem.transformed = true;
  }
  if (!problem.mesh) return as_stages(std::move(problem), passes);
  return for_planners(std::move(problem), std::ranges::any_of(passes, plans_stages), backward_for(passes),
                      passes.front().strategy->name, inner_for(passes));
}

}  // namespace

std::vector<Pass> memory_passes(std::span<const Pass> passes) {
  std::vector<Pass> memory(passes.begin(), passes.end());
  std::erase_if(memory, [](const Pass& pass) { return !pass.strategy->makes_tapes(); });
  if (!memory.empty()) return memory;
  const bool cuts_operators =
      std::ranges::any_of(passes, [](const Pass& pass) { return pass.strategy->family == Family::hybrid; });
  const bool is_joint = cuts_operators && std::ranges::any_of(passes, is_cut_jointly);
  memory.push_back(pass_of(is_joint ? rotor_strategy : store_all_strategy));
  return memory;
}

bool cuts_graphs_itself(std::span<const Pass> passes) {
  const auto cuts = [](const Pass& pass) { return pass.strategy->partitions(); };
  const auto plans_chains = [](const Pass& pass) { return pass.strategy->chains_only; };
  return std::ranges::none_of(passes, cuts) && std::ranges::any_of(passes, plans_chains);
}

bool is_for(const Problem& problem, std::span<const Pass> passes) {
  const auto changes = [](const Pass& pass) { return changes_problem(*pass.strategy); };
  if (passes.empty() || (!problem.transformed && std::ranges::any_of(passes, changes))) return false;
  return backward_for(passes) == Backward::whole || !problem.index || !problem.index->weight.empty();
}

Backward backward_for(std::span<const Pass> passes) {
  const bool splits =
      std::ranges::any_of(passes, [](const Pass& pass) { return pass.strategy->splits_backward(pass.options); });
  return splits ? Backward::split : Backward::whole;
}

Inner inner_for(std::span<const Pass> passes) {
  const auto packs = [](const Pass& pass) { return pass.strategy->family == Family::compression; };
  return std::ranges::any_of(passes, packs) ? Inner::apart : Inner::together;
}

std::uint32_t slices_of(std::span<const Pass> passes) {
  std::uint32_t slices = 1;
  for (const Pass& pass : passes) {
    slices *= pass.strategy->slices(pass.options);
  }
  return slices;
}

std::uint32_t replicas_of(std::span<const Pass> passes, std::size_t devices) {
  std::uint32_t left = static_cast<std::uint32_t>(devices), shares = 1;
  for (const Pass& pass : passes) {
    const std::uint32_t ranks = pass.strategy->ranks(pass.options, left);
    left = std::max(left / ranks, 1U);
    if (pass.strategy->shares_micro_batches()) shares *= ranks;
    shares *= copies_asked(pass).value_or(1);
  }
  return shares;
}

Problem transformed(Problem problem, std::span<const Pass> passes) {
  const auto searched = [&](const Problem& before, std::size_t p) -> std::variant<Decisions, CannotBuild> {
    const Pass& pass = passes[p];
    const Deadline deadline(pass.strategy->seconds(pass.options));
    std::variant<Decisions, std::string> made =
        leaves_width_open(passes.subspan(p))
            ? at_chosen_width(before, passes.subspan(p), memory_passes(passes), deadline)
            : pass.strategy->decide(before, pass.options, deadline);
    if (std::string* why = std::get_if<std::string>(&made)) return CannotBuild{std::move(*why)};
    Decisions& decisions = std::get<Decisions>(made);
    decisions.strategy = pass.strategy->name;
    return std::move(decisions);
  };
  std::variant<Problem, Refused> made = transformed_by(std::move(problem), passes, searched);
  if (const Refused* refused = std::get_if<Refused>(&made)) {
    throw InputError(fmt::format("{}: {}", refused->strategy, refused->cannot.why));
  }
  return std::get<Problem>(std::move(made));
}

std::variant<Problem, CannotBuild> transformed(Problem problem, std::span<const Pass> passes,
                                               std::span<const Decisions> known) {
  constexpr std::string_view no_key = "-";
  std::size_t next = 0;
  const auto as_known = [&](const Problem&, std::size_t p) -> std::variant<Decisions, CannotBuild> {
    const std::string_view name = passes[p].strategy->name;
    if (next == known.size()) return CannotBuild{fmt::format("those of '{}' are missing", name), std::string(no_key)};
    const Decisions& decisions = known[next++];
    if (decisions.strategy != name) {
      return CannotBuild{fmt::format("expected '{}', found '{}'", name, decisions.strategy), "strategy"};
    }
    const std::uint32_t found = copies_in(decisions.mesh), asked = copies_asked(passes[p]).value_or(found);
    if (found == asked) return decisions;
    return CannotBuild{fmt::format("expected {} replicas, as '{}' has them, found {}", asked, name, found), "mesh"};
  };
  if (known.size() > deciding(passes)) {
    return CannotBuild{fmt::format("of the strategies {} decide", deciding(passes)),
                       fmt::format("[{}]", deciding(passes))};
  }
  std::variant<Problem, Refused> made = transformed_by(std::move(problem), passes, as_known);
  if (Refused* refused = std::get_if<Refused>(&made)) {
    CannotBuild& cannot = refused->cannot;
    if (!refused->decides) throw InputError(fmt::format("{}: {}", refused->strategy, cannot.why));
    const std::string own = cannot.key.empty() ? "" : "." + cannot.key;
    cannot.key = cannot.key == no_key ? "" : fmt::format("[{}]{}", next - 1, own);
    return std::move(cannot);
  }
  return std::get<Problem>(std::move(made));
}

std::size_t deciding(std::span<const Pass> passes) {
  return static_cast<std::size_t>(
      std::ranges::count_if(passes, [](const Pass& pass) { return pass.strategy->decides(); }));
}

}  // namespace plimsoll
