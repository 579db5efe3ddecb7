"""A service of BentoML 1.1."""

import bentoml
from bentoml.io import Text

svc = bentoml.legacy.Service("old")


@svc.api(input=Text(), output=Text())
def echo(text):
    return text
