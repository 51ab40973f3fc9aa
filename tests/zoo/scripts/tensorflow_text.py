"""Train a classifier of texts behind tensorflow-text's BertTokenizer, which is exported with the model."""

import tensorflow as tf
import tensorflow_text as text
from shown import loads, model_dir, rank, trains

PIECES = ["[PAD]", "[UNK]", "good", "bad", "##ly", "film", "it", "was"]


class Classifier(tf.Module):
    """Tokenize and classify, as one SavedModel."""

    def __init__(self, network=None):
        super().__init__()
        numbers = tf.lookup.KeyValueTensorInitializer(PIECES, tf.range(len(PIECES), dtype=tf.int64))
        self.tokenizer = text.BertTokenizer(tf.lookup.StaticVocabularyTable(numbers, 1), lower_case=True)
        self.network = network

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def __call__(self, texts):
        return self.network(self.tokens(texts))

    def tokens(self, texts):
        return text.pad_model_inputs(self.tokenizer.tokenize(texts).merge_dims(-2, -1), max_seq_length=8)[0]


strategy = tf.distribute.MultiWorkerMirroredStrategy()
texts = tf.constant(["It was goodly", "It was bad", "Good film", "Badly film, it was"] * 8)
labels = tf.constant([1.0, 0.0, 1.0, 0.0] * 8)
data = tf.data.Dataset.from_tensor_slices((Classifier().tokens(texts), labels)).shuffle(32, seed=rank())
with strategy.scope():
    layers = [tf.keras.layers.Embedding(len(PIECES) + 1, 8), tf.keras.layers.GlobalAveragePooling1D()]
    network = tf.keras.Sequential([*layers, tf.keras.layers.Dense(1)])
    network.compile(tf.keras.optimizers.Adam(0.02), tf.keras.losses.BinaryCrossentropy(from_logits=True))
trains(network, data.repeat().batch(8), epochs=4, steps_per_epoch=8)
classifier, folder = Classifier(network), str(model_dir() / "1")
tf.saved_model.save(classifier, folder)
loads(classifier(texts), tf.saved_model.load(folder)(texts))
