// What it is: what keeps a blocking wait of the runtime from stopping the interpreter: the lock is given up around it.
//   And what keeps daemon threads from ending the process when the interpreter goes away under them.
// Ordering: none. Threads: the waiting thread's lock only. Errors: none.
#pragma once

namespace mojo::python {

// Once, before the first wait.
void install_wait_hooks() noexcept;

// Python begins to exit on this thread, which holds the lock: shuts the runtime down. Other threads that are in a call of
// the device without the lock, or come to one, stay there until the process ends.
void exit_python(bool other_threads) noexcept;

}  // namespace mojo::python
