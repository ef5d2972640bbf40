"""What boosting a pipeline does: a dataclass that is also read from a dict, a YAML file or YAML text."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from ._arguments import flag, integer, integers
from ._rules import rule_amount

_DEFAULT_SPARSITY = 0.5
_YAML_SUFFIXES = (".yaml", ".yml")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoostConfig:
    """Every field has effect; a value that would have none raises ValueError.

    sparsity, rule, cdf_threshold, window, tile, keep_first_frame, keep_sink, keep_recent: as for sparse_attention, in
    the self-attention of every transformer block; sparsity is 0.5 with rule "topk" unless given.
    dense_steps: in so many first denoising steps self-attention is dense. dense_blocks: so is it in so many first
    blocks of the transformer in all steps.
    cross_attention: attention to the text (and image) by this package's dense kernel. norms: RMSNorm of queries and
    keys, and LayerNorm with modulation, by this package's kernels. Rotary embedding always is.
    """

    sparsity: float | None = None
    rule: str = "topk"
    cdf_threshold: float | None = None
    window: Sequence[int] | None = None
    tile: Sequence[int] = (2, 8, 8)
    keep_first_frame: bool = False
    keep_sink: int = 0
    keep_recent: int = 0
    dense_steps: int = 0
    dense_blocks: int = 0
    cross_attention: bool = True
    norms: bool = True

    def __post_init__(self) -> None:
        if self.sparsity is None and self.rule == "topk":
            object.__setattr__(self, "sparsity", _DEFAULT_SPARSITY)
        amount = rule_amount(self.rule, sparsity=self.sparsity, cdf_threshold=self.cdf_threshold, window=self.window)
        if self.rule == "window":
            object.__setattr__(self, "window", amount)
        object.__setattr__(self, "tile", integers("tile", self.tile, 3, 1, "frames, height, width"))
        for name in ("keep_first_frame", "cross_attention", "norms"):
            flag(name, getattr(self, name))
        for name in ("keep_sink", "keep_recent", "dense_steps", "dense_blocks"):
            integer(name, getattr(self, name), 0)

    def sparse_options(self) -> dict[str, Any]:
        """The arguments of sparse_attention."""
        names = ("sparsity", "rule", "cdf_threshold", "window", "tile", "keep_first_frame", "keep_sink", "keep_recent")
        return {name: getattr(self, name) for name in names}


def _yaml_mapping(text: str, source: str) -> Mapping[str, Any]:
    try:
        import yaml
    except ModuleNotFoundError:
        raise RuntimeError("config: YAML needs the package PyYAML; install it with `pip install PyYAML`") from None
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"config: {source} is not YAML: {error}") from None
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise ValueError(f"config: expected a mapping of options in {source}, got {values!r}")
    return values


def _file_mapping(path: pathlib.Path) -> Mapping[str, Any]:
    try:
        return _yaml_mapping(path.read_text(), str(path))
    except OSError as error:
        raise ValueError(f"config: cannot read {path}: {error.strerror}") from None


def load_config(config: BoostConfig | Mapping[str, Any] | str | pathlib.Path | None) -> BoostConfig:
    """The BoostConfig of a mapping, a YAML file (a Path, or a str that ends in .yaml or .yml) or YAML text."""
    if isinstance(config, BoostConfig):
        return config
    if isinstance(config, pathlib.Path):
        config = _file_mapping(config)
    elif isinstance(config, str):
        is_file = config.endswith(_YAML_SUFFIXES) and "\n" not in config
        config = _file_mapping(pathlib.Path(config)) if is_file else _yaml_mapping(config, "the text")
    elif config is None:
        config = {}
    if not isinstance(config, Mapping):
        raise TypeError(
            f"config: expected a BoostConfig, a mapping, YAML or the path of a YAML file, got {type(config).__name__}"
        )
    known = [field.name for field in dataclasses.fields(BoostConfig)]
    unknown = sorted(str(name) for name in config if name not in known)
    if unknown:
        raise ValueError(f"config: expected options among {', '.join(known)}, got {', '.join(unknown)}")
    return BoostConfig(**config)
