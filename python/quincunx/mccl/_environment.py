"""Who this process is in its job, as torchrun, mpirun and Slurm tell it."""

import dataclasses
import os
import re
import zlib
from collections.abc import Mapping

# Below the ports that Linux gives to clients, so that none of those is in the way.
_FIRST_PORT, _NUM_PORTS = 10000, 20000


@dataclasses.dataclass(frozen=True)
class Place:
    """A rank, the size of its job, and where rank 0 serves."""

    rank: int
    world_size: int
    host: str
    port: int


@dataclasses.dataclass(frozen=True)
class _Launcher:
    """The variables of one way to start a job. `local_size`: ranks of this host; `job`: what tells jobs apart."""

    name: str
    rank: str
    world_size: str
    local_size: str
    job: tuple[str, ...]


_LAUNCHERS = (
    _Launcher("torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", ("TORCHELASTIC_RUN_ID",)),
    _Launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"),
    ),
    _Launcher("MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", ("PMI_JOBID", "HYDRA_JOBID")),
    _Launcher("Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", ("SLURM_JOB_ID", "SLURM_STEP_ID")),
)


def _number(environment: Mapping[str, str], name: str) -> int:
    try:
        return int(environment[name])
    except ValueError:
        raise ValueError(f"{name}: expected a number, got {environment[name]!r}") from None


def _launcher(environment: Mapping[str, str]) -> _Launcher:
    for launcher in _LAUNCHERS:
        if launcher.rank in environment and launcher.world_size in environment:
            return launcher
    names = ", ".join(f"{launcher.rank} and {launcher.world_size} ({launcher.name})" for launcher in _LAUNCHERS)
    raise ValueError(f"the environment does not tell rank and world size; expected {names}")


def first_host(node_list: str) -> str:
    """The first of a Slurm list: "gpu[07-09,12],login1" -> "gpu07"."""
    match = re.match(r"([^\[,]+)(?:\[([^\],-]+)[^\]]*\]([^,]*))?", node_list)
    if match is None:
        raise ValueError(f"SLURM_JOB_NODELIST: expected a list of hosts, got {node_list!r}")
    prefix, number, suffix = match.groups(default="")
    return prefix + number + suffix


def _host(environment: Mapping[str, str], launcher: _Launcher, world_size: int) -> str:
    if environment.get("MASTER_ADDR"):
        return environment["MASTER_ADDR"]
    nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST")
    if launcher.name == "Slurm" and nodes:
        is_alone = environment.get("SLURM_STEP_NUM_NODES", environment.get("SLURM_NNODES")) == "1"
        return "127.0.0.1" if is_alone else first_host(nodes)
    if world_size == 1 or environment.get(launcher.local_size) == str(world_size):
        return "127.0.0.1"
    raise ValueError(
        f"MASTER_ADDR: not set, and {launcher.name} does not tell on which host rank 0 runs; set it to that host"
    )


def _port(environment: Mapping[str, str], launcher: _Launcher) -> int:
    """MASTER_PORT, or one that all ranks of the job find by themselves and other jobs hardly ever do."""
    if environment.get("MASTER_PORT"):
        port = _number(environment, "MASTER_PORT")
        if not 0 < port < 65536:
            raise ValueError(f"MASTER_PORT: expected 1 to 65535, got {port}")
        return port
    job = [environment[name] for name in launcher.job if name in environment]
    # Hydra's ranks have no variable in common that is theirs alone; on one host they have their proxy.
    name = ".".join(job) if job else str(os.getppid())
    return _FIRST_PORT + zlib.crc32(name.encode()) % _NUM_PORTS


def has_agent_store(environment: Mapping[str, str]) -> bool:
    """Whether torchrun's agent serves a store of its own, which is there before the ranks are."""
    return environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def restart_generation(environment: Mapping[str, str]) -> str:
    """The number of restarts under torchrun, where all ranks agree on it: each node counts its own."""
    return environment.get("TORCHELASTIC_RESTART_COUNT", "") if environment.get("GROUP_WORLD_SIZE") == "1" else ""


def rank_and_world_size(environment: Mapping[str, str]) -> tuple[int, int]:
    """ValueError where no launcher has set them."""
    launcher = _launcher(environment)
    rank, world_size = _number(environment, launcher.rank), _number(environment, launcher.world_size)
    if not 0 <= rank < world_size:
        raise ValueError(f"{launcher.rank}: expected 0 to {launcher.world_size} - 1 = {world_size - 1}, got {rank}")
    return rank, world_size


def find_place(environment: Mapping[str, str]) -> Place:
    """ValueError names the variable that is missing or wrong."""
    launcher = _launcher(environment)
    rank, world_size = rank_and_world_size(environment)
    return Place(rank, world_size, _host(environment, launcher, world_size), _port(environment, launcher))
