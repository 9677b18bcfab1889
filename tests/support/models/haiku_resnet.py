"""haiku: its ResNet (two blocks, without running averages) as one stage, its MLP as the head; momentum SGD."""

from collections.abc import Sequence
from typing import Any

import haiku as hk
import jax
import optax

from support.models.staged import Model, Stage, model

BATCH, SIDE, CLASSES, FEATURES = 8, 16, 10, 16


def build(pins: Sequence[str] | None = None) -> Model:
    def body(x: Any) -> Any:
        net: Any = hk.nets.ResNet(
            blocks_per_group=(1, 1, 1, 1),
            num_classes=FEATURES,
            bottleneck=False,
            channels_per_group=(4, 8, 8, 8),
            use_projection=(True, True, True, True),
        )
        return net(x, is_training=True)

    def head(x: Any) -> Any:
        mlp: Any = hk.nets.MLP((FEATURES, CLASSES))
        return mlp(x)

    features, classifier = hk.transform_with_state(body), hk.without_apply_rng(hk.transform(head))
    x = jax.random.normal(jax.random.key(1), (BATCH, SIDE, SIDE, 3))
    y = jax.random.randint(jax.random.key(2), (BATCH,), 0, CLASSES)
    first, state = jax.jit(features.init)(jax.random.key(3), x)
    hidden, _ = jax.jit(features.apply)(first, state, None, x)
    second = classifier.init(jax.random.key(4), hidden)

    def loss(logits: Any, y: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    def resnet(params: Any, x: Any) -> Any:
        return features.apply(params, state, None, x)[0]

    stages: list[Stage] = [resnet, classifier.apply]
    return model(stages, [first, second], x, y, loss, optax.sgd(1e-2, momentum=0.9), pins)


built = build()
step = built.program
