// What it is: what keeps a blocking wait of the runtime from stopping the interpreter: the lock is given up around it.
// Ordering: none. Threads: the waiting thread's lock only. Errors: none.
#pragma once

namespace mojo::python {

// Once, before the first wait.
void install_wait_hooks() noexcept;

}  // namespace mojo::python
