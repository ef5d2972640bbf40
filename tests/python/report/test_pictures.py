import io

import numpy
import pytest
from PIL import Image
from quincunx.report import Picture, Report, inspect, png

SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="60" height="20"><rect width="60" height="20" fill="red"/></svg>'


def report_with(*pictures, **options):
    report = Report(title="A report", summary="With pictures.")
    report.add_pictures(pictures, title="Pictures", caption="Some.", **options)
    return report


@pytest.mark.parametrize(("height", "width"), [(1, 1), (3, 5), (40, 17)])
def test_png_gives_the_pixels_back(height, width):
    pixels = numpy.random.default_rng(1).integers(0, 256, (height, width, 3), dtype=numpy.uint8)
    assert (numpy.asarray(Image.open(io.BytesIO(png(pixels)))) == pixels).all()


@pytest.mark.parametrize("dtype", [numpy.int64, numpy.int16, numpy.uint32])
def test_integers_of_any_width_are_bytes(dtype):
    pixels = numpy.array([[[0, 1, 2], [128, 254, 255]]])
    assert (numpy.asarray(Image.open(io.BytesIO(png(pixels.astype(dtype))))) == pixels).all()
    with pytest.raises(ValueError, match="pixels: expected integers from 0 to 255, got 0 to 256"):
        png(numpy.array([[[0, 1, 256]]], dtype))


def test_values_from_0_to_1_are_rounded_to_bytes_and_cut_off():
    pixels = numpy.array([[[0.0, 1.0, 0.5], [-3.0, 7.0, 0.9999]]], numpy.float32)
    assert numpy.asarray(Image.open(io.BytesIO(png(pixels)))).tolist() == [[[0, 255, 128], [0, 255, 255]]]


@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 4), (0, 4, 3), (2, 3, 4, 3)])
def test_png_rejects_other_shapes(shape):
    with pytest.raises(ValueError, match=r"pixels: expected \[height, width, 3\]"):
        png(numpy.zeros(shape))


def test_png_rejects_what_is_no_number():
    with pytest.raises(ValueError, match="pixels: expected finite values"):
        png(numpy.full((2, 2, 3), numpy.nan))


def test_pictures_are_shown(tmp_path, browser):
    pixels = numpy.zeros((4, 7, 3))
    report = report_with(Picture("dots", "Dots", png(pixels)), Picture("box", "Box", SVG, "image/svg+xml"))
    state = inspect(report.write(tmp_path / "report.html"), browser=browser)
    assert {picture.name: picture.width for picture in state.pictures} == {"dots": 7, "box": 60}
    assert state.problems() == []


def test_a_broken_picture_is_detected(tmp_path, browser):
    report = report_with(Picture("broken", "Broken", b"no PNG"), pixelated=True)
    problems = inspect(report.write(tmp_path / "report.html"), browser=browser).problems()
    assert "the picture 'broken' is not shown" in problems
    assert any("picture broken" in problem and problem.startswith("script error") for problem in problems)


def test_labels_are_escaped_and_names_checked():
    page = report_with(Picture("a", '"><script>alert(1)</script>', SVG, "image/svg+xml")).to_html()
    assert "<script>alert" not in page
    with pytest.raises(ValueError, match="the report has a picture 'a' already"):
        report_with(Picture("a", "A", SVG), Picture("a", "A", SVG))
    with pytest.raises(ValueError, match="name: expected lower_snake_case, got 'A b'"):
        report_with(Picture("A b", "A", SVG))
    with pytest.raises(ValueError, match="pictures: expected at least one"):
        report_with()


def test_bad_pictures_are_refused():
    with pytest.raises(ValueError, match="media_type: expected one of image/png, image/svg.xml, got 'image/gif'"):
        Picture("a", "A", b"GIF", "image/gif")
    with pytest.raises(ValueError, match="data: expected the bytes of the picture 'a', got str"):
        Picture("a", "A", "text")
    with pytest.raises(ValueError, match="data: expected the bytes"):
        Picture("a", "A", b"")
