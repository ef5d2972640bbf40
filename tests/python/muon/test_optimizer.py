"""quincunx.muon.optimizer on plain tensors of one process, against the definition in float64."""

import copy

import pytest
import torch
from muon.reference import (
    CLASSIC,
    NEWTON_SCHULZ_ERROR,
    POLAR_EXPRESS,
    QUINTIC,
    Reference,
    newton_schulz,
    random_matrix,
    relative_error,
)
from quincunx.muon import Muon
from torch import nn

NUM_STEPS = 3


def parameter(*shape: int, seed: int = 100) -> nn.Parameter:
    return nn.Parameter(random_matrix(*shape, seed=seed))


def run(optimizer: torch.optim.Optimizer, param: nn.Parameter, num_steps: int = NUM_STEPS, seed: int = 0) -> None:
    for step in range(num_steps):
        param.grad = random_matrix(*param.shape, seed=seed + step)
        optimizer.step()


def run_reference(reference: Reference, num_steps: int = NUM_STEPS, seed: int = 0) -> None:
    for step in range(num_steps):
        reference.step(random_matrix(*reference.value.shape, seed=seed + step))


# Each option at a value that is not its default: ignoring it gives another result.
OPTIONS = [
    ({}, {}),
    ({"lr": 0.3}, {"lr": 0.3}),
    ({"lr": torch.tensor(0.3)}, {"lr": 0.3}),
    ({"weight_decay": 5.0}, {"weight_decay": 5.0}),
    ({"momentum": 0.5}, {"momentum": 0.5}),
    ({"momentum": 0.3}, {"momentum": 0.3}),
    ({"momentum": 0.0}, {"momentum": 0.0}),
    ({"nesterov": False}, {"nesterov": False}),
    ({"ns_steps": 3}, {"triples": POLAR_EXPRESS[:3]}),
    ({"coefficients": "quintic"}, {"triples": QUINTIC}),
    ({"coefficients": "quintic", "ns_steps": 7}, {"triples": [*QUINTIC, QUINTIC[-1], QUINTIC[-1]]}),
    ({"coefficients": "classic"}, {"triples": [CLASSIC] * 5}),
    ({"coefficients": CLASSIC}, {"triples": [CLASSIC] * 5}),
    ({"ns_coefficients": CLASSIC, "ns_steps": 2}, {"triples": [CLASSIC] * 2}),
    ({"coefficients": [CLASSIC, (2.0, -1.5, 0.5)]}, {"triples": [CLASSIC] + [(2.0, -1.5, 0.5)] * 4}),
    ({"adjust_lr_fn": "original"}, {"match_rms": None}),
    ({"adjust_lr_fn": None}, {"match_rms": None}),
    ({"matched_adamw_rms": 0.7}, {"match_rms": 0.7}),
]


@pytest.mark.parametrize(("options", "expected"), OPTIONS)
@pytest.mark.parametrize("shape", [(12, 5), (5, 12)])
def test_each_option_does_what_it_says(shape, options, expected):
    param = parameter(*shape)
    reference = Reference(param, **expected)
    run(Muon([param], **options), param)
    run_reference(reference)
    assert relative_error(param, reference.value) < NEWTON_SCHULZ_ERROR


def test_eps_is_added_to_the_norm():
    param = nn.Parameter(torch.zeros(4, 6))
    grad = random_matrix(4, 6)
    scaled = grad / 2 ** torch.floor(torch.log2(grad.abs().max()))
    optimizer = Muon(
        [param],
        lr=1.0,
        momentum=0.0,
        weight_decay=0.0,
        ns_steps=1,
        coefficients=(1.0, 0.0, 0.0),
        adjust_lr_fn=None,
        eps=3.0,
    )
    param.grad = grad
    optimizer.step()
    assert relative_error(param, -scaled.double() / (scaled.double().norm() + 3.0)) < NEWTON_SCHULZ_ERROR


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (2, 2), (17, 16), (64, 3), (3, 64), (33, 40), (2, 3, 4, 8)])
def test_shapes(shape):
    param = parameter(*shape)
    reference = Reference(param)
    run(Muon([param]), param)
    run_reference(reference)
    assert relative_error(param, reference.value) < NEWTON_SCHULZ_ERROR


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 4, 4), (3, 0, 4)])
def test_empty_matrices_are_left_alone(shape):
    param = parameter(*shape)
    optimizer = Muon([param])
    run(optimizer, param)
    assert optimizer.counters["matrices_total"] == 0


