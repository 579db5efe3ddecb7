"""Handwritten digits of 8 x 8 pixels behind BentoML: one endpoint of each kind. Nothing here knows Plimsoll."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Annotated

import bentoml
import joblib
import numpy as np
from bentoml.models import BentoModel
from bentoml.validators import ContentType, DType, Shape
from PIL import Image
from prometheus_client import Counter
from pydantic import BaseModel

# Rows of pixels, 0 (paper) to 16 (ink). Lists in JSON, arrays from BentoML's clients.
Pixels = Annotated[np.ndarray, Shape((8, 8)), DType("float64")]
ManyPixels = Annotated[np.ndarray, Shape((-1, 8, 8)), DType("float64")]

# A metric of our own; it shows up in /metrics beside BentoML's.
RECOGNISED = Counter("digits_recognised", "Digits recognised, by what they were taken for.", ["digit"])


class Prediction(BaseModel):
    digit: int
    probabilities: list[float]


@bentoml.service(
    traffic={"timeout": 30, "max_concurrency": 32},  # a request over 30 s gets 504; the 33rd at a time has to wait
    threads=4,  # without it, sync endpoints run one at a time whatever max_concurrency says
)
class Digits:
    # A class attribute: recorded as the service's model, and packed into its bento.
    model = BentoModel("digits:latest")

    def __init__(self):
        # Load here and not at module level: `bentoml serve` imports the module in a process that serves nothing.
        self.classifier = joblib.load(self.model.path_of("classifier.joblib"))
        self.three = np.load(self.model.path_of("three.npy"))

    def __is_ready__(self) -> bool:
        """Behind GET /readyz: not only alive, it still knows a three when it sees one."""
        return int(self.classifier.predict(self.three.reshape(1, 64))[0]) == 3

    def recognise(self, image: np.ndarray) -> Prediction:
        probabilities = self.classifier.predict_proba(image.reshape(1, 64))[0]
        digit = int(probabilities.argmax())
        RECOGNISED.labels(digit=str(digit)).inc()
        return Prediction(digit=digit, probabilities=probabilities.round(4).tolist())

    @bentoml.api
    def predict(self, image: Pixels) -> Prediction:
        """Sync: runs on one of `threads` threads."""
        return self.recognise(image)

    @bentoml.api
    async def same(self, first: Pixels, second: Pixels) -> bool:
        """Async: runs on the event loop, so the work itself must go elsewhere, or health checks would wait too."""
        a, b = await asyncio.gather(
            asyncio.to_thread(self.recognise, first), asyncio.to_thread(self.recognise, second)
        )
        return a.digit == b.digit

    # max_latency_ms is no window to fill a batch in: a request that waits longer gets 503.
    @bentoml.api(batchable=True, max_batch_size=64, max_latency_ms=10000)
    def predict_batch(self, images: ManyPixels) -> np.ndarray:
        """Batchable: BentoML puts requests that arrive together into one call. The first axis is the batch."""
        return self.classifier.predict(images.reshape(len(images), 64))

    @bentoml.api
    async def ranking(self, image: Pixels) -> AsyncGenerator[str, None]:
        """Stream: server-sent events, the likeliest digit first."""
        prediction = await asyncio.to_thread(self.recognise, image)
        for digit in np.argsort(prediction.probabilities)[::-1]:
            event = {"digit": int(digit), "probability": prediction.probabilities[digit]}
            yield f"data: {json.dumps(event)}\n\n"

    @bentoml.api
    def predict_png(self, image: Annotated[Path, ContentType("image/png")]) -> Prediction:
        """Upload: white ink on black, any size."""
        with Image.open(image) as picture:
            small = picture.convert("L").resize((8, 8), Image.Resampling.BOX)
        return self.recognise(np.asarray(small, dtype="float64") * 16 / 255)
