"""One grid of ranks and the Muon step on it: pack, all_to_all, orthogonalise, all_to_all, apply; bucket by bucket."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from .._errors import core_errors
from .._library import load_operators
from . import aten_stages
from .placement import MatrixForm
from .plan import Bucket, Plan, PlannedTensor, check_agreement, make_plan

# (name of the stage, bucket, begin, end), times in seconds of time.perf_counter.
Timeline = Callable[[str, int, float, float], None]


@dataclasses.dataclass
class NewtonSchulzSettings:
    """What one batch is orthogonalised with."""

    coefficients: torch.Tensor
    eps: float


@dataclasses.dataclass
class StepTensors:
    """Local tensors of one step, in the order of the plan's tensors. rules: momentum, nesterov, decay, step size."""

    params: list[torch.Tensor]
    momenta: list[torch.Tensor]
    grads: list[torch.Tensor | None]
    rules: list[tuple[float, float, float, float]]


@dataclasses.dataclass
class StepCounts:
    """What one step did on this rank."""

    orthogonalized: int = 0
    bytes_sent: int = 0


class Grid:
    """The parameters that share one set of ranks. `group` is None for plain tensors: a grid of this rank alone."""

    def __init__(
        self,
        tensors: list[PlannedTensor],
        group: dist.ProcessGroup | None,
        memory_cap_bytes: int | None,
        device: torch.device,
    ) -> None:
        load_operators()
        self.tensors = tensors
        self.group = group
        self.device = device
        self.num_ranks = dist.get_world_size(group) if group is not None else 1
        rank = dist.get_rank(group) if group is not None else 0
        self.plan: Plan = make_plan(tensors, self.num_ranks, rank, memory_cap_bytes)
        self.is_agreed = self.num_ranks == 1

    def check_agreement(self) -> None:
        """Compares the plan across the grid, once."""
        if not self.is_agreed:
            check_agreement(self.plan, [t.name for t in self.tensors], self.group, self.device)
            self.is_agreed = True

    def step(
        self, tensors: StepTensors, settings: dict[int, NewtonSchulzSettings], timeline: Timeline | None
    ) -> StepCounts:
        """One step on all buckets. A collective over the grid."""
        counts = StepCounts()
        with _matrix_views(self.tensors, tensors) as views, core_errors():
            run = _GridStep(self, views, settings, counts, timeline)
            for number, bucket in enumerate(self.plan.buckets):
                run.bucket(number, bucket)
        return counts


