# Check what the image of this line must be able to do. The Dockerfile runs this in /opt/venv, after it has removed files.
# tf-keras requires `tensorflow`; an image for CPUs has tensorflow-cpu instead, which pip does not count.
pip check || [[ $(pip check) == 'tf-keras 2.21.0 requires tensorflow, which is not installed.' ]]
python -c 'import horovod.tensorflow.keras, tensorflow as tf; assert tf.keras.__version__.startswith("3.")'
export TF_USE_LEGACY_KERAS=1
python -c 'import horovod.tensorflow.keras, tensorflow as tf, tf_keras; assert tf.keras.Model is tf_keras.Model'
unset TF_USE_LEGACY_KERAS
KERAS_BACKEND=jax python -c 'import jax, keras; assert float(keras.ops.sum(jax.jit(lambda x: x @ x)(keras.ops.ones((2, 2))))) == 8'
