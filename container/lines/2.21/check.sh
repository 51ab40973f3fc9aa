# What the image of this line has to be able to do; the Dockerfile runs it in /opt/venv when nothing more is taken away.
# tf-keras asks for `tensorflow`, and in an image for CPUs finds tensorflow-cpu.
pip check || [[ $(pip check) == 'tf-keras 2.21.0 requires tensorflow, which is not installed.' ]]
python -c 'import horovod.tensorflow.keras, tensorflow as tf; assert tf.keras.__version__.startswith("3.")'
export TF_USE_LEGACY_KERAS=1
python -c 'import horovod.tensorflow.keras, tensorflow as tf, tf_keras; assert tf.keras.Model is tf_keras.Model'
