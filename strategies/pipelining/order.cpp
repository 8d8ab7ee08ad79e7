// The strategy `order`: the order of turns that a file gives, in PyTorch's convention.

#include <fmt/format.h>

#include "sim/io/input_error.h"
#include "strategies/pipelining/orders/order_file.h"
#include "strategies/pipelining/pipeline.h"

namespace plimsoll {
namespace {

struct OrderOptions : LineOptions {
  std::string file;
};

OrderFile file_of(const OrderOptions& options) {
  if (options.file.empty()) throw InputError("order: file=... names the order, a CSV file");
  return read_order(options.file);
}

bool splits_backward(const OrderOptions& options) {
  return file_of(options).order.weights_apart;
}

std::vector<PartitionOutcome> order_partition(const Problem& problem, const OrderOptions& options,
                                              std::span<const std::optional<Bytes>> budgets) {
  const OrderFile file = file_of(options);
  const std::size_t ranks = file.order.turns.size(), devices = problem.platform.devices.size();
  const std::size_t parts = file.order.rank_of.size(), stages = problem.chain->stages.size();
  const std::string& name = options.file;
  if (ranks > devices) {
    throw InputError(fmt::format("order: '{}' has {} ranks, and platform '{}' has {} device{}", name, ranks,
                                 problem.platform.name, devices, devices == 1 ? "" : "s"));
  }
  if (parts > stages) {
    throw InputError(fmt::format("order: '{}' has {} parts of at least one stage each, and '{}' has {} stages", name,
                                 parts, problem.graph.name, stages));
  }
  if (file.micro_batches != problem.micro_batches) {
    throw InputError(fmt::format("order: '{}' is for {} micro-batches, and --micro-batches is {}", name,
                                 file.micro_batches, problem.micro_batches));
  }
  if (!file.exchanges.empty() && options.work_conserving) {
    throw InputError(
        fmt::format("order: '{}' says when ranks send and receive, so that work_conserving=yes cannot take "
                    "turns in another order",
                    name));
  }
  return each_changed(pipeline(problem, options, "order", file.order, budgets), [&](Partition& made) {
    made.exchanges = file.exchanges;
    if (!made.exchanges.empty()) made.exchanges.resize(made.order.size());
    if (file.left_out == 0) return;
    made.note =
        fmt::format("{} cells of FSDP (UNSHARD, RESHARD, REDUCE_GRAD) in '{}' are left out", file.left_out, name);
  });
}

constexpr auto order_options =
    options_of<OrderOptions>(cut_option, shared_updates_option, work_conserving_option,
                             option_of<&OrderOptions::file>({
                                 .name = "file",
                                 .values = "the path of a CSV file",
                                 .help = "a line a device, cells such as 0F1, 0B1, 0I1 and 0W1: part, forward, "
                                         "whole backward or its two halves, micro-batch; 0SEND_F1 and 1RECV_F1: "
                                         "when devices exchange",
                                 .allowed = [](std::string_view text) { return !text.empty(); },
                             }));

}  // namespace

extern constinit const StrategyInfo order_strategy{
    .name = "order",
    .family = Family::pipelining,
    .summary = "the order of a pipeline's turns that a file gives, as torch.distributed.pipelining writes it",
    .source = "PyTorch, torch.distributed.pipelining.schedules",
    .chains_only = true,
    .options = order_options,
    .kind = PartitionStrategy{.partition = by_options<order_partition>, .splits_backward = by_options<splits_backward>},
};

}  // namespace plimsoll
