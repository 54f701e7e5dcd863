"""PopART: trains a tiny encoder, of the kind of BERT, to fill in words that were masked.

Sentences are random: one of ten phrases of four words, again and again, from a random word on. Who
knows the neighbours of a masked word can tell what it was. There are two layers of attention, in
heads, with normalised sums and GELU; Adam trains all of them, with four micro-batches at a time.
"""

import os

from script_arguments import script_arguments

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
ARGUMENTS = script_arguments(
    __name__, __doc__, runs=(24, "of the session, with ten updates of the weights each")
)

import numpy as np
import popart

MICRO_BATCH = 8
ACCUMULATION = 4
BATCHES = 10
RUNS = ARGUMENTS.runs
SEQUENCE = 16
HIDDEN = 32
HEADS = 2
LAYERS = 2
WORDS = 41
# The word that stands for those that are to be found; and the label where there are none.
MASK, NONE = 0, -1


class Encoder:
    """Adds the network to a builder. Matrices have rows for all words of all sentences."""

    def __init__(self, builder: popart.Builder):
        self._builder = builder
        self._ops, self._graphcore = builder.aiOnnx, builder.aiGraphcore
        self._random = np.random.default_rng(0)

    def __call__(self, words: str) -> str:
        """The probabilities of words, at each position."""
        table = self._matrix("words", WORDS, HIDDEN)
        positions = self._matrix("positions", SEQUENCE, HIDDEN)
        x = self._ops.add([self._ops.gather([table, words]), positions])
        x = self._normalized(self._shaped(x, -1, HIDDEN))
        for layer in range(LAYERS):
            with self._builder.nameScope(f"layer{layer}"):
                x = self._normalized(self._ops.add([x, self._attention(x)]))
                wide = self._graphcore.gelu([self._dense(x, HIDDEN, 4 * HIDDEN)])
                x = self._normalized(self._ops.add([x, self._dense(wide, 4 * HIDDEN, HIDDEN)]))
        # Words are recognised by the rows that stand for them.
        logits = self._ops.matmul([x, self._ops.transpose([table], perm=[1, 0])])
        return self._ops.softmax([logits], axis=1)

    def _attention(self, x: str) -> str:
        """What each word takes from all words of its sentence."""
        size = HIDDEN // HEADS

        def heads(axes: list[int]) -> str:
            split = self._shaped(self._dense(x, HIDDEN, HIDDEN), -1, SEQUENCE, HEADS, size)
            return self._ops.transpose([split], perm=axes)

        queries, keys, values = heads([0, 2, 1, 3]), heads([0, 2, 3, 1]), heads([0, 2, 1, 3])
        scores = self._ops.matmul([queries, keys])
        scale = self._ops.constant(np.float32(1 / np.sqrt(size)))
        weights = self._ops.softmax([self._ops.mul([scores, scale])], axis=3)
        mixed = self._ops.transpose([self._ops.matmul([weights, values])], perm=[0, 2, 1, 3])
        return self._dense(self._shaped(mixed, -1, HIDDEN), HIDDEN, HIDDEN)

    def _normalized(self, x: str) -> str:
        """Of one group, which is a row: as a layer normalisation."""
        scale = self._weight("scale", np.ones(HIDDEN))
        bias = self._weight("bias", np.zeros(HIDDEN))
        return self._graphcore.groupnormalization([x, scale, bias], num_groups=1)[0]

    def _dense(self, x: str, given: int, made: int) -> str:
        return self._ops.gemm(
            [x, self._matrix("matrix", given, made), self._weight("bias", np.zeros(made))]
        )

    def _matrix(self, name: str, *shape: int) -> str:
        return self._weight(name, self._random.standard_normal(shape) / np.sqrt(HIDDEN))

    def _weight(self, name: str, values: np.ndarray) -> str:
        return self._builder.addInitializedInputTensor(values.astype(np.float32), name)

    def _shaped(self, x: str, *shape: int) -> str:
        return self._ops.reshape([x, self._ops.constant(np.array(shape, np.int64))])


def build() -> tuple[bytes, dict[str, str]]:
    """The encoder with its loss, and the names of its tensors."""
    builder = popart.Builder()
    words = builder.addInputTensor("INT32", [MICRO_BATCH, SEQUENCE], "words")
    labels = builder.addInputTensor("INT32", [MICRO_BATCH * SEQUENCE], "labels")
    probabilities = Encoder(builder)(words)
    loss = builder.aiGraphcore.nllloss([probabilities, labels], ignoreIndex=NONE)
    names = {"words": words, "labels": labels, "probabilities": probabilities, "loss": loss}
    return builder.getModelProto(), names


def sentences(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Words of sentences, some of them masked; and what the masked ones are, `NONE` elsewhere."""
    random = np.random.default_rng(1)
    phrases = random.permutation(np.arange(1, WORDS)).reshape(-1, 4)
    chosen = random.integers(len(phrases), size=(count, 1))
    begins = random.integers(4, size=(count, 1))
    words = phrases[chosen, (begins + np.arange(SEQUENCE)) % 4]
    masked = random.random(words.shape) < 0.15
    return np.where(masked, MASK, words).astype(np.int32), np.where(masked, words, NONE)


def main() -> dict:
    """Trains; prints and returns losses, how many masked words are found, and the report."""
    proto, names = build()
    options = popart.SessionOptions()
    options.enableGradientAccumulation = True
    options.accumulationFactor = ACCUMULATION
    options.accumulationAndReplicationReductionType = popart.ReductionType.Mean
    session = popart.TrainingSession(
        fnModel=proto,
        dataFlow=popart.DataFlow(BATCHES, [names["loss"], names["probabilities"]]),
        loss=names["loss"],
        optimizer=popart.Adam({"defaultLearningRate": (0.003, True)}),
        deviceInfo=popart.DeviceManager().createIpuModelDevice({}),
        userOptions=options,
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    words, labels = sentences(RUNS * BATCHES * ACCUMULATION * MICRO_BATCH)
    losses = []
    parts = zip(np.split(words, RUNS), np.split(labels, RUNS), strict=True)
    for run, (given, expected) in enumerate(parts):
        inputs = {names["words"]: given, names["labels"]: expected}
        session.run(popart.PyStepIO(inputs, anchors))
        losses.append(float(anchors[names["loss"]].mean()))
        print(f"after {(run + 1) * BATCHES} updates: loss {losses[-1]:.3f}")
    found = anchors[names["probabilities"]].reshape(-1, WORDS).argmax(axis=1)
    masked = expected.reshape(-1) != NONE
    share = float((found == expected.reshape(-1))[masked].mean())
    print(f"of the masked words of the last sentences, {share:.0%} were found")
    print(session.getSummaryReport())
    return {"losses": losses, "share": share, "report": session.getReport()}


if __name__ == "__main__":
    main()
