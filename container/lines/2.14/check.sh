# What the image of this line has to be able to do; the Dockerfile runs it in /opt/venv when nothing more is taken away.
pip check
python -c 'import tensorflow.keras, tensorflow.estimator, horovod.tensorflow.keras, sagemaker_tensorflow'
python -c 'import tensorflow as tf, tensorflow_io; assert "s3" in tf.io.gfile.get_registered_schemes()'
