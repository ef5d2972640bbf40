"""`qx convert MODEL -o model.qxm`: a PyTorch model becomes a file that runs without Python."""

import argparse
import sys

_WRONG_USAGE = 2
_FAILED = 1


def _parser() -> argparse.ArgumentParser:
    from quincunx.lite.source import recipes

    parser = argparse.ArgumentParser(
        prog="qx convert",
        description="Convert a PyTorch model into a .qxm file, which `qx run` and the C++ runtime run without Python.",
        epilog=f"Recipes: {', '.join(recipes()) or 'none'}.",
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="FILE.py:FUNCTION (returns module, example inputs and, if sizes vary, dynamic shapes), a .pt2 file, "
        "a folder with config.json and model.safetensors, or a recipe",
    )
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the .qxm file to write")
    parser.add_argument(
        "--max-length", type=int, metavar="N", help="tokens that a decoder's caches hold, or the longest text to encode"
    )
    parser.add_argument("--tokenizer", metavar="FILE", help="tokenizer.json or tokenizer.model that goes into the file")
    parser.add_argument("--no-regions", action="store_true", help="do not run the fusion compiler")
    parser.add_argument("--no-check", action="store_true", help="do not compare the result with the source")
    parser.add_argument("--quiet", action="store_true", help="print no progress")
    return parser


def main(arguments: list[str]) -> int:
    """Runs the verb and returns its exit status."""
    try:
        options = _parser().parse_args(arguments)
    except SystemExit as stop:
        return _WRONG_USAGE if stop.code else 0
    from quincunx.lite import convert

    progress = None if options.quiet else lambda message: print(f"qx convert: {message}", file=sys.stderr, flush=True)
    try:
        report = convert(
            options.model,
            output=options.output,
            max_length=options.max_length,
            tokenizer=options.tokenizer,
            regions=not options.no_regions,
            check=not options.no_check,
            progress=progress,
        )
    except (ValueError, TypeError, NotImplementedError, RuntimeError, OSError) as error:
        print(f"qx convert: {error}", file=sys.stderr)
        return _FAILED
    methods = ", ".join(
        f"{name} ({count} nodes, {report.regions[name]} fused regions)" for name, count in report.methods.items()
    )
    checked = "not compared" if report.max_error is None else f"largest error {report.max_error:.2e}"
    print(f"{report.output}: {report.size_bytes / 1e6:.1f} MB, {methods}, {checked}, {report.seconds:.1f} s")
    return 0
