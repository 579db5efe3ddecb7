"""Nothing a warm-up could be made from: one upload, no example, no default."""

from pathlib import Path

import bentoml


@bentoml.service
class UploadOnly:
    @bentoml.api
    def size(self, file: Path) -> int:
        return file.stat().st_size
