"""Settings are checked when they are made."""

import pathlib

import pytest
from quincunx.fusion import Settings, enabled, inductor_options, pattern_names


def test_patterns_are_switched_off_by_name():
    name = pattern_names()[0]
    assert Settings(disable=[name]).patterns == {name: False}
    assert Settings().patterns == {}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"disable": ["nothing"]}, "disable names nothing; expected some of"),
        ({"disable": 3}, "disable is 3; expected a list"),
        ({"check": "yes"}, "check is 'yes'; expected True or False"),
        ({"cache_directory": 3}, "cache_directory is 3; expected a path"),
    ],
)
def test_a_wrong_value_is_named(settings, message):
    for make in (
        lambda: Settings(**settings),
        lambda: inductor_options(**settings),
        lambda: enabled(**settings).__enter__(),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_paths_become_strings():
    assert Settings(cache_directory=pathlib.Path("a") / "b").cache_directory == "a/b"


def test_an_unknown_key_is_named():
    with pytest.raises(ValueError, match="options has the unknown key 'patterns'; expected disable, check"):
        Settings.from_options({"patterns": {}})
