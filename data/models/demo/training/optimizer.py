"""What both trainings share: the optimizer, and a learning rate for a run that is bounded by time."""

import time

import torch

COMPILING_STEPS = 5
WARM_UP_STEPS = 200


def make_optimizer(module):
    """AdamW; only matrices decay."""
    matrices = [parameter for parameter in module.parameters() if parameter.dim() == 2]
    others = [parameter for parameter in module.parameters() if parameter.dim() != 2]
    groups = [dict(params=matrices, weight_decay=0.05), dict(params=others, weight_decay=0.0)]
    return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), fused=True)


class Schedule:
    """The learning rate by the share of time that has passed: constant for 30 %, then a straight line down to 2 %.

    `started` is when the script began (time.time()), `seconds` what it may take in all, `reserve` what is kept for the work
    after training. The share is counted from the sixth step on, when everything has been compiled.
    """

    def __init__(self, peak, started, seconds, reserve=0.0):
        self.peak, self.started, self.seconds, self.reserve = peak, started, seconds, reserve
        self.counted_from = self.counted_seconds = None

    def rate(self, step):
        """The learning rate of this step, counted from 0, or None when the time is over."""
        if step == COMPILING_STEPS:
            torch.cuda.synchronize()
            self.counted_from = time.time()
            self.counted_seconds = self.seconds - (self.counted_from - self.started) - self.reserve
        share = 0 if self.counted_from is None else (time.time() - self.counted_from) / self.counted_seconds
        if share >= 1:
            return None
        warm_up = min(1, (step + 1) / WARM_UP_STEPS)
        return self.peak * warm_up * (1 if share < 0.3 else max(0.02, 1 - (share - 0.3) / 0.7))


def take_step(module, optimizer, rate, loss):
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    optimizer.step()
