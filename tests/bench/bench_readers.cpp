// How long it takes to read a graph trace of 300,000 ops, and how much memory at the most (the process's peak, in MB).
// The bar: 1.5 s and 400 MB.

#include <benchmark/benchmark.h>

#include <sys/resource.h>

#include <filesystem>
#include <string>

#include "sim/io/text_file.h"
#include "traces/trace_file.h"

namespace {

/// Ops as an exporter writes them: two inputs, one output, every other one with flops, a backward op for each forward
/// op.
std::string graph_text(std::size_t ops) {
  std::string text =
      R"({"format": "plimsoll.trace.v1", "kind": "graph", "name": "bench", "source": {"kind": "computed"},
"tensors": [
{"name": "x", "kind": "input", "bytes": 1048576, "shape": [8, 256, 128], "dtype": "fp32", "storage": 0})";
  for (std::size_t i = 1; i <= ops; ++i) {
    text += ",\n{\"name\": \"layer" + std::to_string(i % 96) + ".op." + std::to_string(i) + ":0\", \"kind\": \"" +
            (i <= ops / 2 ? "activation" : "gradient") + "\", \"bytes\": 1048576, \"shape\": [8, 256, 128], " +
            "\"dtype\": \"fp32\", \"storage\": " + std::to_string(i) + "}";
  }
  text += "],\n\"ops\": [";
  for (std::size_t i = 0; i < ops; ++i) {
    text += std::string(i == 0 ? "\n" : ",\n") + "{\"name\": \"layer" + std::to_string(i % 96) + ".op." +
            std::to_string(i) + "\", \"kind\": \"addmm\", \"phase\": \"" + (i < ops / 2 ? "forward" : "backward") +
            "\", \"stage\": " + std::to_string(i % 96) +
            ", \"time_s\": 0.000123456, \"flops\": 1.5e9, \"bytes\": 3145728" +
            ", \"workspace_bytes\": 0, \"inputs\": [" + std::to_string(i) + ", " + std::to_string(i / 2) +
            "], \"outputs\": [" + std::to_string(i + 1) + "], \"saved\": [], \"mutates\": []}";
  }
  return text + "]}\n";
}

double peak_megabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1000;  // kilobytes in Linux
}

void read_graph(benchmark::State& state) {
  const auto ops = static_cast<std::size_t>(state.range(0));
  const std::filesystem::path file = std::filesystem::temp_directory_path() / "plimsoll_bench_readers.json";
  {
    const std::string text = graph_text(ops);
    plimsoll::write_text_file(file, text);
  }
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(file));
  for (auto _ : state) benchmark::DoNotOptimize(plimsoll::read_trace(file));
  state.SetBytesProcessed(state.iterations() * size);
  state.counters["file_MB"] = static_cast<double>(size) / 1e6;
  state.counters["peak_MB"] = peak_megabytes();
  std::filesystem::remove(file);
}
BENCHMARK(read_graph)->Arg(3'000)->Arg(30'000)->Arg(300'000)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
