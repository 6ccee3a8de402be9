"""Draw responses: prompts, engines, and the responses drawn from them."""
