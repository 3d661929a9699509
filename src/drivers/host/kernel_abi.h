// What it is: what the host driver and the images that its compiler makes agree on. The driver includes it, and hands
//   it to the compiler as "mojo/kernel/host_abi.h"; its text is part of the compiler's identity.
// Ordering: none. Threads: a MojoHostWork belongs to one worker. Errors: none.
#pragma once

// What one worker runs blocks of a launch with.
struct MojoHostWork {
  unsigned grid[3], block[3];
  const unsigned char* arguments;  // packed, in order
  unsigned char* shared_memory;    // dynamic, of the block at hand
  void (*barrier)(void* state);    // gives way to the block's other threads until all have come here
  void* state;
};

// A parameter of an entry point. `kind`, and `element_kind` of a buffer's elements, are numbers of mojo::ParameterKind.
struct MojoHostParameter {
  unsigned size;
  unsigned char kind, element_kind;
  unsigned element_size;
};

// An entry point, exported as mojo_entry_NAME.
struct MojoHostEntry {
  unsigned argument_count;
  const MojoHostParameter* parameters;
  // The blocks first <= b < last, in the order x, y, z, each from its first thread to its last. Not for kernels that
  // use barriers, unless a block is one thread.
  void (*run_blocks)(const MojoHostWork* work, unsigned long long first, unsigned long long last);
  // One thread of one block; `work->barrier` may switch to another stack of the same thread of the system.
  void (*run_thread)(const MojoHostWork* work, unsigned long long block, unsigned thread);
};
