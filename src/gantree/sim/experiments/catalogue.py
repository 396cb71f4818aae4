"""All experiments by name. A module is imported when its experiment is asked for."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType

from gantree.model.errors import NotFound
from gantree.sim.experiments.experiment import Experiment
from gantree.text.words import did_you_mean

HOME_OF: Mapping[str, str] = MappingProxyType(
    {
        "overhead": "network",
        "topology": "network",
        "strictness": "network",
        "congestion": "network",
        "scale": "network",
        "tpu": "network",
        "gang": "queueing",
        "dedicated": "queueing",
        "cells": "queueing",
        "backfill": "queueing",
        "elastic": "queueing",
        "preemption": "reliability",
        "save-storm": "reliability",
        "health": "reliability",
        "acting": "reliability",
        "reproduce": "reliability",
        "cloud": "money",
        "spot": "money",
        "noisy-neighbour": "sharing",
        "sharing": "sharing",
        "reclaim-idle": "sharing",
        "lending": "sharing",
        "autoscaling": "sharing",
        "asynchronous": "network",
        "consolidation": "sharing",
        "defragment": "sharing",
        "published": "published",
    }
)
"""The package of each experiment, in the order in which they are listed."""


TEXTS = Path(__file__).parent / "texts"
SECTIONS = ("Claim", "Source", "Set-up", "Notes")


def experiment(name: str) -> Experiment:
    """Return an experiment by its name. Raises NotFound, with the nearest name."""
    if name not in HOME_OF:
        hint = did_you_mean(name, list(HOME_OF))
        known = ", ".join(HOME_OF)
        raise NotFound(f"no experiment {name}.{f' {hint}' if hint else ''} There are: {known}.")
    module = import_module(f"gantree.sim.experiments.{HOME_OF[name]}.{name.replace('-', '_')}")
    title, sections = _text(name)
    claim, source, set_up = ("\n\n".join(sections[section]) for section in SECTIONS[:3])
    return Experiment(name, title, claim, source, set_up, tuple(sections["Notes"]), module.run)


def _text(name: str) -> tuple[str, dict[str, list[str]]]:
    """The title of an experiment's text, and the paragraphs of its sections."""
    title, *parts = (TEXTS / f"{name}.md").read_text(encoding="utf-8").split("\n## ")
    sections: dict[str, list[str]] = {section: [] for section in SECTIONS}
    for part in parts:
        section, _, text = part.partition("\n")
        sections[section] = text.strip().split("\n\n")
    return title.strip().removeprefix("# "), sections
