"""Finds what of a script will not run here, by reading it.

`reading` follows a script's statements without executing them, and knows of each expression
what `values` can say: the module, class or function of a library that it is, an instance of a
class, or a tensor that Keras has not computed yet. Attributes are looked up in the libraries
that are installed, and `calls` compares arguments with their signatures: nothing keeps a list
of names. `ipu_keras.internals.keras_2_habits` explains what Keras 2 took, as when the error is
raised.
"""
