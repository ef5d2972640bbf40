"""The variables of launchers, without any of them."""

import pytest
from quincunx.mccl._environment import (
    Place,
    find_place,
    first_host,
    has_agent_store,
    rank_and_world_size,
    restart_generation,
)


def test_torchrun():
    environment = {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    assert find_place(environment) == Place(3, 4, "10.0.0.1", 29500)


def test_open_mpi_on_one_host_finds_a_place_of_its_own():
    environment = {
        "OMPI_COMM_WORLD_RANK": "1",
        "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
        "PMIX_NAMESPACE": "job-1",
    }
    place = find_place(environment)
    assert (place.rank, place.world_size, place.host) == (1, 2, "127.0.0.1")
    assert 10000 <= place.port < 30000
    assert find_place(environment | {"OMPI_COMM_WORLD_RANK": "0"}).port == place.port
    assert find_place(environment | {"PMIX_NAMESPACE": "job-2"}).port != place.port


def test_open_mpi_on_several_hosts_needs_to_be_told():
    environment = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    with pytest.raises(ValueError, match="MASTER_ADDR: not set, and Open MPI does not tell"):
        find_place(environment)
    assert find_place(environment | {"MASTER_ADDR": "node1"}).host == "node1"


def test_mpich():
    environment = {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}
    assert find_place(environment).host == "127.0.0.1"


@pytest.mark.parametrize(
    ("variables", "host"),
    [
        ({"SLURM_JOB_NODELIST": "node[07-09,12],login1"}, "node07"),
        ({"SLURM_STEP_NODELIST": "a1,a2", "SLURM_JOB_NODELIST": "a0,a1,a2"}, "a1"),
        ({"SLURM_JOB_NODELIST": "node3", "SLURM_NNODES": "1"}, "127.0.0.1"),
    ],
)
def test_slurm(variables, host):
    environment = {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0"} | variables
    place = find_place(environment)
    assert (place.rank, place.world_size, place.host) == (5, 8, host)
    assert find_place(environment | {"SLURM_STEP_ID": "1"}).port != place.port


@pytest.mark.parametrize(
    ("nodes", "host"),
    [("n1", "n1"), ("n1,n2", "n1"), ("n[1-4]", "n1"), ("r[03,05]-x", "r03-x"), ("a-b[9],c", "a-b9")],
)
def test_first_host(nodes, host):
    assert first_host(nodes) == host


def test_what_is_missing_or_wrong_is_named():
    with pytest.raises(ValueError, match=r"RANK and WORLD_SIZE \(torchrun\).*SLURM_PROCID and SLURM_NTASKS"):
        rank_and_world_size({})
    with pytest.raises(ValueError, match="RANK: expected a number, got 'x'"):
        rank_and_world_size({"RANK": "x", "WORLD_SIZE": "2"})
    with pytest.raises(ValueError, match="PMI_RANK: expected 0 to PMI_SIZE - 1 = 1, got 2"):
        rank_and_world_size({"PMI_RANK": "2", "PMI_SIZE": "2"})
    with pytest.raises(ValueError, match="MASTER_PORT: expected 1 to 65535, got 70000"):
        find_place({"RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": "70000"})


def test_the_generation_counts_restarts_where_all_ranks_agree():
    assert restart_generation({"GROUP_WORLD_SIZE": "1", "TORCHELASTIC_RESTART_COUNT": "2"}) == "2"
    assert restart_generation({"GROUP_WORLD_SIZE": "2", "TORCHELASTIC_RESTART_COUNT": "2"}) == ""
    assert restart_generation({}) == ""


def test_the_agents_store_is_seen():
    assert has_agent_store({"TORCHELASTIC_USE_AGENT_STORE": "True"})
    assert not has_agent_store({})
