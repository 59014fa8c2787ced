"""Which processes belong to one run, read from what torchrun, Slurm and MPI tell each of them."""

import os
import subprocess
from dataclasses import dataclass
from typing import Mapping, Optional

from informer_fairseq.errors import InputError


@dataclass
class Rank:
    """One process among those that a launcher started together.

    Attributes:
        launcher: what started them.
        world_size: how many there are, on all machines.
        rank: the number of this one.
        local_rank: its number on its machine.
        init_method: where they meet, for ``torch.distributed.init_process_group``.
    """

    launcher: str
    world_size: int
    rank: int
    local_rank: int
    init_method: str


def launched_rank(port: int = -1, environment: Optional[Mapping[str, str]] = None) -> Optional[Rank]:
    """This process among those that a launcher started, or None where it runs alone.

    Args:
        port: where Slurm's tasks meet; torchrun names a port itself. Without one it follows from job and step.
        environment: the variables; the process's own by default.

    Raises:
        InputError: MPI started the processes, which tells them no place to meet; or Slurm's nodes cannot be read.
    """
    environment = os.environ if environment is None else environment
    if {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"} <= environment.keys():
        size, rank = int(environment["WORLD_SIZE"]), int(environment["RANK"])
        return Rank("torchrun", size, rank, int(environment.get("LOCAL_RANK", rank)), "env://") if size > 1 else None
    # Not SLURM_NTASKS: a batch script has it too, which runs once. srun alone sets the step's number of tasks.
    size = int(environment.get("SLURM_STEP_NUM_TASKS", "1"))
    if size > 1:
        local = int(environment.get("SLURM_LOCALID", "0"))
        return Rank("srun", size, int(environment["SLURM_PROCID"]), local, _slurm_meeting_place(port, environment))
    size = int(environment.get("OMPI_COMM_WORLD_SIZE", environment.get("PMI_SIZE", "1")))
    if size > 1:
        raise InputError(
            f"mpirun started {size} processes, and each would run alone: start them with torchrun "
            f"--nproc-per-node {size}, or with srun"
        )
    return None


def _slurm_meeting_place(port: int, environment: Mapping[str, str]) -> str:
    nodes = environment.get("SLURM_STEP_NODELIST", environment.get("SLURM_JOB_NODELIST", ""))
    try:
        hosts = subprocess.run(
            ["scontrol", "show", "hostnames", nodes], capture_output=True, text=True, check=True
        ).stdout.split()
    except (OSError, subprocess.CalledProcessError) as error:
        raise InputError(
            f"srun started this process, but its nodes '{nodes}' cannot be read ({error}): put scontrol on the PATH, "
            "or start with torchrun"
        ) from None
    if port <= 0:
        number = 31 * int(environment.get("SLURM_JOB_ID", "0")) + int(environment.get("SLURM_STEP_ID", "0"))
        port = 10000 + number % 50000
    return f"tcp://{hosts[0]}:{port}"
