// What a call costs the thread that makes it, as a ratio to a plain queue measured in the same run.
//
//   bench_queue [Google Benchmark's options]    prints medians and their ratios with the limits; exit status 1 beyond one
//
// The plain queue is a mutex, a deque of std::function, a condition variable and one worker. Both are measured with the
// worker busy: it is held by a task while a batch is queued, and let go, untimed, between batches.
#include <benchmark/benchmark.h>
#include <mojo/mojo.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <iostream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int batch = 256;

class PlainQueue {
 public:
  PlainQueue() : worker_([this] { run(); }) {}
  ~PlainQueue() {
    push([this] { stop_ = true; });
    worker_.join();
  }
  void push(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    ready_.notify_one();
  }

 private:
  void run() {
    while (!stop_) {
      std::unique_lock lock(mutex_);
      ready_.wait(lock, [this] { return !tasks_.empty(); });
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
    }
  }
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> tasks_;
  bool stop_ = false;  // the worker's alone
  std::thread worker_;
};

// A task that keeps a worker until it is released.
class Hold {
 public:
  void operator()() {
    running_ = true;
    running_.notify_all();
    released_.wait(false);
    done_ = true;
    done_.notify_all();
  }
  void wait_until_running() { running_.wait(false); }
  void release() {
    released_ = true;
    released_.notify_all();
    done_.wait(false);
  }

 private:
  std::atomic<bool> running_{false}, released_{false}, done_{false};
};

// Calls `call` as often as the batch is long, and counts that time alone.
template <class Call>
void time_batch(benchmark::State& state, Call&& call) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < batch; ++i) call();
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
  state.SetIterationTime(passed.count());
}

void plain_queue(benchmark::State& state) {
  PlainQueue queue;
  int sink = 0;
  while (state.KeepRunningBatch(batch)) {
    Hold hold;
    std::atomic<bool> empty{false};
    queue.push([&hold] { hold(); });
    hold.wait_until_running();
    time_batch(state, [&] { queue.push([&sink] { benchmark::DoNotOptimize(sink); }); });
    queue.push([&empty] {
      empty = true;
      empty.notify_all();
    });
    hold.release();
    empty.wait(false);
  }
}

// Times `call` with the worker of `stream` busy.
template <class Call>
void with_a_busy_worker(benchmark::State& state, mojo::DeviceStream stream, Call&& call) {
  while (state.KeepRunningBatch(batch)) {
    Hold hold;
    stream.enqueue_host_func([&hold] { hold(); });
    hold.wait_until_running();
    time_batch(state, call);
    hold.release();
    mojo::DeviceContext(stream.device_index()).synchronize();
  }
}

void enqueue_function(benchmark::State& state) {
  const mojo::DeviceContext ctx(0);
  const mojo::DeviceStream s = ctx.create_stream();
  const auto nothing = ctx.compile_function<void()>("extern \"C\" MOJO_KERNEL void nothing() {}", "nothing");
  with_a_busy_worker(state, s, [&] { s.enqueue_function(nothing, {.grid = {1}, .block = {1}}); });
}

void enqueue_host_func(benchmark::State& state) {
  const mojo::DeviceStream s = mojo::DeviceContext(0).create_stream();
  with_a_busy_worker(state, s, [&] {
    s.enqueue_host_func(
        +[](void*) {}, nullptr);
  });
}

void record_event(benchmark::State& state) {
  const mojo::DeviceContext ctx(0);
  const mojo::DeviceStream s = ctx.create_stream();
  mojo::DeviceEvent e = ctx.create_event();
  with_a_busy_worker(state, s, [&] { s.record_event(e); });
}

