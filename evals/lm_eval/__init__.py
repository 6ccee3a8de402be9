"""The paper's seven benchmarks as tasks of lm-eval, graded by our grader: `--include_path evals/lm_eval`."""
