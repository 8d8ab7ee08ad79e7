#!/usr/bin/env python3
"""Measures the figures of platforms/cpu_host.yaml on the machine it runs on.

    python3 platforms/calibrate_cpu_host.py            prints a table; the medians go into the platform file
    python3 platforms/calibrate_cpu_host.py --quick    7 repetitions instead of 31, for a look

Needs g++ and Debian's libopenblas0-serial (found by its path, no header). Writes nothing but a temporary folder.

What is timed, all of it on one thread, warmed up, memory touched before:
  sgemm     C = A B of n x n fp32 matrices by OpenBLAS and, where installed, by oneDNN (what validate/cpu computes with),
            2 n^3 operations
  stream    STREAM's copy (2 arrays) and triad (3 arrays), counted as STREAM counts: each array once, no write-allocate
  memcpy    bytes copied (not read + written) by the C library's memcpy, source and target cold
  latency   a cold memcpy of 64 bytes at random offsets
  adam      one fused fp32 Adam step over parameter, gradient and two moments; bytes of parameters per second
  overlap   the time of sgemm (and of triad) while a second thread copies, over the time without; only samples in which
            the copying thread really ran beside it count (it got at least 80 % of a core)

The clock is the CPU time of the measured thread, so being preempted by other programs does not count as time; their
use of caches and memory channels still does, which is why minimum, median and quartiles are all printed. The platform
file takes the medians.
"""
import argparse
import datetime
import glob
import os
import re
import subprocess
import sys
import tempfile

