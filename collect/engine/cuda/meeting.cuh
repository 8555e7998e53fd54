/* GPUs that read each other's memory meet inside a kernel: each block that calls meet() waits until all GPUs are there,
 * and calls part() when it is through. */
#ifndef COLLECT_ENGINE_CUDA_MEETING_CUH
#define COLLECT_ENGINE_CUDA_MEETING_CUH

#include "collect/engine/cuda/element.cuh"

/* Tells the other GPUs that this one is here, and waits for them. What they wrote before is then seen. */
static __device__ __forceinline__ void meet(const struct meeting &meeting)
{
    if (meeting.gpus <= 1)
        return;
    unsigned number = *(volatile unsigned *)meeting.count + 1;
    int other = (int)threadIdx.x;
    if (other < meeting.gpus && other != meeting.index) {
        if (blockIdx.x == 0) {
            __threadfence_system();
            *(volatile unsigned *)&meeting.others[other][meeting.index] = number;
        }
        while ((int)(*(volatile unsigned *)&meeting.flags[other] - number) < 0)
            ;
        __threadfence_system();
    }
    __syncthreads();
}

/* The last block to leave counts the meeting. */
static __device__ __forceinline__ void part(const struct meeting &meeting)
{
    if (meeting.gpus <= 1)
        return;
    __syncthreads();
    if (threadIdx.x == 0 && atomicAdd(meeting.arrived, 1) == gridDim.x - 1) {
        *meeting.arrived = 0;
        *meeting.count += 1;
    }
}

#endif
