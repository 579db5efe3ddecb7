"""Trains a small classifier on scikit-learn's digits and puts it into BentoML's store as `digits`. No network.

    python train.py              a few seconds; the store is $BENTOML_HOME, by default ~/bentoml
    python train.py --samples    also writes samples/three.json and samples/three.png, a digit it has not seen
"""

import json
import sys
from pathlib import Path

import bentoml
import joblib
import numpy as np
from PIL import Image
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.svm import SVC

SAMPLES = Path(__file__).parent / "samples"


def write_samples(image):
    """One digit as the two kinds of input that service.py takes: numbers from 0 to 16, and a picture."""
    SAMPLES.mkdir(exist_ok=True)
    rows = ",\n".join("  " + json.dumps([int(v) for v in row]) for row in image)
    (SAMPLES / "three.json").write_text('{"image": [\n' + rows + "\n]}\n")
    picture = Image.fromarray((image * 255 / 16).round().astype("uint8"))
    picture.resize((128, 128), Image.Resampling.NEAREST).save(SAMPLES / "three.png", optimize=True)


def main():
    digits = load_digits()
    seen = int(len(digits.images) * 0.8)
    classifier = CalibratedClassifierCV(SVC(gamma=0.001), ensemble=False)
    classifier.fit(digits.data[:seen], digits.target[:seen])
    accuracy = classifier.score(digits.data[seen:], digits.target[seen:])

    three = seen + int(np.flatnonzero(digits.target[seen:] == 3)[0])
    with bentoml.models.create("digits", labels={"source": "sklearn.datasets.load_digits"},
                               metadata={"accuracy": round(accuracy, 4)}) as model:  # fmt: skip
        joblib.dump(classifier, model.path_of("classifier.joblib"))
        np.save(model.path_of("three.npy"), digits.images[three])  # by this the service knows that it still works
    if "--samples" in sys.argv[1:]:
        write_samples(digits.images[three])
    print(f"{model.tag}: accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
