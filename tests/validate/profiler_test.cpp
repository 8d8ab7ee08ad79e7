// Profiler's traces, small enough to be counted by hand. Larger ones, and a second reader: tests/experiments/profiler.

#include <catch2/catch.hpp>
#include <ctime>
#include <fstream>

#include "tests/bad_input.h"
#include "tests/experiments/temporary_folder.h"
#include "validate/profiler/timeline_summary.h"

using namespace plimsoll;

namespace {

constexpr const char* evaluate = "autograd::engine::evaluate_function: ";

/// Writes a trace event by event; microseconds. External ids are those of other operators: nothing may rely on them.
class TraceText {
 public:
  TraceText& slice(const std::string& category, const std::string& name, int thread, double start, double duration,
                   const std::string& arguments = "\"External id\": 1") {
    text_ += text_.empty() ? "" : ",\n";
    text_ += "{\"ph\": \"X\", \"cat\": \"" + category + "\", \"name\": \"" + name +
             "\", \"pid\": 9, \"tid\": " + std::to_string(thread) + ", \"ts\": " + std::to_string(start) +
             ", \"dur\": " + std::to_string(duration) + ", \"args\": {" + arguments + "}}";
    return *this;
  }
  TraceText& op(const std::string& name, int thread, double start, double duration) {
    return slice("cpu_op", name, thread, start, duration);
  }
  /// An operator that autograd recorded.
  TraceText& recorded(const std::string& name, int thread, double start, double duration) {
    return slice("cpu_op", name, thread, start, duration, "\"Sequence number\": 7, \"Fwd thread id\": 0");
  }
  TraceText& label(const std::string& name, int thread, double start, double duration) {
    return slice("user_annotation", name, thread, start, duration);
  }
  TraceText& kernel(int thread, double launched, double duration, const std::string& name = "gemm",
                    const std::string& launch = "cudaLaunchKernel") {
    work("kernel", name, duration);
    return slice("cuda_runtime", launch, thread, launched, 1, "\"External id\": 1, " + correlation());
  }
  /// The same, starting at a date.
  TraceText& kernel_at(double start, int thread, double launched, double duration) {
    ++correlation_;
    slice("cuda_runtime", "cudaLaunchKernel", thread, launched, 1, correlation());
    return slice("kernel", "gemm", 77, start, duration, correlation());
  }
  TraceText& work(const std::string& category, const std::string& name, double duration) {
    ++correlation_;
    slice(category, name, 77, 1000 + 100 * correlation_, duration, "\"External id\": 1, " + correlation());
    return *this;
  }
  TraceText& raw(const std::string& event) {
    text_ += (text_.empty() ? "" : ",\n") + event;
    return *this;
  }
  std::string text() const { return "{\"traceEvents\": [" + text_ + "]}"; }

 private:
  std::string correlation() const { return "\"correlation\": " + std::to_string(correlation_); }

  std::string text_;
  int correlation_ = 100;
};

TimelineSummary summary(const std::string& text) {
  const TemporaryFolder folder;
  std::ofstream(folder / "t.json") << text;
  return summary_of_timeline(folder / "t.json");
}

double microseconds(const TimelineSummary& of, Activity activity) {
  const auto found = of.activities.find(activity);
  return found == of.activities.end() ? 0 : found->second.median.value * 1e6;
}

std::string profiler_complaint(const std::string& text) {
  const TemporaryFolder folder;
  std::ofstream(folder / "t.json") << text;
  const std::string file = (folder / "t.json").string();
  const std::string complaint = complaint_of([&] { summary_of_timeline(file); });
  return complaint.starts_with(file) ? complaint.substr(file.size()) : complaint;
}

}  // namespace

