"""Build the backbone: a residual network and a feature pyramid on it (He et al. 2015; Lin et al., "Feature Pyramid
Networks for Object Detection", 2017).

Depths 50 and 101 are Keras's own networks, so that their ImageNet weights fit; 10, 18 and 34 are built here, of any
width, with group normalization: with two images in a batch, statistics of the batch are worth little.
"""

import tensorflow as tf

L = tf.keras.layers

STRIDES = (4, 8, 16, 32, 64)  # pixels of a cell of the pyramid's levels P2 ... P6
BLOCKS = {10: (1, 1, 1, 1), 18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}  # of two convolutions each
KERAS = {  # outputs of stages 2 ... 5
    50: ("ResNet50", ("conv2_block3_out", "conv3_block4_out", "conv4_block6_out", "conv5_block3_out")),
    101: ("ResNet101", ("conv2_block3_out", "conv3_block4_out", "conv4_block23_out", "conv5_block3_out")),
}
DEPTHS = (*BLOCKS, *KERAS)
# Pixels of ImageNet, in red, green, blue. Keras's weights of these networks want the mean taken off, in blue, green,
# red, and no division.
MEAN, DEVIATION = (123.68, 116.779, 103.939), (58.4, 57.1, 57.4)


class GroupNorm(L.Layer):
    """Normalizes groups of channels of each image, then scales and shifts each channel (Wu, He 2018).

    Keras's own layer does the same in more passes over the features, which on processors takes as long as the
    convolutions.
    """

    def __init__(self, groups=8, **more):
        super().__init__(**more)
        self.groups = groups

    def build(self, shape):
        self.gamma = self.add_weight(name="gamma", shape=[shape[-1]], initializer="ones")
        self.beta = self.add_weight(name="beta", shape=[shape[-1]], initializer="zeros")

    def call(self, features):
        width = features.shape[-1] // self.groups
        single = tf.cast(features, tf.float32)
        # Means over the cells first, which leaves [B, channels]; then over the channels of a group.
        means = tf.stack([tf.reduce_mean(single, axis=[1, 2]), tf.reduce_mean(tf.square(single), axis=[1, 2])])
        grouped = tf.reduce_mean(tf.reshape(means, [2, -1, self.groups, width]), axis=3)
        mean, square = tf.unstack(tf.repeat(grouped, width, axis=2))
        scale = tf.math.rsqrt(tf.maximum(square - mean**2, 0) + 1e-5) * tf.cast(self.gamma, tf.float32)
        shift = tf.cast(self.beta, tf.float32) - mean * scale
        scale, shift = (tf.cast(each, features.dtype)[:, None, None, :] for each in (scale, shift))
        return features * scale + shift

    def get_config(self):
        return {**super().get_config(), "groups": self.groups}


def build(args):
    """Return a Keras model from pixels [B, H, W, 3], 0 to 255, to the levels P2 ... P6: [B, H/4, W/4, channels] ...

    H and W are multiples of 64.
    """
    pixels = tf.keras.Input([None, None, 3], name="pixels")
    stages = keras_resnet(pixels, args) if args.depth in KERAS else small_resnet(pixels, args)
    return tf.keras.Model(pixels, pyramid(stages, args), name="backbone")


def small_resnet(pixels, args):
    """Return the outputs of stages 2 ... 5 of a residual network of blocks of two convolutions."""
    x = L.Rescaling([1 / d for d in DEVIATION], [-m / d for m, d in zip(MEAN, DEVIATION, strict=True)])(pixels)
    x = L.ReLU()(GroupNorm()(convolution(args.width, 7, 2)(x)))
    x = L.MaxPooling2D(3, 2, "same")(x)
    stages = []
    for stage, blocks in enumerate(BLOCKS[args.depth]):
        for block in range(blocks):
            x = residual(x, args.width * 2**stage, 2 if stage and not block else 1)
        stages.append(x)
    return stages


def residual(x, channels, stride):
    """Return the ReLU of `x` plus the output of two convolutions."""
    change = L.ReLU()(GroupNorm()(convolution(channels, 3, stride)(x)))
    change = GroupNorm()(convolution(channels, 3)(change))
    if stride > 1 or x.shape[-1] != channels:
        x = GroupNorm()(convolution(channels, 1, stride)(x))
    return L.ReLU()(L.Add()([x, change]))


def convolution(channels, size, stride=1):
    """Return a layer without bias, since a normalization follows."""
    return L.Conv2D(channels, size, stride, "same", use_bias=False, kernel_initializer="he_normal")


def keras_resnet(pixels, args):
    """Return the outputs of stages 2 ... 5 of ResNet-50 or 101, from a file of Keras's weights if one is given.

    With weights, all batch normalizations and the first layers (`freeze`) are frozen: one or two images per rank are
    too few to estimate means. Without weights, all layers are trained.
    """
    name, outputs = KERAS[args.depth]
    network = getattr(tf.keras.applications, name)(include_top=False, weights=None, input_shape=(None, None, 3))
    if args.weights:
        # By name: a file with the classifier, which is not wanted here, serves as well as one without.
        first = network.get_layer("conv1_conv").kernel
        before = tf.convert_to_tensor(first)
        network.load_weights(args.weights, by_name=True, skip_mismatch=True)
        if bool(tf.reduce_all(before == tf.convert_to_tensor(first))):
            raise SystemExit(
                f"maskrcnn: {args.weights} has no layers of Keras's {name}; wanted its .h5 file of weights"
            )
        for layer in network.layers:
            stage = int(layer.name[4]) if layer.name.startswith("conv") else 1
            if isinstance(layer, L.BatchNormalization) or stage <= args.freeze:
                layer.trainable = False
    stages = tf.keras.Model(network.input, [network.get_layer(each).output for each in outputs], name=name.lower())
    centered = L.Rescaling(1.0, [-m for m in MEAN])(pixels)
    return stages(reverse_colors(centered))


def moving_averages(network):
    """Return the variables of trained batch normalizations that hold moving averages."""
    found = []
    for layer in network.layers:
        if isinstance(layer, tf.keras.Model):
            found += moving_averages(layer)
        elif isinstance(layer, L.BatchNormalization) and layer.trainable:
            found += [layer.moving_mean, layer.moving_variance]
    return found


def reverse_colors(pixels):
    """Return blue, green, red of red, green, blue; as a fixed convolution, which every Keras can save."""
    swap = tf.reverse(tf.eye(3), axis=[1])[None, None].numpy()
    return L.Conv2D(
        3, 1, use_bias=False, kernel_initializer=tf.keras.initializers.Constant(swap), trainable=False, name="to_bgr"
    )(pixels)


def pyramid(stages, args):
    """Return P2 ... P6 of stages 2 ... 5. Every level includes the information of coarser ones."""
    top, levels = None, []
    for stage in reversed(stages):
        side = L.Conv2D(args.channels, 1, kernel_initializer="he_uniform")(stage)
        top = side if top is None else L.Add()([side, L.UpSampling2D(2)(top)])
        levels.insert(0, L.Conv2D(args.channels, 3, padding="same", kernel_initializer="he_uniform")(top))
    return [*levels, L.MaxPooling2D(1, 2)(levels[-1])]
