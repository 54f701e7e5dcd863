# Written by `python tests/stub_files.py`.
from ipu_keras.ipu_estimator import IPUEstimator as IPUEstimator
from ipu_keras.ipu_estimator import IPUEstimatorSpec as IPUEstimatorSpec
