"""The compiled part is for one minor version of torch and says so."""

import pytest
import torch
from quincunx.activation import _extension


def test_the_version_file_names_the_torch_it_was_built_for():
    built_for = _extension.version_file().read_text().strip()
    assert built_for == torch.__version__
    assert built_for.split("+")[0] == _extension.load().TORCH_VERSION.split("+")[0]


@pytest.mark.parametrize("running", ["2.12.0", "2.14.0.dev20260701+cpu"])
def test_another_minor_version_is_refused_with_both_names(running):
    with pytest.raises(RuntimeError, match=f"built for torch 2.13.0.*torch {running.partition('+')[0]}.* is running"):
        _extension.check_torch_version("2.13.0+cpu", running)


def test_a_missing_module_is_explained(tmp_path, monkeypatch):
    monkeypatch.setattr(_extension, "library_directory", lambda: tmp_path)
    with pytest.raises(RuntimeError, match="QX_BUILD_TORCH=ON"):
        _extension.load.__wrapped__()
