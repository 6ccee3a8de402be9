"""Drawing responses: prompts, lm-eval task files, the engines that answer, the store of what they answered."""
