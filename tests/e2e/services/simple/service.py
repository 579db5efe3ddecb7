"""What most tutorials teach: one class, one endpoint, nothing configured."""

import bentoml


@bentoml.service
class Simple:
    @bentoml.api
    def predict(self, text: str = "hello") -> str:
        return text.upper()
