"""The service that `bentoml serve` and `plimsoll serve` run side by side: nothing but BentoML's own cost."""

import bentoml
from switch import switch


@bentoml.service(workers=1, traffic={"timeout": 30})
class Double:
    @bentoml.api
    async def double(self, x: int = 21) -> int:
        return 2 * x

    @bentoml.api
    def switch(self, on: bool) -> bool:
        switch(on)
        return on
