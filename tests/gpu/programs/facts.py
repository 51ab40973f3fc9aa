"""Compute with each library that TensorFlow loads on a GPU, and compare with known results."""

import traceback

import numpy as np
import tensorflow as tf

gpus = tf.config.list_physical_devices("GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
DEVICE = "GPU:0" if gpus else "CPU:0"
random = np.random.default_rng(0)


def product():
    """Multiply by cuBLAS, in bfloat16."""
    a = random.normal(size=(512, 512)).astype("float32")
    found = tf.matmul(tf.cast(a, tf.bfloat16), tf.cast(a, tf.bfloat16))
    return found, abs(tf.cast(found, tf.float32).numpy() - a @ a).max() < 2


def convolution():
    """Convolve by cuDNN."""
    found = tf.nn.conv2d(tf.ones([8, 16, 16, 64]), tf.ones([3, 3, 64, 32]), 1, "SAME")
    return found, found[0, 8, 8, 0] == 9 * 64 and found[0, 0, 0, 0] == 4 * 64


def solved():
    """Solve by cuSOLVER."""
    a = tf.eye(64) * 8 + random.normal(size=(64, 64)).astype("float32") / 8
    found = tf.linalg.solve(a, tf.eye(64))
    return found, tf.reduce_max(tf.abs(tf.matmul(a, found) - tf.eye(64))) < 1e-3


def cholesky():
    """Factorise by cuSOLVER."""
    found = tf.linalg.cholesky(tf.eye(64) * 9)
    return found, tf.reduce_max(tf.abs(found - tf.eye(64) * 3)) < 1e-5


def sparse():
    """Multiply by cuSPARSE."""
    found = tf.sparse.sparse_dense_matmul(tf.sparse.from_dense(tf.eye(128)), tf.ones([128, 4]))
    return found, tf.reduce_sum(found) == 512


def compiled():
    """Compile by XLA, and its compiler ptxas."""
    found = tf.function(lambda a: tf.reduce_sum(tf.nn.relu(a) * 2), jit_compile=True)(tf.ones([1000]))
    return found, found == 2000


def fourier():
    """Transform by cuFFT; last, since a crash in it would end the program."""
    a = random.normal(size=(4, 1024)).astype("float32")
    found = tf.signal.fft(tf.cast(a, tf.complex64))
    planes = tf.signal.fft2d(tf.cast(a.reshape(4, 32, 32), tf.complex64))
    right = np.allclose(found, np.fft.fft(a), atol=1e-2)
    return found, right and np.allclose(planes, np.fft.fft2(a.reshape(4, 32, 32)), atol=1e-2)


build = tf.sysconfig.get_build_info()
print("TensorFlow", tf.__version__, {name: build.get(name) for name in ("cuda_version", "cudnn_version")}, flush=True)
for gpu in gpus:
    print("GPU", tf.config.experimental.get_device_details(gpu), flush=True)
wrong = 0
for fact in (product, convolution, solved, cholesky, sparse, compiled, fourier):
    try:
        with tf.device(DEVICE):
            result, right = fact()
        right = bool(right)
    except Exception:
        traceback.print_exc()
        result, right = None, False
    wrong += not right
    where = getattr(result, "device", "nowhere").rpartition("device:")[2]
    print(f"{fact.__name__}: {'right' if right else 'WRONG'} on {where}", flush=True)
raise SystemExit(wrong)
