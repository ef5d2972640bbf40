"""stitch: tiles of one signal give it back; others mix only where they overlap."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quincunx.boost import stitch

COVER = [(0, 8), (7, 8), (12, 8)]


@settings(max_examples=60, deadline=None)
@given(data=st.data(), blend=st.integers(0, 20))
def test_tiles_of_one_signal_give_it_back(data, blend):
    starts, ends = [0], [data.draw(st.integers(1, 9))]
    for _ in range(data.draw(st.integers(0, 4))):
        start = data.draw(st.integers(starts[-1], ends[-1]))
        starts.append(start)
        ends.append(data.draw(st.integers(max(ends[-1], start), ends[-1] + 9)))
    signal = torch.randn(2, 3, ends[-1], dtype=torch.float64)
    tiles = [signal[..., a:b] for a, b in zip(starts, ends, strict=True)]
    torch.testing.assert_close(stitch(tiles, starts, ends[-1], blend), signal, rtol=0, atol=2**-50)


@pytest.mark.parametrize("blend", [0, 1, 2, 4, 16])
def test_every_element_lies_between_the_tiles_that_cover_it(blend):
    flat = [torch.full((1, length), float(i)) for i, (_, length) in enumerate(COVER)]
    result = stitch(flat, [start for start, _ in COVER], 20, blend)
    for position in range(20):
        own = [float(i) for i, (start, length) in enumerate(COVER) if start <= position < start + length]
        assert min(own) <= result[0, position] <= max(own)


def test_the_ramp_is_linear_and_no_longer_than_asked_or_than_the_overlap():
    low, high = torch.zeros(6), torch.ones(6)
    assert stitch([low, high], [0, 3], 9, 2).tolist() == [
        0,
        0,
        0,
        pytest.approx(1 / 3),
        pytest.approx(2 / 3),
        1,
        1,
        1,
        1,
    ]
    assert stitch([low, high], [0, 5], 11, 4).tolist() == [0, 0, 0, 0, 0, 0.5, 1, 1, 1, 1, 1]
    assert stitch([low, high], [0, 6], 12, 4).tolist() == [0] * 6 + [1] * 6


def test_half_precision_and_inputs_stay_as_they_are():
    tiles = [torch.zeros(4).bfloat16(), torch.ones(4).bfloat16()]
    assert stitch(tiles, [0, 2], 6, 2).dtype == torch.bfloat16
    assert tiles[1].tolist() == [1.0] * 4


BAD = {
    "no tiles": (([], [], 0, 0), ValueError, "starts: expected one for each of the 0 tiles, one at least, got 0"),
    "starts": (([torch.zeros(3)], [0, 1], 3, 0), ValueError, "starts: expected one for each of the 1 tiles"),
    "first": (([torch.zeros(3)], [1], 4, 0), ValueError, r"starts\[0\]: expected 0, got 1"),
    "gap": (([torch.zeros(3)] * 2, [0, 4], 7, 0), ValueError, r"starts\[1\]: expected 0 to 3, without a gap, got 4"),
    "inside": (
        ([torch.zeros(9), torch.zeros(2)], [0, 1], 9, 0),
        ValueError,
        r"tiles\[1\]: expected an end at or after 9",
    ),
    "total": (([torch.zeros(3)], [0], 4, 0), ValueError, "total: expected 3, where the last tile ends, got 4"),
    "blend": (([torch.zeros(3)], [0], 3, -1), ValueError, "blend: expected an integer of at least 0, got -1"),
    "dtype": (([torch.zeros(3).long()], [0], 3, 0), TypeError, r"tiles\[0\]: expected a floating-point tensor"),
    "shape": (
        ([torch.zeros(1, 3), torch.zeros(2, 3)], [0, 3], 6, 0),
        ValueError,
        r"tiles\[1\]: expected the dtype and",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_tiles_are_named(case):
    arguments, error, message = BAD[case]
    with pytest.raises(error, match=message):
        stitch(*arguments)