// Each wait is for another event: one that is ordered already costs next to nothing.
void wait_on_another_stream(benchmark::State& state) {
  const mojo::DeviceContext ctx(0);
  const mojo::DeviceStream s = ctx.create_stream(), t = ctx.create_stream();
  std::vector<mojo::DeviceEvent> events;
  for (int i = 0; i < batch; ++i) events.push_back(ctx.create_event());
  while (state.KeepRunningBatch(batch)) {
    Hold hold;
    s.enqueue_host_func([&hold] { hold(); });
    hold.wait_until_running();
    for (mojo::DeviceEvent& e : events) s.record_event(e);  // not complete while `t` is told to wait for them
    auto next = events.begin();
    time_batch(state, [&] { t.enqueue_wait_for(*next++); });
    hold.release();
    ctx.synchronize();
  }
}

void query_completed_event(benchmark::State& state) {
  const mojo::DeviceContext ctx(0);
  const mojo::DeviceStream s = ctx.create_stream(), busy = ctx.create_stream();
  mojo::DeviceEvent e = ctx.create_event();
  s.record_event(e);
  e.synchronize();
  with_a_busy_worker(state, busy, [&] { benchmark::DoNotOptimize(e.query()); });
}

void allocate_and_free(benchmark::State& state) {
  const mojo::DeviceContext ctx(0);
  const mojo::DeviceStream s = ctx.create_stream();
  for (auto _ : state) benchmark::DoNotOptimize(ctx.allocate<char>(1024, s).data().address);
}

void malloc_and_free(benchmark::State& state) {
  for (auto _ : state) {
    void* p = std::malloc(1024);
    benchmark::DoNotOptimize(p);
    std::free(p);
  }
}

BENCHMARK(plain_queue)->UseManualTime();
BENCHMARK(enqueue_function)->UseManualTime();
BENCHMARK(enqueue_host_func)->UseManualTime();
BENCHMARK(record_event)->UseManualTime();
BENCHMARK(wait_on_another_stream)->UseManualTime();
BENCHMARK(query_completed_event)->UseManualTime();
BENCHMARK(malloc_and_free);
BENCHMARK(allocate_and_free);

// Keeps the times of all repetitions, in nanoseconds.
class Reporter : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context& context) override {
    PrintBasicContext(&std::cerr, context);
    return true;
  }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type == Run::RT_Iteration) times_[run.run_name.function_name].push_back(run.GetAdjustedRealTime());
    }
  }
  // 0 if it did not run.
  double median(const std::string& name) {
    std::vector<double>& all = times_[name];
    if (all.empty()) return 0;
    std::ranges::nth_element(all, all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2));
    return all[all.size() / 2];
  }

 private:
  std::map<std::string, std::vector<double>> times_;
};

struct Limit {
  const char *name, *base;
  double most;
};
constexpr Limit limits[] = {{"enqueue_function", "plain_queue", 4},
                            {"enqueue_host_func", "plain_queue", 4},
                            {"record_event", "plain_queue", 3},
                            {"wait_on_another_stream", "plain_queue", 3},
                            {"query_completed_event", "plain_queue", 0.5},
                            {"allocate_and_free", "malloc_and_free", 15}};

}  // namespace

int main(int argc, char** argv) {
  // Repeated and interleaved, so that what else the machine does meets all of them alike. What the caller says wins.
  std::vector<char*> arguments{argv[0]};
  char interleaved[] = "--benchmark_enable_random_interleaving=true", repeated[] = "--benchmark_repetitions=15",
       time[] = "--benchmark_min_time=0.05";
  for (char* own : {interleaved, repeated, time}) arguments.push_back(own);
  arguments.insert(arguments.end(), argv + 1, argv + argc);
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  Reporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  int beyond = 0;
  for (const auto& [name, base, most] : limits) {
    const double ours = reporter.median(name), theirs = reporter.median(base);
    if (ours == 0 || theirs == 0) continue;
    const double ratio = ours / theirs;
    std::printf("%-24s %6.1f ns, %5.2f times %s, %.1f ns (at most %g)%s\n", name, ours, ratio, base, theirs, most,
                ratio > most ? "  BEYOND" : "");
    beyond += ratio > most;
  }
  return beyond == 0 ? 0 : 1;
}
