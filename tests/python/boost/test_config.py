"""BoostConfig from keywords, mappings, YAML text and YAML files; what has no effect or no meaning is named."""

import pathlib

import pytest
from quincunx.boost import BoostConfig
from quincunx.boost.config import load_config

YAML = """
rule: window
window: [1, 2, 2]
tile: [1, 4, 4]
dense_steps: 3
norms: false
"""
WANTED = BoostConfig(rule="window", window=(1, 2, 2), tile=(1, 4, 4), dense_steps=3, norms=False)


def test_all_forms_mean_the_same(tmp_path):
    mapping = {"rule": "window", "window": [1, 2, 2], "tile": [1, 4, 4], "dense_steps": 3, "norms": False}
    assert load_config(mapping) == WANTED
    assert load_config(WANTED) is WANTED
    assert load_config(YAML) == WANTED
    for name in ("boost.yaml", "boost.yml", "options.txt"):
        path = tmp_path / name
        path.write_text(YAML)
        assert load_config(path) == WANTED
        if name != "options.txt":
            assert load_config(str(path)) == WANTED


def test_nothing_given_is_half_of_the_blocks_by_score():
    for nothing in (None, {}, "", "# only a comment"):
        assert load_config(nothing) == BoostConfig(rule="topk", sparsity=0.5)


BAD = {
    "unknown": ({"sparsty": 0.5}, ValueError, "config: expected options among sparsity, rule, .*, got sparsty"),
    "nested": ("Parallel:\n  dit:\n    alg: usp\n", ValueError, "config: expected options among .*, got Parallel"),
    "list": ("- 1\n- 2\n", ValueError, r"config: expected a mapping of options in the text, got \[1, 2\]"),
    "not YAML": ("rule: [", ValueError, "config: the text is not YAML"),
    "no file": (pathlib.Path("no/such.yaml"), ValueError, "config: cannot read no/such.yaml: No such file"),
    "no file by name": ("no/such.yml", ValueError, "config: cannot read no/such.yml: No such file"),
    "kind": (3, TypeError, "config: expected a BoostConfig, a mapping, YAML or the path of a YAML file, got int"),
    "sparsity": ({"sparsity": 1.5}, ValueError, "sparsity: expected a number from 0 to 1, got 1.5"),
    "sparsity of text": ({"sparsity": "half"}, ValueError, "sparsity: expected a number from 0 to 1, got 'half'"),
    "without effect": ({"rule": "cdf", "sparsity": 0.5, "cdf_threshold": 0.9}, ValueError, "sparsity: expected none"),
    "missing": ({"rule": "window"}, ValueError, "window: expected a value with rule 'window', got None"),
    "rule": ({"rule": "best"}, ValueError, "rule: expected one of topk, cdf, window, got 'best'"),
    "tile": ({"tile": [2, 0, 8]}, ValueError, "tile: expected 3 integers"),
    "steps": ({"dense_steps": -1}, ValueError, "dense_steps: expected an integer of at least 0, got -1"),
    "blocks": ({"dense_blocks": 1.0}, ValueError, "dense_blocks: expected an integer of at least 0, got 1.0"),
    "flag": ({"norms": 1}, TypeError, "norms: expected True or False, got 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_options_are_named(case):
    config, error, message = BAD[case]
    with pytest.raises(error, match=message):
        load_config(config)