PROGRAM = r"""
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

static double clock_s(clockid_t c) { timespec t; clock_gettime(c, &t); return double(t.tv_sec) + 1e-9 * double(t.tv_nsec); }
static double cpu_s() { return clock_s(CLOCK_THREAD_CPUTIME_ID); }
static int repetitions = 31;

static void print(char const* name, std::vector<double> v, char const* unit) {
  std::sort(v.begin(), v.end());
  auto at = [&](double q) { return v[std::size_t(q * double(v.size() - 1) + 0.5)]; };
  std::printf("%-26s min %10.4g  q1 %10.4g  median %10.4g  q3 %10.4g  max %10.4g  %-8s n=%zu\n",
              name, v.front(), at(0.25), at(0.5), at(0.75), v.back(), unit, v.size());
  std::fflush(stdout);
}
static double once(std::function<void()> const& f) { double b = cpu_s(); f(); return cpu_s() - b; }
static void rate(char const* name, double amount, char const* unit, std::function<void()> const& f) {
  f(); f();
  std::vector<double> v;
  for (int i = 0; i < repetitions; ++i) v.push_back(amount / once(f));
  print(name, v, unit);
}

using Sgemm = void (*)(int, int, int, int, int, int, float, float const*, int, float const*, int, float, float*, int);
using DnnlSgemm = int (*)(char, char, long, long, long, float, float const*, long, float const*, long, float, float*, long);

struct Copier {                                    // a second thread that copies until it is told to stop
  std::vector<char> a, b; std::atomic<bool> stop{false}; std::atomic<double> cpu{0}; std::thread t;
  explicit Copier(std::size_t n) : a(n, 1), b(n, 2) {}
  void start() { stop = false; cpu = 0; t = std::thread([this] {
      std::size_t const step = 1 << 20;
      for (std::size_t i = 0; !stop; i = (i + step) % a.size()) { std::memcpy(&b[i], &a[i], step); cpu = cpu_s(); } }); }
  void finish() { stop = true; t.join(); }
};

static void overlap(char const* name, std::function<void()> const& f) {
  Copier copier(std::size_t(256) << 20);
  std::vector<double> ratio;
  int dropped = 0;
  f();
  for (int i = 0; i < repetitions; ++i) {
    double const alone = once(f);
    copier.start();
    timespec nap{0, 5000000}; nanosleep(&nap, nullptr);
    double const copy0 = copier.cpu, wall0 = clock_s(CLOCK_MONOTONIC);
    double const during = once(f);
    double const share = (copier.cpu - copy0) / (clock_s(CLOCK_MONOTONIC) - wall0);
    copier.finish();
    if (share < 0.8) ++dropped; else ratio.push_back(during / alone);
  }
  if (ratio.size() >= 5) return print(name, ratio, "times");
  std::printf("%-26s not measurable: the copying thread had no core of its own (%d dropped)\n", name, dropped);
}

int main(int argc, char** argv) {
  repetitions = std::atoi(argv[1]);
  void* library = dlopen(argv[2], RTLD_NOW);
  auto sgemm = library ? reinterpret_cast<Sgemm>(dlsym(library, "cblas_sgemm")) : nullptr;
  if (!sgemm) { std::fprintf(stderr, "no cblas_sgemm in %s\n", argv[2]); return 2; }
  if (auto core = reinterpret_cast<char const* (*)()>(dlsym(library, "openblas_get_corename"))) std::printf("openblas: kernels for %s\n", core());

  int const biggest = 2048;
  std::vector<float> a(biggest * biggest), b(biggest * biggest), c(biggest * biggest);
  for (std::size_t i = 0; i < a.size(); ++i) { a[i] = float(i % 13) * 0.1f; b[i] = float(i % 7) * 0.1f; }
  std::function<std::function<void()>(int)> gemm = [&](int n) { return [&, n] { sgemm(101, 111, 111, n, n, n, 1.f, a.data(), n, b.data(), n, 0.f, c.data(), n); }; };
  for (int n : {256, 512, 1024, 2048})
    rate(("openblas sgemm n=" + std::to_string(n)).c_str(), 2e-9 * n * n * n, "GFLOPS", gemm(n));
  void* onednn = dlopen("libdnnl.so.2", RTLD_NOW);
  if (auto dnnl_sgemm = onednn ? reinterpret_cast<DnnlSgemm>(dlsym(onednn, "dnnl_sgemm")) : nullptr) {
    gemm = [&, dnnl_sgemm](int n) { return [&, dnnl_sgemm, n] {
      dnnl_sgemm('N', 'N', n, n, n, 1.f, a.data(), n, b.data(), n, 0.f, c.data(), n); }; };
    for (int n : {256, 512, 1024, 2048})
      rate(("onednn sgemm n=" + std::to_string(n)).c_str(), 2e-9 * n * n * n, "GFLOPS", gemm(n));
  } else std::printf("onednn: not installed (libdnnl2)\n");

  std::size_t const n = std::size_t(64) << 20;                                // 256 MiB an array, beyond the 105 MB L3
  std::vector<float> p(n, 1.f), g(n, 0.01f), m(n, 0.f), v(n, 0.f);
  float* __restrict pp = p.data();
  float* __restrict gg = g.data();
  float* __restrict mm = m.data();
  float* __restrict vv = v.data();
  char* target = reinterpret_cast<char*>(mm);
  char const* origin = reinterpret_cast<char const*>(pp);
  auto copy = [&] { for (std::size_t i = 0; i < n; ++i) mm[i] = pp[i]; asm volatile("" ::: "memory"); };
  auto triad = [&] { for (std::size_t i = 0; i < n; ++i) mm[i] = pp[i] + 3.f * gg[i]; asm volatile("" ::: "memory"); };
  rate("stream copy 256 MiB", 1e-9 * 8.0 * double(n), "GB/s", copy);
  rate("stream triad 256 MiB", 1e-9 * 12.0 * double(n), "GB/s", triad);

  for (std::size_t mib : {1, 4, 16, 64, 256}) {                               // steps through the whole 256 MiB: cold
    std::size_t const bytes = mib << 20, per = std::max<std::size_t>(1, 256 / mib);
    rate(("memcpy " + std::to_string(mib) + " MiB").c_str(), 1e-9 * double(bytes * per), "GB/s", [&] {
      for (std::size_t i = 0; i < per; ++i) std::memcpy(target + i * bytes, origin + i * bytes, bytes);
      asm volatile("" ::: "memory"); });
  }
  {
    std::mt19937_64 random(1);
    std::vector<std::size_t> offsets(100000);
    for (auto& o : offsets) o = random() % (n * 4 - 64) / 64 * 64;
    std::vector<double> us;
    for (int r = 0; r < repetitions; ++r) us.push_back(1e9 * once([&] {
      std::size_t chain = 0;                                                   // each copy waits for the one before
      for (auto o : offsets) { auto at = (o + chain) % (n * 4 - 64);
        std::memcpy(target + at, origin + at, 64);
        asm volatile("" ::: "memory");
        chain = std::size_t(static_cast<char volatile*>(target)[at]) & 0; }
    }) / double(offsets.size()));
    print("latency, cold 64 B copy", us, "ns");
  }
  std::fill(m.begin(), m.end(), 0.f);
  rate("adam 64 Mi parameters", 1e-9 * 4.0 * double(n), "GB/s", [&] {
    for (std::size_t i = 0; i < n; ++i) {
      float const grad = gg[i];
      mm[i] = 0.9f * mm[i] + 0.1f * grad;
      vv[i] = 0.999f * vv[i] + 0.001f * grad * grad;
      pp[i] -= 1e-3f * mm[i] / (std::sqrt(vv[i]) + 1e-8f);
    }
    asm volatile("" ::: "memory"); });
  overlap("slow-down sgemm, 1 copy", gemm(2048));
  overlap("slow-down triad, 1 copy", triad);
}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="7 repetitions instead of 31")
    arguments = parser.parse_args()

    libraries = glob.glob("/usr/lib/*/openblas-serial/libopenblas.so.0")
    if not libraries:
        sys.exit("calibrate_cpu_host.py: no OpenBLAS found: apt-get install libopenblas0-serial")
    with open("/proc/cpuinfo") as f:
        text = f.read()
    model = re.search(r"model name\s*:\s*(.*)", text).group(1)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if " avx512f " in text:       # whatever the environment says, and OpenBLAS 0.3.21 takes AVX2 on CPUs newer than itself
        environment["OPENBLAS_CORETYPE"] = "SkylakeX"
    with open("/proc/meminfo") as f:
        memory_bytes = int(re.search(r"MemTotal:\s*(\d+) kB", f.read()).group(1)) * 1024
    compiler = subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    flags = ["-std=c++20", "-O3", "-march=native", "-ffast-math", "-pthread"]
    print(f"date      {datetime.date.today()}")
    print(f"cpu       {model}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f} before")
    print(f"memory    {memory_bytes} B (MemTotal)")
    print(f"compiler  {compiler}, {' '.join(flags)}")
    print(f"blas      {os.path.realpath(libraries[0])}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "measure.cpp"), os.path.join(folder, "measure")
        with open(source, "w") as f:
            f.write(PROGRAM)
        subprocess.run(["g++", *flags, source, "-o", program, "-ldl"], check=True)
        result = subprocess.run([program, "7" if arguments.quick else "31", libraries[0]], check=False,
                                env=environment)
    print(f"load      {os.getloadavg()[0]:.2f} after")
    return result.returncode


if __name__ == "__main__":
    sys.exit(main())
