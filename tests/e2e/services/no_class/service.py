"""Has a service, but not of the name that is asked for."""

import bentoml


@bentoml.service
class Present:
    @bentoml.api
    def predict(self) -> str:
        return ""