class _GridStep:
    """The buffers of one bucket live in `bucket` alone, so that their sum stays under the cap of the plan."""

    def __init__(
        self,
        grid: Grid,
        tensors: StepTensors,
        settings: dict[int, NewtonSchulzSettings],
        counts: StepCounts,
        timeline: Timeline | None,
    ) -> None:
        self.grid = grid
        self.tensors = tensors
        self.settings = settings
        self.counts = counts
        self.timeline = timeline
        self.stages = _NativeStages if grid.device.type == "cpu" else aten_stages
        self.has_grad = torch.tensor([grad is not None for grad in tensors.grads], dtype=torch.int64)
        self.rules = torch.tensor(tensors.rules, dtype=torch.float64).view(-1, 4)
        self.grads = [m if g is None else g for g, m in zip(tensors.grads, tensors.momenta, strict=True)]

    def bucket(self, number: int, bucket: Bucket) -> None:
        whole = self._buffer(bucket.whole_elements)
        flags = torch.zeros(bucket.num_slots, dtype=torch.int64)
        with self._timed("pack", number):
            send = self._buffer(sum(bucket.send_counts))
            self.stages.pack(
                bucket.held, self.tensors.momenta, self.grads, self.has_grad, self.rules, send, whole, flags
            )
        receive = self._exchange("gather", number, bucket, send, bucket.send_counts, bucket.receive_counts)
        with self._timed("unpack", number):
            self.stages.unpack(bucket.remote, receive, whole, flags)
        del send, receive
        with self._timed("newton_schulz", number):
            self._orthogonalize(bucket, whole, flags)
        with self._timed("reply", number):
            answer = self._buffer(sum(bucket.reply_send_counts))
            self.stages.reply(bucket.remote, whole, flags, answer)
        result = self._exchange(
            "scatter", number, bucket, answer, bucket.reply_send_counts, bucket.reply_receive_counts
        )
        with self._timed("apply", number):
            disagreement = self.stages.apply(
                bucket.held,
                self.tensors.params,
                self.tensors.momenta,
                self.grads,
                self.has_grad,
                self.rules,
                result,
                whole,
                flags,
            )
        if disagreement >= 0:
            name = self.grid.tensors[disagreement].name
            raise RuntimeError(f"parameter {name}: has a gradient here but on no rank of the replica of its owner")

    def _orthogonalize(self, bucket: Bucket, whole: torch.Tensor, flags: torch.Tensor) -> None:
        for batch in bucket.batches:
            elements = batch.num_matrices * batch.rows * batch.columns
            matrices = whole[batch.whole_offset : batch.whole_offset + elements]
            settings = self.settings[batch.settings]
            self.counts.orthogonalized += self.stages.orthogonalize(
                matrices.view(batch.num_matrices, batch.rows, batch.columns),
                flags[batch.first_slot : batch.first_slot + batch.num_matrices],
                settings.coefficients,
                settings.eps,
            )

    def _exchange(
        self,
        name: str,
        number: int,
        bucket: Bucket,
        send: torch.Tensor,
        send_counts: list[int],
        receive_counts: list[int],
    ) -> torch.Tensor:
        receive = self._buffer(sum(receive_counts))
        if bucket.has_transport:
            with self._timed(name, number):
                dist.all_to_all_single(receive, send, receive_counts, send_counts, group=self.grid.group)
            self.counts.bytes_sent += send.numel() * send.element_size()
        return receive

    def _buffer(self, num_elements: int) -> torch.Tensor:
        return torch.empty(num_elements, dtype=torch.float32, device=self.grid.device)

    @contextlib.contextmanager
    def _timed(self, name: str, number: int) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        if self.timeline is not None:
            self.timeline(name, number, begin, time.perf_counter())


class _NativeStages:
    """The C++ operators, by the names of their stages."""

    @staticmethod
    def pack(*arguments: Any) -> None:
        torch.ops.quincunx.muon_pack(*arguments)

    @staticmethod
    def unpack(*arguments: Any) -> None:
        torch.ops.quincunx.muon_unpack(*arguments)

    @staticmethod
    def orthogonalize(*arguments: Any) -> int:
        return torch.ops.quincunx.muon_orthogonalize(*arguments)

    @staticmethod
    def reply(*arguments: Any) -> None:
        torch.ops.quincunx.muon_reply(*arguments)

    @staticmethod
    def apply(*arguments: Any) -> int:
        return torch.ops.quincunx.muon_apply(*arguments)


@contextlib.contextmanager
def _matrix_views(planned: list[PlannedTensor], tensors: StepTensors) -> Iterator[StepTensors]:
    """The tensors as batches of matrices. Where strides allow no view (a channels-last convolution), a copy that is
    written back at the end."""
    copies: list[tuple[torch.Tensor, torch.Tensor]] = []

    def viewed(tensor: torch.Tensor, form: MatrixForm, is_written: bool) -> torch.Tensor:
        if tensor.numel() == 0:
            return tensor
        view = form.view(tensor)
        if is_written and view.data_ptr() != tensor.data_ptr():
            copies.append((tensor, view))
        return view

    forms = [t.placement.form for t in planned]
    yield StepTensors(
        [viewed(p, form, True) for p, form in zip(tensors.params, forms, strict=True)],
        [viewed(m, form, True) for m, form in zip(tensors.momenta, forms, strict=True)],
        [g if g is None else viewed(g, form, False) for g, form in zip(tensors.grads, forms, strict=True)],
        tensors.rules,
    )
    for tensor, view in copies:
        tensor.copy_(view.view(tensor.shape))
