#include "base/subprocess.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/env.h"

namespace mojo::base {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  out.reserve(texts.size() + 1);
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

class SpawnSettings {
 public:
  SpawnSettings() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

}  // namespace

Status run_program(const std::vector<std::string>& arguments, const std::string& folder, ProgramResult& out) {
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) {
    return {StatusCode::unavailable, "cannot run " + arguments.front() + ": no pipe: " + strerror(errno)};
  }
  SpawnSettings settings;
  posix_spawn_file_actions_addopen(&settings.actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&settings.actions, pipe_ends[1], 1);
  posix_spawn_file_actions_adddup2(&settings.actions, pipe_ends[1], 2);
  if (!folder.empty()) posix_spawn_file_actions_addchdir_np(&settings.actions, folder.c_str());
  // The calling thread may block signals, and the program ignore some; neither is the child's business.
  sigset_t none, usual;
  sigemptyset(&none);
  sigemptyset(&usual);
  sigaddset(&usual, SIGPIPE);
  sigaddset(&usual, SIGCHLD);
  posix_spawnattr_setsigmask(&settings.attributes, &none);
  posix_spawnattr_setsigdefault(&settings.attributes, &usual);
  posix_spawnattr_setflags(&settings.attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

  const std::vector<std::string> environment = program_environment();
  pid_t child = -1;
  const int error = posix_spawn(&child, arguments.front().c_str(), &settings.actions, &settings.attributes,
                                pointers(arguments).data(), pointers(environment).data());
  close(pipe_ends[1]);
  if (error != 0) {
    close(pipe_ends[0]);
    return {StatusCode::unavailable, "cannot run " + arguments.front() + ": " + strerror(error)};
  }
  out.output.clear();
  char buffer[4096];
  for (;;) {
    const ssize_t got = read(pipe_ends[0], buffer, sizeof buffer);
    if (got > 0) {
      out.output.append(buffer, static_cast<std::size_t>(got));
    } else if (got == 0 || errno != EINTR) {
      break;
    }
  }
  close(pipe_ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno == EINTR) continue;
    out.exit_status = ProgramResult::unknown;
    return {};
  }
  out.exit_status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return {};
}

}  // namespace mojo::base
