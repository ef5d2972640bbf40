"""Instructions that not every CPU has stay in functions that are called after a check of the CPU.

The linker keeps one copy of an inline function or template that several objects hold. Where that copy comes from an
object compiled for AVX-512, the baseline code runs into illegal instructions on older CPUs. So
 - an object compiled with instruction-set flags exports nothing weak, and only functions named after the set, and
 - in every object, a function with vector instructions past SSE carries its set in its name: Highway's namespaces
   N_AVX2, N_AVX3, ..., or a suffix such as _avx512bf16.
"""

import json
import pathlib
import re
import subprocess
from collections.abc import Iterator

_ISA_FLAG = re.compile(r"\s-m(avx|fma|f16c|bmi|amx|xop|vpclmul|arch=|tune=native)\S*")
_NAMED_AFTER_A_SET = re.compile(r"N_(AVX|SSE4|SSSE3|NEON|SVE|PPC|WASM)|_(avx|fma|amx|sse4|f16c)[a-z0-9_]*")
_FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")
_PAST_SSE = re.compile(r"\tv[a-z0-9]+\s.*%[xyz]mm|%[yz]mm\d|%k[0-7]\b|\tkmov|\ttdp|\ttileload")


def isa_objects(build: pathlib.Path) -> Iterator[pathlib.Path]:
    """The objects that the build compiled with instruction-set flags of their own."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        match = re.search(r" -o (\S+\.o)\b", entry["command"])
        if match and _ISA_FLAG.search(entry["command"]):
            yield pathlib.Path(entry["directory"]) / match.group(1)


def exported_violations(obj: pathlib.Path) -> list[str]:
    """What `obj`, compiled for one instruction set, offers to the linker and must not."""
    lines = subprocess.run(
        ["nm", "--defined-only", obj], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    found = []
    for line in lines:
        _, kind, symbol = line.split(maxsplit=2)
        if kind in "WwVvu":
            found.append(f"{obj.name}: weak symbol {symbol}")
        elif kind in "TDBRC" and not _NAMED_AFTER_A_SET.search(symbol):
            found.append(f"{obj.name}: {symbol} is exported and not named after its instruction set")
    return found


def vector_violations(obj: pathlib.Path) -> list[str]:
    """Functions of `obj` with instructions past SSE whose names do not say so."""
    command = ["objdump", "-d", "--no-show-raw-insn", obj]
    function, found = "", {}
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        if (match := _FUNCTION.match(line)) is not None:
            function = match.group(1)
        elif function not in found and _PAST_SSE.search(line) and not _NAMED_AFTER_A_SET.search(function):
            found[function] = line.split("\t", 1)[1]
    return [f"{obj.name}: {function} holds '{instruction}'" for function, instruction in found.items()]


def violations(build: pathlib.Path) -> list[str]:
    found = []
    for obj in isa_objects(build):
        if obj.exists():
            found += exported_violations(obj)
    for obj in sorted((build / "quincunx").rglob("*.o")):
        found += vector_violations(obj)
    return found
