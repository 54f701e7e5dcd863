"""Small models of every kind, whose layers are put in stages."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

X = np.zeros((4, 2), np.float32)


def raises(error, message):
    return pytest.raises(error, match=f"^{re.escape(message)}")


def dense(name):
    return keras.layers.Dense(2, name=name)


class Subclass(keras.Model):
    """`a`, `b` and `a` again."""

    def __init__(self, **options):
        super().__init__(**options)
        self.a, self.b = dense("a"), dense("b")

    def call(self, inputs):
        return self.a(tf.nn.relu(self.b(self.a(inputs))))


def made_subclass():
    model = Subclass()
    model(X)
    return model


def functional():
    inputs, a = keras.Input([2]), dense("a")
    return keras.Model(inputs, a(dense("b")(a(inputs))))


def sequential():
    a = dense("a")
    return keras.Sequential([keras.Input([2]), a, dense("b"), a])


KINDS = [sequential, functional, made_subclass]


def assign(model, stages):
    assignment = model.get_pipeline_stage_assignment()
    for entry, stage in zip(assignment, stages, strict=True):
        entry.pipeline_stage = stage
    model.set_pipeline_stage_assignment(assignment)


def stages(model):
    return [entry.pipeline_stage for entry in model.get_pipeline_stage_assignment()]
