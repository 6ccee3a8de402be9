"""Drawing responses: prompts, the engines that answer, and what is drawn from them."""
