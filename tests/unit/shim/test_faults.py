"""The fault kit: off unless enabled, one bit and no more, the right rank, run and module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from scoutd.proto.replay import Part, RecipeKind
from scoutd.shim import faults, faultslive
from scoutd.shim.bitflip import flip
from scoutd.shim.faults import Fault, Target
from scoutd.shim.replay import seams

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.uint8, torch.bool]


@pytest.fixture(autouse=True)
def kit(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(faults.SWITCH, raising=False)
    yield
    faults.disable()


def context(run: int = 1, key: int = 50, name: str = "blocks.1 (Block)") -> seams.Context:
    return seams.Context(name, RecipeKind.BLOCK, key, key, run)


def output(place: str = "0", **of: int) -> torch.Tensor:
    return seams.pass_through(Part.OUTPUT, place, torch.ones(8), context(**of))


def changed(tensor: torch.Tensor, before: torch.Tensor) -> int:
    return int((tensor.view(torch.int32) != before.view(torch.int32)).sum())


def test_nothing_can_be_injected_while_the_kit_is_off() -> None:
    with pytest.raises(faults.NotEnabled):
        faults.inject(Fault())
    with pytest.raises(faults.NotEnabled):
        faultslive.install(Fault(), torch.nn.Linear(2, 2))
    assert torch.equal(output(), torch.ones(8))
    assert not seams.passages


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_flip_is_one_bit_and_undoes_itself(dtype: torch.dtype) -> None:
    tensor = torch.ones(4, 6).to(dtype)
    raw = tensor.t()[1:3]  # no plain strides
    bits = 1 if dtype is torch.bool else 8 * tensor.element_size()
    for bit in (0, bits - 1):
        before = tensor.clone()
        flip(raw, 5, bit)
        assert int((tensor != before).sum()) == 1
        flip(raw, 5, bit)
        assert torch.equal(tensor, before)


def test_a_flip_in_a_saved_output_does_not_break_the_backward() -> None:
    value = torch.ones(4, requires_grad=True)
    saved = torch.exp(value)
    flip(saved, 1, 0)
    saved.sum().backward()
    assert value.grad is not None


def test_a_replay_fault_is_one_bit_in_both_runs_alike() -> None:
    faults.enable()
    faults.inject(Fault(Target.OUTPUT))
    first, second = output(run=1), output(run=2)
    assert changed(first, torch.ones(8)) == 1
    assert torch.equal(first, second)
    assert torch.equal(output(run=0), torch.ones(8))


def test_only_the_first_tensor_of_a_run_breaks() -> None:
    faults.enable()
    faults.inject(Fault(Target.OUTPUT))
    assert changed(output("0"), torch.ones(8)) == 1
    assert changed(output("1"), torch.ones(8)) == 0


@pytest.mark.parametrize(
    "fault",
    [
        Fault(Target.GRADIENTS),
        Fault(Target.OUTPUT, rank=3),
        Fault(Target.OUTPUT, module="blocks.2*"),
        Fault(Target.OUTPUT, first=51),
        Fault(Target.OUTPUT, last=49),
        Fault(Target.OUTPUT, place="1"),
        Fault(Target.OUTPUT, chance=0.0),
        Fault(Target.OUTPUT, shots=0),
    ],
)
def test_what_a_fault_does_not_concern_is_left_alone(fault: Fault) -> None:
    faults.enable()
    faults.inject(fault)
    assert changed(output(), torch.ones(8)) == 0


def test_one_shot_strikes_once() -> None:
    faults.enable()
    faults.inject(Fault(Target.OUTPUT, shots=1))
    assert [changed(output(run=run), torch.ones(8)) for run in (1, 2)] == [1, 0]


def test_intermittent_strikes_about_as_often_as_it_says() -> None:
    faults.enable()
    faults.inject(Fault(Target.OUTPUT, chance=0.5))
    struck = sum(changed(output(key=key), torch.ones(8)) for key in range(400))
    assert 150 < struck < 250


def test_nan() -> None:
    faults.enable()
    faults.inject(Fault(Target.OUTPUT, nan=True))
    assert int(output().isnan().sum()) == 1


def test_a_fault_in_words() -> None:
    fault = faults.parse("target=weights rank=2 module=blocks.* chance=0.5 nan=1")
    assert fault == Fault(Target.WEIGHTS, 2, "blocks.*", chance=0.5, nan=True)
    with pytest.raises(ValueError, match="'color=red' is not one of"):
        faults.parse("color=red")


def test_the_environment_arms_faults_only_with_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(faults.SPECIFICATION, "target=output;target=time delay_s=0.1")
    faults.from_environment()
    assert faults.armed() == ()
    monkeypatch.setenv(faults.SWITCH, "1")
    faults.from_environment()
    assert [each.target for each in faults.armed()] == [Target.OUTPUT, Target.TIME]


@pytest.mark.parametrize("target", [Target.WEIGHTS, Target.OUTPUT, Target.GRADIENTS, Target.OPTIMIZER])
def test_a_live_fault_strikes_in_its_step_and_can_be_taken_out(target: Target) -> None:
    faults.enable()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    drill = faultslive.install(Fault(target, module="0", first=2, shots=1, bit=22), model, optimizer)
    for _ in range(4):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    assert (drill.strikes, drill.step) == (1, 4)
    drill.remove()
    model(torch.ones(2, 4))
    assert drill.step == 4