def test_batches_equal_single_matrices_bitwise():
    stacked, alone = parameter(3, 10, 6), [nn.Parameter(m.clone()) for m in parameter(3, 10, 6)]
    for params in ([stacked], alone):
        optimizer = Muon(params)
        for step in range(NUM_STEPS):
            grads = random_matrix(3, 10, 6, seed=step)
            for param, grad in zip(params, [grads] if params[0] is stacked else grads, strict=True):
                param.grad = grad
            optimizer.step()
    assert torch.equal(stacked, torch.stack([p.detach() for p in alone]))


def test_order_of_parameters_does_not_matter():
    shapes = [(8, 8), (4, 12), (12, 4), (8, 8), (3, 5)]
    results = []
    for order in ([0, 1, 2, 3, 4], [3, 4, 0, 2, 1]):
        params = [parameter(*shape, seed=i) for i, shape in enumerate(shapes)]
        optimizer = Muon([params[i] for i in order])
        for i, param in enumerate(params):
            param.grad = random_matrix(*param.shape, seed=50 + i)
        optimizer.step()
        results.append([p.detach() for p in params])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("is_grad_strided", [False, True])
def test_strides_do_not_matter(is_grad_strided):
    plain, strided = parameter(2, 6, 10), nn.Parameter(random_matrix(2, 6, 10, seed=100).mT.contiguous().mT)
    for param in (plain, strided):
        optimizer = Muon([param])
        for step in range(NUM_STEPS):
            grad = random_matrix(2, 6, 10, seed=step)
            param.grad = grad.permute(2, 0, 1).contiguous().permute(1, 2, 0) if is_grad_strided else grad
            optimizer.step()
    assert torch.equal(plain, strided)
    assert not strided.is_contiguous()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_parameters_keep_their_dtype(dtype):
    param = nn.Parameter(random_matrix(12, 8, seed=100).to(dtype))
    reference = Reference(param, weight_decay=0.0, lr=1.0)
    optimizer = Muon([param], weight_decay=0.0, lr=1.0)
    param.grad = random_matrix(12, 8).to(dtype)
    reference.step(param.grad)
    optimizer.step()
    assert optimizer.state[param]["momentum_buffer"].dtype == param.dtype == dtype
    # The momentum and the parameter are each rounded once; Newton-Schulz itself runs in f32.
    assert relative_error(param, reference.value) < 4 * torch.finfo(dtype).eps


def test_convolutions_of_a_module_are_flattened():
    conv = nn.Conv2d(6, 8, 3, bias=False)
    flat = nn.Parameter(conv.weight.detach().flatten(1).clone())
    pair = ((Muon(conv), conv.weight), (Muon([flat]), flat))
    for optimizer, param in pair:
        for step in range(NUM_STEPS):
            param.grad = random_matrix(8, 54, seed=step).view(param.shape)
            optimizer.step()
    assert torch.equal(conv.weight.flatten(1), flat)


def test_channels_last_convolutions_are_written_back():
    plain = nn.Conv2d(6, 8, 3, bias=False)
    last = copy.deepcopy(plain).to(memory_format=torch.channels_last)
    for conv in (plain, last):
        optimizer = Muon(conv)
        for step in range(NUM_STEPS):
            conv.weight.grad = random_matrix(8, 6, 3, 3, seed=step)
            optimizer.step()
    assert torch.equal(plain.weight, last.weight)
    assert last.weight.is_contiguous(memory_format=torch.channels_last)


def test_parameters_of_four_dims_are_batches_when_given_alone():
    conv = nn.Conv2d(2, 3, 8, bias=False)
    reference = Reference(conv.weight)
    run(Muon(list(conv.parameters())), conv.weight)
    run_reference(reference)
    assert relative_error(conv.weight, reference.value) < NEWTON_SCHULZ_ERROR


