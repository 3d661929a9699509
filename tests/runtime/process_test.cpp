// Fork and exit: what a process that uses a device may do.
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "support/host_fixture.h"

namespace mojo::test {
namespace {

// Runs `body` in a forked child that then leaves by _exit(its result); gives the exit status, or -signal.
int in_child(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// The same, leaving by exit: handlers and static destructors run.
int in_exiting_child(const std::function<void()>& body, int code) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    body();
    std::exit(code);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(Process, AskingDoesNotSpoilALaterFork) {  // G-04
  EXPECT_EQ(in_child([] {
              if (DeviceContext::count() < 1 || DeviceContext::is_open(0)) return 1;
              return in_child([] {
                int value = 0;
                const DeviceStream s = DeviceContext(0).stream();
                queue(s, [&] { value = 7; });
                s.synchronize();
                return value;
              });
            }),
            7);
}

TEST(Process, AChildForkedAfterUseGetsOneClearErrorAndTheParentGoesOn) {  // G-04
  EXPECT_EQ(in_child([] {
              const DeviceContext ctx(0);
              const DeviceStream s = ctx.create_stream();
              DeviceEvent event = ctx.create_event();
              const Allocation x = ctx.allocate_bytes(1 << 20, s);
              Gate gate(s);  // work is pending across the fork
              s.record_event(event);
              const int child = in_child([&] {
                if (!in_bad_fork()) return 1;
                int refused = 0;
                const std::function<void()> calls[] = {[&] { s.synchronize(); },
                                                       [&] { queue(s, [] {}); },
                                                       [&] { event.synchronize(); },
                                                       [&] { static_cast<void>(ctx.create_stream()); },
                                                       [&] { static_cast<void>(ctx.allocate_bytes(8, s)); },
                                                       [&] { static_cast<void>(DeviceContext(0).create_event()); },
                                                       [&] { ctx.synchronize(); }};
                for (const auto& call : calls) {
                  try {
                    call();
                  } catch (const Error& error) {
                    refused += error.code() == StatusCode::forked &&
                               std::string(error.what()).find("fork") != std::string::npos;
                  }
                }
                DeviceContext::free(x.handle);  // quiet
                { const DeviceEvent dropped = std::move(event); }
                return refused == 7 ? 0 : 10 + refused;
              });
              if (child != 0) return child;
              gate.open();
              int value = 0;
              queue(s, [&] { value = 3; });
              s.synchronize();
              DeviceContext::free(x.handle);
              return value;
            }),
            3);
}

TEST(Process, ExitsWithItsCodeWhileWorkIsPending) {  // G-05
  EXPECT_EQ(in_exiting_child(
                [] {
                  const DeviceContext ctx(0);
                  static const DeviceStream s = ctx.create_stream();
                  static auto* held = new CompletionFlag(ctx);
                  s.wait_for_host_value(*held, 1);
                  queue(s, [] {});
                  static DeviceEvent event = ctx.create_event();  // destroyed after the shutdown
                  s.record_event(event);
                  [[maybe_unused]] static const Allocation x = ctx.allocate_bytes(4096, s);
                  std::thread([] {  // still waiting when the process ends
                    try {
                      s.synchronize();
                    } catch (const Error&) {}
                  })
                      .detach();
                },
                5),
            5);
}

TEST(Process, CallsAfterShutdownAreRefused) {  // G-05
  EXPECT_EQ(in_child([] {
              const DeviceContext ctx(0);
              const DeviceStream s = ctx.create_stream();
              queue(s, [] {});
              shut_down();
              shut_down();
              try {
                s.synchronize();
              } catch (const Error& error) {
                return error.code() == StatusCode::shut_down ? 0 : 2;
              }
              return 1;
            }),
            0);
}

}  // namespace
}  // namespace mojo::test
