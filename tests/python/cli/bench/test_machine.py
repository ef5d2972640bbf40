import pathlib

from quincunx.cli.bench.machine import commit, cpu_flags, describe, instruction_set

CHECKOUT = pathlib.Path(__file__).resolve().parents[4]


def test_flags_are_read_from_either_architecture():
    assert cpu_flags("processor : 0\nflags\t\t: fpu avx2 avx512f\n") == ["fpu", "avx2", "avx512f"]
    assert cpu_flags("processor : 0\nFeatures : fp asimd\n") == ["fp", "asimd"]
    assert cpu_flags("") == []


def test_widest_instruction_set_describes_the_processor():
    assert instruction_set(["avx2", "avx512f"]) == "AVX-512"
    assert instruction_set(["avx2"]) == "AVX2"
    assert instruction_set([]) == "baseline"


def test_folder_without_a_repository_says_so(tmp_path):
    assert commit(tmp_path) == "not a git checkout"


def test_description_names_what_a_figure_depends_on():
    assert {"processor", "instruction set", "cores", "date", "commit"} <= set(describe(CHECKOUT))