TEST_CASE("a kernel is for what the ranges of its launch's thread say", "[profiler]") {
  TraceText trace;
  trace.recorded("aten::mm", 1, 0, 10).kernel(1, 5, 1);
  trace.op(std::string(evaluate) + "MmBackward0", 2, 20, 10).op("aten::mm", 2, 21, 5).kernel(2, 22, 2);
  trace.kernel(1, 22, 4);  // while another thread runs a node
  trace.label("Optimizer.step#SGD.step", 1, 40, 10).op("aten::add_", 1, 41, 5).kernel(1, 42, 8);
  trace.kernel(2, 42, 16);  // another thread, after its node
  trace.label("Optimizer.zero_grad#SGD.zero_grad", 1, 60, 10).op("aten::zero_", 1, 61, 5).kernel(1, 62, 32);
  const TimelineSummary got = summary(trace.text());
  CHECK(microseconds(got, Activity::forward) == Approx(1 + 4 + 16));
  CHECK(microseconds(got, Activity::backward) == Approx(2));
  CHECK(microseconds(got, Activity::update) == Approx(8));
  CHECK(microseconds(got, Activity::zero_grad) == Approx(32));
  CHECK(got.unmatched_share == 0);
}

TEST_CASE("a forward pass that runs again inside backward is recomputation", "[profiler]") {
  TraceText trace;
  // Reentrant: the checkpoint's node runs the forward pass, then nodes of its own.
  trace.op(std::string(evaluate) + "CheckpointFunctionBackward", 2, 0, 50);
  trace.recorded("aten::mm", 2, 1, 9).kernel(2, 5, 1);
  trace.op(std::string(evaluate) + "MmBackward0", 2, 20, 10).op("aten::mm", 2, 21, 5).kernel(2, 22, 2);
  trace.recorded("aten::add", 2, 40, 5).kernel(2, 41, 4);
  trace.op("aten::copy_", 2, 46, 3).kernel(2, 47, 32);  // not recorded, and no node of its own
  // By hooks: a node unpacks what it saved, which runs recorded operators; its own follow.
  trace.op(std::string(evaluate) + "MulBackward0", 2, 60, 30);
  trace.slice("cpu_op", "MulBackward0", 2, 61, 28, "\"Sequence number\": 3, \"Fwd thread id\": 1");
  trace.recorded("aten::linear", 2, 62, 10).op("aten::addmm", 2, 63, 8).kernel(2, 64, 8);
  trace.op("aten::mul", 2, 75, 10).kernel(2, 76, 16);
  const TimelineSummary got = summary(trace.text());
  CHECK(microseconds(got, Activity::recompute) == Approx(1 + 4 + 8 + 32));
  CHECK(microseconds(got, Activity::backward) == Approx(2 + 16));
  CHECK(microseconds(got, Activity::forward) == 0);
}

