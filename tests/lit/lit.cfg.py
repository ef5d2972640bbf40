"""lit's configuration: `lit-22 -DQX_OPT=<build>/bin/qx-opt tests/lit`, which ctest runs."""

# ruff: noqa: F821  (lit defines config and lit_config)

import os

import lit.formats

config.name = "quincunx"
config.test_format = lit.formats.ShTest(True)
config.suffixes = [".mlir"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = lit_config.params["OUTPUT"]
# Every pass leaves valid IR behind: the verifier runs after each.
config.substitutions += [
    ("%qx-opt", lit_config.params["QX_OPT"] + " --allow-unregistered-dialect=false --verify-each"),
    ("%FileCheck", lit_config.params["FILECHECK"]),
]
