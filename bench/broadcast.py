"""What it takes to hand so many bytes from rank 0 to all ranks, over Gloo:

    torchrun --nproc-per-node 4 bench/broadcast.py 6600000 15200000

One line per size: the median over 20 broadcasts of the time at the slowest rank.
"""

import os
import sys
import time

import torch
import torch.distributed as dist

REPEATS = 20


def seconds_for(values):
    dist.barrier()
    began = time.perf_counter()
    dist.broadcast(values, 0)
    took = torch.tensor([time.perf_counter() - began], dtype=torch.float64)
    dist.all_reduce(took, dist.ReduceOp.MAX)
    return took.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for size in map(int, sys.argv[1:]):
        values = torch.zeros(size, dtype=torch.uint8)
        seconds_for(values)  # buffers and connections
        times = sorted(seconds_for(values) for _ in range(REPEATS))
        if dist.get_rank() == 0:
            print(f"{size:,} bytes to {os.environ['WORLD_SIZE']} ranks: {1e3 * times[REPEATS // 2]:.1f} ms "
                  f"({1e3 * times[0]:.1f} to {1e3 * times[-1]:.1f})", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
