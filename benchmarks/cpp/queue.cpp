// What a call costs the thread that makes it, as a ratio to a plain queue measured in the same run.
//
//   bench_queue [Google Benchmark's options]    prints times, then the ratios with their limits; exit status 1 beyond one
//
// The plain queue is a mutex, a deque of std::function, a condition variable and one worker. Both are measured with the
// worker busy: it is held by a task while a batch is queued, and let go, untimed, between batches.
#include <benchmark/benchmark.h>
#include <mojo/mojo.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
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

void plain_queue(benchmark::State& state) {
  PlainQueue queue;
  int sink = 0;
  while (state.KeepRunningBatch(batch)) {
    state.PauseTiming();
    Hold hold;
    std::atomic<bool> empty{false};
    queue.push([&hold] { hold(); });
    hold.wait_until_running();
    state.ResumeTiming();
    for (int i = 0; i < batch; ++i) queue.push([&sink] { benchmark::DoNotOptimize(sink); });
    state.PauseTiming();
    queue.push([&empty] {
      empty = true;
      empty.notify_all();
    });
    hold.release();
    empty.wait(false);
    state.ResumeTiming();
  }
}

// Times `call` with the worker of `stream` busy.
template <class Call>
void with_a_busy_worker(benchmark::State& state, mojo::DeviceStream stream, Call&& call) {
  while (state.KeepRunningBatch(batch)) {
    state.PauseTiming();
    Hold hold;
    stream.enqueue_host_func([&hold] { hold(); });
    hold.wait_until_running();
    state.ResumeTiming();
    for (int i = 0; i < batch; ++i) call();
    state.PauseTiming();
    hold.release();
    mojo::DeviceContext(stream.device_index()).synchronize();
    state.ResumeTiming();
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

void wait_on_another_stream(benchmark::State& state) {
  const mojo::DeviceContext ctx(0);
  const mojo::DeviceStream s = ctx.create_stream(), t = ctx.create_stream();
  mojo::DeviceEvent e = ctx.create_event();
  while (state.KeepRunningBatch(batch)) {
    state.PauseTiming();
    Hold hold;
    s.enqueue_host_func([&hold] { hold(); });
    hold.wait_until_running();
    s.record_event(e);  // not complete while `t` is told to wait for it
    state.ResumeTiming();
    for (int i = 0; i < batch; ++i) t.enqueue_wait_for(e);
    state.PauseTiming();
    hold.release();
    ctx.synchronize();
    state.ResumeTiming();
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

BENCHMARK(plain_queue);
BENCHMARK(enqueue_function);
BENCHMARK(enqueue_host_func);
BENCHMARK(record_event);
BENCHMARK(wait_on_another_stream);
BENCHMARK(query_completed_event);
BENCHMARK(malloc_and_free);
BENCHMARK(allocate_and_free);

// Also keeps the least time of each, of all repetitions: what the others add is the machine's doing. The calling thread's own
// time, so that a machine that is busy otherwise does not count.
class Reporter : public benchmark::ConsoleReporter {
 public:
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration) continue;
      auto [at, first] = least.emplace(run.run_name.function_name, run.GetAdjustedCPUTime());
      if (!first) at->second = std::min(at->second, run.GetAdjustedCPUTime());
    }
    ConsoleReporter::ReportRuns(runs);
  }
  std::map<std::string, double> least;
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
       time[] = "--benchmark_min_time=0.05", quiet[] = "--benchmark_display_aggregates_only=true";
  for (char* own : {interleaved, repeated, time, quiet}) arguments.push_back(own);
  arguments.insert(arguments.end(), argv + 1, argv + argc);
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  Reporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  int beyond = 0;
  for (const auto& [name, base, most] : limits) {
    if (!reporter.least.contains(name) || !reporter.least.contains(base)) continue;
    const double ratio = reporter.least[name] / reporter.least[base];
    std::printf("%-24s %6.2f times %s (at most %g)%s\n", name, ratio, base, most, ratio > most ? "  BEYOND" : "");
    beyond += ratio > most;
  }
  return beyond == 0 ? 0 : 1;
}
