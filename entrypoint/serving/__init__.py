"""`serve`: a trained model behind HTTP, as SageMaker's endpoints and batch transform ask for it.

A process of its own: nothing of the launcher runs in it, and the launcher imports nothing of it.
"""
