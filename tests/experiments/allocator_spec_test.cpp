#include "experiments/study/allocator_spec.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "sim/io/input_error.h"
#include "sim/io/text_file.h"
#include "tests/experiments/run_program.h"
#include "tests/experiments/temporary_folder.h"

namespace plimsoll {
namespace {

AllocatorChoice allocator_choice(const std::string& text) {
  return parse_allocator(text, "--allocator");
}

std::string allocator_complaint(const std::string& text) {
  try {
    parse_allocator(text, "--allocator");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

constexpr const char* resnet_on_h200 = " -t resnet50_b8_cpu -p h200 -s store_all";

TEST_CASE("allocators have options in brackets, as strategies have", "[allocator]") {
  const AllocatorChoice all =
      allocator_choice("cuda( max_split=200 MiB, roundup=4,gc=0.8,fraction=0.9 ,cublas_workspace=yes)");
  CHECK(all.kind == AllocatorKind::cuda);
  CHECK(all.caching.segments == Segments::native);
  CHECK(all.caching.max_split == Bytes{200 << 20});
  CHECK(all.caching.roundup[0] == 4);
  CHECK(all.caching.roundup[15] == 4);
  CHECK(all.caching.gc_threshold == 0.8);
  CHECK(all.caching.fraction == 0.9);
  CHECK(all.cublas_workspace);
  CHECK(all.text == "cuda( max_split=200 MiB, roundup=4,gc=0.8,fraction=0.9 ,cublas_workspace=yes)");
  CHECK(allocator_choice("cuda()").caching == CachingSettings{});
  CHECK(allocator_choice("cuda-expandable").caching.segments == Segments::expandable);
  const AllocatorChoice stitching = allocator_choice("cuda-stitching(fragment_limit=64 MiB,defrag_level=1)");
  CHECK(stitching.caching.fragment_limit == Bytes{64 << 20});
  CHECK(stitching.caching.stitch_late);
  CHECK(allocator_choice("static").kind == AllocatorKind::planned);
  for (const char* name : {"exact", "cuda", "cuda-expandable", "cuda-stitching", "static"})
    CHECK(allocator_choice(name).text == name);
}

TEST_CASE("roundup takes PyTorch's list: the first size says what holds below, `>` what holds from the last on",
          "[allocator]") {
  const RoundupDivisions roundup = allocator_choice("cuda(roundup=[4:2, 16:4 ,>:8])").caching.roundup;
  CHECK(roundup == RoundupDivisions{2, 2, 2, 0, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8});
  CHECK(allocator_choice("cuda(roundup=[4:2,16:4],fraction=1)").caching.roundup ==
        RoundupDivisions{2, 2, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  CHECK(allocator_choice("cuda(roundup=[1048576:2])").caching.roundup[15] == 2);
}

TEST_CASE("what is wrong with an allocator is said in one line, at its place", "[allocator]") {
  CHECK(allocator_complaint("cudda") ==
        "--allocator: expected exact, cuda, cuda-expandable, cuda-stitching or static, found 'cudda'; did you mean "
        "'cuda'?");
  CHECK(allocator_complaint("cuda(max_splt=1 GB)") ==
        "--allocator:1:6: cuda.max_splt: unknown option; did you mean 'max_split'?");
  CHECK(allocator_complaint("cuda-expandable(max_split=100 MiB)") ==
        "--allocator:1:16: cuda-expandable: max_split does not go with expandable segments: a block that may not be "
        "split takes their whole free end, and memory grows without bound");
  CHECK(
      allocator_complaint("cuda(gc=0.5)") ==
      "--allocator:1:5: cuda: gc needs a fraction: the threshold is a share of the bytes that the process may reserve");
  CHECK(allocator_complaint("cuda(fragment_limit=64 MiB)") ==
        "--allocator:1:6: cuda.fragment_limit: is an option of cuda-stitching");
  CHECK(allocator_complaint("exact(roundup=2)") == "--allocator:1:7: exact: takes no options, found 'roundup=2'");
  CHECK(allocator_complaint("cuda(roundup=2,roundup=4)") == "--allocator:1:16: cuda.roundup: given twice");
  CHECK(allocator_complaint("cuda(roundup)") == "--allocator:1:6: cuda.roundup: expected '=' and a value");
  CHECK(allocator_complaint("cuda(roundup=3)") ==
        "--allocator:1:6: cuda.roundup: expected a power of two from 1 to 64, or a list of MiB and such powers like "
        "[256:1,512:2,>:8], found '3'");
  for (const char* list : {"[]", "[4]", "[3:2]", "[>:2]", "[4:2,>:2,8:2]", "[4:2", "[4:0]"}) {
    INFO(list);
    CHECK(!allocator_complaint("cuda(roundup=" + std::string(list) + ")").empty());
  }
  CHECK(allocator_complaint("cuda(cublas_workspace=maybe)") ==
        "--allocator:1:6: cuda.cublas_workspace: expected yes or no, found 'maybe'");
  CHECK(allocator_complaint("cuda(max_split=200)").starts_with("--allocator:1:6: cuda.max_split: missing unit"));
  CHECK(allocator_complaint("cuda(gc=0.5") == "--allocator:1:12: cuda: expected ')' at the end");
  CHECK(allocator_complaint("cuda(gc=0.5)x").starts_with("--allocator:1:14: cuda: expected ')' at the end"));
  CHECK(allocator_complaint("cuda(,)").starts_with("--allocator:1:6: cuda.: unknown option"));
}

TEST_CASE("the summary and the JSON say what the allocator takes, how fragmented it is, and why it fails",
          "[allocator][program]") {
  const ProgramRun fine = plimsoll("simulate --allocator 'cuda(cublas_workspace=yes)'" + std::string(resnet_on_h200));
  REQUIRE(fine.exit_code == 0);
  for (const char* word :
       {"  reserved   ", "by the cuda(cublas_workspace=yes) allocator", "active at most", "allocated", "requested",
        "  fragmentation", "largest free block at the peak", "retries 0"}) {
    INFO(word);
    CHECK(fine.out.find(word) != std::string::npos);
  }
  CHECK(fine.out.find("out of memory") == std::string::npos);
  // The schedule fits the device, but not into what the process may reserve.
  const ProgramRun tight = plimsoll("simulate --allocator 'cuda(fraction=0.001)'" + std::string(resnet_on_h200));
  REQUIRE(tight.exit_code == 1);
  CHECK(tight.err.find("out of memory: store_all within 150.75 GB: on gpu: step ") != std::string::npos);
  CHECK(tight.out.find("  out of memory on gpu: ") != std::string::npos);
  CHECK(tight.out.find("too few bytes: ") != std::string::npos);
  const ProgramRun torn = plimsoll("simulate --allocator 'cuda(fraction=0.002)'" + std::string(resnet_on_h200));
  CHECK(torn.out.find("of 301.51 MB, fragmented: 97.34 MB are not in use, the largest free block has 14.55 MB") !=
        std::string::npos);
  const ProgramRun json = plimsoll("simulate --json --allocator 'cuda(fraction=0.001)'" + std::string(resnet_on_h200));
  for (const char* key :
       {"\"allocator\": \"cuda(fraction=0.001)\"", "\"peak_active_bytes\"", "\"peak_allocated_bytes\"",
        "\"peak_requested_bytes\"", "\"fragmentation\"", "\"largest_free_bytes\"", "\"inactive_split_bytes\"",
        "\"feasible\": false", "\"outcome\": \"out_of_memory\"", "\"reason\": \"on gpu: ", "\"allocation_retries\"",
        "\"out_of_memory\"", "\"reason\": \"too few bytes\"", "\"limit_bytes\": 150754820"}) {
    INFO(key);
    CHECK(json.out.find(key) != std::string::npos);
  }
}

TEST_CASE("experiments name allocators as the command line does", "[allocator][program]") {
  const TemporaryFolder folder;
  const auto sweep = [&](const std::string& allocator) {
    std::ofstream(folder / "e.yaml") << "format: plimsoll.experiment.v1\nname: a\ntraces: [uniform:4]\n"
                                     << "platforms: [ideal]\nstrategies: [store_all]\nallocator: " << allocator << "\n";
    return plimsoll("sweep " + (folder / "e.yaml").string() + " -o " + (folder / "out").string());
  };
  const ProgramRun wrong = sweep("'cuda(max_splt=1 GB)'");
  CHECK(wrong.exit_code == 2);
  CHECK(wrong.err.find(":6:12: allocator: cuda.max_splt: unknown option; did you mean 'max_split'?") !=
        std::string::npos);
  CHECK(sweep("cudda").err.find(":6:12: allocator: expected exact, cuda, ") != std::string::npos);
  const ProgramRun fine = sweep("'cuda(roundup=[4:2,>:8])'");
  CHECK(fine.exit_code == 0);
}

TEST_CASE("a schedule that fits by its live bytes and not by its allocator is out of memory, in every command",
          "[allocator][program][eleventh-2]") {
  const TemporaryFolder folder;
  const auto text = [](const std::filesystem::path& file) { return read_text_file(file); };
  const std::string asks = " --allocator 'cuda(fraction=0.002)'" + std::string(resnet_on_h200);
  const std::string plan = (folder / "plan.json").string();
  const ProgramRun planned = plimsoll("plan" + asks + " -o " + plan);
  CHECK(planned.exit_code == 1);
  CHECK(planned.err.find("out of memory: store_all within 150.75 GB: on gpu: step ") != std::string::npos);
  CHECK(!std::filesystem::exists(plan));
  const ProgramRun front = plimsoll("simulate --memory front" + asks);
  CHECK(front.exit_code == 1);
  CHECK(front.out.find("  out of memory on gpu: step ") != std::string::npos);
  CHECK(plimsoll("simulate --memory front --json" + asks).out.find("\"front\": [],\n  \"out_of_memory\": [\n") !=
        std::string::npos);
  REQUIRE(plimsoll("plan" + std::string(resnet_on_h200) + " -o " + plan).exit_code == 0);
  const ProgramRun from_file = plimsoll("simulate --schedule " + plan + " --allocator 'cuda(fraction=0.002)'");
  CHECK(from_file.exit_code == 1);
  CHECK(from_file.err.find(plan + ": out of memory: on gpu: step ") != std::string::npos);

  std::ofstream(folder / "e.yaml") << "format: plimsoll.experiment.v1\nname: a\ntraces: [resnet50_b8_cpu]\n"
                                   << "platforms: [h200]\nstrategies: [store_all]\nallocator: 'cuda(fraction=0.002)'\n";
  REQUIRE(plimsoll("sweep " + (folder / "e.yaml").string() + " -o " + (folder / "out").string()).exit_code == 0);
  CHECK(text(folder / "out" / "results.jsonl").find("\"outcome\":\"out_of_memory\"") != std::string::npos);
  const ProgramRun report = plimsoll("report " + (folder / "out").string());
  CHECK(report.out.find("  150.75 GB         out of memory") != std::string::npos);
  CHECK(text(folder / "out" / "results.csv").find("out_of_memory") != std::string::npos);
  CHECK(text(folder / "out" / "report.html").find("\"note\":\"out of memory\"") != std::string::npos);
}

}  // namespace
}  // namespace plimsoll
