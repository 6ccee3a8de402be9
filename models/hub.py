"""Look up the commit of a name on the hub; a failure is one line.

Apart from `models.fetch`, which reads config/models: the hash of training prompts covers this file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from core.errors import MissingInputError

COMMIT = re.compile(r"[0-9a-f]{40}")


def commit_of(repository: str, revision: str, kind: Literal["model", "dataset"] = "model") -> str:
    """The commit that a branch, tag or commit names now. `MissingInputError` with one line when the hub cannot say."""
    if COMMIT.fullmatch(revision):
        return revision
    import huggingface_hub

    with hub_errors(repository, revision):
        commit = huggingface_hub.HfApi().repo_info(repository, revision=revision, repo_type=kind).sha
    if commit is None:
        raise MissingInputError(f"{repository}@{revision}: the hub names no commit")
    return commit


@contextmanager
def hub_errors(repository: str, revision: str) -> Iterator[None]:
    """Whatever keeps the hub from answering, as one line."""
    import httpx
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        yield
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, httpx.HTTPError, OSError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise MissingInputError(
            f"{repository}@{revision}: cannot be fetched ({reason}); set --from to a copy made where there is a network"
        ) from error
