"""A service that is a server of its own: BentoML starts it and passes requests on."""

import bentoml


@bentoml.service(cmd=["python", "-m", "http.server", "8000"])
class Own:
    pass
