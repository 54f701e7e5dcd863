"""Plans are made once."""

from ipu_keras.cost.products.convolution_planner import plan
from ipu_keras.cost.products.convolutions import matmul
from ipu_keras.cost.products.plans import Plans
from ipu_keras.machine.target import TARGETS

GC200 = TARGETS["gc200"]


def test_equal_products_have_one_plan():
    plans = Plans(GC200)
    first = plans.find_or_make(matmul(1, 32, 784, 256, "float32"), 0.6)
    assert first == plan(GC200, matmul(1, 32, 784, 256, "float32"), memory_proportion=0.6)
    assert plans.find_or_make(matmul(1, 32, 784, 256, "float32"), 0.6) is first
    # With less memory for it, it is another product.
    less = plans.find_or_make(matmul(1, 32, 784, 256, "float32"), 0.005)
    assert less.temporary_bytes < first.temporary_bytes
