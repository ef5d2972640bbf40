import math

import pytest
import torch
from model import Llama, ModelConfig, num_parameters, rotary_table, rotate

CONFIG = ModelConfig(vocab_size=50, dim=16, num_layers=2, num_heads=2, hidden_dim=24)


def new_model(seed=0):
    model = Llama(CONFIG)
    model.initialize(seed)
    return model


def reference_forward(model, tokens):
    """The same network written out with explicit loops over heads and positions, in float64."""
    weights = {name: value.double() for name, value in model.state_dict().items()}

    def rms_norm(x, weight):
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight

    x = weights["embedding.weight"][tokens]
    length, width = x.shape[0], CONFIG.head_dim
    for layer in range(CONFIG.num_layers):
        w = {name.removeprefix(f"layers.{layer}."): value for name, value in weights.items()}
        h = rms_norm(x, w["attention_norm.weight"])
        q, k, v = (h @ w[f"attention.{name}.weight"].T for name in ("query", "key", "value"))
        heads = []
        for head in range(CONFIG.num_heads):
            part = slice(head * width, (head + 1) * width)
            turned = []
            for matrix in (q[:, part], k[:, part]):
                rows = torch.zeros_like(matrix)
                for position in range(length):
                    for pair in range(width // 2):
                        angle = position * CONFIG.rope_base ** (-2 * pair / width)
                        a, b = matrix[position, pair], matrix[position, pair + width // 2]
                        rows[position, pair] = a * math.cos(angle) - b * math.sin(angle)
                        rows[position, pair + width // 2] = b * math.cos(angle) + a * math.sin(angle)
                turned.append(rows)
            scores = turned[0] @ turned[1].T / math.sqrt(width)
            scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), float("-inf"))
            heads.append(torch.softmax(scores, dim=-1) @ v[:, part])
        x = x + torch.cat(heads, dim=-1) @ w["attention.out.weight"].T
        h = rms_norm(x, w["feed_forward_norm.weight"])
        gate = h @ w["feed_forward.gate.weight"].T
        up = h @ w["feed_forward.up.weight"].T
        x = x + (gate * torch.sigmoid(gate) * up) @ w["feed_forward.down.weight"].T
    return rms_norm(x, weights["norm.weight"]) @ weights["head.weight"].T


@pytest.mark.parametrize("length", [1, 2, 9])
def test_forward_equals_a_float64_reference(length):
    model = new_model()
    tokens = torch.randint(0, 50, (length,), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert torch.allclose(model(tokens[None])[0].double(), reference_forward(model, tokens), rtol=1e-4, atol=1e-6)


def test_later_tokens_do_not_change_earlier_logits():
    model = new_model()
    tokens = torch.arange(10)[None]
    changed = tokens.clone()
    changed[0, 6:] = 49
    with torch.no_grad():
        before, after = model(tokens), model(changed)
    assert torch.allclose(before[:, :6], after[:, :6], atol=1e-6)
    assert not torch.allclose(before[:, 6:], after[:, 6:], atol=1e-3)


def test_rotation_keeps_lengths_and_depends_on_distance_alone():
    cos, sin = rotary_table(12, 8, 10000.0)
    generator = torch.Generator().manual_seed(2)
    q, k = torch.randn(8, generator=generator), torch.randn(8, generator=generator)
    turned_q, turned_k = rotate(q.expand(12, 8), cos, sin), rotate(k.expand(12, 8), cos, sin)
    assert torch.allclose(turned_q.norm(dim=-1), q.norm().expand(12), rtol=1e-5)
    scores = turned_q @ turned_k.T
    for distance in range(5):
        diagonal = scores.diagonal(-distance)
        assert torch.allclose(diagonal, diagonal[:1].expand_as(diagonal), atol=1e-4)


def test_same_seed_gives_the_same_weights():
    first, second, other = new_model(3), new_model(3), new_model(4)
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name])
    assert not torch.equal(first.head.weight, other.head.weight)


def test_tour_model_has_about_five_million_parameters():
    assert 4.5e6 < num_parameters(Llama(ModelConfig())) < 5.5e6


@pytest.mark.parametrize(("dim", "num_heads"), [(16, 3), (6, 2)])
def test_width_that_heads_cannot_share_is_refused(dim, num_heads):
    with pytest.raises(ValueError, match=f"dim {dim} must be num_heads {num_heads} times an even width"):
        Llama(ModelConfig(dim=dim, num_heads=num_heads))
