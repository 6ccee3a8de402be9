"""One rollout and its updates in plain PyTorch: sample, reward, `Batch`, loss, step.

    pip install .                                      # in the repository; installs the package tepo_bench
    python examples/one_update.py "tepo+beta=0.5"      # any key: tepo_bench.catalog.keys(), docs/methods.md

The policy is a table of states; the reward is the share of even tokens. For a language model, use hidden states before
the output head, the head's weight, tokens sampled by `generate`, and a mask that is False after the end token.
"""

import sys

import torch
from torch import Tensor, nn

import tepo_bench

PROMPTS, SAMPLES, LENGTH, VOCABULARY = 8, 8, 6, 10  # SAMPLES responses to each prompt are one group


class Policy(nn.Module):
    """Hidden states (B, T, D) from prompt and position; the head's weight (V, D) turns them into logits."""

    def __init__(self) -> None:
        super().__init__()
        self.states = nn.Parameter(torch.randn(PROMPTS, LENGTH, 16))
        self.head = nn.Linear(16, VOCABULARY, bias=False)

    def forward(self, prompt_B: Tensor) -> Tensor:
        return self.states[prompt_B]


@torch.no_grad()
def expected_reward(policy: Policy) -> float:
    return policy.head(policy(torch.arange(PROMPTS))).softmax(-1)[..., ::2].sum(-1).mean().item()


def main(key: str) -> list[float]:
    """Train on one rollout four times; return the expected reward before and after each update."""
    torch.manual_seed(0)
    method, policy = tepo_bench.parse(key), Policy()
    reference = [parameter.detach().clone() for parameter in policy.parameters()]  # of the initial model
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.02)

    # rollout: tokens (B, T) sampled from the current policy, and the inputs of the loss
    prompt_B = torch.arange(PROMPTS).repeat_interleave(SAMPLES)
    with torch.no_grad():
        probability_BTV = policy.head(policy(prompt_B)).softmax(-1)
        token_BT = torch.multinomial(probability_BTV.flatten(0, 1), 1).view(len(prompt_B), LENGTH)
        old_logp_BT, old_entropy_BT = tepo_bench.logp_and_entropy(policy(prompt_B), policy.head.weight, token_BT)
        ref_logp_BT, _ = tepo_bench.logp_and_entropy(reference[0][prompt_B], reference[1], token_BT)
    mask_BT = torch.arange(LENGTH) < torch.randint(3, LENGTH + 1, (len(prompt_B), 1))
    reward_B = ((token_BT % 2 == 0) & mask_BT).sum(1) / mask_BT.sum(1)
    advantage_B = method.advantage(reward_B, prompt_B, mask_BT.sum(1))

    expected = [expected_reward(policy)]
    for _ in range(4):
        logp_BT, entropy_BT = tepo_bench.logp_and_entropy(policy(prompt_B), policy.head.weight, token_BT)
        batch = tepo_bench.Batch(
            logp=logp_BT, old_logp=old_logp_BT, advantage=advantage_B, mask=mask_BT, group=prompt_B,
            entropy=entropy_BT, old_entropy=old_entropy_BT, ref_logp=ref_logp_BT, max_tokens=LENGTH,
        )  # fmt: skip
        loss = method.loss(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        expected.append(expected_reward(policy))
        metrics = {name: round(value, 3) for name, value in method.diagnostics(batch).items() if value is not None}
        print(f"loss {loss.item():+.4f}  expected reward {expected[-1]:.3f}  {metrics}")
    return expected


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "tepo")
