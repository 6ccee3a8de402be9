"""What eight GPUs make of a minibatch of the paper's size: how long the slowest takes, and how much Clip-Cov clips.

    python -m benchmarks.minibatches        prints both, each by the former rule and by ours

Simulated, from fixed seeds: 64 prompts x 8 responses in 4 minibatches, lengths log-normal and cut at 8192 tokens
(prompts differ in their mean length), rewards 0 or 1 in groups that are neither all right nor all wrong, log-probs of a
policy that is certain of most tokens. The functions that order rows and select tokens are the trainer's own.
"""

from __future__ import annotations

import random
import statistics

PROMPTS, SAMPLES, MINIBATCHES, RANKS, LONGEST = 64, 8, 4, 8, 8192
SIZE = PROMPTS * SAMPLES // MINIBATCHES
MEDIAN = 1200  # tokens of a response
SPREADS = ((0.3, 0.4), (0.5, 0.5), (0.8, 0.5))  # of the logarithm of a length: between prompts, within one
ROLLOUTS = 20


def response_lengths(rows: int, seed: int = 0, between: float = 0.5, within: float = 0.5) -> list[int]:
    """Tokens of each row, group by group."""
    draw = random.Random(seed)
    lengths: list[int] = []
    while len(lengths) < rows:
        median = draw.lognormvariate(0, between) * MEDIAN
        lengths += [min(LONGEST, 1 + int(median * draw.lognormvariate(0, within))) for _ in range(SAMPLES)]
    return lengths[:rows]


def imbalance(lengths: list[int], order: list[int]) -> float:
    """Tokens of the slowest rank over the ranks' mean, summed over the minibatches: every update waits for all."""
    share, cut = len(lengths) // RANKS, SIZE // RANKS
    slowest = 0.0
    for minibatch in range(MINIBATCHES):
        slowest += max(
            sum(lengths[row] for row in order[rank * share + minibatch * cut :][:cut]) for rank in range(RANKS)
        )
    return slowest * RANKS / sum(lengths)


def clipped_shares(seed: int, lengths: list[int]) -> tuple[float, float, float, float]:
    """The share of tokens that Clip-Cov takes out: in micro-batches of two rows with equal rewards, in those with
    different rewards, in all of them, and by statistics over the minibatch."""
    import torch

    from methods import catalog
    from methods.batch import Batch

    method = catalog.parse("clip_cov+fraction=0.0002")
    draw = torch.Generator().manual_seed(seed)
    mask_BT = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    right = torch.randint(1, SAMPLES, (len(lengths) // SAMPLES, 1), generator=draw)  # neither none nor all
    reward_B = (torch.rand(len(right), SAMPLES, generator=draw).argsort(1) < right).double().flatten()
    group_B = torch.arange(len(lengths)) // SAMPLES
    # one token in five is uncertain: an entropy of about .3 nats
    logp_BT = -torch.empty(mask_BT.shape, dtype=torch.float64).exponential_(0.7, generator=draw)
    logp_BT = logp_BT * (torch.rand(mask_BT.shape, generator=draw) < 0.2)
    advantage_B = method.advantage(reward_B, group_B)
    whole = Batch(logp=logp_BT, old_logp=logp_BT, advantage=advantage_B, mask=mask_BT, group=group_B)

    def clipped(batch: Batch) -> int:
        (chosen_BT,) = method.select(batch, torch.Generator().manual_seed(seed)).values()
        return int((chosen_BT & batch.mask).sum())

    pairs = [whole.rows(slice(row, row + 2)) for row in range(0, len(lengths), 2)]
    equal = [pair for pair in pairs if pair.advantage[0] == pair.advantage[1]]
    different = [pair for pair in pairs if pair.advantage[0] != pair.advantage[1]]
    shares = [sum(map(clipped, some)) / sum(batch.tokens for batch in some) for some in (equal, different, pairs)]
    return shares[0], shares[1], shares[2], clipped(whole) / whole.tokens


def main() -> None:
    from methods.adapters.verl.trainer import by_rank

    share, cut = PROMPTS * SAMPLES // RANKS, SIZE // RANKS
    print(f"Tokens of the slowest of {RANKS} ranks over their mean; {ROLLOUTS} rollouts, mean (largest)")
    print("  spread between prompts, within one    whole groups      balanced in each minibatch")
    for between, within in SPREADS:
        found: list[list[float]] = [[], []]
        for seed in range(ROLLOUTS):
            lengths = response_lengths(PROMPTS * SAMPLES, seed, between, within)
            by_group = [
                m * SIZE + r * cut + row for r in range(RANKS) for m in range(MINIBATCHES) for row in range(cut)
            ]
            assert len(by_group) == share * RANKS
            for rule, order in zip(found, (by_group, by_rank(lengths, SIZE, RANKS)), strict=True):
                rule.append(imbalance(lengths, order))
        columns = [f"{statistics.mean(rule):.3f} ({max(rule):.3f})" for rule in found]
        print(f"  {between}, {within}{columns[0]:>44}{columns[1]:>24}")
    shares = [clipped_shares(seed, response_lengths(SIZE, seed)) for seed in range(ROLLOUTS)]
    print(f"Share of a minibatch's tokens that Clip-Cov clips, fraction 2e-4; {ROLLOUTS} minibatches, mean (range)")
    names = ("pairs of equal reward", "pairs of different reward", "all pairs", "the minibatch")
    for name, values in zip(names, zip(*shares, strict=True), strict=True):
        print(f"  {name:27}{statistics.mean(values):.2e} ({min(values):.2e} to {max(values):.2e})")


if __name__ == "__main__":
    main()