TEST_CASE("communication and copies say themselves what they are", "[profiler]") {
  TraceText trace;
  trace.op("aten::mm", 1, 0, 10).kernel(1, 5, 1);
  trace.op(std::string(evaluate) + "MmBackward0", 2, 0, 50);
  trace.kernel(2, 5, 2, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)");
  trace.kernel(2, 6, 4, "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)");
  trace.work("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 8)
      .work("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 16);
  trace.work("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 32)
      .work("gpu_memcpy", "Memcpy PtoP (Device -> Device)", 64);
  trace.work("gpu_memset", "Memset (Device)", 128);
  const TimelineSummary got = summary(trace.text());
  CHECK(microseconds(got, Activity::collective) == Approx(2));
  CHECK(microseconds(got, Activity::send) == Approx(4 + 64));
  CHECK(microseconds(got, Activity::offload) == Approx(8));
  CHECK(microseconds(got, Activity::prefetch) == Approx(16));
  CHECK(microseconds(got, Activity::device_copy) == Approx(32));
  CHECK(microseconds(got, Activity::memset) == Approx(128));
  CHECK(microseconds(got, Activity::backward) == 0);
}

TEST_CASE("AMD's launches, drivers' and graphs' within operators are launches too", "[profiler]") {
  TraceText trace;
  trace.op(std::string(evaluate) + "MmBackward0", 2, 0, 50).op("aten::mm", 2, 1, 40);
  trace.kernel(2, 5, 1, "gemm", "hipLaunchKernel").kernel(2, 6, 2, "gemm", "hipExtModuleLaunchKernel");
  trace.kernel(2, 7, 4, "gemm", "cuLaunchKernel").kernel(2, 8, 8, "gemm", "cudaGraphLaunch");
  trace.op("Graphed", 1, 0, 10).kernel(1, 5, 16, "gemm", "cudaGraphLaunch");
  const TimelineSummary got = summary(trace.text());
  CHECK(microseconds(got, Activity::backward) == Approx(15));
  CHECK(microseconds(got, Activity::forward) == Approx(16));
}

TEST_CASE("the words of 2021's profiler: other categories, threads that have two names", "[profiler]") {
  TraceText trace;
  trace.slice("Operator", "aten::mm", 1, 0, 10, "\"External id\": 40");
  trace.slice("Operator", std::string(evaluate) + "MmBackward0", 2, 20, 10, "\"External id\": 41");
  trace.slice("Operator", "aten::mm", 2, 21, 8, "\"External id\": 42");
  trace.slice("Operator", "Optimizer.step#SGD.step", 1, 40, 10, "\"External id\": 43");
  // CUPTI's thread 500 ran no operator: the external id says which operator launched, if it ran at the time.
  trace.slice("Runtime", "cudaLaunchKernel", 500, 22, 1, "\"external id\": 42, \"correlation\": 7");
  trace.slice("Runtime", "cudaLaunchKernel", 1, 42, 1, "\"external id\": 40, \"correlation\": 8");
  trace.slice("Kernel", "gemm", 77, 30, 1, "\"external id\": 40, \"correlation\": 7");
  trace.slice("Kernel", "add", 77, 50, 2, "\"external id\": 40, \"correlation\": 8");
  trace.slice("Memcpy", "Memcpy HtoD (Pageable -> Device)", 77, 55, 4, "\"correlation\": 9");
  trace.slice("Memset", "Memset (Device)", 77, 60, 8, "\"correlation\": 10");
  const TimelineSummary got = summary(trace.text());
  CHECK(microseconds(got, Activity::backward) == Approx(1));
  CHECK(microseconds(got, Activity::update) == Approx(2));
  CHECK(microseconds(got, Activity::prefetch) == Approx(4));
  CHECK(microseconds(got, Activity::memset) == Approx(8));
  CHECK(microseconds(got, Activity::forward) == 0);
}

TEST_CASE("2021: autograd's engine is silent; its nodes are known by name, its thread by doing nothing else",
          "[profiler]") {
  const auto node = "\"Sequence number\": 3, \"Fwd thread id\": 1",
             recorded = "\"Sequence number\": 3, \"Fwd thread id\": 0";
  const auto trace = [&](bool engine_speaks) {
    TraceText text;
    text.slice("Operator", "aten::linear", 1, 0, 10, recorded).kernel(1, 5, 1);
    text.slice("Operator", "AddmmBackward", 2, 20, 10, node).kernel(2, 22, 2);
    text.slice("Operator", "aten::add", 2, 31, 3, "").kernel(2, 32, 4);  // two gradients of one value
    text.slice("Operator", "torch::autograd::AccumulateGrad", 2, 35, 5, "").kernel(2, 36, 8);
    text.slice("Operator", "CheckpointFunctionBackward", 2, 41, 5, node);
    text.slice("Operator", "aten::linear", 2, 42, 3, recorded).kernel(2, 43, 16);
    text.slice("Operator", "my_backward", 1, 50, 5, "").kernel(1, 51, 32);  // a forward's, whatever it is called
    text.slice("Operator", "Backward", 1, 60, 5, "").kernel(1, 61, 64);
    if (engine_speaks) text.op(std::string(evaluate) + "ReluBackward0", 2, 70, 5);
    return summary(text.text());
  };
  const TimelineSummary got = trace(false);
  CHECK(microseconds(got, Activity::forward) == Approx(1 + 32 + 64));
  CHECK(microseconds(got, Activity::backward) == Approx(2 + 4 + 8));
  CHECK(microseconds(got, Activity::recompute) == Approx(16));
  CHECK(microseconds(trace(true), Activity::forward) == Approx(1 + 32 + 64 + 4));
}

TEST_CASE("what belongs to no operator is a row of its own up to 5 %, and refused beyond, with the reasons",
          "[profiler]") {
  const auto trace = [](double lost, double stray, double graph) {
    TraceText text;
    text.op("aten::mm", 1, 0, 10).kernel(1, 5, 100 - lost - stray - graph);
    text.work("kernel", "lost", lost);
    text.kernel(3, 30, stray, "stray");                                              // a thread without operators
    text.kernel(1, 50, graph, "captured", "cudaGraphLaunch");                        // outside of any
    text.kernel(1, 6, 900, "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)");  // counts on neither side
    return text.text();
  };
  const TimelineSummary got = summary(trace(1, 2, 1.9));
  CHECK(got.unmatched_share == Approx(0.049));
  CHECK(microseconds(got, Activity::unmatched) == Approx(4.9));
  CHECK(got.notes.at(1) ==
        "unmatched: 4.9 % of the devices' time: 1.00 us without a launch in the trace, 2.00 us launched by threads "
        "without operators, 1.90 us launched as a whole CUDA graph");
  CHECK(
      profiler_complaint(trace(2, 2, 2)) ==
      ": 6.0 % of the devices' time (100.00 us) belongs to no operator: 2.00 us without a launch in the trace, 2.00 us "
      "launched by threads without operators, 2.00 us launched as a whole CUDA graph; at most 5 % may; record with "
      "ProfilerActivity.CPU and ProfilerActivity.CUDA together, without replaying whole graphs");
}

TEST_CASE("steps: empty ones, the first and slow ones after it are left out; median, least and most", "[profiler]") {
  TraceText trace;
  const double lengths[] = {500, 190, 100, 120, 110, 5};
  double start = 0;
  for (int step = 0; step < 6; ++step) {
    const double length = lengths[step];
    trace.label("ProfilerStep#" + std::to_string(step + 3), 1, start, length);
    if (step < 5) trace.op("aten::mm", 1, start + 1, 2).kernel_at(start + 0.9 * length, 1, start + 2, length / 10);
    start += length;
  }
  const TimelineSummary got = summary(trace.text());
  CHECK(got.iterations == 3);
  CHECK(got.notes.at(0) == "median of 3 steps, ProfilerStep#5 to #7; without #8 (empty), #3 (the first), #4 (slow)");
  CHECK(got.whole.median.value == Approx(110e-6));
  CHECK(got.whole.least.value == Approx(100e-6));
  CHECK(got.whole.most.value == Approx(120e-6));
  const IterationTime forward = got.activities.at(Activity::forward);
  CHECK(forward.median.value == Approx(11e-6));
  CHECK(forward.least.value == Approx(10e-6));
  CHECK(forward.most.value == Approx(12e-6));
  CHECK(forward.recorded.value == Approx((500 + 190 + 100 + 120 + 110) * 0.1e-6));
}

TEST_CASE("a step lasts from the end of the last work of the step before to that of its own", "[profiler]") {
  // Each step copies its input at once; its kernel waits for the one before. The host is most of a step ahead.
  TraceText trace;
  for (int step = 0; step < 4; ++step) {
    const int at = 100 * step;
    trace.label("ProfilerStep#" + std::to_string(step), 1, at, 100).op("aten::mm", 1, at + 5, 2);
    trace.kernel_at(at + 3, 1, at + 1, 2).kernel_at(at + 85, 1, at + 6, 99);
  }
  const TimelineSummary got = summary(trace.text());
  CHECK(got.iterations == 3);
  CHECK(got.whole.median.value == Approx(100e-6));  // and not the 181 us from the copy to the kernel's end
  CHECK(got.whole.most.value == Approx(100e-6));
  REQUIRE(got.idle);  // 1 us before the kernel, which the host launched long before
  CHECK(got.idle->median.value == Approx(1e-6));
  CHECK(got.unlaunched->median.value == 0);
}

TEST_CASE("a step after a gap in the steps lasts as long as its devices or its host", "[profiler]") {
  TraceText trace;
  trace.label("ProfilerStep#1", 1, 0, 10).label("ProfilerStep#7", 1, 1000, 10);  // two cycles of a schedule
  trace.op("aten::mm", 1, 0, 2000).kernel_at(2, 1, 1, 5).kernel_at(1005, 1, 1002, 20).kernel_at(1030, 1, 1003, 70);
  CHECK(summary(trace.text()).whole.median.value == Approx(95e-6));
}

TEST_CASE("only work of the steps that count has to be matched; what was under way before them does not",
          "[profiler]") {
  const auto trace = [](double early) {
    TraceText text;
    for (int step = 1; step <= 3; ++step) {
      const int at = 100 * (step - 1);
      text.label("ProfilerStep#" + std::to_string(step), 1, at, 100).op("aten::mm", 1, at + 60, 10);
      text.kernel_at(at + 150, 1, at + 62, 20);
    }
    // Launched before the recording: it runs in the time of the second step, and before all kernels of the first.
    return text.slice("kernel", "before the recording", 77, early, 40, "\"correlation\": 7").text();
  };
  const TimelineSummary got = summary(trace(105));
  CHECK(got.unmatched_share == 0);
  CHECK(got.notes.at(1) == "unmatched: 0.0 % of the devices' time");
  CHECK(microseconds(got, Activity::forward) == Approx(20));
  CHECK(got.activities.at(Activity::unmatched).recorded.value == Approx(40e-6));
  CHECK(profiler_complaint(trace(180)).starts_with(": 50.0 % of the devices' time (80.00 us) belongs to no operator"));
}

TEST_CASE("without steps the whole recording is one iteration, and is said to be", "[profiler]") {
  TraceText trace;
  trace.op("aten::mm", 1, 0, 10).label("Optimizer.step#SGD.step", 1, 20, 3).op("aten::add_", 1, 21, 1);
  const TimelineSummary got = summary(trace.text());
  CHECK(got.notes.at(0) ==
        "no ProfilerStep in it: the whole recording was taken for one iteration; runs of Optimizer.step in it: 1");
  CHECK(got.whole.median.value == Approx(23e-6));
}

TEST_CASE("without steps of the profiler's the optimizer's end the iterations", "[profiler]") {
  TraceText trace;
  double start = 0;
  for (const double length : {300, 100, 120, 140}) {
    trace.op("aten::mm", 1, start, 10).kernel_at(start + 20, 1, start + 1, length / 10);
    trace.label("Optimizer.step#Schedule.step", 1, start + length - 12, 12);  // a wrapper's, around the optimizer's own
    trace.label("Optimizer.step#SGD.step", 1, start + length - 10, 5)
        .kernel_at(start + length - 5, 1, start + length - 8, 5);
    if (length == 120) trace.label("Optimizer.step#Other.step", 1, start + 50, 5);  // a second optimizer's
    start += length;
  }
  trace.op("aten::mm", 1, start, 10).kernel_at(start + 20, 1, start + 1, 70);  // of an iteration that was cut off
  const TimelineSummary got = summary(trace.text());
  CHECK(got.iterations == 3);
  CHECK(got.notes.at(0) ==
        "no ProfilerStep in it: cut behind each Optimizer.step#Schedule.step; median of 3 steps, step#2 to #4; without "
        "#1 (the first)");
  CHECK(got.whole.median.value == Approx(120e-6));
  CHECK(microseconds(got, Activity::forward) == Approx(12));
  CHECK(microseconds(got, Activity::update) == Approx(5));
}

TEST_CASE("categories of devices that nobody knows are named", "[profiler]") {
  TraceText trace;
  trace.op("aten::mm", 1, 10, 10).slice("mtia_runtime", "launch", 1, 12, 2, "\"correlation\": 8");
  trace.slice("mtia_ccp_events", "gemm", 4, 20, 70, "\"correlation\": 8");
  trace.slice("cuda_sync", "Stream Synchronize", 4, 20, 70, "\"correlation\": 8")
      .slice("overhead", "flush", 4, 20, 70, "");
  const std::vector<std::string> host{
      "work of devices of unknown categories: mtia_ccp_events (1 event, 70.00 us): left out",
      "times are those of operators on the host"};
  const TimelineSummary got = summary(trace.text());
  CHECK(std::vector(got.notes.begin() + 1, got.notes.end()) == host);
  trace.kernel(1, 11, 5).slice("hpu_op", "gemm", 4, 90, 30, "");
  CHECK(summary(trace.text()).notes.at(2) ==
        "work of devices of unknown categories: hpu_op (1 event, 30.00 us), mtia_ccp_events (1 event, 70.00 us): left "
        "out");
  CHECK(profiler_complaint(R"([{"ph": "X", "cat": "hpu_op", "name": "a", "ts": 1, "dur": 1}])")
            .ends_with("in it; work of devices of unknown categories: hpu_op (1 event, 1.00 us)"));
}

TEST_CASE("on the host a thread's time counts once, for the innermost that says something", "[profiler]") {
  TraceText trace;
  trace.op("aten::linear", 1, 0, 10).op("aten::addmm", 1, 1, 8);  // one inside the other
  trace.op(std::string(evaluate) + "MmBackward0", 1, 20, 16).op("aten::mm", 1, 21, 5);
  trace.label("Optimizer.step#SGD.step", 1, 40, 20).op("aten::add_", 1, 41, 3);  // Python's time there is no operator's
  trace.label("gloo:all_reduce", 5, 0, 64);
  const TimelineSummary got = summary(trace.text());
  CHECK(microseconds(got, Activity::forward) == Approx(10));
  CHECK(microseconds(got, Activity::backward) == Approx(16));
  CHECK(microseconds(got, Activity::update) == Approx(3));
  CHECK(microseconds(got, Activity::collective) == Approx(64));
}

TEST_CASE("memory events make a curve: of the device before the host, its peak over all steps that count",
          "[profiler]") {
  const auto memory = [](double date, int type, int device, std::int64_t total) {
    return "{\"ph\": \"i\", \"cat\": \"cpu_instant_event\", \"s\": \"t\", \"name\": \"[memory]\", \"pid\": 9, \"tid\": "
           "1, \"ts\": " +
           std::to_string(date) + ", \"args\": {\"Device Type\": " + std::to_string(type) +
           ", \"Device Id\": " + std::to_string(device) +
           ", \"Bytes\": -5, \"Total Allocated\": " + std::to_string(total) + "}}";
  };
  TraceText trace;
  for (int step = 0; step < 4; ++step) {
    trace.label("ProfilerStep#" + std::to_string(step), 1, 100 * step, 100).op("aten::mm", 1, 100 * step + 1, 2);
  }
  trace.raw(memory(50, 1, 0, 9000)).raw(memory(95, 1, 0, 100));   // in the first step
  trace.raw(memory(150, 1, 0, 700)).raw(memory(175, 1, 0, 100));  // steps 1 to 3
  trace.raw(memory(250, 1, 0, 500)).raw(memory(260, 1, 0, 800)).raw(memory(275, 1, 0, 100));
  trace.raw(memory(160, 1, 1, 5000)).raw(memory(160, 0, -1, 6000));  // another device, the host
  const TimelineSummary got = summary(trace.text());
  REQUIRE(got.memory);
  CHECK(got.memory->peak == Bytes{800});
  // All three are equally long, step 2 is the middle one: 100 bytes for 50 us, 500 for 10, 800 for 15, 100 for 25.
  CHECK(got.memory->mean == Bytes{(100 * 50 + 500 * 10 + 800 * 15 + 100 * 25) / 100});
  CHECK(got.memory->at[0] == Bytes{100});
  CHECK(got.memory->at[55] == Bytes{500});
  CHECK(got.memory->at[70] == Bytes{800});
  CHECK(got.memory->at[100] == Bytes{100});
}

TEST_CASE("a device idles between its work; with nothing launched, the host binds it", "[profiler]") {
  TraceText trace;
  // Two kernels that the host launched long before, 10 us apart; then one that it launched 30 us after the second's
  // end.
  const auto kernel = [&](int id, double launched, double start, double duration) {
    const std::string correlation = "\"correlation\": " + std::to_string(id);
    trace.slice("cuda_runtime", "cudaLaunchKernel", 1, launched, 1, correlation);
    trace.slice("kernel", "gemm", 77, start, duration, correlation);
  };
  trace.op("aten::mm", 1, 0, 200);
  kernel(1, 0, 20, 20);
  kernel(2, 1, 50, 20);
  kernel(3, 100, 104, 46);
  kernel(4, 101, 120, 60);  // on another stream, say: beside the third
  const TimelineSummary got = summary(trace.text());
  // The whole is 200 us, of which 20 + 20 + 76 are busy: 10 idle between the first two, 34 before the third, 40 around.
  REQUIRE(got.idle);
  CHECK(got.idle->median.value == Approx(84e-6));
  CHECK(got.unlaunched->median.value == Approx(74e-6));
  CHECK(got.notes.back() ==
        "the device idled 84.00 us (42.0 %), 74.00 us (37.0 %) with nothing launched: the host bound it");
}

TEST_CASE("a host that runs ahead binds nothing, and each device idles by itself", "[profiler]") {
  TraceText trace;
  trace.op("aten::mm", 1, 0, 10);
  const auto kernel = [&](int id, const std::string& process, double start, double duration) {
    trace.slice("cuda_runtime", "cudaLaunchKernel", 1, id, 1, "\"correlation\": " + std::to_string(id));
    trace.raw(R"({"ph": "X", "cat": "kernel", "name": "gemm", "pid": )" + process + R"(, "tid": 7, "ts": )" +
              std::to_string(start) + R"(, "dur": )" + std::to_string(duration) + R"(, "args": {"correlation": )" +
              std::to_string(id) + "}}");
  };
  kernel(1, "0", 4.5, 40);
  kernel(2, "0", 64.5, 40);  // waits for something else than the host
  kernel(3, "1", 4.5, 100);
  const TimelineSummary got = summary(trace.text());
  REQUIRE(got.idle);
  CHECK(got.idle->median.value == Approx((20 + 0 + 2 * 4.5) / 2 * 1e-6));
  CHECK(got.notes.back().ends_with("the host did not bind it"));
}

TEST_CASE("in a timeline of ours what a host does keeps no device busy, and a workspace may be below 0", "[profiler]") {
  const auto slice = [](const std::string& kind, int thread, double start, double duration) {
    return R"({"ph": "X", "name": "s", "cat": ")" + kind + R"(", "pid": 1, "tid": )" + std::to_string(thread) +
           R"(, "ts": )" + std::to_string(start) + R"(, "dur": )" + std::to_string(duration) + "}";
  };
  const auto thread = [](int number, const std::string& name) {
    return R"({"ph": "M", "name": "thread_name", "pid": 1, "tid": )" + std::to_string(number) +
           R"(, "args": {"name": ")" + name + R"("}})";
  };
  TraceText trace;
  trace.raw(thread(5, "compute")).raw(thread(6, "host")).raw(thread(7, "device_to_host"));
  trace.raw(slice("forward", 5, 0, 10)).raw(slice("update", 6, 10, 60)).raw(slice("offload", 7, 20, 10));
  trace.raw(slice("backward", 5, 70, 30));
  trace.raw(R"({"ph": "C", "name": "gpu memory", "ts": 0, "args": {"saved": 100, "workspace": 20}})");
  trace.raw(R"({"ph": "C", "name": "gpu memory", "ts": 70, "args": {"saved": 100, "workspace": -30}})");
  const TimelineSummary got = summary(trace.text());
  REQUIRE(got.idle);
  CHECK(got.idle->median.value == Approx(50e-6));
  CHECK(!got.unlaunched);
  REQUIRE(got.memory);
  CHECK(got.memory->peak == Bytes{120});
  CHECK(got.memory->at[100] == Bytes{70});
}

TEST_CASE("two curves: how far apart they are in the mean and at most, and where", "[profiler]") {
  const std::vector<DatedTotal> flat{{0, Bytes{100}}}, stepped{{0, Bytes{100}}, {500, Bytes{300}}, {750, Bytes{150}}};
  const auto a = curve_of(flat, 0, 1000), b = curve_of(stepped, 0, 1000);
  REQUIRE((a && b));
  CHECK(b->peak == Bytes{300});
  CHECK(b->mean == Bytes{(100 * 500 + 300 * 250 + 150 * 250) / 1000});
  const CurveDistance apart = distance(*a, *b);
  CHECK(apart.most == Bytes{200});
  CHECK(apart.most_at == 50);
  CHECK(apart.mean == Bytes{(25 * 200 + 26 * 50) / 101});
  CHECK(!curve_of({}, 0, 10));
}

TEST_CASE("what is wrong with a trace is named with its place", "[profiler]") {
  const auto one = [](const std::string& event) { return profiler_complaint("[\n" + event + "]"); };
  const std::string slice = R"({"ph": "X", "cat": "cpu_op", "name": "a", )";
  CHECK(one(slice + R"("ts": 1, "dur": -3})") == ":2:59: [0].dur: must not be negative, found -3");
  CHECK(one(slice + R"("ts": -1.5, "dur": 3})") == ":2:49: [0].ts: must not be negative, found -1.5");
  CHECK(one(slice + R"("ts": 1, "dur": 1e400})") == ":2:59: [0].dur: absurdly large, found 1e400");
  CHECK(one(slice + R"("ts": "1", "dur": 1})") == R"(:2:49: [0].ts: expected a number, found "1")");
  CHECK(one(slice + R"("ts": 1})") == ":2:1: [0]: missing key 'dur'");
  CHECK(one(slice + R"("dur": 1})") == ":2:1: [0]: missing key 'ts'");
  CHECK(one(slice + R"("ts": 1, "dur": 1, "args": {"correlation": 9223372036854775808}})") ==
        ":2:86: [0].args.correlation: absurdly large, found 9223372036854775808");
  CHECK(one(R"({"ph": "C", "name": "m", "ts": 1, "args": {"a": 18446744073709551616}})") ==
        ":2:49: [0].args.a: absurdly large, found 18446744073709551616");
  CHECK(one(R"({"ph": "C", "name": "m", "ts": 1, "args": {"a": -4503599627370497}})") ==
        ":2:49: [0].args.a: absurdly large, expected -4503599627370496 to 4503599627370496 bytes, found "
        "-4503599627370497");
  CHECK(one(R"({"ph": "i", "name": "[memory]", "ts": 1, "args": {"Total Allocated": 9223372036854775808}})") ==
        ":2:70: [0].args.Total Allocated: absurdly large, found 9223372036854775808");
  CHECK(one("3") == ":2:1: not valid JSON: expected an object, which begins with '{'");
  CHECK(one("{}") == ": no steps of Plimsoll's and no operators or kernels of a profiler's in it");
  CHECK(one(R"({"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "ts": 1, "dur": 1})") ==
        ": no steps of Plimsoll's and no operators or kernels of a profiler's in it");
}

TEST_CASE("the profiler's time is linear in the events", "[profiler]") {
  TraceText trace;
  const int many = 30'000;  // four events each; ranges that stay open made every kernel look at every range
  for (int i = 0; i < many; ++i) {
    trace.op(std::string(evaluate) + "MmBackward0", 2, 10 * i, 8).op("aten::mm", 2, 10 * i + 1, 5);
    trace.kernel(2, 10 * i + 2, 3);
  }
  const std::clock_t begin = std::clock();
  CHECK(microseconds(summary(trace.text()), Activity::backward) == Approx(3.0 * many));
  CHECK(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC < 4);  // 0.3 s here; quadratic: 14.7 s
}
