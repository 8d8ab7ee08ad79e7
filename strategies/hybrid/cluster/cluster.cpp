// The strategy `cluster`: of all combinations of tensor, context and expert parallelism, replicas, pipelines, sizes of
// micro-batches and recomputation the fastest within memory, proven to be the best of them by bounds (search.h).
// Whoever asks the question (experiments/study/choice/cluster_question.h) runs the search: the answer is a pass
// pipeline, and a question of its own.

#include <algorithm>
#include <string>
#include <variant>

#include "strategies/api/strategy.h"
#include "strategies/hybrid/cluster/cluster_options.h"
#include "strategies/hybrid/cluster/framework.h"
#include "strategies/hybrid/cluster/space.h"

namespace plimsoll {
namespace {

bool are_numbers(std::string_view text) {
  const auto values = read_choices(text);
  return values && (values->empty() || values->front() > 0);
}

bool are_chunks(std::string_view text) {
  const auto values = read_choices(text);
  return values && (values->empty() || (values->front() > 1 && values->back() <= 64));
}

bool are_zero_levels(std::string_view text) {
  const auto values = read_choices(text);
  return values && (values->empty() || values->back() <= 3);
}

template <auto table>
bool are_named(std::string_view text) {
  const std::vector<std::string_view> words = read_words(text);
  return std::ranges::all_of(words, [](std::string_view word) {
    return std::ranges::any_of(table(), [&](const auto& each) { return each.name == word; });
  });
}

bool is_framework(std::string_view text) {
  return text == "any" || cluster_framework(text) != nullptr;
}

constexpr std::string_view numbers = "auto, or whole numbers and ranges joined by '+', such as 1+4-8";

constexpr auto cluster_options = options_of<ClusterOptions>(
    option_of<&ClusterOptions::tensor>({
        .name = "t",
        .values = numbers,
        .help = "devices that share out the operators of a stage; auto: within a node each power of two and each "
                "divisor of "
                "its devices",
        .allowed = are_numbers,
    }),
    option_of<&ClusterOptions::context>({
        .name = "context",
        .values = numbers,
        .help = "devices that share out the positions of a sequence; auto: each divisor of the number of devices",
        .allowed = are_numbers,
    }),
    option_of<&ClusterOptions::stages>({
        .name = "p",
        .values = numbers,
        .help = "stages of the pipeline; auto: on up to 16 devices every number, on more each power of two and each "
                "divisor of their number",
        .allowed = are_numbers,
    }),
    option_of<&ClusterOptions::replicas>({
        .name = "d",
        .values = numbers,
        .help = "replicas; auto: every number for which there are devices and that divides the micro-batches",
        .allowed = are_numbers,
    }),
    option_of<&ClusterOptions::zero>({
        .name = "z",
        .values = "auto, or numbers from 0 to 3 joined by '+'",
        .help = "what replicas share out: 0 nothing, 1 states, 2 also gradients, 3 also parameters",
        .allowed = are_zero_levels,
    }),
    option_of<&ClusterOptions::experts>({
        .name = "expert",
        .values = numbers,
        .help = "replicas that share out the experts of mixtures; auto: each divisor of the number of devices",
        .allowed = are_numbers,
    }),
    option_of<&ClusterOptions::copies>({
        .name = "copies",
        .values = numbers,
        .help = "groups of replicas that share out the same with z=2 and z=3 (HSDP); auto: each divisor of the number "
                "of devices",
        .allowed = are_numbers,
    }),
    option_of<&ClusterOptions::schedule>({
        .name = "schedule",
        .values = "auto, or none, 1f1b, gpipe, interleaved, zb_h1, zb_v, v_half, dualpipe_v joined by '+'",
        .help = "of the pipeline, none with one stage; auto: all but gpipe",
        .allowed = are_named<cluster_schedules>,
    }),
    option_of<&ClusterOptions::chunks>({
        .name = "chunks",
        .values = "auto, or whole numbers and ranges from 2 to 64 joined by '+', such as 2+4-8",
        .help = "parts of the model on a device of interleaved; auto: 2, 3, 4, 6, 8 and 12",
        .allowed = are_chunks,
    }),
    option_of<&ClusterOptions::samples>({
        .name = "micro_batch",
        .values = numbers,
        .help = "samples of a micro-batch; auto: up to 16 where the trace is a formula, else as in the trace",
        .allowed = are_numbers,
    }),
    option_of<&ClusterOptions::saver>({
        .name = "saver",
        .values = "auto, or none, core, full, rotor, greedy_recompute joined by '+'",
        .help = "memory within a stage; core: recompute_ops, full: full_recompute; auto: none, core and full",
        .allowed = are_named<cluster_savers>,
    }),
    option_of<&ClusterOptions::compression>({
        .name = "compression",
        .values = "auto, or none, quantize, gact, lossless joined by '+'",
        .help = "of kept values, without pipelines and savers that plan by stages; all but lossless change gradients",
        .allowed = are_named<cluster_compressions>,
    }),
    option_of<&ClusterOptions::offload>({
        .name = "offload",
        .values = "auto, or none, offload_greedy, offload_fractional, pofo joined by '+'",
        .help = "of kept values to the host; auto: all but pofo",
        .allowed = are_named<cluster_offloads>,
    }),
    option_of<&ClusterOptions::updates>({
        .name = "updates",
        .values = "auto, or device, backward_updates, zero_offload, twinflow, deep_optimizer_states joined by '+'",
        .help = "where parameters are updated and states are; auto: all",
        .allowed = are_named<cluster_updates>,
    }),
    option_of<&ClusterOptions::planners>({
        .name = "planners",
        .values = "auto, or none, hsm2dl, alpa, piper, placement joined by '+'",
        .help = "searches whose plans are compared, too (placement: auto), none: the other options' points; auto: all "
                "where the trace is a graph of operators that no formula makes, else none",
        .allowed = are_named<cluster_planners>,
    }),
    option_of<&ClusterOptions::framework>({
        .name = "for",
        .values = "any, megatron, torchtitan, deepspeed or pytorch",
        .help = "only what this framework runs; the answer says how it is told to",
        .allowed = is_framework,
    }),
    option_of<&ClusterOptions::limit>({
        .name = "points",
        .least = 1,
        .most = 1e6,
        .help = "how many points are simulated at most; where more may be faster, the answer says how much at most",
    }),
    option_of<&ClusterOptions::prices>({
        .name = "prices",
        .words = "no yes",
        .values = "yes or no",
        .help = "also what would be chosen with more memory, faster links, a device more or fewer, and without some "
                "ways; each is a search more",
    }));

std::variant<Problem, std::string> asked_alone(const Problem&, const Options&) {
  return std::string(
      "it chooses the whole pass pipeline, and is asked alone by 'simulate', 'plan', 'load' and 'sweep'");
}

}  // namespace

extern constinit const StrategyInfo cluster_strategy{
    .name = "cluster",
    .family = Family::hybrid,
    .summary = "the fastest combination of tensor, data and pipeline parallelism and recomputation, with a proof",
    .source = "own; enumerated spaces: Isaev et al., Calculon, SC 2023",
    .options = cluster_options,
    .kind = SplitStrategy{.transform = asked_alone},
};

}  // namespace plimsoll
