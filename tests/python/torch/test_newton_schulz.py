"""torch.ops.quincunx.newton_schulz against the recurrence in double precision."""

import pathlib
import re

import pytest
import torch
from quincunx._library import load_operators


@pytest.fixture(autouse=True)
def operators():
    load_operators()
    torch.manual_seed(0)


def recurrence(x, flat):
    x = x.double() / x.double().norm()
    for a, b, c in zip(flat[0::3], flat[1::3], flat[2::3], strict=True):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


@pytest.mark.parametrize("form", ["auto", "direct", "gram", "gram_pure"])
@pytest.mark.parametrize("name", ["polar_express", "quintic", "classic"])
def test_equals_the_recurrence(form, name):
    flat = torch.ops.quincunx.newton_schulz_coefficients(name, 5)
    x = torch.randn(3, 8, 30)
    y = torch.ops.quincunx.newton_schulz(x, flat, 0.0, form)
    for result, matrix in zip(y, x, strict=True):
        # 64 roundings of numbers near 1, as in the C++ tests: the matrices are well conditioned.
        torch.testing.assert_close(result.double(), recurrence(matrix, flat), rtol=0, atol=64 * 2**-24)


def test_takes_a_transposed_view_and_returns_contiguous():
    flat = torch.ops.quincunx.newton_schulz_coefficients("classic", 5)
    x = torch.randn(8, 30)
    y = torch.ops.quincunx.newton_schulz(x.T, flat, 1e-7, "auto")
    assert y.is_contiguous()
    assert torch.equal(y, torch.ops.quincunx.newton_schulz(x, flat, 1e-7, "auto").T)


def test_bad_input_names_the_argument():
    op = torch.ops.quincunx.newton_schulz
    x = torch.randn(4, 6)
    with pytest.raises(RuntimeError, match="coefficients: expected triples"):
        op(x, [1.0, 2.0], 1e-7, "auto")
    with pytest.raises(RuntimeError, match="coefficients: expected at least one triple"):
        op(x, [], 1e-7, "auto")
    with pytest.raises(RuntimeError, match='form: expected .* got "fast"'):
        op(x, [1.5, -0.5, 0.0], 1e-7, "fast")
    with pytest.raises(RuntimeError, match="TYPE_ERROR: x: expected a float32 tensor"):
        op(x.bfloat16(), [1.5, -0.5, 0.0], 1e-7, "auto")
    with pytest.raises(RuntimeError, match="eps: expected"):
        op(x, [1.5, -0.5, 0.0], -1.0, "auto")
    with pytest.raises(RuntimeError, match='coefficients: expected "polar_express"'):
        torch.ops.quincunx.newton_schulz_coefficients("best", 5)


def flags_of_the_mapping(address):
    """VmFlags of the mapping of this process that holds `address`."""
    found = False
    for line in pathlib.Path("/proc/self/smaps").read_text().splitlines():
        if (match := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)) is not None:
            found = int(match.group(1), 16) <= address < int(match.group(2), 16)
        elif found and line.startswith("VmFlags:"):
            return line.split()[1:]
    raise AssertionError(f"no mapping holds {address:#x}")


def test_asks_for_huge_pages_under_large_results_alone():
    flat = torch.ops.quincunx.newton_schulz_coefficients("classic", 1)
    large = torch.ops.quincunx.newton_schulz(torch.randn(8, 4, 330_000), flat, 1e-7, "auto")
    try:
        flags = flags_of_the_mapping(large.data_ptr() + large.nbytes // 2)
    except FileNotFoundError:
        pytest.skip("this system has no /proc/self/smaps")
    if not pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled").exists():
        pytest.skip("this kernel has no huge pages")
    assert "hg" in flags
    small = torch.ops.quincunx.newton_schulz(torch.randn(8, 4, 200_000), flat, 1e-7, "auto")
    assert "hg" not in flags_of_the_mapping(small.data_ptr() + small.nbytes // 2)
