"""TensorFlow's checkpoint format read without TensorFlow: index, tensors, object graph."""
