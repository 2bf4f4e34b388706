"""Checks of the ranks of a test of the PyTorch backend, with the rank in what they raise."""

import torch.distributed as dist


def expect(condition, *what):
    if not condition:
        raise AssertionError(f"rank {dist.get_rank()}: {what}")


def expect_error(text, call):
    try:
        work = call()
        if work is not None:
            work.wait()
    except (RuntimeError, ValueError) as error:
        expect(text in str(error), "error", text, str(error))
        return
    expect(False, "no error", text)
