// What it is: the platform of CUDA and HIP, compiled at run time.
// Ordering: as the vendor's. Threads: device code. Errors: none.
#pragma once

#define MOJO_KERNEL __global__
#define MOJO_DEVICE __device__ __forceinline__
#define MOJO_SHARED __shared__

namespace mojo::platform {

MOJO_DEVICE unsigned thread_index(int axis) { return axis == 0 ? threadIdx.x : axis == 1 ? threadIdx.y : threadIdx.z; }
MOJO_DEVICE unsigned block_size(int axis) { return axis == 0 ? blockDim.x : axis == 1 ? blockDim.y : blockDim.z; }
MOJO_DEVICE unsigned block_index(int axis) { return axis == 0 ? blockIdx.x : axis == 1 ? blockIdx.y : blockIdx.z; }
MOJO_DEVICE unsigned block_count(int axis) { return axis == 0 ? gridDim.x : axis == 1 ? gridDim.y : gridDim.z; }
MOJO_DEVICE unsigned long long global_index(int axis) {
  return static_cast<unsigned long long>(block_index(axis)) * block_size(axis) + thread_index(axis);
}
MOJO_DEVICE void barrier() { __syncthreads(); }
MOJO_DEVICE void fence() { __threadfence(); }
MOJO_DEVICE void* shared_memory() {
  extern __shared__ __align__(16) unsigned char mojo_shared_memory[];
  return mojo_shared_memory;
}

}  // namespace mojo::platform
