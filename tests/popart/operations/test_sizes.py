import tensorflow as tf

from ipu_keras.popart.operations.sizes import flattened, product_of, sizes_of


def test_what_is_known_is_a_number():
    sizes = []

    @tf.function(input_signature=[tf.TensorSpec([None, 3, 4])])
    def flat(x):
        sizes.extend(sizes_of(x))
        return flattened(x, -1)

    assert flat(tf.zeros([2, 3, 4])).shape == (6, 4)
    assert sizes[1:] == [3, 4]
    assert tf.is_symbolic_tensor(sizes[0])


def test_no_axes_hold_one_element():
    assert product_of([]) == 1
    assert product_of(sizes_of(tf.zeros([]))) == 1
    assert flattened(tf.zeros([0, 3]), 2).shape == (0, 1)
