#pragma once
// Which backend runs a network: options of the command line, and what there is in this build.

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "validate/backend.h"
#include "validate/networks/networks.h"

namespace plimsoll {

struct BackendArguments {
  std::string backend = "cpu", allocation;
};
void add_backend_options(CLI::App&, BackendArguments&);

/// Throws BackendError where this build or this machine has none, InputError where the words do not go together.
std::unique_ptr<Backend> make_backend(KernelSet, const BackendArguments&);

/// The backend of the words for a network's kernels, which must be that backend's.
std::unique_ptr<Backend> make_backend(const std::string& reference, const BackendArguments&);

/// The backend of the words, for what is no network's.
std::unique_ptr<Backend> make_backend(const BackendArguments&);

}  // namespace plimsoll