def test_missing_gradient_skips_decay_and_momentum():
    idle, busy = parameter(4, 6), parameter(4, 6, seed=1)
    before = idle.detach().clone()
    optimizer = Muon([idle, busy])
    run(optimizer, busy)
    assert torch.equal(idle, before)
    assert not optimizer.state[idle]["momentum_buffer"].any()
    assert optimizer.counters["matrices_orthogonalized"] == 1
    assert optimizer.counters["matrices_total"] == 2


def test_nan_stays_in_its_matrix():
    sick, well = parameter(4, 6), parameter(4, 6, seed=1)
    twin = nn.Parameter(well.detach().clone())
    sick.grad, well.grad, twin.grad = torch.full((4, 6), torch.nan), random_matrix(4, 6), random_matrix(4, 6)
    Muon([sick, well]).step()
    Muon([twin]).step()
    assert sick.isnan().all()
    assert torch.equal(well, twin)


def test_closure_is_called_once_with_gradients_enabled():
    param = parameter(4, 6)
    calls = []

    def closure():
        calls.append(torch.is_grad_enabled())
        param.grad = random_matrix(4, 6)
        return 7.0

    assert Muon([param]).step(closure) == 7.0
    assert calls == [True]


def test_scheduler_and_groups_set_the_rate():
    first, second = parameter(6, 4), parameter(6, 4, seed=1)
    references = [Reference(first, lr=0.1), Reference(second, lr=0.02, momentum=0.5)]
    optimizer = Muon([{"params": [first], "lr": 0.1}, {"params": [second], "momentum": 0.5}])
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    for step in range(NUM_STEPS):
        for param, reference in zip((first, second), references, strict=True):
            param.grad = random_matrix(6, 4, seed=step)
            reference.step(param.grad)
            reference.lr *= 0.5
        optimizer.step()
        scheduler.step()
    assert relative_error(first, references[0].value) < NEWTON_SCHULZ_ERROR
    assert relative_error(second, references[1].value) < NEWTON_SCHULZ_ERROR


def test_newton_schulz_options_of_a_group_may_change_between_steps():
    param = parameter(6, 4)
    reference = Reference(param)
    optimizer = Muon([param])
    run(optimizer, param)
    run_reference(reference)
    optimizer.param_groups[0].update(ns_steps=2, ns_coefficients="classic")
    reference.triples = [CLASSIC] * 2
    run(optimizer, param, seed=10)
    run_reference(reference, seed=10)
    assert relative_error(param, reference.value) < NEWTON_SCHULZ_ERROR


def test_added_groups_are_stepped():
    first, second = parameter(6, 4), parameter(4, 6)
    optimizer = Muon([first])
    optimizer.add_param_group({"params": [second], "lr": 0.5})
    before = second.detach().clone()
    run(optimizer, second)
    assert not torch.equal(second, before)
    assert optimizer.counters["matrices_total"] == 2


@pytest.mark.parametrize("group", [{"params": [parameter(3)]}, {"params": [parameter(3, 3)], "lr": -1.0}])
def test_refused_groups_leave_no_trace(group):
    param = parameter(4, 6)
    optimizer = Muon([param])
    with pytest.raises(ValueError, match="params|lr"):
        optimizer.add_param_group(group)
    assert len(optimizer.param_groups) == 1
    run(optimizer, param, num_steps=1)


def test_added_groups_have_state_at_once():
    optimizer = Muon([parameter(4, 6)])
    optimizer.add_param_group({"params": [parameter(3, 3)]})
    assert sorted(optimizer.state_dict()["state"]) == [0, 1]


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("lr", float("nan"), ValueError),
        ("lr", "fast", TypeError),
        ("momentum", 1.5, ValueError),
        ("adjust_lr_fn", "mine", ValueError),
        ("weight_decay", -1.0, ValueError),
    ],
)
def test_options_that_a_group_got_later_are_checked(option, value, error):
    param = parameter(4, 6)
    optimizer = Muon([param])
    optimizer.param_groups[0][option] = value
    param.grad, before = torch.ones_like(param), param.detach().clone()
    with pytest.raises(error, match=option):
        optimizer.step()
    assert torch.equal(param, before)


