// Catch2 2 (Debian 12) is this one header; Catch2 3 is many. The tests include the one: here it is made of the many.
#pragma once

#include <catch2/catch_approx.hpp>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/catch_version_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_all.hpp>

using Catch::Approx;

namespace Catch {

/// Of a string, as Catch2 2 names it.
inline Matchers::StringContainsMatcher Contains(const std::string& part) {
  return Matchers::ContainsSubstring(part);
}

using Matchers::EndsWith;
using Matchers::StartsWith;

}  // namespace Catch
