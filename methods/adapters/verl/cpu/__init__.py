"""What verl needs to run without a GPU and without vLLM: for tests and tiny models, apart from the product path.

Every process of a run imports this at the end of `import verl` (`VERL_USE_EXTERNAL_MODULES`), before anything asks for
the platform (`VERL_PLATFORM=cpu`). `plugin` registers what can only be imported later: engine, inference, agent loop.
"""

from __future__ import annotations

import methods.adapters.verl.cpu.platform  # noqa: F401  registers the platform
