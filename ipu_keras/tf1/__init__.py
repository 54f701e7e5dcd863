"""Runs scripts written for TensorFlow 1: `python -m ipu_keras.tf1 script.py`."""
