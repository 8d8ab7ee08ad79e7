// Experiment files, sweeps, their folders and their workers.

#include "experiments/sweep/sweep.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>

#include "experiments/report/report.h"
#include "experiments/report/report_table.h"
#include "experiments/sweep/experiment_file.h"
#include "experiments/sweep/sweep_store.h"
#include "experiments/sweep/worker_pool.h"
#include "sim/io/input_error.h"
#include "sim/io/text_file.h"
#include "tests/experiments/sweep/sweep_run.h"
#include "tests/experiments/temporary_folder.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

const std::string small_experiment =
    "format: plimsoll.experiment.v1\n"
    "name: small\n"
    "traces: ['uniform:6', 'uniform:9']\n"
    "platforms: [ideal]\n"
    "strategies: [store_all, chen_sqrt, rotor]\n"
    "memory: {from: smallest, to: store_all, count: 4}\n"
    "micro_batches: [1, 2]\n"
    "engine: event\n";

int run(const fs::path& experiment, const fs::path& folder, std::size_t jobs = 1, bool resume = false, Shard shard = {},
        StoreDisk* disk = nullptr) {
  return run_sweep(experiment, folder, {.resume = resume, .shard = shard, .jobs = jobs, .disk = disk});
}

std::string complaint(const std::string& text) {
  try {
    parse_experiment(text, "x.yaml");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

std::string complaint_of_sweep(const fs::path& experiment, const fs::path& folder, bool resume = false) {
  try {
    run(experiment, folder, 1, resume);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("an experiment file states its lists, and defaults are what the command line has", "[sweep]") {
  const Experiment e = parse_experiment(
      "format: plimsoll.experiment.v1\nname: n\ntraces: resnet50\nplatforms: [ideal, h200]\nstrategies: [rotor]\n"
      "memory: [80 GB, capacity]\n",
      "x.yaml");
  CHECK(e.traces == std::vector<std::string>{"resnet50"});
  CHECK(e.platforms == std::vector<std::string>{"ideal", "h200"});
  CHECK(std::get<BudgetList>(e.memory) == BudgetList{Bytes{80'000'000'000}, std::nullopt});
  CHECK(e.micro_batches == std::vector<std::uint32_t>{1});
  CHECK(e.engine == Engine::simgrid);
  CHECK(points(e) == 4);
  const Experiment range = parse_experiment(small_experiment, "x.yaml");
  CHECK(std::get<BudgetRange>(range.memory) == BudgetRange{BudgetMark::smallest, BudgetMark::store_all, 4});
  CHECK(points(range) == std::size_t{2} * 1 * 2 * 3 * 4);
}

TEST_CASE("what is wrong with an experiment file is told with its place, all at once", "[sweep]") {
  CHECK(complaint("format: plimsoll.experiment.v1\n"
                  "name: bad\n"
                  "traces: []\n"
                  "platforms: [h200, h200]\n"
                  "strategies: [rotr]\n"
                  "memory: {from: smalest, to: 12, count: 1}\n"
                  "optimizer: adamm\n"
                  "micro_batch: 3\n"
                  "timelines: all\n") ==
        "x.yaml:3:9: traces: is empty, expected at least one\n"
        "x.yaml:4:19: platforms[1]: is listed twice, found 'h200'\n"
        "x.yaml:5:14: strategies[0]: rotr:1:1: unknown strategy 'rotr'; did you mean 'rotor'?\n"
        "x.yaml:6:16: memory.from: expected a size such as 80 GB or 64 MiB, found 'smalest'; or smallest or store_all; "
        "did you mean 'smallest'?\n"
        "x.yaml:6:29: memory.to: missing unit, expected a size such as 80 GB or 64 MiB, found '12'; or smallest or "
        "store_all\n"
        "x.yaml:6:40: memory.count: expected 2 to 10000, found '1'\n"
        "x.yaml:7:12: optimizer: expected none, sgd, momentum or adam, found 'adamm'; did you mean 'adam'?\n"
        "x.yaml:8:1: micro_batch: unknown key; did you mean 'micro_batches'?\n"
        "x.yaml:9:12: timelines: expected true or false, found 'all'");
}

TEST_CASE("budgets lie evenly between their ends, which are among them", "[sweep]") {
  CHECK(evenly(Bytes{10}, Bytes{20}, 3) == std::vector{Bytes{10}, Bytes{15}, Bytes{20}});
  CHECK(evenly(Bytes{0}, Bytes{10}, 4) == std::vector{Bytes{0}, Bytes{3}, Bytes{6}, Bytes{10}});
  CHECK(evenly(Bytes{7}, Bytes{7}, 2) == std::vector{Bytes{7}, Bytes{7}});
  CHECK(evenly(Bytes{0}, largest_bytes, 10000).back() == largest_bytes);
  CHECK(by_ratio(Bytes{1}, Bytes{64}, 4) == std::vector{Bytes{1}, Bytes{4}, Bytes{16}, Bytes{64}});
  CHECK(by_ratio(Bytes{10}, Bytes{20}, 3) == std::vector{Bytes{10}, Bytes{14}, Bytes{20}});
  CHECK(by_ratio(Bytes{7}, Bytes{7}, 3) == std::vector{Bytes{7}, Bytes{7}, Bytes{7}});
  CHECK(by_ratio(Bytes{1}, largest_bytes, 10000).back() == largest_bytes);
}

TEST_CASE("the shards of an experiment share out its groups", "[sweep]") {
  const Experiment e = parse_experiment(small_experiment, "x.yaml");
  std::vector<std::size_t> all;
  for (std::uint32_t k = 1; k <= 5; ++k) {
    const std::vector<std::size_t> mine = groups_of(e, {.k = k, .n = 5});
    all.insert(all.end(), mine.begin(), mine.end());
  }
  std::ranges::sort(all);
  CHECK(all == groups_of(e, {}));
}

TEST_CASE("a sweep has the same results however many processes run it, sorted by point", "[sweep]") {
  const TemporaryFolder folder;
  write_text_file(folder / "e.yaml", small_experiment);
  REQUIRE(run(folder / "e.yaml", folder / "one", 1) == 0);
  REQUIRE(run(folder / "e.yaml", folder / "three", 3) == 0);
  CHECK(results_of(folder / "one") == results_of(folder / "three"));
  const SweepContents contents = read_sweep(folder / "one");
  CHECK(contents.records.size() == 48);
  CHECK(contents.cases.size() == 4);
  CHECK(Json::parse(read_text_file(folder / "one" / "manifest.json"))["status"] == "complete");
  for (const auto& [point, text] : contents.records) {
    const Json record = Json::parse(text);
    const CaseFacts& facts = contents.cases.at(record["case"]);
    INFO(text);
    CHECK(record["memory_budget_bytes"] == facts.budgets[point % 4]->count);
    if (record["feasible"]) CHECK(record["peak_bytes"] <= record["memory_budget_bytes"]);
    const bool largest = point % 4 == 3;
    if (largest) CHECK(record["feasible"] == true);  // all are feasible where store_all is
    if (record["strategy"] == "store_all") CHECK(record["feasible"] == largest);
  }
}

TEST_CASE("--resume runs what is missing, after a torn line too", "[sweep]") {
  const TemporaryFolder folder;
  write_text_file(folder / "e.yaml", small_experiment);
  REQUIRE(run(folder / "e.yaml", folder / "out") == 0);
  const std::string whole = read_text_file(folder / "out" / "results.jsonl");
  const std::size_t cut = GENERATE(0U, 1U, 1000U, 20000U);
  std::ofstream(folder / "out" / "results.jsonl", std::ios::binary) << whole.substr(0, cut);
  REQUIRE(run(folder / "e.yaml", folder / "out", 2, true) == 0);
  const std::string again = read_text_file(folder / "out" / "results.jsonl");
  const std::size_t kept = cut == 0 ? 0 : whole.rfind('\n', cut - 1) + 1;  // npos + 1 is 0
  CHECK(again.substr(0, kept) == whole.substr(0, kept));                   // solve_s and all: not run again
  const std::regex measured("\"solve_s\":[^,}]*,\"simulate_s\":[^,}]*");
  CHECK(std::regex_replace(again, measured, "") == std::regex_replace(whole, measured, ""));
}

TEST_CASE("shards may share a folder, and what they leave out is run by a sweep of all", "[sweep]") {
  const TemporaryFolder folder;
  write_text_file(folder / "e.yaml", small_experiment);
  for (const std::uint32_t k : {1U, 3U}) REQUIRE(run(folder / "e.yaml", folder / "out", 1, false, {k, 3}) == 0);
  CHECK(read_sweep(folder / "out").records.size() == 32);
  REQUIRE(run(folder / "e.yaml", folder / "out", 1, true) == 0);
  CHECK(read_sweep(folder / "out").records.size() == 48);
  const std::string rest = read_text_file(folder / "out" / "results.jsonl");
  CHECK(std::ranges::count(rest, '\n') == 16);
}

TEST_CASE("a folder of something else is refused", "[sweep]") {
  const TemporaryFolder folder;
  write_text_file(folder / "e.yaml", small_experiment);
  REQUIRE(run(folder / "e.yaml", folder / "out") == 0);
  write_text_file(folder / "other.yaml", small_experiment + "gradients: existing\n");
  const std::string refusal =
      (folder / "out").string() + ": holds results of another experiment than this; choose another folder with -o";
  CHECK(complaint_of_sweep(folder / "other.yaml", folder / "out") == refusal);
  CHECK(complaint_of_sweep(folder / "other.yaml", folder / "out", true) == refusal);
  fs::create_directory(folder / "home");
  write_text_file(folder / "home" / "letter.txt", "dear reader\n");
  CHECK(complaint_of_sweep(folder / "e.yaml", folder / "home") ==
        (folder / "home").string() + ": is not empty and holds no sweep; choose another folder with -o");
  CHECK(complaint_of_sweep(folder / "missing.yaml", folder / "new") != "");
  CHECK(!fs::exists(folder / "new"));
}

TEST_CASE("a sweep that is run again without --resume sets the earlier results aside", "[sweep]") {
  const TemporaryFolder folder;
  write_text_file(folder / "e.yaml", small_experiment);
  REQUIRE(run(folder / "e.yaml", folder / "out") == 0);
  const std::string first = read_text_file(folder / "out" / "results.jsonl");
  REQUIRE(run(folder / "e.yaml", folder / "out") == 0);
  CHECK(read_text_file(folder / "out" / "results.jsonl.previous") == first);
  const std::string second = read_text_file(folder / "out" / "results.jsonl");
  REQUIRE(run(folder / "e.yaml", folder / "out") == 0);
  CHECK(read_text_file(folder / "out" / "results.jsonl.previous") == first);
  CHECK(read_text_file(folder / "out" / "results.jsonl.previous-2") == second);
}

TEST_CASE("other contents of a trace or platform file are another sweep, whatever its name", "[sweep]") {
  const TemporaryFolder folder;
  const std::string trace = trace_text(load_trace("uniform:6"));
  const std::string platform =
      "format: plimsoll.platform.v1\nname: p\nsource: none\ndevices:\n"
      "  - {name: gpu, memory: 1 GB, peak: {fp32: 1 TFLOPS}, memory_bandwidth: 1 GBps}\n";
  write_text_file(folder / "t.json", trace);
  write_text_file(folder / "p.yaml", platform);
  write_text_file(folder / "e.yaml",
                  "format: plimsoll.experiment.v1\nname: n\ntraces: t.json\nplatforms: [ideal, p.yaml]\n"
                  "strategies: store_all\nengine: event\n");
  REQUIRE(run(folder / "e.yaml", folder / "out") == 0);
  const std::string refusal = (folder / "out").string() +
                              ": holds results of other contents of the trace or platform files than this; choose "
                              "another folder with -o";
  write_text_file(folder / "t.json", trace + " ");
  CHECK(complaint_of_sweep(folder / "e.yaml", folder / "out", true) == refusal);
  write_text_file(folder / "t.json", trace);
  CHECK(complaint_of_sweep(folder / "e.yaml", folder / "out", true).empty());
  // Of the other platform all is as it was: only what is of the changed one runs again.
  const std::string before = read_text_file(folder / "out" / "results.jsonl");
  const std::string of_ideal = before.substr(0, before.find('\n') + 1), of_file = before.substr(of_ideal.size());
  write_text_file(folder / "p.yaml", platform + "# more\n");
  REQUIRE(run(folder / "e.yaml", folder / "out", 1, true) == 0);
  const std::string after = read_text_file(folder / "out" / "results.jsonl");
  CHECK(after.starts_with(of_ideal));
  CHECK(after.size() > of_ideal.size());
  CHECK(Json::parse(after.substr(of_ideal.size()))["key"] != Json::parse(of_file)["key"]);
  CHECK(read_text_file(folder / "out" / "results.jsonl.previous") == of_file);
  // And none of it where the program was killed before it had set the old rows aside.
  write_text_file(folder / "out" / "results.jsonl", before);
  REQUIRE(run(folder / "e.yaml", folder / "out", 1, true) == 0);
  CHECK(read_text_file(folder / "out" / "results.jsonl").starts_with(of_ideal));
  CHECK(read_text_file(folder / "out" / "results.jsonl.previous-2") == of_file);
}

/// Replaces a file as soon as the sweep's folder is first written to: the inputs have been read by then.
class DiskThatChangesInputs : public StoreDisk {
 public:
  explicit DiskThatChangesInputs(std::vector<std::pair<fs::path, std::string>> files) : files_(std::move(files)) {}

 private:
  int do_rename(const fs::path& from, const fs::path& to) override {
    for (const auto& [path, text] : files_) std::ofstream(path) << text;
    files_.clear();
    return StoreDisk::do_rename(from, to);
  }
  std::vector<std::pair<fs::path, std::string>> files_;
};

TEST_CASE("a sweep's inputs are read once: what happens to the files meanwhile does not matter", "[sweep]") {
  const TemporaryFolder folder;
  const std::string experiment =
      "format: plimsoll.experiment.v1\nname: n\ntraces: t.json\nplatforms: ideal\nstrategies: [store_all, rotor]\n"
      "engine: event\n";
  write_text_file(folder / "t.json", trace_text(load_trace("uniform:6")));
  write_text_file(folder / "e.yaml", experiment);
  REQUIRE(run(folder / "e.yaml", folder / "calm") == 0);
  DiskThatChangesInputs disk(
      {{folder / "t.json", trace_text(load_trace("uniform:9"))}, {folder / "e.yaml", "no experiment at all"}});
  REQUIRE(run(folder / "e.yaml", folder / "changed", 1, false, {}, &disk) == 0);
  CHECK(results_of(folder / "changed") == results_of(folder / "calm"));
  const Json calm = Json::parse(read_text_file(folder / "calm" / "manifest.json"));
  const Json changed = Json::parse(read_text_file(folder / "changed" / "manifest.json"));
  CHECK(changed["identity"] == calm["identity"]);
  CHECK(changed["experiment_text"] == experiment);
}

TEST_CASE("long names that differ at the end are not one, and equal budgets are", "[sweep]") {
  const std::string head = "format: plimsoll.experiment.v1\nname: n\nplatforms: ideal\nstrategies: store_all\n";
  const std::string folder(70, 'd');
  CHECK(complaint(head + "traces: [" + folder + "/a.json, " + folder + "/b.json]\n").empty());
  CHECK(complaint(head + "traces: uniform:6\nmemory: [1 GB, 1000 MB]\n") ==
        "x.yaml:6:16: memory[1]: is listed twice, found '1000 MB'");
}

TEST_CASE("the number of points is bounded before anything is made of it", "[sweep]") {
  std::string numbers = "1";
  for (int m = 2; m <= 1001; ++m) numbers += ", " + std::to_string(m);
  CHECK(complaint("format: plimsoll.experiment.v1\nname: n\ntraces: uniform:6\nplatforms: ideal\nstrategies: rotor\n"
                  "memory: {from: smallest, to: store_all, count: 10000}\nmicro_batches: [" +
                  numbers + "]\n") == "x.yaml: makes 10010000 points, expected 10000000 at most");
}

TEST_CASE("a strategy that refuses a trace is named so in report and table, and one that no trace is for at once",
          "[sweep]") {
  const TemporaryFolder folder;
  const std::string head = "format: plimsoll.experiment.v1\nname: n\nplatforms: ideal\nengine: event\n";
  write_text_file(folder / "e.yaml", head +
                                         "strategies: [quantize, greedy_recompute]\n"
                                         "traces: ['uniform:6', 'gpt4_ops_w256_t128_b4_cpu']\n");
  CHECK(run(folder / "e.yaml", folder / "out") == 2);
  const SweepContents contents = read_sweep(folder / "out");
  const Json figures = report_data(contents, "test")["figures"];
  REQUIRE(figures.size() == 2);
  CHECK(figures[1]["series"][0]["note"] == "");
  CHECK(figures[1]["series"][0]["reason"].is_null());
  CHECK(figures[0]["series"][0]["note"] == "refused");
  const auto reason = figures[0]["series"][0]["reason"].get<std::string>();
  CHECK(reason.find("the stages of 'uniform:6' list none") != std::string::npos);
  CHECK(figures[0]["series"][1]["note"] == "");
  CHECK(report_table(contents).find("  refused quantize: " + reason) != std::string::npos);

  const auto refused = [&](const std::string& words) {
    write_text_file(folder / "none.yaml", head + words);
    return complaint_of_sweep(folder / "none.yaml", folder / "none");
  };
  CHECK(refused("strategies: [heft, '1f1b|rotor', 'heft|rotor']\ntraces: 'gpt4_ops_w256_t128_b4_cpu'\n")
            .ends_with("none.yaml:5:34: strategies[2]: is for no trace here: strategy 'rotor' works on chain traces "
                       "only, and 'gpt4_w256_t128_b4_ops' is a graph trace; 'chain|rotor' cuts it into stages"));
  CHECK(
      refused("strategies: [zero_offload]\ntraces: ['uniform:6', 'uniform:8']\n")
          .ends_with("strategies[0]: is for no trace here: strategy 'zero_offload' places parameter updates, and there "
                     "are none: give an --optimizer"));
  CHECK(!fs::exists(folder / "none"));
}

TEST_CASE("distances in a table are from one bound, and none is -0.0", "[sweep]") {
  SweepContents contents;
  const auto add = [&](std::size_t point, const char* strategy, double time, double bound) {
    contents.records[point] = Json{
        {"point", point},        {"case", 0},
        {"trace", "t"},          {"platform", "p"},
        {"strategy", strategy},  {"optimizer", "none"},
        {"micro_batches", 1},    {"times_rescaled", false},
        {"feasible", true},      {"memory_budget_bytes", 100},
        {"makespan_s", time},    {"peak_bytes", 100},
        {"lower_bound_s", bound}}.dump();
  };
  add(0, "rotor", 12, 10);
  add(1, "offmate", 9.9999999, 8);
  add(2, "other", 7.9999999, 8);
  add(3, "late", 18, 9);
  Json lacks = Json::parse(contents.records[0]);  // bounds of what does not fit are of schedules that leave more
  lacks.update(
      {{"point", 4}, {"strategy", "greedy"}, {"feasible", false}, {"makespan_s", nullptr}, {"lower_bound_s", 4}});
  contents.records[4] = lacks.dump();
  const std::string table = report_table(contents);
  CHECK(table.find("12.00 s  +50.0 %") != std::string::npos);
  CHECK(table.find("10.00 s  +25.0 %") != std::string::npos);
  CHECK(table.find("8.00 s   +0.0 %") != std::string::npos);
  CHECK(table.find("18.00 s +125.0 %") != std::string::npos);
}

TEST_CASE("a trace and a platform that do not go together are results, and so is what exceeds the limits",
          "[sweep][eleventh-5]") {
  const TemporaryFolder folder;
  write_text_file(folder / "e.yaml",
                  "format: plimsoll.experiment.v1\nname: n\ntraces: ['uniform:6', 'random:stages=900,seed=1']\n"
                  "platforms: [ideal, h200]\nstrategies: [store_all, 'rotor(slots=exact)']\nengine: event\n"
                  "memory: 400 MB\ntimeout: 2 s\n");
  REQUIRE(run(folder / "e.yaml", folder / "out", 2) == 0);
  const SweepContents contents = read_sweep(folder / "out");
  REQUIRE(contents.records.size() == 8);
  const auto reason = [&](std::size_t point) {
    const Json record = Json::parse(contents.records.at(point));
    CHECK(record["feasible"] == false);
    CHECK(record["memory_budget_bytes"] == 400'000'000);
    return record["reason"].get<std::string>();
  };
  CHECK(Json::parse(contents.records.at(0))["feasible"] == true);
  CHECK(reason(2) == reason(3));
  CHECK(reason(2).starts_with("trace 'uniform:6' on platform 'h200': times "));
  CHECK(reason(5) == "stopped: took longer than its timeout of 2.00 s");
  CHECK(Json::parse(contents.records.at(2))["outcome"] == "refused");
  CHECK(Json::parse(contents.records.at(5))["outcome"] == "stopped");
  const std::string before = results_of(folder / "out");
  REQUIRE(run(folder / "e.yaml", folder / "out", 1, true) == 0);
  CHECK(results_of(folder / "out") == before);
  const Json report = report_data(contents, "test");
  CHECK(report["figures"].size() == 2);
  CHECK(report["impossible"].size() == 2);
  CHECK(report_table(contents).find("no answers: trace 'uniform:6'") != std::string::npos);
}

TEST_CASE("a worker beyond its memory or time is ended, and says so", "[sweep][eleventh-9]") {
  const Interruption interruption;
  WorkerPool pool(1, interruption,
                  [](const Json& task, const std::function<void(const Json&)>& reply) {
                    if (task == 1) {
                      std::vector<std::string> all;
                      for (;;) all.emplace_back(1'000'000, 'x');
                    }
                    if (task == 2) {  // a library that does not look at what it is given
                      std::signal(SIGSEGV, SIG_DFL);
                      for (;;) std::memset(std::malloc(1'000'000), 1, 1'000'000);
                    }
                    if (task == 3) pause();
                    reply(task);
                  },
                  {.timeout = Seconds{5.0}, .memory = Bytes{300'000'000}});
  std::vector<Json> tasks;
  for (int t = 0; t < 5; ++t) tasks.emplace_back(t);
  std::vector<std::string> said(5);
  CHECK(pool.run(tasks, {.record = [&](std::size_t t, std::string_view text) { said[t] = text; },
                         .failed =
                             [&](std::size_t t, const TaskFailure& failure) {
                               CHECK(failure.beyond_limits);
                               said[t] = failure.message;
                             },
                         .tick = [] {}}));
  CHECK(said == std::vector<std::string>{"0", "stopped: needed more than its memory limit of 300.00 MB",
                                         "stopped: needed more than its memory limit of 300.00 MB",
                                         "stopped: took longer than its timeout of 5.00 s", "4"});
}

TEST_CASE("a case that is wrong stops a sweep before anything runs, and may then be corrected", "[sweep]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "e.yaml").string();
  write_text_file(file, std::regex_replace(small_experiment, std::regex("ideal"), "ideel"));
  CHECK(complaint_of_sweep(file, folder / "out") ==
        file +
            ":4:13: platforms[0]: no file and no shipped platform is called 'ideel'; did you mean 'ideal'? (plimsoll "
            "list platforms)");
  write_text_file(file, std::regex_replace(small_experiment, std::regex("uniform:6"), "uniform:0"));
  CHECK(complaint_of_sweep(file, folder / "out").starts_with(file + ":3:10: traces[0]: "));
  CHECK(!fs::exists(folder / "out"));
  write_text_file(file, std::regex_replace(small_experiment, std::regex("platforms: \\[ideal\\]"),
                                           "platforms: [ideel, ideal, missing/p.yaml]"));
  const std::string both = complaint_of_sweep(file, folder / "out");
  CHECK(both.find(file + ":4:13: platforms[0]: ") == 0);
  CHECK(both.find("\n" + file + ":4:27: platforms[2]: ") != std::string::npos);
  write_text_file(folder / "e.yaml", small_experiment);
  CHECK(run(folder / "e.yaml", folder / "out") == 0);
}

TEST_CASE("every name and file is looked at before anything is planned, and a dry run does no more", "[sweep]") {
  const TemporaryFolder folder;
  write_text_file(folder / "bad.yaml", "format: plimsoll.platform.v1\nname: p\nsource: none\ndevices: none\n");
  // Planning this would take minutes.
  const std::string slow =
      "format: plimsoll.experiment.v1\nname: slow\ntraces: ['random:stages=900,seed=1', 'uniform:6']\n"
      "platforms: [ideal, PLATFORM]\nstrategies: [store_all, 'rotor(slots=exact)']\nmicro_batches: [1, 2]\n"
      "memory: {from: smallest, to: store_all, count: 5}\n";
  const auto asked_for = [&](const std::string& platform) {
    write_text_file(folder / "e.yaml", std::regex_replace(slow, std::regex("PLATFORM"), platform));
    std::ostringstream out;
    list_sweep({.experiment = folder / "e.yaml"}, out);
    return out.str();
  };
  const std::string listed = asked_for("h200");
  CHECK(listed.starts_with(
      "       0 to 4         random:stages=900,seed=1 on ideal  store_all  5 budgets from smallest to "
      "store_all\n       5 to 9         random:stages=900,seed=1 on ideal  rotor(slots=exact)  5 "));
  CHECK(listed.find("      10 to 14        random:stages=900,seed=1 on ideal, 2 micro-batches  store_all") !=
        std::string::npos);
  CHECK(listed.ends_with("slow: 80 points in 16 groups\n"));
  CHECK_THROWS_WITH(asked_for("bad.yaml"),
                    (folder / "bad.yaml").string() + ":4:10: devices: expected a list, found 'none'");
  CHECK_THROWS_AS(asked_for("h2000"), InputError);
  CHECK_THROWS_AS(run(folder / "e.yaml", folder / "out"), InputError);
  CHECK(!fs::exists(folder / "out"));
}

TEST_CASE("budgets may be at equal ratios", "[sweep]") {
  const TemporaryFolder folder;
  const std::string head =
      "format: plimsoll.experiment.v1\nname: n\ntraces: ['uniform:6']\nplatforms: ideal\nstrategies: store_all\n"
      "engine: event\nmemory: {from: FROM, to: 16 MB, count: 5, scale: log}\n";
  write_text_file(folder / "e.yaml", std::regex_replace(head, std::regex("FROM"), "1 MB"));
  REQUIRE(run(folder / "e.yaml", folder / "out") == 0);
  CHECK(read_sweep(folder / "out").cases.at(0).budgets ==
        std::vector<std::optional<Bytes>>{Bytes{1'000'000}, Bytes{2'000'000}, Bytes{4'000'000}, Bytes{8'000'000},
                                          Bytes{16'000'000}});
  write_text_file(folder / "e.yaml", std::regex_replace(head, std::regex("FROM"), "0 B"));
  CHECK(complaint_of_sweep(folder / "e.yaml", folder / "none", false) ==
        (folder / "e.yaml").string() + ":7:9: memory: from 0 B there are no ratios");
  CHECK(!fs::exists(folder / "none"));
}

TEST_CASE("budgets may be shares of the peak of store_all", "[sweep]") {
  const TemporaryFolder folder;
  const std::string head =
      "format: plimsoll.experiment.v1\nname: n\ntraces: ['uniform:6', 'uniform:9']\nplatforms: ideal\n"
      "strategies: [store_all, rotor]\nengine: event\n";
  write_text_file(folder / "e.yaml", head + "memory: [50 %, 100 %, 11.11111%, 1 GB]\n");
  REQUIRE(run(folder / "e.yaml", folder / "out") == 0);
  const SweepContents listed = read_sweep(folder / "out");
  for (const auto& [index, facts] : listed.cases) {
    const std::int64_t peak = facts.store_all->count;
    CHECK(facts.budgets == std::vector<std::optional<Bytes>>{Bytes{(peak + 1) / 2}, Bytes{peak},
                                                             Bytes{(peak * 1'111'111 + 5'000'000) / 10'000'000},
                                                             Bytes{1'000'000'000}});
  }
  CHECK(Json::parse(listed.records.at(1))["peak_bytes"] == listed.cases.at(0).store_all->count);
  CHECK(Json::parse(listed.records.at(0))["feasible"] == false);
  write_text_file(folder / "e.yaml", head + "memory: {from: 50 %, to: store_all, count: 3}\n");
  REQUIRE(run(folder / "e.yaml", folder / "range") == 0);
  const std::vector<std::optional<Bytes>> budgets = read_sweep(folder / "range").cases.at(0).budgets;
  CHECK(budgets.front() == listed.cases.at(0).budgets[0]);
  CHECK(budgets.back() == listed.cases.at(0).store_all);
  const std::string expected = ": expected a share of the peak of store_all, above 0 % to 1000 %, such as 50 %, found ";
  CHECK(complaint(head + "memory: [x %, 50 %, 50.0 %, 2000 %]\n") ==
        "x.yaml:7:10: memory[0]" + expected + "'x %'\nx.yaml:7:21: memory[2]: is listed twice, found '50.0 %'\n" +
            "x.yaml:7:29: memory[3]" + expected + "'2000 %'");
  CHECK(complaint(head + "memory: {from: 70 %, to: 60 %, count: 3}\n") == "x.yaml:7:9: memory: from is larger than to");
}

TEST_CASE("a sweep that is interrupted keeps what is finished and leaves with 130", "[sweep]") {
  const TemporaryFolder folder;
  std::string numbers = "1";
  for (int m = 2; m <= 200; ++m) numbers += ", " + std::to_string(m);
  write_text_file(folder / "e.yaml",
                  std::regex_replace(small_experiment, std::regex("\\[1, 2\\]"), "[" + numbers + "]"));
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    int code = 99;
    try {
      code = run(folder / "e.yaml", folder / "out", 2);
    } catch (...) {
    }
    _exit(code);
  }
  std::error_code ignored;
  const fs::path file = folder / "out" / "results.jsonl";
  while (waitpid(child, nullptr, WNOHANG) == 0) {
    if (fs::exists(file, ignored) && fs::file_size(file, ignored) > 0) break;
    usleep(1000);
  }
  REQUIRE(kill(child, SIGINT) == 0);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 130);
  const SweepContents kept = read_sweep(folder / "out");
  CHECK(!kept.records.empty());
  CHECK(kept.records.size() < std::size_t{2} * 200 * 3 * 4);
  const Json manifest = Json::parse(read_text_file(folder / "out" / "manifest.json"));
  CHECK(manifest["status"] == "interrupted");
  CHECK(manifest["finished"] == kept.records.size());
}

TEST_CASE("a worker that dies fails its task only", "[sweep]") {
  const Interruption interruption;
  WorkerPool pool(2, interruption, [](const Json& task, const std::function<void(const Json&)>& reply) {
    if (task == 3) raise(SIGKILL);
    if (task == 4) throw InputError("four is not allowed");
    if (task == 5) throw std::runtime_error("five broke");
    reply(task);
    reply(std::string(200'000, 'x'));  // more than a pipe holds
  });
  std::vector<Json> tasks;
  tasks.reserve(20);
  for (int t = 0; t < 20; ++t) tasks.emplace_back(t);
  std::vector<int> seen(20, 0);
  std::map<std::size_t, std::string> failures;
  std::map<std::size_t, int> codes;
  CHECK(pool.run(tasks, {.record = [&](std::size_t t, std::string_view) { ++seen[t]; },
                         .failed =
                             [&](std::size_t t, const TaskFailure& failure) {
                               failures[t] = failure.message;
                               codes[t] = failure.exit_code;
                             },
                         .tick = [] {}}));
  for (std::size_t t = 0; t < 20; ++t) CHECK(seen[t] == (t >= 3 && t <= 5 ? 0 : 2));
  CHECK(failures == std::map<std::size_t, std::string>{{3, "the process that worked on it was killed by signal 9"},
                                                       {4, "four is not allowed"},
                                                       {5, "five broke"}});
  CHECK(codes == std::map<std::size_t, int>{{3, 3}, {4, 2}, {5, 3}});
}

TEST_CASE("what is appended after a torn line is a line of its own, whether the sweep comes to its end or not",
          "[sweep]") {
  const TemporaryFolder folder;
  const Json identity{{"version", "1"}, {"experiment", {{"strategies", Json::array({"store_all"})}}}};
  StoreDisk disk;
  fs::create_directory(folder / "out");
  write_json_file(folder / "out/manifest.json",
                  {{"format", "plimsoll.sweep.v1"}, {"identity", identity}, {"cases", Json::array()}});
  write_text_file(folder / "out/results.jsonl", "{\"point\":0}\n{\"poi");
  SweepStore(folder / "out", {}, identity, disk).append(1, "{\"point\":1}");
  CHECK(read_text_file(folder / "out/results.jsonl") == "{\"point\":0}\n{\"point\":1}\n");
}

TEST_CASE("a folder is written by one sweep at a time", "[sweep]") {
  const TemporaryFolder folder;
  const Json identity{{"version", "1"}, {"experiment", {{"strategies", Json::array({"store_all"})}}}};
  StoreDisk disk;
  SweepStore first(folder / "out", {}, identity, disk);
  first.write_manifest({{"format", "plimsoll.sweep.v1"}, {"identity", identity}, {"cases", Json::array()}});
  CHECK_THROWS_AS(SweepStore(folder / "out", {}, identity, disk), InputError);
  CHECK_NOTHROW(SweepStore(folder / "out", {.k = 1, .n = 2}, identity, disk));
  first.sort();  // another file now
  CHECK_THROWS_AS(SweepStore(folder / "out", {}, identity, disk), InputError);
}

}  // namespace
}  // namespace plimsoll
