"""A decoder that claims cuda trains on any build, in a process of its own: a claim that reached C++ would abort."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

BLOCK = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
import lamina
from lamina import FakeLikeTensor
from lamina.modes import FakeLikeMode

CUDA = torch.device("cuda:0")

class Block(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.RMSNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)
        self.register_buffer("scale", torch.ones(width))

    def forward(self, x):
        b, s, w = x.shape
        q, k, v = self.qkv(self.first(x)).view(b, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, s, w)
        x = x + self.drop(self.out(a)) * self.scale
        return x + self.down(F.gelu(self.up(self.second(x))))

def model():
    return nn.Sequential(nn.Embedding(100, 64), Block(), Block(), nn.Linear(64, 100))

def loss_of(m, tokens):
    return F.cross_entropy(m(tokens).flatten(0, 1), tokens.flatten())

def claims(m, optimizer=None):
    found = {p.device for p in m.parameters()} | {p.grad.device for p in m.parameters()}
    found |= {t.device for t in m.buffers()}
    if optimizer is not None:
        found |= {t.device for s in optimizer.state.values() for t in s.values() if isinstance(t, FakeLikeTensor)}
    return found
"""

STEPS = {
    f"{name} {variant}": f"""
with FakeLikeMode("cuda"):
    m = model().bfloat16()
    optimizer = torch.optim.{name}(m.parameters(), lr=0.1, {variant}=True)
    for _ in range(2):
        loss = loss_of(m, torch.randint(100, (2, 16)))
        loss.backward()
        optimizer.step()
        before = claims(m, optimizer)
        optimizer.zero_grad()
assert before == {{CUDA}}, before
assert loss.device == CUDA and loss.grad_fn is not None
assert all(type(s["exp_avg"]) is FakeLikeTensor for s in optimizer.state.values())
"""
    for name in ("AdamW", "Adam")
    for variant in ("foreach", "fused", "capturable")
}
STEPS["AdamW single"] = STEPS["AdamW foreach"].replace("foreach=True", "foreach=False")
STEPS |= {
    "autocast, scaler and clipping": """
with FakeLikeMode("cuda"):
    m = model()
    optimizer, scaler = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9), torch.amp.GradScaler("cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_of(m, torch.randint(100, (2, 16)))
    scaled = scaler.scale(loss)
    scaled.backward()
    norm = nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    nn.utils.clip_grad_value_(m.parameters(), 1.0)
assert (loss.dtype, scaled.device, norm.device) == (torch.float32, CUDA, CUDA)
assert claims(m) == {CUDA}
with FakeLikeMode("cuda"):
    try:
        scaler.step(optimizer)
    except lamina.DataDependentError as error:
        assert "needs values" in str(error), error
    else:
        raise AssertionError("a scaler's step reads whether there was an infinity")
""",
    "checkpointing and hooks": """
seen = []
with FakeLikeMode("cuda"):
    m = model()
    m[1].register_forward_hook(lambda module, args, out: seen.append(("forward", out.device)))
    m[1].register_full_backward_hook(lambda module, grads, out: seen.append(("backward", out[0].device)))
    m[2].qkv.weight.register_hook(lambda g: seen.append(("gradient", g.device)))
    m[2].out.weight.register_post_accumulate_grad_hook(lambda p: seen.append(("accumulated", p.grad.device)))
    for reentrant in (False, True):
        x = m[0](torch.randint(100, (2, 16)))
        for block in (m[1], m[2]):
            x = checkpoint(block, x, use_reentrant=reentrant)
        m[3](x).sum().backward()
assert claims(m) == {CUDA}
assert {name for name, _ in seen} == {"forward", "backward", "gradient", "accumulated"}, seen
assert {device for _, device in seen} == {CUDA}, seen
assert sum(name == "forward" for name, _ in seen) >= 3  # a recomputation ends where nothing more is needed
""",
    "two devices": """
with FakeLikeMode():
    m = model()
    for index, part in enumerate(m):
        part.to(f"cuda:{index}")
    x = torch.randint(100, (2, 16), device="cuda:0")
    for index, part in enumerate(m):
        x = part(x.to(f"cuda:{index}"))
    x.sum().backward()
    for index, part in enumerate(m):
        assert {p.grad.device for p in part.parameters()} == {torch.device("cuda", index)}
""",
    "functions of the program's own, higher derivatives and anomalies": """
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2, x.detach().sum()
    @staticmethod
    def backward(ctx, gradient, unused):
        assert gradient.device == unused.device == CUDA, unused.device
        return gradient * 2 + 0 * ctx.saved_tensors[0]
with FakeLikeMode("cuda"), torch.autograd.set_detect_anomaly(True, check_nan=False):
    x = torch.ones(3, requires_grad=True)
    Double.apply(x)[0].sum().backward()
    assert x.grad.device == CUDA
    (g,) = torch.autograd.grad((x ** 3).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    assert h.device == CUDA
    view = x.detach().clone().requires_grad_().view(3)
    assert torch.func.grad(lambda t: (t ** 2).sum())(torch.ones(3)).device == CUDA
""",
}


# One process for each, since a process takes seconds to start.
GROUPS = {
    "optimizers": [name for name in STEPS if name.startswith("Adam")],
    "the rest": [name for name in STEPS if not name.startswith("Adam")],
}


@pytest.mark.parametrize("group", GROUPS)
def test_a_decoder_that_claims_cuda_trains_without_cuda(group: str) -> None:
    script = "import warnings; warnings.simplefilter('error')\n" + BLOCK
    for name in GROUPS[group]:
        script += f"\n{textwrap.dedent(STEPS[name])}\nprint({name!r}, flush=True)\n"
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=300, check=False
    )
    assert ran.stdout.splitlines() == GROUPS[group], ran.stderr[-3000:]
    assert ran.returncode == 0
