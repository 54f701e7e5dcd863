"""The handwritten digits of scikit-learn, split for the examples."""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

NUM_TRAIN = 1408
NUM_TEST = 352


def load() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Returns `(images, labels)` for training and for testing.

    An IPU program has static shapes, so the last batch has to be a full one: both
    sizes are multiples of 352, and of any batch size that divides it. The 37 images
    that are left over are not used.

    Returns:
        Images are float32 in [0, 1] of shape `(1408, 8, 8, 1)` and `(352, 8, 8, 1)`,
        labels are int32. The split is always the same.
    """
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype("float32").reshape(-1, 8, 8, 1)
    x_train, x_test, y_train, y_test = train_test_split(
        images,
        labels.astype("int32"),
        train_size=NUM_TRAIN,
        test_size=NUM_TEST,
        random_state=0,
        stratify=labels,
    )
    return (x_train, y_train), (x_test, y_test)
