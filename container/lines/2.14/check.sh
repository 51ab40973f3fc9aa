# Check what the image of this line must be able to do. The Dockerfile runs this in /opt/venv, after it has removed files.
pip check
python -c 'import tensorflow.keras, tensorflow.estimator, horovod.tensorflow.keras'
if [[ $(uname -m) == x86_64 ]]; then python -c 'import sagemaker_tensorflow'; fi
python -c 'import tensorflow as tf, tensorflow_io; assert "s3" in tf.io.gfile.get_registered_schemes()'
