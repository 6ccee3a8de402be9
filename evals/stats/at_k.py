"""Per-problem scores of k samples: avg@k, pass@k, maj@k. Each is the mean over problems of a number in [0, 1]."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from records.errors import ConfigError


def avg_at_k(right_PK: ArrayLike) -> NDArray[np.float64]:
    """(P, k) right or wrong -> (P,) share of right samples."""
    return np.asarray(right_PK, bool).mean(1)


def pass_at_k(right_PN: ArrayLike, k: int) -> NDArray[np.float64]:
    """(P, n) right or wrong -> (P,) chance that at least one of k samples drawn from the n is right.

    1 - C(n-c, k) / C(n, k), c the number of right samples: unbiased (Chen et al. 2021, "Evaluating large language
    models trained on code", eq. 1). Computed as a product, so that C(960, 32) never appears. At k = n: any right.

    >>> pass_at_k([[True, False, False, False]], 2).tolist()
    [0.5]
    """
    right = np.asarray(right_PN, bool)
    n = right.shape[1]
    if not 1 <= k <= n:
        raise ConfigError(f"pass@k: k = {k} needs between 1 and {n} samples per problem")
    wrong_P = n - right.sum(1)
    # C(w, k)/C(n, k) = product over i < k of (w - i)/(n - i), 0 when w < k
    steps = np.arange(k)
    none_P = np.clip((wrong_P[:, None] - steps) / (n - steps), 0, None).prod(1)
    return 1.0 - none_P


def maj_at_k(answers_PK: Sequence[Sequence[str | None]], right_PK: ArrayLike) -> NDArray[np.float64]:
    """(P,) whether the most frequent answer is right; ties score the share of tied answers that is right.

    answers: the normalised answer of each sample, None without one. Samples without an answer do not vote; a problem
    without any vote scores 0. Two spellings that the normaliser keeps apart are two answers. Should the grader have
    judged one answer differently in two samples (a timeout), that answer counts the share of its samples judged right.

    >>> maj_at_k([["4", "4", "5", None]], [[True, True, False, False]]).tolist()
    [1.0]
    >>> maj_at_k([["4", "5"]], [[True, False]]).tolist()
    [0.5]
    """
    right = np.asarray(right_PK, bool)
    scores = np.zeros(len(answers_PK))
    for problem, answers in enumerate(answers_PK):
        votes: Counter[str] = Counter()
        hits: defaultdict[str, int] = defaultdict(int)
        for answer, is_right in zip(answers, right[problem], strict=True):
            if answer is not None:
                votes[answer] += 1
                hits[answer] += int(is_right)
        if votes:
            most = max(votes.values())
            tied = [answer for answer, count in votes.items() if count == most]
            scores[problem] = sum(hits[answer] / most for answer in tied) / len(tied)
    return scores
