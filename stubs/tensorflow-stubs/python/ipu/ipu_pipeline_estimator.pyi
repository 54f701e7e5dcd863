# Written by `python tests/stub_files.py`.
from ipu_keras.ipu_pipeline_estimator import IPUPipelineEstimator as IPUPipelineEstimator
from ipu_keras.ipu_pipeline_estimator import IPUPipelineEstimatorSpec as IPUPipelineEstimatorSpec