def test_grad_scaler_and_clipping():
    param = parameter(6, 4)
    reference = Reference(param)
    optimizer = Muon([param])
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(torch.zeros((), requires_grad=True))
    grad = random_matrix(6, 4)
    param.grad = grad * 1024.0
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_([param], 0.1)
    reference.step(param.grad)
    scaler.step(optimizer)
    assert relative_error(param, reference.value) < NEWTON_SCHULZ_ERROR
    before = param.detach().clone()
    scaler.update()
    param.grad = torch.full_like(param, torch.inf)
    scaler.step(optimizer)
    assert torch.equal(param, before)


def test_accumulated_gradients_are_one_step():
    whole, parts = nn.Linear(6, 4, bias=False), nn.Linear(6, 4, bias=False)
    parts.load_state_dict(whole.state_dict())
    x = random_matrix(8, 6)
    for model, num_parts in ((whole, 1), (parts, 4)):
        optimizer = Muon(model)
        for chunk in x.chunk(num_parts):
            (model(chunk).square().mean() / num_parts).backward()
        optimizer.step()
    # Sums of the gradient in another order differ by rounding, which Newton-Schulz amplifies.
    assert relative_error(parts.weight, whole.weight.double()) < NEWTON_SCHULZ_ERROR


def test_memory_cap_changes_buckets_and_not_the_result():
    results, buckets = [], []
    for cap in (None, 65_536):
        params = [parameter(16, 24, seed=i) for i in range(100)]
        timeline = []
        optimizer = Muon(params, memory_cap_bytes=cap, timeline=lambda *event, t=timeline: t.append(event))
        for i, param in enumerate(params):
            param.grad = random_matrix(16, 24, seed=50 + i)
        optimizer.step()
        results.append([p.detach() for p in params])
        buckets.append({event[1] for event in timeline})
    assert buckets[0] == {0}
    assert len(buckets[1]) > 1
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_timeline_names_the_stages_in_order():
    events = []
    param = parameter(4, 6)
    run(Muon([param], timeline=lambda *event: events.append(event)), param, num_steps=1)
    assert [event[0] for event in events] == ["pack", "unpack", "newton_schulz", "reply", "apply"]
    assert all(begin <= end for _, _, begin, end in events)


def test_state_is_eager_and_resume_is_bitwise():
    param = parameter(6, 4)
    optimizer = Muon([param])
    assert set(optimizer.state[param]) == {"momentum_buffer"}
    run(optimizer, param)
    resumed = nn.Parameter(param.detach().clone())
    other = Muon([resumed], lr=9.0)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    run(optimizer, param, seed=20)
    run(other, resumed, seed=20)
    assert torch.equal(param, resumed)


def test_state_of_torch_muon_loads(tmp_path):
    param = parameter(6, 4)
    theirs = torch.optim.Muon([param], lr=0.1, weight_decay=0.3)
    run(theirs, param)
    torch.save(theirs.state_dict(), tmp_path / "state.pt")
    ours = Muon([param])
    ours.load_state_dict(torch.load(tmp_path / "state.pt"))
    reference = Reference(param, lr=0.1, weight_decay=0.3, triples=[CLASSIC] * 5, match_rms=None)
    reference.state = theirs.state[param]["momentum_buffer"].double()
    run(ours, param, num_steps=1, seed=20)
    run_reference(reference, num_steps=1, seed=20)
    assert relative_error(param, reference.value) < NEWTON_SCHULZ_ERROR


def test_keywords_of_torch_muon_are_accepted():
    arguments = {
        "lr": 0.1,
        "weight_decay": 0.0,
        "momentum": 0.9,
        "nesterov": False,
        "ns_coefficients": CLASSIC,
        "eps": 1e-7,
        "ns_steps": 5,
        "adjust_lr_fn": "original",
    }
    ours, theirs = parameter(6, 4), parameter(6, 4)
    before = ours.detach().clone()
    run(Muon([ours], **arguments), ours, num_steps=1)
    run(torch.optim.Muon([theirs], **arguments), theirs, num_steps=1)
    # torch.optim.Muon computes in bfloat16.
    assert relative_error(ours - before, (theirs - before).double()) < 8 * torch.finfo(torch.bfloat16).eps


def test_copies_step_their_own_parameters():
    model = nn.Linear(4, 6, bias=False)
    optimizer = Muon(model)
    twin_model, twin = copy.deepcopy((model, optimizer))
    run(optimizer, model.weight)
    run(twin, twin_model.weight)
    assert torch.equal(model.weight, twin_model.weight)
    assert "weight" in twin.explain()


