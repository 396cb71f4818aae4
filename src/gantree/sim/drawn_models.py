"""Draws the model that a job trains where its trace names none."""

from random import Random

from gantree.model.trained_models import ModelMix


def drawn_model(mix: ModelMix, job: str, gpus: int, seed: int) -> str | None:
    """Return the model of a job, by its id and the seed alone; None where the mix has none of its size."""
    weight_of_model = mix.weights(gpus)
    if not weight_of_model:
        return None
    names, weights = zip(*weight_of_model.items(), strict=True)
    drawn: str = Random(f"{seed}/{job}").choices(names, weights)[0]  # noqa: S311 - a draw, not a secret
    return drawn
