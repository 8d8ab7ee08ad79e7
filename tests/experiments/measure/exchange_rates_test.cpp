// Collectives measured next to the model's, as a file that `calibrate table` reads.

#include <array>
#include <catch2/catch.hpp>

#include "experiments/measure/exchange_rates.h"
#include "platforms/efficiency_fit.h"
#include "platforms/platform_file.h"
#include "sim/io/input_error.h"
#include "tests/experiments/run_program.h"
#include "tests/experiments/temporary_folder.h"
#include "validate/cpu/cpu_backend.h"

namespace plimsoll {
namespace {

TEST_CASE("collectives of threads are measured between 2, 4 and 8 ranks, and a table is made of them",
          "[calibration]") {
  const Platform platform = load_platform("h100_sxm_8");
  const auto cpu = cpu_backend();
  const std::array sizes{Bytes{1 << 12}, Bytes{1 << 14}};
  const auto measured = measured_exchanges(*cpu, platform, sizes, 2, [](const std::string&) { return true; });
  REQUIRE(measured);
  CHECK(measured->size() == 3 * 3 * 2);
  for (const MeasuredExchange& each : *measured) {
    CHECK(each.seconds.median > 0);
    CHECK(each.modelled > Seconds{0});
  }
  const MeasuredExchange &first = measured->front(), &last = measured->back();
  CHECK((first.kind == CollectiveKind::all_reduce && first.ranks == 2 && first.bytes == sizes[0]));
  CHECK((last.kind == CollectiveKind::all_gather && last.ranks == 8 && last.bytes == sizes[1]));
  const FittedTable fitted = fitted_table(exchanges_csv(*measured), "threads.csv", platform.devices.front(),
                                          {.name = "threads", .dtype = "bf16"});
  for (const MeasuredExchange& each : *measured) {  // the table has what was measured
    const auto found = fitted.efficiency.collective(each.kind, each.ranks, static_cast<double>(each.bytes.count));
    REQUIRE(found);
    CHECK(found->value == Approx(each.seconds.median).epsilon(0.5));  // few digits, and what is far off is smoothed
  }
  const auto stopped = measured_exchanges(*cpu, platform, sizes, 2, [](const std::string&) { return false; });
  CHECK_FALSE(stopped);
  CHECK_THROWS_AS(measured_exchanges(*cpu, load_platform("h200"), sizes, 2, [](const std::string&) { return true; }),
                  InputError);
}

TEST_CASE("'calibrate collectives' writes a table and shows the model's times", "[calibration]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "threads.csv").string();
  const ProgramRun bare = plimsoll("calibrate collectives --backend cpu -o " + file);
  CHECK(bare.exit_code == 2);
  CHECK(bare.err.find("calibrate collectives: needs --of PLATFORM, with a device for each rank") != std::string::npos);
  const ProgramRun run = plimsoll("calibrate collectives --of h200 --backend cpu --repetitions 1 -o " + file);
  INFO(run.err);
  CHECK(run.exit_code == 2);
  CHECK(run.err.find("collectives need two devices or more, it has one") != std::string::npos);
  const ProgramRun two = plimsoll(
      "calibrate collectives --of tests/experiments/two_devices.yaml --backend cpu --repetitions 1 -o " + file);
  INFO(two.err);
  CHECK(two.exit_code == 0);
  CHECK(two.out.find("all_gather     2 ranks   16.78 MB  measured ") != std::string::npos);
  CHECK(text_of(file).starts_with("operation,ranks,bytes,time_us\nall_reduce,2,65536,"));
}

}  // namespace
}  // namespace plimsoll
