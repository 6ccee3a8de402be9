def shaped(completions, answer, **columns):
    return [0.1 * (a in c) for c, a in zip(completions, answer)]
