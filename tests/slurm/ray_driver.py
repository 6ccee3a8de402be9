"""In place of a training: says where Ray's nodes are, then ends with the given code, or waits until it is ended.

`python -m tests.slurm.ray_driver CODE|wait`
"""

import os
import sys
import time


def main() -> None:
    import ray

    ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False)

    @ray.remote(num_gpus=4)
    def where() -> tuple[str, int]:
        return os.environ["SLURMD_NODENAME"], len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))

    print("reached", sorted(ray.get([where.remote() for _ in range(2)])), flush=True)
    if sys.argv[1] == "wait":
        time.sleep(600)
    sys.exit(int(sys.argv[1]))


if __name__ == "__main__":
    main()