def test_update_is_orthogonal():
    param = nn.Parameter(torch.zeros(20, 30))
    param.grad = random_matrix(20, 30)
    Muon([param], lr=1.0, weight_decay=0.0, adjust_lr_fn=None).step()
    # Five steps of Polar Express map every singular value in [0.02, 1] of the normalised matrix to [0.84, 1.13].
    values = torch.linalg.svdvals(param.detach())
    assert values.min() > 0.84 and values.max() < 1.13
    assert relative_error(param, -newton_schulz(random_matrix(20, 30), POLAR_EXPRESS)) < NEWTON_SCHULZ_ERROR


BAD_OPTIONS = [
    ({"lr": -1.0}, ValueError, "lr: must be finite and not negative, got -1.0"),
    ({"lr": torch.ones(2)}, ValueError, "lr: a tensor must have one element"),
    ({"lr": "fast"}, TypeError, "lr: must be a number"),
    ({"weight_decay": -0.1}, ValueError, "weight_decay"),
    ({"momentum": 1.0}, ValueError, r"momentum: must be in \[0, 1\), got 1.0"),
    ({"nesterov": 1}, TypeError, "nesterov"),
    ({"ns_steps": 0}, ValueError, "ns_steps"),
    ({"ns_steps": 100}, ValueError, "ns_steps"),
    ({"ns_steps": 2.5}, TypeError, "ns_steps"),
    ({"coefficients": "fancy"}, ValueError, "coefficients: must be one of"),
    ({"coefficients": [(1.0, 2.0)]}, ValueError, "coefficients"),
    ({"coefficients": [(1.0, 2.0, float("nan"))]}, ValueError, "coefficients"),
    ({"coefficients": []}, ValueError, "coefficients"),
    ({"coefficients": "classic", "ns_coefficients": "classic"}, ValueError, "two names of one option"),
    ({"adjust_lr_fn": "mine"}, ValueError, "adjust_lr_fn"),
    ({"matched_adamw_rms": float("nan")}, ValueError, "matched_adamw_rms"),
    ({"eps": -1e-7}, ValueError, "eps"),
    ({"memory_cap_bytes": 0}, ValueError, "memory_cap_bytes"),
    ({"memory_cap_bytes": 64}, ValueError, "memory_cap_bytes: one matrix alone needs"),
]


@pytest.mark.parametrize(("options", "error", "message"), BAD_OPTIONS)
def test_bad_options_are_named(options, error, message):
    with pytest.raises(error, match=message):
        Muon([parameter(4, 6)], **options)


@pytest.mark.parametrize(
    ("tensor", "error", "message"),
    [
        (torch.zeros(5), ValueError, r"parameter params\[0\]\[0\]: Muon needs matrices, got shape \(5,\)"),
        (torch.zeros(()), ValueError, "Muon needs matrices"),
        (torch.zeros(4, 4, device="meta"), ValueError, "is on the meta device"),
        (torch.zeros(4, 4, dtype=torch.float64), TypeError, "got torch.float64"),
        (torch.zeros(4, 4, dtype=torch.complex64), TypeError, "got torch.complex64"),
    ],
)
def test_bad_parameters_are_named(tensor, error, message):
    with pytest.raises(error, match=message):
        Muon([nn.Parameter(tensor)])


def test_named_parameters_are_named_in_errors():
    with pytest.raises(ValueError, match="parameter layer.bias"):
        Muon([("layer.bias", parameter(4))])


def test_sparse_gradient_is_named():
    embedding = nn.Embedding(5, 4, sparse=True)
    embedding(torch.tensor([1, 2])).sum().backward()
    optimizer = Muon([("table", embedding.weight)])
    with pytest.raises(TypeError, match="parameter table: its gradient is sparse"):
        optimizer.step()


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Linear(3, 4), "parameter bias: norm, bias or scalar"),
        (nn.Embedding(3, 4), "parameter weight: embedding"),
        (nn.LayerNorm((3, 4), bias=False), "parameter weight: norm"),
        (nn.Identity(), "model: has no trainable parameter"),
    ],
)
def test_models_with_other_parameters_are_refused(module, message):
    with pytest.raises(ValueError, match=message):
        Muon(module)
