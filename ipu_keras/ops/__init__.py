"""Operations that TensorFlow lacks, or has only as many small ones."""
