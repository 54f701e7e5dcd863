"""Every change that is made to an object of TensorFlow or Keras; `table` lists them."""
