"""Programs of users' TensorFlow functions and sessions, which TensorFlow dispatches."""
