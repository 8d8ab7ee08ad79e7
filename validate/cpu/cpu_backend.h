#pragma once
// The CPU as a backend: oneDNN and plain loops, one thread a stream, memory that is kept from run to run.

#include <memory>

#include "validate/backend.h"
#include "validate/cpu/block_pool.h"
#include "validate/cpu/cpu_network.h"

namespace plimsoll {

class RunnableCpuNetwork : public RunnableNetwork {
 public:
  RunnableCpuNetwork(CpuNetwork made, BlockPool& pool) : made_(std::move(made)), pool_(pool) {}

  const Network& network() const override { return made_.network; }
  std::variant<Replayed, ReplayFailure> run(const Problem&, const Schedule&, const ReplayPlan&,
                                            const ReplayOptions&) override;

 private:
  CpuNetwork made_;
  BlockPool& pool_;
};

std::unique_ptr<Backend> cpu_backend();

}  // namespace plimsoll
