#include "wait_hooks.h"

#include <Python.h>
#include <unistd.h>

#include <atomic>

#include "mojo/process.h"

namespace mojo::python {

namespace {

bool finalizing() noexcept {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

[[noreturn]] void wait_for_exit() noexcept {
  for (;;) pause();
}

// Null: the lock is not this thread's, or there is nobody left to give it to. torch has often given it up already.
void* release_lock() noexcept {
  // PyGILState_Check says yes to everybody once the interpreter is gone.
  if (!Py_IsInitialized() || finalizing() || !PyGILState_Check()) return nullptr;
  return PyEval_SaveThread();
}

// Set once Python has begun to exit and the runtime is shut down. All threads but the exiting one are then daemons.
std::atomic<bool> exiting{false};
thread_local bool exits_python = false;

// Core holds its own guards of the lock around most calls, and they take it back in destructors: see take_lock below.
void stay_if_exiting() noexcept {
  if (exiting.load(std::memory_order_acquire) && !exits_python &&
      (!Py_IsInitialized() || finalizing() || !PyGILState_Check()))
    wait_for_exit();
}

// A thread that wants the lock back while the interpreter ends never gets it. Python up to 3.13 would then end the
// thread by unwinding its stack, which no frame of C++ that must not throw survives; so it stays here instead, as
// Python 3.14 has it.
void take_lock(void* state) noexcept {
  stay_if_exiting();
  if (state == nullptr) return;
  if (finalizing()) wait_for_exit();
  try {
    PyEval_RestoreThread(static_cast<PyThreadState*>(state));
  } catch (...) {  // the unwinding of pthread_exit: the interpreter began to end after the question above
    wait_for_exit();
  }
}

}  // namespace

void install_wait_hooks() noexcept {
  set_wait_hooks({.before = &release_lock, .after = &take_lock, .refused_at_exit = &stay_if_exiting});
}

void exit_python(bool other_threads) noexcept {
  exits_python = true;
  exiting.store(true, std::memory_order_release);
  PyThreadState* const state = PyEval_SaveThread();
  shut_down();
  // Daemon threads that were inside a call when the runtime went down finish it, and come to rest in their next one.
  // After this the interpreter ends, and a thread that still asked for its lock would end the process.
  if (other_threads) usleep(100'000);
  PyEval_RestoreThread(state);
}

}  // namespace mojo::python
