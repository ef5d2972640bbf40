"""Six networks with random weights and small batches: classes of transformers where it has them, else by hand.

Shape suffixes: B batch, L length, T frames, D width.
"""

import math
from collections.abc import Callable

import torch
from torch import nn

Network = tuple[nn.Module, tuple[torch.Tensor, ...]]


class _FirstResult(nn.Module):
    """A model of transformers as a function of one tensor."""

    def __init__(self, model: nn.Module, argument: str) -> None:
        super().__init__()
        self.model, self.argument = model, argument

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(**{self.argument: x}, return_dict=False)[0]


class _BertNorm(nn.Module):
    """BERT_pytorch's: the unbiased deviation, epsilon outside of the root."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x_BLD: torch.Tensor) -> torch.Tensor:
        mean, deviation = x_BLD.mean(-1, keepdim=True), x_BLD.std(-1, keepdim=True)
        return self.weight * (x_BLD - mean) / (deviation + 1e-6) + self.bias


class _BertLayer(nn.Module):
    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.attention_norm, self.norm = _BertNorm(width), _BertNorm(width)

    def forward(self, x_BLD: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        normed = self.attention_norm(x_BLD)
        query, key, value = (
            project(normed).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
        weights = torch.softmax(scores.masked_fill(mask == 0, -1e9), dim=-1)
        x_BLD = x_BLD + self.out((weights @ value).transpose(1, 2).flatten(-2))
        hidden = self.up(self.norm(x_BLD))
        activated = 0.5 * hidden * (1 + torch.tanh(math.sqrt(2 / math.pi) * (hidden + 0.044715 * torch.pow(hidden, 3))))
        return x_BLD + self.down(activated)


class _Bert(nn.Module):
    def __init__(self, width: int, num_layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, width)
        self.layers = nn.ModuleList(_BertLayer(width, 12) for _ in range(num_layers))

    def forward(self, tokens_BL: torch.Tensor) -> torch.Tensor:
        mask = (tokens_BL > 0)[:, None, None, :]
        x_BLD = self.embedding(tokens_BL)
        for layer in self.layers:
            x_BLD = layer(x_BLD, mask)
        return x_BLD


def bert(num_layers: int = 4) -> Network:
    return _Bert(768, num_layers), (torch.randint(1, 1000, (1, 128)),)


def vit_small() -> Network:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(hidden_size=384, num_hidden_layers=12, num_attention_heads=6, intermediate_size=1536)
    return _FirstResult(ViTModel(config, add_pooling_layer=False), "pixel_values"), (torch.randn(1, 3, 224, 224),)


class _SpeechTransformer(nn.Module):
    """Post-norm, four layers of encoder and two of decoder."""

    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.project, self.embedding = nn.Linear(80, width), nn.Embedding(1000, width)
        self.transformer = nn.Transformer(width, 8, 4, 2, 2048, dropout=0.0, batch_first=True)
        self.out = nn.Linear(width, 1000)

    def forward(self, frames_BTD: torch.Tensor, tokens_BL: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens_BL.shape[1])
        memory = self.transformer.encoder(self.project(frames_BTD))
        return self.out(self.transformer.decoder(self.embedding(tokens_BL), memory, tgt_mask=mask))


def speech_transformer() -> Network:
    return _SpeechTransformer(), (torch.randn(2, 200, 80), torch.randint(0, 1000, (2, 20)))


def clip() -> Network:
    from transformers import CLIPVisionConfig, CLIPVisionModel

    config = CLIPVisionConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536, patch_size=32
    )
    return _FirstResult(CLIPVisionModel(config), "pixel_values"), (torch.randn(2, 3, 224, 224),)


def resnet18() -> Network:
    from transformers import ResNetConfig, ResNetModel

    config = ResNetConfig(hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic")
    return _FirstResult(ResNetModel(config), "pixel_values"), (torch.randn(1, 3, 224, 224),)


def dcgan() -> Network:
    layers: list[nn.Module] = []
    widths = (100, 512, 256, 128, 64)
    for index, (before, after) in enumerate(zip(widths, widths[1:], strict=False)):
        stride, padding = (1, 0) if index == 0 else (2, 1)
        layers += [nn.ConvTranspose2d(before, after, 4, stride, padding, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    layers += [nn.ConvTranspose2d(widths[-1], 3, 4, 2, 1, bias=False), nn.Tanh()]
    return nn.Sequential(*layers), (torch.randn(4, 100, 1, 1),)


NETWORKS: dict[str, Callable[[], Network]] = {
    "bert": bert,
    "vit_small": vit_small,
    "speech_transformer": speech_transformer,
    "clip": clip,
    "resnet18": resnet18,
    "dcgan": dcgan,
}


def build(name: str) -> Network:
    """The network, ready for inference, with weights and inputs that are the same in every process."""
    torch.manual_seed(0)
    model, inputs = NETWORKS[name]()
    return model.eval(), inputs
