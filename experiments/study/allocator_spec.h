#pragma once
// An allocator as the command line and experiments name it: `cuda(max_split=200 MiB,gc=0.8,fraction=0.9)`.

#include <string>
#include <string_view>

#include "sim/io/quantity.h"
#include "sim/memory/allocator_settings.h"

namespace plimsoll {

/// The allocator that a text names, or what is wrong with it; then `at` is where, counted from 0, and `key` which
/// option.
struct AllocatorSpec : Parsed<AllocatorChoice> {
  std::size_t at = 0;
  std::string key{};
};
AllocatorSpec read_allocator(const std::string& text);

/// Throws InputError, located as `where:1:column`.
AllocatorChoice parse_allocator(const std::string& text, std::string_view where);

}  // namespace plimsoll
